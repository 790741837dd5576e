"""Attention on a GPU: right beside float64, fast beside PyTorch's own kernels, its memory linear in the length.

    python -m benchmarks.gpu_attention [--full]

Kernels are compiled by all cores first, in processes that leave them in Triton's cache. Times are medians by device
events, contestants in turn on inputs of their own, the L2 cache flushed between. What may hang, as specialised warps
may, is tried in a process of its own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from opweld.kernels.devices import architecture
from opweld.kernels.flash_attention import flash_attention
from opweld.kernels.flash_backward_launches import (
    KEYS_CANDIDATES,
    QUERIES_CANDIDATES,
    keys_launch,
    queries_launch,
    row_numbers,
    rows_launch,
)
from opweld.kernels.flash_decode import flash_decode
from opweld.kernels.flash_forward import CANDIDATES, forward_launch
from opweld.kernels.flash_problem import Configuration, Problem
from opweld.kernels.launches import Launch
from opweld.kernels.paged_attention import paged_attention
from tests.kernels.attention_oracle import attention, of_blocks

TOKENS = 16384
QUICK_LENGTHS = (1024, 4096, 16384, 131072)
FULL_LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
PEERS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
BUDGET_S = 95.0
BF16 = torch.bfloat16

Row = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """Operands of attention as models have them: heads of one size that fill 2048 features, 512 where they are long."""

    length: int
    head_dim: int
    causal: bool

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, H, L, D."""
        features = 2048 if self.length <= TOKENS else 512
        return max(1, TOKENS // self.length), features // self.head_dim, self.length, self.head_dim

    @property
    def flops(self) -> float:
        """Of the forward pass; the backward pass has 2.5 times as many."""
        batch, heads, length, head_dim = self.sizes
        return 4.0 * batch * heads * length * length * head_dim * (0.5 if self.causal else 1.0)

    @property
    def problem(self) -> Problem:
        """What kernels are given."""
        return Problem.plain(self.length, self.length, self.head_dim, causal=self.causal)

    def operands(self, device: str = "cuda") -> tuple[Tensor, ...]:
        """Query, key, value, gradient of the output."""
        if device == "meta":
            return tuple(torch.empty(self.sizes, dtype=BF16, device=device) for _ in range(4))
        return tuple(torch.randn(self.sizes, dtype=BF16, device=device) for _ in range(4))


def forward(shape: Shape, operands: Sequence[Tensor], chosen: Configuration | None = None) -> Launch:
    """The forward pass alone."""
    query, key, value, _ = operands
    lse = query.new_empty(query.shape[:3], dtype=torch.float32)
    return forward_launch(torch.empty_like(query), lse, query, key, value, shape.problem, 90, chosen)


def backward(
    shape: Shape,
    operands: Sequence[Tensor],
    keys: Configuration | None = None,
    queries: Configuration | None = None,
) -> tuple[Launch, Launch, Launch]:
    """The passes of the backward direction: by rows, by keys, by queries."""
    query, key, value, grad = operands
    lse = query.new_empty(query.shape[:3], dtype=torch.float32)
    origin, delta = row_numbers(query)
    shared = (query, key, value, grad, origin, delta, shape.problem, 90)
    return (
        rows_launch(origin, delta, torch.empty_like(query), grad, lse),
        keys_launch(torch.empty_like(key), torch.empty_like(value), None, *shared, keys),
        queries_launch(torch.empty_like(query), *shared, queries),
    )


# Right


def _tensor(*shape: int, seed: int, dtype: torch.dtype = BF16) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).to(dtype)


def attention_cases() -> Iterator[tuple[str, int, torch.dtype, dict[str, Any]]]:
    """Name, head size, type and options of each feature."""
    yield "plain d=64", 64, BF16, {}
    yield "causal d=128", 128, BF16, {"causal": True}
    yield "causal d=128 float16", 128, torch.float16, {"causal": True}
    yield "causal d=64 float32", 64, torch.float32, {"causal": True}
    yield "causal d=80", 80, BF16, {"causal": True}
    yield "causal d=256", 256, BF16, {"causal": True}
    yield "window d=128", 128, BF16, {"window": (50, 20)}
    yield "bias d=64", 64, BF16, {"bias": _tensor(1, 4, 333, 401, seed=4).requires_grad_()}
    yield "mask d=64", 64, BF16, {"mask": _tensor(2, 1, 333, 401, seed=5) > 0}
    yield "alibi d=64", 64, BF16, {"alibi_slopes": torch.tensor([0.5, 0.1, 0.02, 0.0], device="cuda"), "causal": True}
    yield "softcap d=128", 128, BF16, {"softcap": 5.0, "causal": True}
    blocks = torch.tensor([[1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 0, 0]], dtype=torch.bool, device="cuda")
    yield "blocks d=128", 128, BF16, {"block_mask": blocks, "causal": True}
    yield "dropout d=64", 64, BF16, {"dropout": 0.3, "seed": 5}


def check(name: str, head_dim: int, dtype: torch.dtype, options: dict[str, Any]) -> Row:
    """Errors of output and gradients over what they may be, 1 at most where all is right."""
    inputs = [
        _tensor(2, heads, length, head_dim, seed=seed, dtype=dtype).requires_grad_()
        for seed, (heads, length) in enumerate(((4, 333), (2, 401), (2, 401)))
    ]
    grad = _tensor(2, 4, 333, head_dim, seed=9, dtype=dtype)
    got = flash_attention(*inputs, **options)
    oracle = dict(options)
    if "block_mask" in oracle:
        oracle["mask"] = of_blocks(oracle.pop("block_mask"), (128, 128), 333, 401)
    if "dropout" in oracle:
        oracle["keep"] = _kept(head_dim, dtype, oracle.pop("seed"), oracle["dropout"])
    if "bias" in options:
        inputs.append(options["bias"])
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    if "bias" in options:
        oracle["bias"] = exact[3]
    expected, _ = attention(*exact[:3], **oracle)
    results = (got, *torch.autograd.grad(got, inputs, grad))
    truths = (expected, *torch.autograd.grad(expected, exact, grad.double()))
    rounding = {torch.float32: 2.0**-18, torch.float16: 2.0**-9, BF16: 2.0**-6}[dtype]
    errors = [
        ((one.double() - other).abs().max() / other.abs().max().clamp_min(1.0)).item() / rounding
        for one, other in zip(results, truths, strict=True)
    ]
    return {"kind": "right", "case": name, "errors": errors, "right": all(error <= 1.0 for error in errors)}


def _kept(head_dim: int, dtype: torch.dtype, seed: int, dropout: float) -> Tensor:
    """Dropout's mask, read by values that are columns of the identity, as many at a time as a head has."""
    zeros = torch.zeros(2, 4, 333, head_dim, device="cuda", dtype=dtype)
    key = torch.zeros(2, 4, 401, head_dim, device="cuda", dtype=dtype)
    identity = torch.eye(401, device="cuda", dtype=dtype)
    parts = [
        flash_attention(zeros, key, torch.nn.functional.pad(part, (0, head_dim - part.shape[1])).expand(2, 4, -1, -1),
                        dropout=dropout, seed=seed)[..., : part.shape[1]] > 0
        for part in identity.split(head_dim, 1)
    ]  # fmt: skip
    return torch.cat(parts, -1)


def check_packed() -> Row:
    """Sequences behind each other, forward and backward."""
    lengths = (129, 1, 300, 64)
    starts = torch.tensor((0, *lengths), device="cuda").cumsum(0).int()
    tensors = [
        _tensor(sum(lengths), heads, 64, seed=heads + seed).requires_grad_() for seed, heads in enumerate((4, 2, 2))
    ]
    got = flash_attention(*tensors, cu_seqlens_q=starts, cu_seqlens_k=starts, causal=True)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    parts = zip(*(tensor.split(lengths) for tensor in exact), strict=True)
    outputs = [attention(*(part.transpose(0, 1)[None] for part in one), causal=True)[0][0] for one in parts]
    expected = torch.cat(outputs, 1).transpose(0, 1)
    results = (got, *torch.autograd.grad(got.float().square().sum(), tensors))
    truths = (expected, *torch.autograd.grad(expected.square().sum(), exact))
    errors = [
        ((one.double() - other).abs().max() / other.abs().max().clamp_min(1.0)).item() * 2.0**6
        for one, other in zip(results, truths, strict=True)
    ]
    return {"kind": "right", "case": "packed d=64", "errors": errors, "right": all(error <= 1.0 for error in errors)}


def check_decode() -> Row:
    """Single queries, keys divided, contiguous and in pages."""
    lengths = [777, 1, 4096]
    query, key, value = (_tensor(3, heads, length, 128, seed=heads) for heads, length in ((8, 1), (2, 4096), (2, 4096)))
    device_lengths = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    got = flash_decode(query, key, value, lengths=device_lengths)
    expected = torch.cat(
        [
            attention(query[i : i + 1], key[i : i + 1, :, :length], value[i : i + 1, :, :length])[0]
            for i, length in enumerate(lengths)
        ]
    )
    errors = [((got.double() - expected).abs().max()).item() * 2.0**6]
    for page in (16, 256):
        pages = 3 * 4096 // page
        order = torch.randperm(pages, device="cuda")
        key_cache, value_cache = (tensor.new_empty(pages, page, 2, 128) for tensor in (key, value))
        for cache, tensor in ((key_cache, key), (value_cache, value)):
            cache[order] = tensor.transpose(1, 2).reshape(pages, page, 2, 128)
        starts = torch.arange(4, dtype=torch.int32, device="cuda")
        table = order.int().reshape(3, -1)
        got = paged_attention(query[:, :, 0], key_cache, value_cache, table, device_lengths, starts, max_seqlen_q=1)
        errors.append(((got.double() - expected[:, :, 0]).abs().max()).item() * 2.0**6)
    return {"kind": "right", "case": "decode, pages of 16, 256", "errors": errors, "right": max(errors) <= 1.0}


# Fast


def medians(contestants: Sequence[Callable[[], Any]], budget_ms: float = 60.0) -> list[float]:
    """Milliseconds of each, by events of the device, in turn, with a cold L2 cache: what flushes it takes the device
    longer than a launch takes the processor, so that no kernel waits for its launch."""
    flush = torch.empty(256 << 20, dtype=torch.int32, device="cuda")
    for contestant in contestants:
        contestant()
    events: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = [[] for _ in contestants]
    rounds = 3
    done = 0
    while done < rounds:
        for contestant, its_events in zip(contestants, events, strict=True):
            flush.zero_()
            pair = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            pair[0].record()
            contestant()
            pair[1].record()
            its_events.append(pair)
        done += 1
        if done == 3:
            torch.cuda.synchronize()
            slowest = max(begin.elapsed_time(end) for its_events in events for begin, end in its_events)
            rounds = min(15, max(3, int(budget_ms / max(slowest, 0.01))))
    torch.cuda.synchronize()
    return [median(begin.elapsed_time(end) for begin, end in its_events) for its_events in events]


def _in_turn(functions: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    """One function after the other, each on inputs of its own."""
    calls = 0

    def call() -> Any:
        nonlocal calls
        calls += 1
        return functions[calls % len(functions)]()

    return call


def speed(shape: Shape) -> Iterator[Row]:
    """Forward and backward beside the backends of torch's scaled_dot_product_attention."""
    sets = [shape.operands() for _ in range(2 if shape.length <= TOKENS else 1)]
    ours_backward = [[launch.run for launch in backward(shape, operands)] for operands in sets]
    device = torch.device("cuda")

    def run_all(runs: Sequence[Callable[[torch.device], None]]) -> Callable[[], None]:
        def run() -> None:
            for one in runs:
                one(device)

        return run

    forwards = {"opweld": _in_turn([run_all([forward(shape, operands).run]) for operands in sets])}
    backwards = {"opweld": _in_turn([run_all(runs) for runs in ours_backward])}
    for name, backend in PEERS.items():
        if name == "efficient" and shape.length > 4096:
            continue
        try:
            made = [_peer(shape, operands, backend) for operands in sets]
        except RuntimeError:
            continue
        forwards[name] = _in_turn([one[0] for one in made])
        backwards[name] = _in_turn([one[1] for one in made])
    for kind, contestants, factor in (("forward", forwards, 1.0), ("backward", backwards, 2.5)):
        times = medians(list(contestants.values()))
        rates = {name: factor * shape.flops / ms * 1e-9 for name, ms in zip(contestants, times, strict=True)}
        best = max((rate for name, rate in rates.items() if name != "opweld"), default=float("nan"))
        yield {
            "kind": kind,
            "length": shape.length,
            "head_dim": shape.head_dim,
            "causal": shape.causal,
            "tflops": rates,
            "of_best": rates["opweld"] / best,
        }


def _peer(shape: Shape, operands: Sequence[Tensor], backend: SDPBackend) -> tuple[Callable[[], Any], Callable[[], Any]]:
    query, key, value = (tensor.detach().requires_grad_() for tensor in operands[:3])

    def run() -> Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=shape.causal)

    def run_forward() -> Tensor:
        with torch.no_grad():
            return run()

    output = run()
    torch.autograd.grad(output, (query, key, value), operands[3], retain_graph=True)
    return run_forward, lambda: torch.autograd.grad(output, (query, key, value), operands[3], retain_graph=True)


SWEPT = tuple(
    Shape(length, head_dim, causal) for head_dim in (64, 128) for length, causal in ((4096, True), (16384, False))
)


def sweep(shape: Shape) -> Iterator[Row]:
    """Candidates of each kernel."""
    operands = shape.operands()
    device = torch.device("cuda")
    passes: list[tuple[str, float, Configuration, Launch]] = []
    for chosen in CANDIDATES[shape.head_dim]:
        passes.append(("forward", 1.0, chosen, forward(shape, operands, chosen)))
    for chosen in KEYS_CANDIDATES[shape.head_dim]:
        passes.append(("keys", 1.5, chosen, backward(shape, operands, keys=chosen)[1]))
    for chosen in QUERIES_CANDIDATES[shape.head_dim]:
        passes.append(("queries", 1.0, chosen, backward(shape, operands, queries=chosen)[2]))
    for kernel, factor, chosen, launch in passes:
        row: Row = {
            "kind": "candidate",
            "kernel": kernel,
            "length": shape.length,
            "head_dim": shape.head_dim,
            "causal": shape.causal,
            "configuration": _told(chosen),
        }
        try:
            [ms] = medians([lambda launch=launch: launch.run(device)], 20.0)
            row["tflops"] = factor * shape.flops / ms * 1e-9
        except RuntimeError as error:
            row["failed"] = str(error).splitlines()[0][:100]
        yield row


def _told(chosen: Configuration) -> str:
    flags = "T" if chosen.descriptors else ""
    return f"{chosen.block_m}x{chosen.block_n} w{chosen.warps} s{chosen.stages} {flags}".strip()


def copy_bandwidth() -> float:
    """Bytes a second of a copy of 1 GiB, read and written."""
    source = torch.empty(1 << 28, dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    [ms] = medians([lambda: target.copy_(source)])
    return 2 * source.nbytes / ms * 1e3


DECODES = ((64, 32, 8, 4096), (8, 32, 8, 16384), (1, 32, 8, 131072), (16, 16, 16, 8192))


def decode(batch: int, heads: int, kv_heads: int, length: int, bandwidth: float, page: int | None) -> Row:
    """A step of decoding: keys and values a second over the bandwidth of a copy."""
    query = torch.randn(batch, heads, 1, 128, dtype=BF16, device="cuda")
    key, value = (torch.randn(batch, kv_heads, length, 128, dtype=BF16, device="cuda") for _ in range(2))
    if page is None:

        def step() -> Tensor:
            return flash_decode(query, key, value)

    else:
        pages = batch * length // page
        key_cache, value_cache = (tensor.reshape(pages, page, kv_heads, 128) for tensor in (key, value))
        table = torch.randperm(pages, device="cuda").int().reshape(batch, -1)
        lengths = torch.full((batch,), length, dtype=torch.int32, device="cuda")
        starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda")
        tokens = query[:, :, 0]

        def step() -> Tensor:
            return paged_attention(tokens, key_cache, value_cache, table, lengths, starts, max_seqlen_q=1)

    [ms] = medians([step])
    rate = (key.nbytes + value.nbytes) / ms * 1e3
    return {
        "kind": "decode",
        "batch": batch,
        "heads": heads,
        "kv_heads": kv_heads,
        "length": length,
        "page": page or 0,
        "ms": ms,
        "of_copy": rate / bandwidth,
    }


def peak_memory() -> Row:
    """Memory of forward and backward at 131072 queries and keys, beyond operands, output and gradients."""
    query, key, value = (torch.randn(1, 4, 131072, 64, dtype=BF16, device="cuda", requires_grad=True) for _ in range(3))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    output = flash_attention(query, key, value, causal=True)
    output.backward(torch.ones_like(output))
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    return {"kind": "memory", "length": 131072, "operand_bytes": query.nbytes, "peak_over_operand": peak / query.nbytes}


# All of it


def _launches(lengths: Sequence[int]) -> list[Callable[[], Sequence[Launch]]]:
    """What is measured, as launches that compile; each entry is compiled by one process."""
    made: list[Callable[[], Sequence[Launch]]] = []
    for head_dim, causal, length in product((64, 128), (False, True), (lengths[0], lengths[-1])):
        shape = Shape(length, head_dim, causal)
        made.append(lambda shape=shape: [forward(shape, shape.operands("meta"))])
        for part in range(3):
            made.append(lambda shape=shape, part=part: [backward(shape, shape.operands("meta"))[part]])
    for shape in SWEPT:
        for chosen in CANDIDATES[shape.head_dim]:
            made.append(lambda shape=shape, chosen=chosen: [forward(shape, shape.operands("meta"), chosen)])
        for chosen in KEYS_CANDIDATES[shape.head_dim]:
            made.append(lambda shape=shape, chosen=chosen: [backward(shape, shape.operands("meta"), keys=chosen)[1]])
        for chosen in QUERIES_CANDIDATES[shape.head_dim]:
            made.append(lambda shape=shape, chosen=chosen: [backward(shape, shape.operands("meta"), queries=chosen)[2]])
    return made


def _compile(task: tuple[int, tuple[int, ...], int]) -> str:
    """Compiles every so-many-th of `_launches`, and runs every so-many-th case; says what failed."""
    place, lengths, workers = task
    failed: list[str] = []
    for make in _launches(lengths)[place::workers]:
        try:
            for launch in make():
                launch.compile()
        except Exception as error:  # noqa: BLE001 - whatever fails here fails again, and is told, where it is measured
            failed.append(str(error).splitlines()[0][:120])
    for case in list(attention_cases())[place::workers]:
        try:
            check(*case)
        except Exception as error:  # noqa: BLE001
            failed.append(f"{case[0]}: {str(error).splitlines()[0][:120]}")
    return "; ".join(failed)


def compile_all(lengths: tuple[int, ...]) -> list[str]:
    """Leaves what is measured in Triton's cache."""
    workers = min(14, os.cpu_count() or 1)
    tasks = [(place, lengths, workers) for place in range(workers)]
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            return [failed for failed in pool.map(_compile, tasks) if failed]
    except BrokenProcessPool:
        return ["a process that compiled ended: the others' work is lost in part"]


def main(quick: bool = True) -> Iterator[Row]:
    """Prints a table and yields its rows; quick ends in less than 100 s, leaving out what there is no time for."""
    began = time.monotonic()
    lengths = QUICK_LENGTHS if quick else FULL_LENGTHS

    def spent() -> float:
        return time.monotonic() - began

    def told(what: str, made: Callable[[], Row | Iterator[Row]]) -> Iterator[Row]:
        if quick and spent() > BUDGET_S:
            print(f"left out after {spent():.0f} s: {what}")
            return
        try:
            result = made()
            for row in [result] if isinstance(result, dict) else result:
                _show(row)
                yield row
        except Exception as error:  # noqa: BLE001 - one that fails must not cost the others their time on the device
            text = str(error) or type(error).__name__
            print(f"{what} FAILED: {text.splitlines()[0][:150]}")
            yield {"kind": "failed", "what": what, "error": text[:300]}

    arch = architecture(torch.device("cuda"))
    print(f"attention on {torch.cuda.get_device_name()}, sm_{arch}, torch {torch.__version__}")
    for failed in compile_all(lengths):
        print(f"does not compile: {failed}")
    print(f"compiled in {spent():.0f} s")
    for case in attention_cases():
        yield from told(case[0], lambda case=case: check(*case))
    yield from told("packed", check_packed)
    yield from told("decode", check_decode)
    for head_dim, causal, length in product((128, 64), (False, True), lengths):
        shape = Shape(length, head_dim, causal)
        yield from told(str(shape), lambda shape=shape: speed(shape))
        torch.cuda.empty_cache()
    for shape in SWEPT:
        yield from told(f"candidates {shape}", lambda shape=shape: sweep(shape))
    bandwidth = copy_bandwidth()
    print(f"copy: {bandwidth * 1e-12:.2f} TB/s")
    for sizes, page in product(DECODES, (None, 16, 256)):
        yield from told(f"decode {sizes}", lambda sizes=sizes, page=page: decode(*sizes, bandwidth, page))
    yield from told("peak memory", peak_memory)
    print(f"{spent():.0f} s")


def _show(row: Row) -> None:
    kind = row["kind"]
    where = f"d={row.get('head_dim')} n={row.get('length')} {'causal' if row.get('causal') else ''}"
    if kind == "right":
        verdict = "ok   " if row["right"] else "WRONG"
        print(f"{verdict} {row['case']:28} " + " ".join(f"{error:.2f}" for error in row["errors"]))
    elif kind in ("forward", "backward"):
        rates = " ".join(f"{name} {rate:.0f}" for name, rate in row["tflops"].items())
        print(f"{kind:8} {where:24} {rates} TFLOP/s, {row['of_best']:.0%} of the best")
    elif kind == "candidate":
        told = f"{row['tflops']:.0f} TFLOP/s" if "tflops" in row else row["failed"]
        print(f"{row['kernel']:8} {where:24} {row['configuration']:16} {told}")
    elif kind == "decode":
        sizes = f"b={row['batch']} h={row['heads']}/{row['kv_heads']} n={row['length']} page={row['page']}"
        print(f"decode   {sizes:36} {row['ms']:.3f} ms, {row['of_copy']:.0%} of copy")
    elif kind == "memory":
        print(f"peak memory at n={row['length']}: {row['peak_over_operand']:.1f} times an operand")


if __name__ == "__main__":
    for _ in main(quick="--full" not in sys.argv):
        pass
