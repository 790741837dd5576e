"""The zoo for GPUs, without one: each model compiled to machine code, and run in Triton's interpreter.

    python -m benchmarks.gpu_zoo [MODEL...] [--parts sm_90 sm_80 run] [--limit SECONDS] [--workers N] [--json FILE]

    python -m benchmarks.gpu_zoo --parts small [ARCHITECTURE...]

`sm_90` and `sm_80` compile a model ahead of time, and count its kernels, those that spill, and the seconds. `run`
compiles it for the interpreter and runs it on the feed of the zoo with the fewest elements; what comes out is compared
with the model in float64, which shares no code with the compiler (`tests/models/float64.py`). `small` is what `run` is
for the architectures of the zoo whose sizes are fixed in the file, which would take the interpreter an hour each: the
module itself, of one layer or block of each width and with fewer pixels or tokens, through the door for PyTorch, beside
the module in float64. Each part of a model is a
process of its own, ended after so many seconds. The exit status is 1 where anything failed, spills or is wrong."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu_large_blocks import large_blocks
from benchmarks.zoo import fetch, inputs

if TYPE_CHECKING:
    import torch

PARTS = ("sm_90", "sm_80", "run", "small")
ARCHITECTURE = "sm_90"
"""What is compiled for the interpreter: the blocks of its kernels are those of this card."""

SIDE, TOKENS = 64, 16
"""Pixels and tokens of `small`."""

Feed = dict[str, np.ndarray[Any, Any]]


def smallest(name: str) -> Feed:
    """The feed of the zoo with the fewest elements, of those that the model takes."""
    feeds = [inputs.example(name, variant.label) for variant in inputs.variants(name) if variant.valid]
    return min(feeds, key=lambda feed: sum(array.size for array in feed.values()))


def machine_code(name: str, architecture: str) -> dict[str, Any]:
    """What a model is to a GPU: its kernels, and bytes that they spill, by the kernels that do."""
    import opweld

    model = opweld.compile(fetch.path(name), target=architecture)
    codes = json.loads((model.path / "cuda.json").read_text(encoding="utf-8"))["codes"]
    spills = {kernel: code["spills"] for kernel, code in codes.items() if code["spills"]}
    return {"kernels": len(codes), "spills": spills}


def interpreted(name: str) -> dict[str, Any]:
    """How far a model is from float64 in Triton's interpreter: the worst of its outputs, and whether it is right.

    An output is right as `opweld verify` judges it, by the error that ONNX Runtime makes where that is more than
    rounding of float32."""
    import opweld
    from opweld.runtime.cuda.interpreted import Interpreted
    from tests.models.float64 import Reference

    source, feeds = fetch.path(name), smallest(name)
    with large_blocks():
        model = opweld.compile(source, target=ARCHITECTURE)
    opened: Any = model.session._opened  # pyright: ignore[reportPrivateUsage]
    assert isinstance(opened.machine, Interpreted)
    began = time.perf_counter()
    found = model.run(feeds)
    seconds = time.perf_counter() - began
    return _judged(found, Reference(source).run(feeds), _peer(source, feeds), feeds, seconds)


def small_modules() -> dict[str, Callable[[], torch.nn.Module]]:
    """The architectures of the zoo, with every width of theirs and as few layers as have them."""
    import transformers as t

    from benchmarks.zoo.export import Decoder, Encoder, ImageClassifier

    shared: dict[str, Any] = {"vocab_size": 512, "num_hidden_layers": 1}
    llama: dict[str, Any] = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
    }
    return {
        "resnet50": lambda: ImageClassifier(t.ResNetForImageClassification(t.ResNetConfig(depths=[2, 1, 1, 1]))),
        "mobilenetv2": lambda: ImageClassifier(t.MobileNetV2ForImageClassification(t.MobileNetV2Config())),
        "convnext-tiny": lambda: ImageClassifier(
            t.ConvNextForImageClassification(t.ConvNextConfig(depths=[1, 1, 1, 1]))
        ),
        "vit-base": lambda: ImageClassifier(
            t.ViTForImageClassification(t.ViTConfig(image_size=SIDE, num_hidden_layers=1))
        ),
        "bert-base": lambda: Encoder(t.BertModel(t.BertConfig(**shared))),
        "llama-160m": lambda: Decoder(t.LlamaForCausalLM(t.LlamaConfig(**shared, **llama))),
    }


def small(name: str) -> dict[str, Any]:
    """How far a module is from itself in float64, in Triton's interpreter; PyTorch's own float32 is the peer."""
    import torch

    import opweld
    from benchmarks.zoo.export import ARCHITECTURES, randomise

    torch.manual_seed(0)
    module = small_modules()[name]().eval()
    randomise(module, name)
    made = {
        "pixel_values": torch.randn(1, 3, SIDE, SIDE),
        "input_ids": torch.randint(0, 512, (1, TOKENS)),
        "attention_mask": (torch.arange(TOKENS) < TOKENS - 3).long()[None],
        "token_type_ids": torch.zeros(1, TOKENS, dtype=torch.int64),
    }
    given = [made[argument] for argument in ARCHITECTURES[name].inputs]
    with torch.no_grad():
        with large_blocks():
            model = opweld.compile(module, tuple(given), target=ARCHITECTURE)
        feeds = dict(zip(model.session.input_names, (tensor.numpy() for tensor in given), strict=True))
        began = time.perf_counter()
        found = model.run(feeds)
        seconds = time.perf_counter() - began
        peers = _tensors(module(*given))
        exact = _tensors(module.double()(*(t.double() if t.is_floating_point() else t for t in given)))
    return _judged(found, exact, dict(zip(found, peers, strict=True)), feeds, seconds)


def _tensors(made: Any) -> list[np.ndarray[Any, Any]]:
    return [tensor.numpy() for tensor in (made if isinstance(made, tuple) else (made,))]


def _judged(
    found: Feed, exact: Sequence[np.ndarray[Any, Any]], peers: Feed, feeds: Feed, seconds: float
) -> dict[str, Any]:
    """The worst of the outputs by what is tolerated, and what is wrong with those that are."""
    from opweld.verification.compare import compare

    results = [
        compare(name, array, right, peers[name]) for (name, array), right in zip(found.items(), exact, strict=True)
    ]
    worst = max(results, key=lambda result: result.error / result.tolerance if result.tolerance else result.error)
    return {
        "feeds": {feed: list(array.shape) for feed, array in feeds.items()},
        "error": worst.error,
        "tolerance": worst.tolerance,
        "peer": worst.peer_error,
        "run_s": round(seconds, 1),
        "problems": [f"{result.name}: {result.problem}" for result in results if not result.passed],
    }


def _peer(source: Path, feeds: Feed) -> Feed:
    """What ONNX Runtime answers, unoptimised."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, (np.asarray(array) for array in session.run(names, feeds)), strict=True))


def outcome(name: str, part: str, limit: float, cache: str) -> dict[str, Any]:
    """A part of a model in a process of its own; models with large blocks are kept in a cache of their own."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    if not part.startswith("sm_"):
        environment["TRITON_INTERPRET"] = "1"
        environment["OPWELD_ZOO"] = str(fetch.cache_folder())
        environment["OPWELD_CACHE"] = f"{cache}/{name}"  # of blocks that no card has
    command = [sys.executable, "-m", "benchmarks.gpu_zoo", name, "--parts", part, "--here"]
    began = time.perf_counter()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {limit:.0f} s"}
    seconds = {"seconds": round(time.perf_counter() - began, 1)}
    if done.returncode:
        return seconds | {"failed": " ".join(done.stderr.strip().splitlines()[-1:])[-400:] or f"exit {done.returncode}"}
    return seconds | json.loads(done.stdout.splitlines()[-1])


def is_right(found: dict[str, Any]) -> bool:
    """Whether a part has nothing to complain of."""
    return not (found.get("failed") or found.get("spills") or found.get("problems"))


def main() -> int:
    """Prints a line for each part of each model as it ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_zoo", description=__doc__)
    parser.add_argument("models", nargs="*", help="all of the zoo where none is named")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds of a part of a model")
    parser.add_argument("--workers", type=int, default=1, help="how many at a time")
    parser.add_argument("--json", type=Path, help="a file for all of it")
    parser.add_argument("--here", action="store_true", help="one part of one model in this process, as JSON")
    given = parser.parse_args()
    if given.here:
        (name,), (part,) = given.models, given.parts
        of = {"run": interpreted, "small": small}.get(part, partial(machine_code, architecture=part))
        print(json.dumps(of(name)))
        return 0
    from benchmarks.zoo.catalogue import MODELS
    from benchmarks.zoo.export import ARCHITECTURES

    jobs = [
        (name, part) for part in given.parts for name in given.models or (ARCHITECTURES if part == "small" else MODELS)
    ]
    found: dict[str, dict[str, Any]] = {}

    def run(cache: str, job: tuple[str, str]) -> None:
        name, part = job
        said = found.setdefault(name, {})[part] = outcome(name, part, given.limit, cache)
        print(f"{name:22} {part:6} {'right' if is_right(said) else 'WRONG':6} {json.dumps(said)}", flush=True)
        if given.json:
            given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")

    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(given.workers) as pool:
        list(pool.map(partial(run, cache), jobs))
    return 0 if all(is_right(said) for parts in found.values() for said in parts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
