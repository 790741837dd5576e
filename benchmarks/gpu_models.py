"""Six architectures on a GPU, compiled with opweld and run beside PyTorch: right first, then how fast.

`python -m benchmarks.gpu models`. Weights are random, and in bfloat16; the reference is the same module in float32 on
the GPU, without TF32. A peer is eager PyTorch, the same captured in a CUDA graph, and torch.compile. Medians of device
events, over inputs that take turns."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import opweld

Builder = Callable[[], torch.nn.Module]

BATCHES = (1, 32)
TOKENS = 128
INPUTS = 3
"""Sets of inputs that take turns."""


def _vision(name: str) -> torch.nn.Module:
    import transformers

    config = getattr(transformers, f"{name}Config")()
    return _First(getattr(transformers, f"{name}ForImageClassification")(config))


def _bert() -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    return _First(BertModel(BertConfig(), add_pooling_layer=False))


def _llama() -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        use_cache=False,
    )
    return _First(LlamaForCausalLM(config))


class _First(torch.nn.Module):
    """A model of transformers that returns its first tensor."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, return_dict=False)[0]


MODELS: dict[str, Builder] = {
    "resnet50": partial(_vision, "ResNet"),
    "mobilenet_v2": partial(_vision, "MobileNetV2"),
    "convnext_tiny": partial(_vision, "ConvNext"),
    "vit_b_16": partial(_vision, "ViT"),
    "bert_base": _bert,
    "llama_160m": _llama,
}


JOBS = [(name, batch) for name in MODELS for batch in BATCHES]


def built(name: str, dtype: torch.dtype) -> torch.nn.Module:
    """The model, with the same weights each time."""
    torch.manual_seed(0)
    return MODELS[name]().eval().to(dtype)


def inputs(name: str, batch: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """An input of a model."""
    generator = torch.Generator().manual_seed(seed)
    if name in ("bert_base", "llama_160m"):
        return torch.randint(0, 30000, (batch, TOKENS), generator=generator)
    return torch.randn(batch, 3, 224, 224, generator=generator).to(dtype)


def compiled(name: str, batch: int, folder: Path) -> tuple[str, int, float]:
    """Compiles a model to a folder. Returns its name, its batch, and the seconds."""
    began = time.perf_counter()
    with torch.no_grad():
        model = opweld.compile(built(name, torch.bfloat16), (inputs(name, batch, torch.bfloat16),), target="cuda")
    model.save(folder / f"{name}-{batch}.opweld")
    return name, batch, time.perf_counter() - began


def compile_all(folder: Path) -> None:
    """Compiles all models to a folder, in several processes."""
    began = time.perf_counter()
    with ProcessPoolExecutor(6, mp_context=get_context("spawn")) as pool:
        waiting = {job: pool.submit(compiled, *job, folder) for job in JOBS}
        for job, future in waiting.items():
            try:
                future.result(timeout=200)
            except Exception as error:  # noqa: BLE001 - others go on
                print(f"{job}: {type(error).__name__}: {str(error)[-300:]}")
    print(f"compiled in {time.perf_counter() - began:.0f} s")


def main(quick: bool) -> Iterator[dict[str, Any]]:
    """Prints a table and yields its rows. Models that `python -m benchmarks.gpu_models FOLDER` compiled are found in
    the folder that OPWELD_GPU_MODELS names."""
    import tempfile

    with tempfile.TemporaryDirectory() as where, torch.no_grad():
        folder = Path(os.environ.get("OPWELD_GPU_MODELS", where))
        if folder == Path(where):
            compile_all(folder)
        print(
            f"{'model':14} {'batch':>5} {'error':>8} {'own error':>9} {'opweld':>8} {'eager':>8} {'graph':>8} "
            f"{'compile':>8}  ms"
        )
        for name, batch in JOBS:
            try:
                yield _row(name, batch, folder / f"{name}-{batch}.opweld", quick)
            except Exception as error:  # noqa: BLE001 - others go on
                print(f"{name} {batch}: {type(error).__name__}: {str(error)[-400:]}")


def _row(name: str, batch: int, path: Path, quick: bool) -> dict[str, Any]:
    from opweld.torch.on_gpu import OnGpu

    sets = [inputs(name, batch, torch.bfloat16, seed).cuda() for seed in range(INPUTS)]
    module = built(name, torch.bfloat16).cuda()
    exact = built(name, torch.float32).cuda()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    reference = exact(sets[0].float() if sets[0].is_floating_point() else sets[0]).float()
    del exact
    fast = OnGpu(opweld.load(path))
    error = _apart(fast(sets[0])[0], reference)
    own = _apart(module(sets[0]), reference)
    times = {"opweld": median_of(fast, sets)}
    if sets[0].dim() == 4:  # what PyTorch's convolutions are fastest in
        module = module.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        sets = [x.to(memory_format=torch.channels_last) for x in sets]
    times |= {"eager": median_of(module, sets), "graph": median_of(_graphed(module, sets[0]), sets)}
    if not quick:
        times["compile"] = median_of(torch.compile(module, mode="max-autotune"), sets)
    steps = _steps(fast, inputs(name, batch, torch.bfloat16))
    row = {"model": name, "batch": batch, "steps": steps, "error": error, "own_error": own, **times}
    text = " ".join(f"{times.get(key, float('nan')):8.3f}" for key in ("opweld", "eager", "graph", "compile"))
    print(f"{name:14} {batch:5} {error:8.4f} {own:9.4f} {text}", flush=True)
    return row


def _steps(fast: Any, x: torch.Tensor) -> dict[str, tuple[int, float]]:
    """How often each kernel runs, and the microseconds of all of its runs; prints the most costly."""
    array = x.view(torch.int16).numpy().view("bfloat16") if x.dtype == torch.bfloat16 else x.numpy()
    opened = fast.model.session._opened
    plan = opened.plan([array])
    runs = [opened.clocked([array])[1].timings[0, :, 2] for _ in range(5)]
    medians = [sorted(times)[2] / 1e3 for times in zip(*runs, strict=True)]
    found: dict[str, tuple[int, float]] = {}
    for step, microseconds in zip(plan.steps, medians, strict=True):
        count, total = found.get(step.name, (0, 0.0))
        found[step.name] = count + 1, total + microseconds
    text = (fast.model.path / "kernels.py").read_text()
    for step, (count, total) in sorted(found.items(), key=lambda entry: -entry[1][1])[:6]:
        at = text.find(f"def {step}(")
        comment = text[at:].split('"""')[1] if at >= 0 else ""
        print(f"      {total:8.1f} us  {count:3} x {step}: {comment[:110]}")
    return found


def _apart(found: torch.Tensor, reference: torch.Tensor) -> float:
    """|found - reference| / |reference|."""
    return float((found.double() - reference.double()).norm() / reference.double().norm())


def _graphed(module: torch.nn.Module, example: torch.Tensor) -> Callable[[torch.Tensor], object]:
    """The module as a CUDA graph, whose input is copied."""
    static = example.clone()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = module(static)

    def run(x: torch.Tensor) -> torch.Tensor:
        static.copy_(x)
        graph.replay()
        return made.clone()

    return run


def median_of(call: Callable[[torch.Tensor], object], sets: list[torch.Tensor], repeats: int = 30) -> float:
    """Milliseconds by device events; the call's own launches count, as they would for a caller."""
    for x in sets * 2:
        call(x)
    torch.cuda.synchronize()
    times: list[float] = []
    for number in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call(sets[number % len(sets)])
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    compile_all(Path(sys.argv[1]))
