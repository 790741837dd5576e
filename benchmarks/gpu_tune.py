"""Configurations of kernels beside one another on a GPU, the best first: what the tables of defaults are taken from.

    python -m benchmarks.gpu_tune --seconds 60 --json tune.json

Only times, but of products of 4 bits, which are compared with float64 too; `benchmarks.gpu` checks the rest. Candidates
and the library's product take turns, for a GPU near its limit of power slows whatever it runs for long. It ends when
the seconds are over, whatever it does then: what is measured stands in the file as soon as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor

from benchmarks.gpu_kernel_checks import normal
from benchmarks.gpu_timing import median_ms, peak_bytes
from opweld import kernels
from opweld.kernels import row_norm
from opweld.kernels.product import CANDIDATES, Configuration, product

BF16 = torch.bfloat16
ROUNDS, SAMPLES = 3, 5
"""How often candidates take turns, and samples of each turn."""

THREADS = 16
"""Candidates that are compiled at a time."""

SIZES = (4096, 8192)

Row = dict[str, Any]
Calls = Mapping[str, Sequence[Callable[[], Any]]]

gated, int4, rope, fp8 = (
    sys.modules[f"opweld.kernels.{name}"] for name in ("gated", "linear_int4", "rope", "linear_fp8")
)
"""The modules, some of whose names in the package are functions."""

NORM_BACKWARD = (
    *row_norm.CANDIDATES_BACKWARD,
    *({"warps": warps, "rows": 1, "stages": 4, "waves": waves} for warps, waves in ((4, 2), (8, 1), (16, 1))),
    *({"warps": warps, "rows": 1, "stages": 3, "waves": waves} for warps, waves in ((4, 1), (4, 3), (16, 2))),
)

FP8 = (
    *fp8.CANDIDATES,
    Configuration(128, 256, 128, 8, 4, tma=True, parts=4),
    Configuration(128, 128, 128, 8, 4, tma=True, parts=4),
    Configuration(128, 128, 128, 8, 4, tma=True, stores_tma=True),
    Configuration(128, 128, 128, 4, 3, tma=True, parts=4, programs=2),
    Configuration(128, 128, 128, 4, 3, tma=True, parts=4, flat=False, programs=0),
    Configuration(64, 128, 128, 4, 3, tma=True, parts=4, programs=3),
    Configuration(64, 128, 128, 4, 3, tma=True, parts=4, flat=False, programs=0),
)


def items() -> Iterator[Callable[[], Iterator[Row]]]:
    """What is measured, the most important first."""
    for size in SIZES:
        yield partial(_products, size)
    for size in SIZES:
        yield partial(_epilogues, size)
    yield _norm_backward
    yield partial(_float8, False)
    yield partial(_float8, True)
    for rows in (1, 16):
        yield partial(_int4, rows)
    yield _loss
    yield _rope
    yield _gated


def measure(name: str, calls: Calls, reference: str, threads: int = 1) -> Iterator[Row]:
    """Times of all calls, which take turns; printed with the best first, beside the reference among them. They are
    compiled in so many threads, one where they replace what modules hold."""
    ready = _compiled(name, calls, threads)
    times: dict[str, list[float]] = {label: [] for label in ready}
    for _ in range(ROUNDS):
        for label, given in ready.items():
            times[label].append(median_ms(given, SAMPLES))
    found = sorted((statistics.median(several), label) for label, several in times.items())
    print(f"{name}:")
    for ms, label in found:
        ratio = statistics.median(b / t for b, t in zip(times[reference], times[label], strict=True))
        print(f"   {label:62} {ms:8.4f} ms  {ratio:6.1%} of {reference}", flush=True)
        yield {"name": name, "configuration": label, "ms": ms, "rounds": times[label], "of_reference": ratio}


def _compiled(name: str, calls: Calls, threads: int) -> Calls:
    """The calls that run, after the first of each has; those that do not are named."""

    def tried(label: str) -> str:
        try:
            calls[label][0]()
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001  # a configuration that does not fit; the others go on
            return f"{type(error).__name__}: {error}"[:160]
        return ""

    with ThreadPoolExecutor(threads) as pool:
        outcomes = dict(zip(calls, pool.map(tried, calls), strict=True))
    for label, error in outcomes.items():
        if error:
            print(f"{name} {label}: {error}", flush=True)
    return {label: given for label, given in calls.items() if not outcomes[label]}


def _label(chosen: Configuration | Mapping[str, int]) -> str:
    if isinstance(chosen, Configuration):
        return f"{chosen}, parts {chosen.parts}, group {chosen.group}"
    return " ".join(f"{key} {value}" for key, value in chosen.items())


def _products(size: int) -> Iterator[Row]:
    sets = [
        (normal(size, size, dtype=BF16, seed=2 * at), normal(size, size, dtype=BF16, seed=2 * at + 1)) for at in (0, 1)
    ]
    calls: dict[str, list[Callable[[], Any]]] = {
        _label(one): [partial(product, a, b, BF16, chosen=one) for a, b in sets] for one in CANDIDATES
    }
    calls["cuBLAS"] = [partial(torch.matmul, a, b.t()) for a, b in sets]
    yield from measure(f"linear {size}^3 bf16", calls, "cuBLAS", THREADS)


def _epilogues(size: int) -> Iterator[Row]:
    x, weight, residual = (normal(size, size, dtype=BF16, seed=at) for at in range(3))
    bias = normal(size, dtype=BF16)
    given: dict[str, Any] = {"bias": bias, "residual": residual, "activation": "gelu"}
    calls: dict[str, list[Callable[[], Any]]] = {
        _label(one): [partial(product, x, weight, BF16, chosen=one, **given)]
        for one in CANDIDATES
        if one.tma and one.parts == 4  # of fewer the epilogue has no registers or shared memory to spare
    }
    calls["cuBLAS alone"] = [partial(torch.matmul, x, weight.t())]
    functional: Any = torch.nn.functional
    calls["eager"] = [lambda: functional.gelu(functional.linear(x, weight, bias)) + residual]
    yield from measure(f"linear {size}^3 bf16, bias, gelu, residual", calls, "cuBLAS alone", THREADS)


def _swept(
    module: Any,
    candidates: Sequence[Mapping[str, int]],
    calls: Sequence[Callable[[], Any]],
    name: str = "configuration",
) -> dict[str, Sequence[Callable[[], Any]]]:
    """The calls by default, and with each of the candidates as what a function of the module answers."""

    def replaced(chosen: Mapping[str, int], call: Callable[[], Any]) -> Any:
        with mock.patch.object(module, name, lambda *_: chosen), torch.no_grad():
            return call()

    swept: dict[str, Sequence[Callable[[], Any]]] = {"default": calls}
    return swept | {_label(one): [partial(replaced, one, call) for call in calls] for one in candidates}


def _norm_backward() -> Iterator[Row]:
    rows, columns = 16384, 4096
    dy, h = (normal(rows, columns, dtype=BF16, seed=at) for at in range(2))
    weight, means, scales = normal(columns, dtype=BF16), normal(rows), torch.rand(rows, device="cuda")
    call = partial(row_norm.backward, dy, None, h, weight, means, scales, has_bias=True)
    calls = _swept(row_norm, NORM_BACKWARD, [call], "backward_configuration")
    yield from measure("layer_norm backward", calls | {"copy": _copy(3 * dy.nbytes)}, "copy")


def _float8(fast: bool) -> Iterator[Row]:
    size = 8192
    a, b = (normal(size, size, seed=at).to(torch.float8_e4m3fn) for at in range(2))
    one, all_ones = torch.tensor(1.0, device="cuda"), torch.ones(size, device="cuda")
    scales, precision = (all_ones, all_ones), "fast" if fast else "ieee"
    calls: dict[str, list[Callable[[], Any]]] = {
        _label(chosen): [partial(product, a, b, BF16, scales=scales, precision=precision, chosen=chosen)]
        for chosen in FP8
        if fast or chosen.block_n == 128  # accumulators twice
    }
    library: Any = partial(cast(Any, torch)._scaled_mm, out_dtype=BF16, use_fast_accum=fast)
    calls["_scaled_mm"] = [partial(library, a, b.t(), one, one)]
    yield from measure(f"linear_fp8 {size}^3 {precision}", calls, "_scaled_mm", THREADS)


def _int4(rows: int) -> Iterator[Row]:
    n, k = 14336, 4096
    weights = [normal(n, k, dtype=BF16, seed=at) for at in range(4)]  # packed, more than the L2 holds
    packed = [kernels.quantize_int4(weight) for weight in weights]
    x = normal(rows, k, dtype=BF16)
    group = k // packed[0][1].shape[1]
    halves = (packed[0][0].view(n, -1, group // 2) & 15, packed[0][0].view(n, -1, group // 2) >> 4)
    values = (torch.cat(halves, -1).double() - 8) * packed[0][1].double()[..., None]
    error = (kernels.linear_int4(x, *packed[0]).double() - x.double() @ values.view(n, k).t()).abs()
    bound = 2**-8 * (x.double().abs() @ values.view(n, k).abs().t())
    right = bool((error <= bound).all())
    print(f"linear_int4 {rows} rows: {'right' if right else 'WRONG'}, {float((error / bound).max()):.3f} of the bound")
    yield {"name": f"linear_int4 {rows} rows checked", "right": right}
    ours = [partial(kernels.linear_int4, x, *one) for one in packed]
    calls = _swept(int4, int4.CANDIDATES, ours)
    calls["cuBLAS bf16"] = [partial(torch.matmul, x, weight.t()) for weight in weights]
    calls["copy"] = _copy(packed[0][0].nbytes + packed[0][1].nbytes)
    yield from measure(f"linear_int4 {rows} x {n} x {k}", calls, "copy")


def _copy(nbytes: float) -> list[Callable[[], Any]]:
    """Copies that read and write so many bytes together, of different tensors."""
    tensors = [torch.empty(int(nbytes / 2), dtype=torch.uint8, device="cuda") for _ in range(8)]
    return [partial(to.copy_, source) for to, source in zip(tensors[::2], tensors[1::2], strict=True)]


def _loss() -> Iterator[Row]:
    rows, width, classes = 8192, 4096, 128256
    hidden, weight = normal(rows, width, dtype=BF16), normal(classes, width, dtype=BF16) / width**0.5
    target = torch.randint(classes, (rows,), device="cuda")

    def both(function: Callable[..., Tensor]) -> Any:
        leaves = [hidden.detach().requires_grad_(), weight.detach().requires_grad_()]
        return torch.autograd.grad(function(*leaves), leaves)

    functional: Any = torch.nn.functional
    forms: dict[str, Callable[..., Tensor]] = {
        "ours": lambda h, w: kernels.linear_cross_entropy(h, w, target),
        "eager": lambda h, w: functional.cross_entropy(h @ w.t(), target),
    }
    for label, function in forms.items():
        call = partial(both, function)
        ms, peak = median_ms([call], 3), peak_bytes(call)
        print(f"linear_cross_entropy {label}: {ms:.2f} ms, {peak / 1e9:.2f} GB", flush=True)
        yield {"name": "linear_cross_entropy", "configuration": label, "ms": ms, "peak": peak}


def _rope() -> Iterator[Row]:
    q, k = (normal(8, 2048, heads, 128, dtype=BF16) for heads in (32, 8))
    angles = normal(2048, 64)
    call = partial(kernels.rope, q, k, angles.cos().to(BF16), angles.sin().to(BF16))
    calls = _swept(rope, rope.CANDIDATES, [call])
    yield from measure("rope", calls | {"copy": _copy(2 * (q.nbytes + k.nbytes))}, "copy")


def _gated() -> Iterator[Row]:
    gate, up = (normal(16384, 4096, dtype=BF16, seed=at) for at in range(2))

    def replaced(chosen: Mapping[str, int]) -> Any:
        with mock.patch.multiple(gated, BLOCK=chosen["block"], WARPS=chosen["warps"]), torch.no_grad():
            return kernels.swiglu(gate, up)

    calls: dict[str, list[Callable[[], Any]]] = {_label(one): [partial(replaced, one)] for one in gated.CANDIDATES}
    yield from measure("swiglu", calls | {"copy": _copy(3 * gate.nbytes)}, "copy")


def _write(file: Path | None, found: list[Row]) -> None:
    if file is not None:
        whole = file.with_name(f".{file.name}")
        whole.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        whole.replace(file)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; answers its exit status, 1 where an item failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_tune", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, metavar="S", help="end after so many seconds (60)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what is measured there, too")
    given = parser.parse_args(arguments)
    end = time.monotonic() + given.seconds

    def over() -> None:
        print("== ended: the seconds are over", flush=True)
        os._exit(0)  # whatever runs: a kernel that does not end, a compiler

    watch = threading.Timer(given.seconds, over)
    watch.daemon = True
    watch.start()
    found: list[Row] = []
    status = 0
    for item in items():
        if time.monotonic() > end:
            break
        try:
            for row in item():
                found.append(row)
                _write(given.json, found)
        except Exception as error:  # noqa: BLE001  # the other items go on
            status = 1
            print(f"{item}: {type(error).__name__}: {error}"[:300], flush=True)
        torch.cuda.empty_cache()
    watch.cancel()
    return status


if __name__ == "__main__":
    sys.exit(main())
