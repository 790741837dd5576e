"""A language model on a GPU: tokens a second beside transformers, and what part of the memory's bandwidth weights take.

    python -m benchmarks.gpu_language                      SmolLM2-135M's shape, random weights in bfloat16
    python -m benchmarks.gpu_language 1b --seconds 150     Llama 3.2 1B's shape; with the time for torch.compile
    python -m benchmarks.gpu_language --json FILE          what was measured, written after each line

Nothing is downloaded. Each sequence decodes behind a prompt of 512 tokens. Wall-clock medians of whole steps: tokens
go to the GPU, logits come back and the likeliest is chosen. `device` is the graph of a step alone, by events; `of copy`
the bytes of the weights that a step reads, by that time, as a fraction of a copy's bandwidth. Peers have a static cache
and choose on the GPU: eager PyTorch, the same captured in a CUDA graph, torch.compile("reduce-overhead").
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import opweld
from opweld.llm.compiled import CompiledRunner
from opweld.llm.config import Config, Rope
from opweld.llm.load import BLOCK, HINTS, division_for_gpu
from opweld.llm.source import STATES, DecoderSource
from opweld.llm.step import Span
from opweld.llm.weights import Weights
from opweld.tensor.dtype import DType

PROMPT = 512
SEQUENCES = (1, 8, 32)
STEPS, WARM = 20, 4
CONTEXT = 1024
COMPILED = 25
"""Seconds that torch.compile takes, about: it is not begun later."""
THETA = 10000.0
EPSILON = 1e-5


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama whose logits are computed with its embedding."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int

    @property
    def head_size(self) -> int:
        """Features of a head."""
        return self.hidden // self.heads

    @property
    def read(self) -> int:
        """Weights that a step multiplies: all matrices."""
        attention = self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.inner) + self.vocabulary * self.hidden


SHAPES = {
    "135m": Shape(49152, 576, 30, 9, 3, 1536),
    "1b": Shape(128256, 2048, 16, 32, 8, 8192),
    "tiny": Shape(97, 64, 2, 4, 2, 96),
}


def peer(shape: Shape, device: str, dtype: torch.dtype) -> Any:
    """The model of transformers, with random weights that are the same each time."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=EPSILON,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=shape.hidden**-0.5)
    made: Any = model.eval()
    return made.to(dtype)


_NAMES = {
    "self_attn.q_proj": "query",
    "self_attn.k_proj": "key",
    "self_attn.v_proj": "value",
    "self_attn.o_proj": "output",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "feed_norm",
}


def weights_of(model: Any, layers: int) -> Weights:
    """What the peer has, by opweld's names."""
    state: dict[str, torch.Tensor] = model.state_dict()
    names = {"embedding": "model.embed_tokens", "norm": "model.norm"}
    for n in range(layers):
        names |= {f"layers.{n}.{own}": f"model.layers.{n}.{theirs}" for theirs, own in _NAMES.items()}

    def read(name: str) -> Callable[[], Any]:
        return lambda: state[f"{name}.weight"].float().cpu().numpy()

    return {own: read(theirs) for own, theirs in names.items()}


def runner_of(name: str, model: Any, target: str, blocks: int) -> CompiledRunner:
    """The compiled decoder of a shape, with bfloat16 for weights, keys and values."""
    shape = SHAPES[name]
    size = shape.head_size
    rope = Rope(THETA ** (-np.arange(0, size, 2) / size))
    config = Config(
        "llama", shape.vocabulary, shape.hidden, shape.layers, shape.heads, shape.kv_heads, size, shape.inner, CONTEXT,
        EPSILON, (rope,) * shape.layers, (None,) * shape.layers, size**-0.5, tied=True,
    )  # fmt: skip
    source = DecoderSource(config, weights_of(model, shape.layers), BLOCK, lambda _: f"random {name}", DType.BF16, True)
    compiled = opweld.compile(source, states=STATES, dim_hints=HINTS, target=target, precision="bf16")
    return CompiledRunner(compiled, config, BLOCK, blocks, CONTEXT, division_for_gpu(config))


class Decoding:
    """Some sequences behind prompts, a token each a step."""

    def __init__(self, runner: CompiledRunner, sequences: int, prompt: int) -> None:
        self._runner, self._at = runner, prompt
        each = CONTEXT // BLOCK
        self._blocks = [tuple(range(n * each, (n + 1) * each)) for n in range(sequences)]
        self._tokens = [[7 + n] for n in range(sequences)]

    def step(self) -> np.ndarray[Any, Any]:
        """The likeliest tokens, which come next."""
        at = self._at
        spans = [Span(tokens, at, own) for tokens, own in zip(self._tokens, self._blocks, strict=True)]
        found = self._runner.run(spans).argmax(axis=1)
        self._tokens = [[int(token)] for token in found]
        self._at += 1
        return found


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(call: Callable[[], object], repeats: int = STEPS, warm: int = WARM) -> float:
    """The median of a call, to the end of the GPU's work."""
    times: list[float] = []
    for number in range(warm + repeats):
        _synchronize()
        begun = time.perf_counter()
        call()
        _synchronize()
        if number >= warm:
            times.append(time.perf_counter() - begun)
    return statistics.median(times)


def device_seconds(runner: CompiledRunner) -> float | None:
    """Of the last step's graph alone; None where kernels are interpreted."""
    from opweld.runtime.cuda.resident import Resident
    from opweld.runtime.cuda.stream import Event

    machine: Any = runner.model.session._opened.machine  # type: ignore[attr-defined]
    if not isinstance(machine, Resident):
        return None
    prepared: Any = next(reversed(vars(machine)["_prepared"].values()))
    own = {number: prepared.own(number) for number in (*prepared.inputs, *prepared.outputs)}
    with machine.device.current():
        begin, end = Event(machine.device), Event(machine.device)
        prepared.launch(machine.stream, own)
        begin.record(machine.stream)
        for _ in range(STEPS):
            prepared.launch(machine.stream, own)
        end.record(machine.stream)
        machine.stream.synchronize()
    return end.elapsed(begin) / STEPS


def costly(runner: CompiledRunner, most: int = 8) -> list[str]:
    """The kernels of the last step that take longest, each with how often it runs and all of its microseconds."""
    machine: Any = runner.model.session._opened.machine  # type: ignore[attr-defined]
    prepared = next(reversed(machine._prepared.values()))
    own = {number: prepared.own(number) for number in (*prepared.inputs, *prepared.outputs)}
    with machine.device.current():
        spans = prepared.clocked(machine.stream, own)
    found: dict[str, tuple[int, float]] = {}
    for step, (begin, end) in zip(prepared.bound.expanded(), spans, strict=True):
        count, total = found.get(step.code, (0, 0.0))
        found[step.code] = count + 1, total + (end - begin) * 1e6
    text = (runner.model.path / "kernels.py").read_text(encoding="utf-8")
    lines = [f"all {sum(total for _, total in found.values()):8.1f} us between events"]
    for name, (count, total) in sorted(found.items(), key=lambda entry: -entry[1][1])[:most]:
        at = text.find(f"def {name}(")
        comment = text[at:].split('"""')[1] if at >= 0 else ""
        lines.append(f"{total:8.1f} us {count:3} x {name}: {comment[:90]}")
    return lines


def copy_bandwidth() -> float:
    """Bytes a second, read and written, of a copy of a gibibyte."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / seconds_of(lambda: target.copy_(source))


class Peer:
    """Transformers with a static cache: prompts, then tokens one by one."""

    def __init__(self, model: Any, sequences: int, prompt: int, device: str) -> None:
        from transformers import StaticCache

        self._model = model
        self._cache = StaticCache(config=model.config, max_cache_len=CONTEXT)
        self._ids = torch.full((sequences, 1), 7, device=device)
        self._at = torch.full((1, 1), prompt, device=device)
        self._prompt = torch.randint(0, model.config.vocab_size, (sequences, prompt), device=device)
        self.forward: Callable[..., Any] = model.forward

    def prefill(self) -> None:
        """Computes the prompts anew."""
        self._cache.reset()
        positions = torch.arange(self._prompt.shape[1], device=self._prompt.device)[None]
        self._model(self._prompt, position_ids=positions, past_key_values=self._cache, logits_to_keep=1)

    def step(self) -> Any:
        """The likeliest tokens, on the GPU."""
        made = self.forward(self._ids, position_ids=self._at, past_key_values=self._cache, use_cache=True)
        found = made.logits[:, -1:].argmax(-1)
        self._ids.copy_(found)
        self._at += 1
        return found

    def told(self) -> Any:
        """The same, as numbers on the host."""
        return self.step().tolist()

    def graphed(self) -> Callable[[], Any]:
        """A step as a CUDA graph."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = self.step()

        def run() -> Any:
            graph.replay()
            return made.tolist()

        return run

    def compiled(self) -> Callable[[], Any]:
        """A step whose model torch.compile made."""
        self.forward = torch.compile(self._model.forward, mode="reduce-overhead", fullgraph=True, dynamic=False)
        return self.told


def apart(found: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """|found - right| / |right|."""
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


def check(runner: CompiledRunner, model: Any, vocabulary: int, tokens: int = 48) -> dict[str, float]:
    """How far logits are from those of the same weights in float32: ours, of a prompt and of a token behind it, and
    the peer's own."""
    ids = np.random.default_rng(1).integers(0, vocabulary, tokens)
    given = torch.from_numpy(ids)[None].to(model.device)
    theirs = model(given).logits[0, -1].float().cpu().numpy()
    exact = model.to(torch.float32)(given).logits[0, -1].float().cpu().numpy()
    model.to(torch.bfloat16)
    blocks = tuple(range(CONTEXT // BLOCK))
    whole = runner.run([Span(ids.tolist(), 0, blocks)])[0]
    runner.run([Span(ids[:-1].tolist(), 0, blocks, 0)])
    token = runner.run([Span(ids[-1:].tolist(), tokens - 1, blocks)])[0]
    return {"prompt": apart(whole, exact), "token": apart(token, exact), "bfloat16 eager": apart(theirs, exact)}


def rows(
    name: str, target: str, seconds: float, sequences: Sequence[int] = SEQUENCES, prompt: int = PROMPT
) -> Iterator[dict[str, Any]]:
    """What is measured, a dict for each line."""
    begun = time.perf_counter()
    shape, device = SHAPES[name], "cuda" if torch.cuda.is_available() else "cpu"
    with torch.no_grad():
        model = peer(shape, device, torch.bfloat16)
        runner = runner_of(name, model, target, max(sequences) * CONTEXT // BLOCK)
        yield {"shape": name, "device": device, "compiled s": time.perf_counter() - begun}
        yield {"error": check(runner, model, shape.vocabulary)}
        copied = copy_bandwidth() if device == "cuda" else None
        weights = 2 * shape.read
        yield {"weights MB": weights / 1e6, "copy GB/s": None if copied is None else copied / 1e9}
        tokens = [3 + n % 90 for n in range(prompt)]
        blocks = tuple(range(CONTEXT // BLOCK))
        took = seconds_of(lambda: runner.run([Span(tokens, 0, blocks)]), 5, 2)
        row: dict[str, Any] = {
            "prompt": prompt,
            "opweld tokens/s": prompt / took,
            "device ms": _ms(device_seconds(runner)),
        }
        row["eager tokens/s"] = prompt / seconds_of(Peer(model, 1, prompt, device).prefill, 5, 2)
        yield row
        for count in sequences:
            took = seconds_of(Decoding(runner, count, prompt).step)
            alone = device_seconds(runner)
            row = {"sequences": count, "opweld tokens/s": count / took, "device ms": _ms(alone)}
            if alone is not None and copied is not None:
                row["of copy"] = weights / alone / copied
                row["costly"] = costly(runner)
            yield row
        for kind in ("eager", "graph", "compile"):
            for count in sequences:
                lasts = COMPILED if kind == "compile" else 0
                if time.perf_counter() - begun + lasts > seconds or (kind != "eager" and device == "cpu"):
                    return
                other = Peer(model, count, prompt, device)
                other.prefill()
                step = {"eager": lambda o=other: o.told, "graph": other.graphed, "compile": other.compiled}[kind]()
                yield {
                    "sequences": count,
                    f"{kind} tokens/s": count / seconds_of(step),
                    "at s": time.perf_counter() - begun,
                }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def main(quick: bool) -> Iterator[dict[str, Any]]:
    """The smaller shape, as a part of `benchmarks.gpu`."""
    for row in rows("135m", "cuda", 30 if quick else 120):
        _show(row)
        yield row


def _show(row: dict[str, Any]) -> None:
    for name, value in row.items():
        if isinstance(value, list):
            print(*(f"      {line}" for line in value), sep="\n")
        else:
            print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}", end="   ")
            continue
    print(flush=True)


def measure() -> None:
    """Prints a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", nargs="?", default="135m", choices=SHAPES)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--seconds", type=float, default=45, help="from which on no other peer is begun")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    for row in rows(given.shape, given.target, given.seconds):
        _show(row)
        found.append(row)
        if given.json is not None:
            given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(measure())
