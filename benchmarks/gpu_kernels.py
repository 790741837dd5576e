"""The kernels of `opweld.kernels` but attention: right on this GPU, and how near to its limits beside PyTorch.

    python -m benchmarks.gpu kernels

Kernels that move memory are told as a fraction of the bandwidth of a copy, by the bytes that they must move; products
as a fraction of cuBLAS's speed. Inputs are random, and larger than the L2 together.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.gpu_kernel_checks import check_all, normal
from benchmarks.gpu_timing import median_ms, peak_bytes
from opweld import kernels
from opweld.kernels import cross_entropy, linear_fp8, linear_int8, row_norm, softmax
from opweld.kernels.product import CANDIDATES, Configuration, product

QUICK_S = 85
"""After so many seconds a quick run begins nothing that may be left out."""

ROWS, COLUMNS = 16384, 4096
SETS = 3
BF16 = torch.bfloat16

Row = dict[str, Any]


def main(quick: bool) -> Iterator[Row]:
    """Yields what was checked and what was measured, the most important first."""
    begin = time.monotonic()

    def left() -> bool:
        return not quick or time.monotonic() - begin < QUICK_S

    yield from _checked()
    print(f"   checked after {time.monotonic() - begin:.0f} s")
    copy = yield from _copy()
    yield from _moving(copy)
    yield from _products(quick)
    yield from _losses(copy)
    yield from _eight_bits()
    yield from _four_bits(copy)
    for part in (partial(_swept, copy, quick), partial(_compiled, copy, quick), _fused_loss, _epilogues):
        if not left():
            print("   the rest is left out: no time")
            return
        for row in part():
            yield row
            if not left():
                break


def _checked() -> Iterator[Row]:
    outcomes = check_all()
    wrong = [(name, message) for name, message in outcomes if message]
    for name, message in wrong:
        print(f"WRONG {name}: {message}")
    print(f"{len(outcomes) - len(wrong)} of {len(outcomes)} checks right")
    yield {"checks": len(outcomes), "wrong": dict(wrong)}


def _copy() -> Iterator[Row]:
    pairs = [
        (normal(ROWS, COLUMNS, dtype=BF16), torch.empty(ROWS, COLUMNS, dtype=BF16, device="cuda")) for _ in range(SETS)
    ]
    moved = 2 * pairs[0][0].nbytes
    ms = median_ms([partial(to.copy_, source) for source, to in pairs])
    print(f"{'copy':34} {ms:8.3f} ms  {moved / ms / 1e6:6.0f} GB/s")
    yield {"name": "copy", "ms": ms, "bytes_per_s": moved / ms * 1e3}
    return moved / ms * 1e3


def _told(name: str, copy: float, moved: float, ours: float, others: Mapping[str, float]) -> Row:
    """A row of a kernel that moves so many bytes, printed."""
    fraction = moved / ours * 1e3 / copy
    beside = "  ".join(f"{other} {ms:.3f} ({ms / ours:.2f}x)" for other, ms in others.items())
    print(f"{name:34} {ours:8.3f} ms  {fraction:5.0%} of copy  {beside}")
    return {"name": name, "ms": ours, "of_copy": fraction, **{f"{other}_ms": ms for other, ms in others.items()}}


def _moved(name: str, copy: float, moved: float, ours: Callable[..., Any], eager: Callable[..., Any], sets: Any) -> Row:
    with torch.no_grad():
        mine, theirs = (median_ms([partial(function, *given) for given in sets]) for function in (ours, eager))
    return _told(name, copy, moved, mine, {"eager": theirs})


def _backward(
    name: str, copy: float, moved: float, ours: Callable[..., Any], eager: Callable[..., Any], sets: Any
) -> Row:
    def times(function: Callable[..., Any]) -> float:
        calls: list[Callable[[], Any]] = []
        for given in sets:
            leaves = [tensor.detach().requires_grad_() for tensor in given]
            results = function(*leaves)
            several = results if isinstance(results, tuple) else (results,)
            gradients = [torch.randn_like(one) for one in several]
            calls.append(partial(torch.autograd.grad, several, leaves, gradients, retain_graph=True))
        return median_ms(calls)

    return _told(name, copy, moved, times(ours), {"eager": times(eager)})


def rms_norm_eager(x: Tensor, weight: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """As models have it: PyTorch's own rms_norm after the sum."""
    total = x + residual
    return F.rms_norm(total, total.shape[-1:], weight, 1e-6), total


def layer_norm_eager(x: Tensor, weight: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """The sum, then PyTorch's layer_norm of it."""
    total = x + residual
    return F.layer_norm(total, total.shape[-1:], weight), total


def layer_norm_ours(x: Tensor, weight: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """Both in one kernel."""
    return kernels.layer_norm(x, weight, residual=residual)


def rms_norm_ours(x: Tensor, weight: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """Both in one kernel."""
    return kernels.rms_norm(x, weight, residual=residual)


def rope_eager(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """As Transformers has it; cos and sin [S, D / 2]."""
    c, s = (torch.cat((table, table), -1)[:, None, :] for table in (cos, sin))

    def rotated(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * c + torch.cat((-b, a), -1) * s

    return rotated(q), rotated(k)


def _row_sets(count: int) -> list[list[Tensor]]:
    return [[normal(ROWS, COLUMNS, dtype=BF16, seed=10 * at + one) for one in range(count)] for at in range(SETS)]


def _moving(copy: float) -> Iterator[Row]:
    whole = ROWS * COLUMNS * 2
    pairs = _row_sets(2)
    weight = normal(COLUMNS, dtype=BF16)
    normed = [(x, weight, residual) for x, residual in pairs]
    ones = [(x,) for x, _ in pairs]
    plain = partial(F.layer_norm, normalized_shape=(COLUMNS,))
    yield _moved("layer_norm", copy, 2 * whole, kernels.layer_norm, plain, ones)
    yield _moved("layer_norm + residual", copy, 4 * whole, layer_norm_ours, layer_norm_eager, normed)
    yield _moved("rms_norm + residual", copy, 4 * whole, rms_norm_ours, rms_norm_eager, normed)
    yield _moved("softmax", copy, 2 * whole, kernels.softmax, partial(torch.softmax, dim=-1), ones)
    yield _moved("swiglu", copy, 3 * whole, kernels.swiglu, lambda a, b: F.silu(a) * b, pairs)
    yield _moved("geglu", copy, 3 * whole, kernels.geglu, lambda a, b: F.gelu(a) * b, pairs)
    angles = normal(ROWS // 8, 64)
    tables = (angles.cos().to(BF16), angles.sin().to(BF16))
    heads = [(x.view(8, -1, 32, 128), y.view(8, -1, 32, 128)[:, :, :8].contiguous(), *tables) for x, y in pairs]
    yield _moved("rope, 32 and 8 heads of 128", copy, 2.5 * whole, kernels.rope, rope_eager, heads)
    statistics = [normal(256), normal(256) ** 2 + 0.1, normal(256), normal(256)]
    images = [[x.view(64, 64, 64, 256).permute(0, 3, 1, 2) for x in pair] for pair in pairs]
    yield _moved(
        "batch_norm_act, channels-last",
        copy,
        3 * whole,
        lambda x, r: kernels.batch_norm_act(x, *statistics, residual=r, activation="relu"),
        lambda x, r: F.relu(F.batch_norm(x, statistics[0], statistics[1], statistics[2], statistics[3]) + r),
        images,
    )
    yield _backward("layer_norm + residual backward", copy, 4 * whole, layer_norm_ours, layer_norm_eager, normed[:2])
    yield _backward("rms_norm + residual backward", copy, 4 * whole, rms_norm_ours, rms_norm_eager, normed[:2])
    yield _backward("softmax backward", copy, 3 * whole, kernels.softmax, partial(torch.softmax, dim=-1), ones[:2])
    yield _backward("swiglu backward", copy, 5 * whole, kernels.swiglu, lambda a, b: F.silu(a) * b, pairs[:2])


def _products(quick: bool) -> Iterator[Row]:
    for size in (4096, 8192):
        sets = [(normal(size, size, dtype=BF16), normal(size, size, dtype=BF16, seed=at)) for at in range(2)]
        work, samples = 2 * size**3, 10 if quick else 30
        library = [partial(torch.matmul, a, b.t()) for a, b in sets]
        before = median_ms(library, samples)
        with ThreadPoolExecutor() as pool:  # which compile
            list(pool.map(partial(_tried, *sets[0]), CANDIDATES))
        found: list[tuple[float, Configuration]] = []
        for chosen in CANDIDATES:
            try:
                ms = median_ms([partial(product, a, b, BF16, chosen=chosen) for a, b in sets], samples)
            except Exception as error:  # noqa: BLE001  # a configuration that does not fit
                print(f"{size}^3 {chosen}: {type(error).__name__}: {error}"[:160])
                continue
            found.append((ms, chosen))
        cublas = (before + median_ms(library, samples)) / 2
        print(
            f"linear {size}^3 bf16: cuBLAS {cublas:.3f} ms {work / cublas / 1e9:.0f} TFLOP/s; ours as a fraction of it:"
        )
        for ms, chosen in sorted(found, key=lambda one: one[0]):
            parts = f" parts {chosen.parts} group {chosen.group}"
            print(f"   {str(chosen) + parts:44} {ms:8.3f} ms  {cublas / ms:5.0%}")
            yield {"name": f"linear {size}", "configuration": str(chosen) + parts, "ms": ms, "cublas_ms": cublas}


def _tried(a: Tensor, b: Tensor, chosen: Configuration) -> None:
    with suppress(Exception):  # told when it is measured
        product(a, b, BF16, chosen=chosen)


def _epilogues() -> Iterator[Row]:
    for size in (4096, 8192):
        x, weight, residual = (normal(size, size, dtype=BF16, seed=at) for at in range(3))
        bias = normal(size, dtype=BF16)
        with torch.no_grad():
            ours = median_ms([partial(kernels.linear, x, weight, bias, activation="gelu", residual=residual)], 10)
            cublas = median_ms([partial(torch.matmul, x, weight.t())], 10)
            eager = median_ms([partial(_linear_eager, x, weight, bias, residual)], 10)
        name = f"linear {size} bias gelu residual"
        print(f"{name:34} {ours:8.3f} ms  {cublas / ours:5.0%} of cuBLAS alone  eager {eager:.3f}")
        yield {"name": name, "ms": ours, "cublas_ms": cublas, "eager_ms": eager}


def _linear_eager(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return F.gelu(F.linear(x, weight, bias)) + residual


def _losses(copy: float) -> Iterator[Row]:
    rows, classes = 8192, 128256
    logits = normal(rows, classes, dtype=BF16)
    target = torch.randint(classes, (rows,), device="cuda")
    with torch.no_grad():
        ours = median_ms([partial(kernels.cross_entropy, logits, target)], 5)
        eager = median_ms([partial(F.cross_entropy, logits, target)], 5)
    yield _told("cross_entropy", copy, logits.nbytes, ours, {"eager": eager})

    def both(function: Callable[..., Tensor]) -> Callable[[], Any]:
        def call() -> Any:
            leaf = logits.detach().requires_grad_()
            return torch.autograd.grad(function(leaf, target), leaf)

        return call

    forms: dict[str, Callable[..., Tensor]] = {"ours": kernels.cross_entropy, "eager": F.cross_entropy}
    if (liger := _liger()) is not None:
        forms["liger"] = liger
    forms["in place"] = partial(kernels.cross_entropy, reuse_logits=True)  # last: it replaces the logits
    times = {name: median_ms([both(function)], 5) for name, function in forms.items()}
    logits.copy_(normal(rows, classes, dtype=BF16))
    peaks = {name: logits.nbytes + peak_bytes(both(function)) for name, function in forms.items()}
    yield _told("cross_entropy, both ways", copy, 3 * logits.nbytes, times.pop("in place"), times)
    shown = "  ".join(f"{name} {peak / 1e9:.2f} GB ({peak / peaks['eager'] - 1:+.0%})" for name, peak in peaks.items())
    print(f"   peak with the logits: {shown}")
    yield {"name": "cross_entropy peak", **peaks}


def _liger() -> Callable[..., Tensor] | None:
    try:
        from liger_kernel.transformers.functional import (  # pyright: ignore[reportMissingImports]
            liger_cross_entropy,  # pyright: ignore[reportUnknownVariableType]
        )
    except ImportError:
        return None
    return liger_cross_entropy  # pyright: ignore[reportUnknownVariableType]


def _fused_loss() -> Iterator[Row]:
    rows, width, classes = 8192, 4096, 128256
    hidden, weight = normal(rows, width, dtype=BF16), normal(classes, width, dtype=BF16) / width**0.5
    target = torch.randint(classes, (rows,), device="cuda")

    def call(function: Callable[..., Tensor]) -> Any:
        leaves = [hidden.detach().requires_grad_(), weight.detach().requires_grad_()]
        return torch.autograd.grad(function(*leaves), leaves)

    ours = partial(call, lambda h, w: kernels.linear_cross_entropy(h, w, target))
    eager = partial(call, lambda h, w: F.cross_entropy(h @ w.t(), target))
    times, peaks = [median_ms([one], 3) for one in (ours, eager)], [peak_bytes(one) for one in (ours, eager)]
    print(
        f"linear_cross_entropy both ways     {times[0]:8.2f} ms, {peaks[0] / 1e9:.2f} GB  "
        f"eager {times[1]:.2f} ms, {peaks[1] / 1e9:.2f} GB ({peaks[0] / peaks[1] - 1:+.0%})"
    )
    yield {
        "name": "linear_cross_entropy",
        "ms": times[0],
        "eager_ms": times[1],
        "peak": peaks[0],
        "eager_peak": peaks[1],
    }


def _eight_bits() -> Iterator[Row]:
    size = 8192
    x, weight = (normal(size, size, seed=at).mul_(20).round_().clamp_(-127, 127) for at in range(2))
    scale = torch.tensor(1e-4, device="cuda")
    scales = (torch.full((size,), 1e-4, device="cuda"), torch.full((size,), 1e-2, device="cuda"))
    a, b = x.to(torch.int8), weight.to(torch.int8)
    library = median_ms([lambda: cast(Any, torch)._int_mm(a, b.t())], 10)
    yield from _eight_bits_swept("linear_int8", size, a, b, scales, linear_int8_candidates(), "_int_mm", library)
    a, b = x.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn)
    for fast in (False, True):
        scaled: Any = partial(cast(Any, torch)._scaled_mm, out_dtype=BF16, use_fast_accum=fast)
        library = median_ms([lambda scaled=scaled: scaled(a, b.t(), scale, scale)], 10)
        name = "linear_fp8 fast" if fast else "linear_fp8"
        chosen = linear_fp8_candidates() if fast else [one for one in linear_fp8_candidates() if one.block_n == 128]
        yield from _eight_bits_swept(name, size, a, b, scales, chosen, "_scaled_mm", library, fast=fast)


def _four_bits(copy: float) -> Iterator[Row]:
    """Of few rows: as a fraction of a copy, which reads as much as it writes, beside the same product in bfloat16."""
    n, k = 16384, 8192
    sets = [(weight, *kernels.quantize_int4(weight)) for weight in (normal(n, k, dtype=BF16, seed=at) for at in (1, 2))]
    moved = sets[0][1].nbytes + sets[0][2].nbytes
    for m in (1, 16):
        x = normal(m, k, dtype=BF16)
        ours = median_ms([partial(kernels.linear_int4, x, packed, scale) for _, packed, scale in sets])
        plain = median_ms([partial(torch.matmul, x, weight.t()) for weight, _, _ in sets])
        same = median_ms([partial(kernels.linear, x, weight) for weight, _, _ in sets])
        yield _told(f"linear_int4, {m} rows", copy, moved, ours, {"cuBLAS bf16": plain, "linear bf16": same})


def linear_int8_candidates() -> list[Configuration]:
    """Those of the module, whose name in the package is the function."""
    return list(sys.modules[linear_int8.__module__].CANDIDATES)


def linear_fp8_candidates() -> list[Configuration]:
    """The same."""
    return list(sys.modules[linear_fp8.__module__].CANDIDATES)


def _eight_bits_swept(
    name: str,
    size: int,
    a: Tensor,
    b: Tensor,
    scales: tuple[Tensor, Tensor],
    candidates: list[Configuration],
    library_name: str,
    library: float,
    *,
    fast: bool = False,
) -> Iterator[Row]:
    for chosen in candidates:
        precision = "fast" if fast else "ieee"
        call = partial(product, a, b, BF16, scales=scales, precision=precision, chosen=chosen)
        try:
            ms = median_ms([call], 10)
        except Exception as error:  # noqa: BLE001  # a configuration that does not fit
            print(f"{name} {chosen}: {type(error).__name__}: {error}"[:160])
            continue
        rate = 2 * size**3 / ms / 1e9
        print(f"{f'{name} {chosen}':44} {ms:8.3f} ms {rate:5.0f} TOP/s  {library / ms:5.0%} of {library_name}")
        yield {"name": name, "configuration": str(chosen), "ms": ms, f"{library_name}_ms": library}


@contextmanager
def _replaced(module: Any, name: str, value: Any) -> Generator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _swept(copy: float, quick: bool) -> Iterator[Row]:
    """The default configuration and others, the fastest three told."""
    whole = ROWS * COLUMNS * 2
    pairs = _row_sets(2)
    weight = normal(COLUMNS, dtype=BF16)
    h, means = pairs[0][0], normal(ROWS)
    scales = torch.rand(ROWS, device="cuda")
    logits, target = normal(4096, 128256, dtype=BF16), torch.randint(128256, (4096,), device="cuda")
    norm = row_norm
    loss, soft = sys.modules[cross_entropy.__module__], sys.modules[softmax.__module__]
    sweeps: tuple[tuple[str, Any, str, Any, float, Callable[[], Any]], ...] = (
        ("cross_entropy", loss, "configuration", loss.CANDIDATES, logits.nbytes,
         lambda: kernels.cross_entropy(logits, target)),
        ("layer_norm + residual", norm, "configuration", norm.CANDIDATES, 4 * whole,
         lambda: kernels.layer_norm(pairs[0][0], weight, residual=pairs[0][1])),
        ("layer_norm backward", norm, "backward_configuration", norm.CANDIDATES_BACKWARD, 3 * whole,
         lambda: norm.backward(pairs[0][1], None, h, weight, means, scales, has_bias=True)),
        ("softmax", soft, "configuration", soft.CANDIDATES, 2 * whole, lambda: kernels.softmax(h)),
    )  # fmt: skip
    for name, module, attribute, candidates, moved, call in sweeps:
        found: list[tuple[float, Any]] = []
        for chosen in (getattr(module, attribute)(COLUMNS), *(candidates[::2] if quick else candidates)):
            with _replaced(module, attribute, lambda _, chosen=chosen: chosen), torch.no_grad():
                found.append((median_ms([call], 10), chosen))
        default, best = found[0][0], sorted(found, key=lambda one: one[0])[:3]
        shown = "; ".join(f"{moved / ms * 1e3 / copy:.0%} {_short(chosen)}" for ms, chosen in best)
        print(f"{name:24} default {moved / default * 1e3 / copy:.0%} of copy, best {shown}")
        yield {"name": f"{name} swept", "found": [(ms, _short(chosen)) for ms, chosen in found]}


def _short(chosen: Mapping[str, int]) -> str:
    return " ".join(f"{key} {value}" for key, value in chosen.items())


def _compiled(copy: float, quick: bool) -> Iterator[Row]:
    """Beside what torch.compile makes of PyTorch's own, and ours within a graph."""
    whole = ROWS * COLUMNS * 2
    pairs = _row_sets(2)
    weight = normal(COLUMNS, dtype=BF16)
    normed = [(x, weight, residual) for x, residual in pairs]
    forms: list[tuple[str, float, Any, Any, Any]] = [
        ("layer_norm + residual", 4 * whole, layer_norm_ours, layer_norm_eager, normed),
        ("swiglu", 3 * whole, kernels.swiglu, lambda a, b: F.silu(a) * b, pairs),
        ("softmax", 2 * whole, kernels.softmax, partial(torch.softmax, dim=-1), [(x,) for x, _ in pairs]),
    ]
    for name, moved, ours, eager, sets in forms[: 2 if quick else None]:
        with torch.no_grad():
            theirs, within = (torch.compile(one, fullgraph=True, dynamic=False) for one in (eager, ours))
            times = [median_ms([partial(function, *given) for given in sets]) for function in (ours, theirs, within)]
            results: list[Any] = [function(*sets[0]) for function in (ours, within)]
        torch.testing.assert_close(results[0], results[1], rtol=2e-2, atol=2e-2)
        yield _told(f"{name}, compiled", copy, moved, times[0], {"inductor": times[1], "ours within": times[2]})
