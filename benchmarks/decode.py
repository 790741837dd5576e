"""One token of a language model with its key/value cache as inputs: how near to the memory's bandwidth, beside peers.

    python -m benchmarks.decode                               Llama of 160M at 128, 1,024 and 4,096 tokens of cache
    python -m benchmarks.decode 512 --vs onnxruntime          other lengths, one peer
    python -m benchmarks.decode 128 1024 --state              tokens in a row: the cache as a state, and fed back
    python -m benchmarks.decode 128 --weights                 weights of 8 and 4 bits, beside those of peers
    python -m benchmarks.decode 512 --weights --prefill       the same of so many tokens at once, behind none

The model is written as exporters write it: RMSNorm from Pow, ReduceMean and Sqrt, rotary embeddings, keys and values
appended by Concat, grouped in heads, softmax, SwiGLU. Each step reads every weight and the cache once, which no cache
of the processor holds: `of DRAM` is that many bytes by the time, by the bandwidth that `opweld machine` measured. Of
weights of fewer bits, KL is the divergence of the logits' distribution from that of floats, by the same runtime.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import opweld
from benchmarks.paired import REPOSITORY, Contestant, contest
from benchmarks.sized_models import IR_VERSION, OPSET, Builder
from opweld.analysis.ceilings import measure as measure_machine
from opweld.analysis.machine import Machine
from opweld.experiments.peers import prepare

LENGTHS = (128, 1024, 4096)


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder; the defaults are those of Llama 160M."""

    layers: int = 12
    heads: int = 12
    head: int = 64
    inner: int = 3072
    words: int = 32000

    @property
    def width(self) -> int:
        """Elements of a token's state."""
        return self.heads * self.head


class Decoder(Builder):
    """Builds the step of one token behind `length` others, or of several."""

    def __init__(self, shape: Shape, length: int, tokens: int = 1) -> None:
        super().__init__()
        self.shape, self.length, self.tokens = shape, length, tokens
        self.cached: list[str] = []
        self.appended: list[str] = []

    def norm(self, x: str) -> str:
        """x / sqrt(mean(x^2) + epsilon) * weight"""
        square = self.node("Pow", [x, self.number(2.0)])
        mean = self.node("ReduceMean", [square], axes=[-1], keepdims=1)
        root = self.node("Sqrt", [self.node("Add", [mean, self.number(1e-5)])])
        return self.node("Mul", [self.weight(self.shape.width), self.node("Div", [x, root])])

    def heads_of(self, x: str, rows: int, columns: int) -> str:
        """A projection as [1, heads, tokens, head]."""
        y = self.node("MatMul", [x, self.weight(rows, columns)])
        split = self.node("Reshape", [y, self.integers(1, self.tokens, self.shape.heads, self.shape.head)])
        return self.node("Transpose", [split], perm=[0, 2, 1, 3])

    def rotated(self, x: str, cosine: str, sine: str) -> str:
        """x * cos + rotate_half(x) * sin"""
        half = self.shape.head // 2
        ends = [self.node("Slice", [x, *map(self.integers, at)]) for at in ((0, half, -1), (half, 2 * half, -1))]
        turned = self.node("Concat", [self.node("Neg", [ends[1]]), ends[0]], axis=-1)
        return self.node("Add", [self.node("Mul", [x, cosine]), self.node("Mul", [turned, sine])])

    def joined(self, x: str, name: str) -> str:
        """What is cached with what is new behind it; both are told. Behind nothing, the new alone."""
        made = self.node("Concat", [name, x], axis=2) if self.length else x
        self.cached += [name] * bool(self.length)
        self.appended.append(made)
        return made

    def layer(self, x: str, number: int, cosine: str, sine: str) -> str:
        """Attention and the gated product, each around a residual."""
        width, inner = self.shape.width, self.shape.inner
        y = self.norm(x)
        q, k = (self.rotated(self.heads_of(y, width, width), cosine, sine) for _ in range(2))
        k = self.joined(k, f"key{number}")
        v = self.joined(self.heads_of(y, width, width), f"value{number}")
        scores = self.node("MatMul", [q, self.node("Transpose", [k], perm=[0, 1, 3, 2])])
        scaled = self.node("Div", [scores, self.number(self.shape.head**0.5)])
        if self.tokens > 1:
            scaled = self.node("Add", [scaled, self.mask])
        seen = self.node("MatMul", [self.node("Softmax", [scaled], axis=-1), v])
        flat = self.node(
            "Reshape", [self.node("Transpose", [seen], perm=[0, 2, 1, 3]), self.integers(1, self.tokens, width)]
        )
        x = self.node("Add", [x, self.node("MatMul", [flat, self.weight(width, width)])])
        y = self.norm(x)
        gate = self.node("MatMul", [y, self.weight(width, inner)])
        gate = self.node("Mul", [gate, self.node("Sigmoid", [gate])])
        product = self.node("Mul", [gate, self.node("MatMul", [y, self.weight(width, inner)])])
        return self.node("Add", [x, self.node("MatMul", [product, self.weight(inner, width)])])

    @cached_property
    def mask(self) -> str:
        """The least number where a token is later than the one that would see it."""
        least = np.full((self.tokens, self.length + self.tokens), np.finfo(np.float32).min, np.float32)
        return self._stored(np.triu(least, self.length + 1))

    @property
    def states(self) -> dict[str, str]:
        """The caches, and what they become."""
        return dict(zip(self.cached, self.appended, strict=True))

    def step(self, length: int | str | None = None) -> onnx.ModelProto:
        """token [1, tokens], cos and sin of its position, keys and values so far -> logits of the last token, keys and
        values with it. `length`: of those so far, or the name of the dim; that of the decoder where None."""
        shape = self.shape
        x = self.node("Gather", [self.weight(shape.words, shape.width), "token"])
        for number in range(shape.layers):
            x = self.layer(x, number, "cosine", "sine")
        if self.tokens > 1:
            x = self.node("Slice", [x, *map(self.integers, (-1, self.tokens, 1))])
        logits = self.node("MatMul", [self.norm(x), self.weight(shape.width, shape.words)])
        length = self.length if length is None else length
        float32, kept = TensorProto.FLOAT, [1, shape.heads, length, shape.head]
        inputs = [helper.make_tensor_value_info("token", TensorProto.INT64, [1, self.tokens])]
        turns = [1, 1, self.tokens, shape.head]
        inputs += [helper.make_tensor_value_info(name, float32, turns) for name in ("cosine", "sine")]
        inputs += [helper.make_tensor_value_info(name, float32, kept) for name in self.cached]
        after = length + self.tokens if isinstance(length, int) else f"{length}_with_it"
        grown = [1, shape.heads, after, shape.head]
        outputs = [helper.make_tensor_value_info(logits, float32, [1, 1, shape.words])]
        outputs += [helper.make_tensor_value_info(name, float32, grown) for name in self.appended]
        graph = helper.make_graph(self.nodes, "decode", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def bytes(self, bits: float = 32) -> int:
        """What a step must read and write: weights of so many bits but for the table of words, of which it reads a
        row; the cache read and written, as it is an output."""
        shape = self.shape
        weights = shape.layers * (4 * shape.width**2 + 3 * shape.width * shape.inner) + shape.width * shape.words
        return int(weights * bits / 8) + 4 * 2 * 2 * shape.layers * shape.width * self.length


def feeds_of(shape: Shape, length: int, tokens: int = 1) -> dict[str, np.ndarray]:
    """Tokens behind random keys and values."""
    random = np.random.default_rng(0)
    position = np.arange(length, length + tokens)[:, None]
    angle = position * 10000.0 ** (-np.arange(0, shape.head, 2) / shape.head)
    angle = np.concatenate([angle, angle], axis=-1)[None, None]
    feeds = {
        "token": np.arange(7, 7 + tokens)[None],
        "cosine": np.cos(angle).astype(np.float32),
        "sine": np.sin(angle).astype(np.float32),
    }
    for number in range(shape.layers if length else 0):
        for kind in ("key", "value"):
            kept = random.standard_normal((1, shape.heads, length, shape.head), np.float32)
            feeds[f"{kind}{number}"] = kept
    return feeds


def measure(length: int, peers: Sequence[str], threads: int, rounds: int, bandwidth: float) -> str:
    """A line of the table."""
    shape = Shape()
    decoder = Decoder(shape, length)
    with tempfile.TemporaryDirectory(prefix="opweld-decode-") as folder, contextlib.ExitStack() as stack:
        model, feeds = Path(folder) / "decode.onnx", Path(folder) / "feeds.npz"
        onnx.save(decoder.step(), model)
        np.savez(feeds, allow_pickle=False, **feeds_of(shape, length))

        def started() -> Iterator[Contestant]:
            for runtime in ("opweld", *peers):
                yield Contestant(runtime, REPOSITORY, runtime, model, feeds, threads)

        cells: list[str] = []
        for contestant in contest(started(), rounds, stack, f"{length}: left out: "):
            rate = decoder.bytes() / contestant.median
            cells.append(f"{contestant.name} {contestant.median * 1e3:.2f} ms, {rate / bandwidth:.0%} of DRAM")
    return f"{length:>6} tokens, {decoder.bytes() / 1e6:.0f} MB  {'   '.join(cells)}"


BITS = {"int8": 8.0, "int4": 4 + 32 / 32}
"""Of a weight, with its part of a scale: of int4, a float of 32 bits for 32 weights."""


def measure_weights(
    length: int, peers: Sequence[str], threads: int, rounds: int, bandwidth: float, tokens: int = 1
) -> Iterator[str]:
    """Lines of the table: each runtime with floats, and with weights of 8 and of 4 bits as it likes them best. Of
    several tokens, the part of the bandwidth says nothing and is left out."""
    decoder = Decoder(Shape(), length, tokens)
    proto, feeds = decoder.step(), feeds_of(Shape(), length, tokens)
    with tempfile.TemporaryDirectory(prefix="opweld-decode-") as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        file, model = folder / "feeds.npz", folder / "fp32.onnx"
        np.savez(file, allow_pickle=False, **feeds)
        onnx.save(proto, model)
        ways: dict[str, tuple[str, Path]] = {}
        for precision in ("fp32", "int8-weights", "int4-weights"):
            path = folder / f"{precision}.opweld"
            opweld.compile(model, precision=precision, threads=threads).save(path)
            ways[f"opweld {precision}"] = "opweld", path
        if "onnxruntime" in peers:
            ways["onnxruntime fp32"] = "onnxruntime", model
            for level in (0, 4):
                path = folder / f"matmulnbits{level}.onnx"
                _matmul_nbits(proto, level, path)
                ways[f"onnxruntime int4, level {level}"] = "onnxruntime", path
        if "openvino" in peers:
            ways["openvino fp32"] = "openvino", model
            for precision in ("int8-weights", "int4-weights"):
                path = folder / f"{precision}.onnx"
                opweld.quantize(model, precision=precision).save(path)
                ways[f"openvino {precision}"] = "openvino", path
        logits = {name: _logits(runtime, path, feeds, threads) for name, (runtime, path) in ways.items()}
        found = contest(
            (Contestant(name, REPOSITORY, runtime, path, file, threads) for name, (runtime, path) in ways.items()),
            rounds,
            stack,
            f"{length}: left out: ",
        )
        for contestant in found:
            bits = next((bits for kind, bits in BITS.items() if kind in contestant.name), 32)
            size = decoder.bytes(bits)
            told = f"{contestant.median * 1e3:7.2f} ms, least {contestant.least * 1e3:6.2f}"
            parts = [size / seconds / bandwidth for seconds in (contestant.median, contestant.least)]
            part = f"   {parts[0]:4.0%} of DRAM, at best {parts[1]:4.0%}" if tokens == 1 else ""
            apart = _divergence(logits[f"{contestant.runtime} fp32"], logits[contestant.name])
            yield f"{max(length, tokens):>6} tokens  {contestant.name:28} {told}{part}   KL {apart:.1e}"


def _matmul_nbits(proto: onnx.ModelProto, level: int, path: Path) -> None:
    """Weights of 4 bits in blocks of 32 as ONNX Runtime rounds them; `level` 4 lets it round activations to bytes."""
    from onnxruntime.quantization.matmul_nbits_quantizer import (  # pyright: ignore[reportMissingImports]
        MatMulNBitsQuantizer,
    )

    copied = onnx.ModelProto()
    copied.CopyFrom(proto)
    maker: Any = MatMulNBitsQuantizer(copied, block_size=32, is_symmetric=True, accuracy_level=level)
    maker.process()
    maker.model.save_model_to_file(str(path))


def _logits(runtime: str, path: Path, feeds: dict[str, np.ndarray], threads: int) -> np.ndarray:
    if runtime == "opweld":
        return next(iter(opweld.load(path, threads=threads).run(feeds).values()))
    return prepare(runtime, path, feeds, threads)()[0]


def _divergence(right: np.ndarray, found: np.ndarray) -> float:
    """Kullback and Leibler's, of the distributions that softmax makes of logits."""
    logs = [x.astype(np.float64) - np.logaddexp.reduce(x.astype(np.float64), axis=None) for x in (right, found)]
    return float((np.exp(logs[0]) * (logs[0] - logs[1])).sum())


def measure_states(length: int, steps: int, threads: int) -> str:
    """A line of the table: ms a token in a row behind `length` others, with the cache as a state, fed back, and of one
    length, which is what the kernels take."""
    shape = Shape()
    decoder = Decoder(shape, length)
    model = decoder.step("past")
    fed = feeds_of(shape, length)
    caches = {name: fed.pop(name) for name in decoder.cached}
    kept = opweld.compile(model, states=decoder.states, threads=threads, dim_hints={"past": length})
    plain = opweld.compile(model, threads=threads, dim_hints={"past": length})
    state = kept.new_state(capacity=length + 3 * steps)
    state.load(caches)
    times: dict[str, list[float]] = {"state": [], "fed back": [], "one length": []}
    for _ in range(steps):
        begin = time.perf_counter()
        kept.run(fed, state)
        middle = time.perf_counter()
        made = plain.run({**fed, **caches})
        end = time.perf_counter()
        times["state"].append(middle - begin)
        times["fed back"].append(end - middle)
        grown = {name: made[output] for name, output in decoder.states.items()}
        del made
        begin = time.perf_counter()
        plain.run({**fed, **caches})
        times["one length"].append(time.perf_counter() - begin)
        caches = grown
    cells = (f"{name} {1e3 * statistics.median(taken):.2f} ms" for name, taken in times.items())
    return f"{length:>6} tokens, {state.plans} plan  {'   '.join(cells)}"


def main() -> int:
    """Measures and prints a line for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lengths", nargs="*", type=int, default=LENGTHS, help="tokens in the cache")
    parser.add_argument("--vs", default="onnxruntime,openvino", metavar="NAMES")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7, help="blocks of a contestant")
    parser.add_argument("--state", action="store_true", help="tokens in a row, with the cache as a state and without")
    parser.add_argument("--weights", action="store_true", help="weights of 8 and 4 bits, and what they cost")
    parser.add_argument("--prefill", action="store_true", help="with --weights: so many tokens at once, behind none")
    parser.add_argument("--steps", type=int, default=64, help="tokens in a row")
    options = parser.parse_args()
    if options.state:
        for length in options.lengths:
            print(measure_states(length, options.steps, options.threads), flush=True)
        return 0
    dram = (Machine.remembered() or measure_machine()).level("DRAM")
    assert dram is not None
    bandwidth = dram.read.at(options.threads)
    peers = [peer for peer in options.vs.split(",") if peer]
    for length in options.lengths:
        if options.weights:
            sizes = (0, length) if options.prefill else (length, 1)
            for line in measure_weights(sizes[0], peers, options.threads, options.rounds, bandwidth, sizes[1]):
                print(line, flush=True)
            continue
        print(measure(length, peers, options.threads, options.rounds, bandwidth), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
