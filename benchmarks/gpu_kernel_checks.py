"""Kernels on a GPU against PyTorch in float64, forward and backward: what the tests do in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from opweld import kernels
from opweld.kernels.product import CANDIDATES, product
from tests.kernels import compared

ROUNDINGS = 16.0
"""Exponentials and quotients of a GPU are a few roundings off."""

THREADS = 8
"""Triton compiles in as many threads as check."""

BF16 = torch.bfloat16


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Random numbers on the GPU, of a generator of their own."""
    generator = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


def check_all() -> list[tuple[str, str]]:
    """The name of each check and what is wrong, nothing where all is right."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(_outcome, CHECKS))


def _outcome(check: tuple[str, Callable[[], None]]) -> tuple[str, str]:
    name, run = check
    try:
        run()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001  # whatever it is, the other checks go on
        return name, f"{type(error).__name__}: {error}"[:300]
    return name, ""


def _compare(kernel: Callable[..., Any], reference: Callable[..., Any], *inputs: Tensor, **options: Any) -> None:
    given: dict[str, Any] = {"roundings": ROUNDINGS, "scale": 1.0, **options}
    compared.compare(kernel, reference, list(inputs), **given)


def _layer_norm(columns: int, dtype: torch.dtype) -> None:
    x, residual = normal(37, columns, dtype=dtype), normal(37, columns, dtype=dtype, seed=1)
    weight, bias = normal(columns, dtype=dtype, seed=2), normal(columns, dtype=dtype, seed=3)
    _compare(
        lambda x, r, w, b: kernels.layer_norm(x, w, b, residual=r),
        lambda x, r, w, b: (F.layer_norm(x + r, (columns,), w, b), x + r),
        *(x, residual, weight, bias),
        scale=8.0,
    )


def _rms_norm(columns: int, dtype: torch.dtype) -> None:
    def reference(x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight

    x, weight = normal(37, columns, dtype=dtype), normal(columns, dtype=dtype, seed=2)
    _compare(kernels.rms_norm, reference, x, weight, scale=8.0)
    if columns == 123:
        strided = normal(9, 300)[:, 3:126]
        _compare(lambda x: kernels.rms_norm(x), lambda x: reference(x, torch.ones_like(x)), strided)


def _softmax(columns: int, dtype: torch.dtype) -> None:
    _compare(kernels.softmax, partial(torch.softmax, dim=-1), 3 * normal(37, columns, dtype=dtype))


def _cross_entropy(classes: int, dtype: torch.dtype) -> None:
    target = torch.randint(classes, (37,), device="cuda")
    target[::5] = -100
    for options in ({}, {"label_smoothing": 0.1, "reduction": "sum"}, {"reduction": "none"}):
        given: dict[str, Any] = {"target": target, **options}
        logits = 3 * normal(37, classes, dtype=dtype)
        _compare(partial(kernels.cross_entropy, **given), partial(F.cross_entropy, **given), logits)
        _compare(
            lambda x, given=given: kernels.cross_entropy(x * 1.0, reuse_logits=True, **given),
            partial(F.cross_entropy, **given),
            logits,
        )


def _linear_cross_entropy() -> None:
    target = torch.randint(1000, (1500,), device="cuda")
    hidden, weight = normal(1500, 64, dtype=torch.bfloat16), normal(1000, 64, dtype=torch.bfloat16) / 8
    _compare(
        lambda h, w: kernels.linear_cross_entropy(h, w, target),
        lambda h, w: F.cross_entropy(h @ w.t(), target),
        *(hidden, weight),
        within=torch.bfloat16,
    )


def _linear(shape: tuple[int, int, int], dtype: torch.dtype, activation: str) -> None:
    functions = {"none": lambda z: z, "gelu": F.gelu, "silu": F.silu, "relu": F.relu}
    m, n, k = shape
    x, weight = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype, seed=1) / k**0.5
    bias, residual = normal(n, dtype=dtype), normal(m, n, dtype=dtype, seed=2)
    _compare(
        lambda x, w, b, r: kernels.linear(x, w, b, activation=activation, residual=r),
        lambda x, w, b, r: functions[activation](F.linear(x, w, b)) + r,
        *(x, weight, bias, residual),
        scale=8.0,
    )


def _configurations() -> None:
    a, b = normal(704, 320, dtype=torch.bfloat16), normal(528, 320, dtype=torch.bfloat16, seed=1)
    turned = (a.t().contiguous().t(), b.t().contiguous().t())
    expected = a.double() @ b.double().t()
    for chosen in CANDIDATES:
        for operands in ((a, b), turned) if chosen == CANDIDATES[0] else ((a, b),):
            got, _ = product(*operands, torch.bfloat16, chosen=chosen)
            compared.assert_close(got, expected)


def _tf32() -> None:
    a, b = normal(200, 320), normal(136, 320, seed=1)
    got = kernels.linear(a, b, precision="tf32")
    compared.assert_close(got, a.double() @ b.double().t(), 4, within=torch.float16)


def _eight_bits(element: torch.dtype, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    x, weight = (20 * normal(rows, k, seed=rows) for rows in (m, n))
    x, weight = (one.round().clamp(-127, 127).to(element) for one in (x, weight))
    x_scale, weight_scale = normal(m).abs() / 50, normal(n).abs() / 50
    layers = [kernels.linear_int8]
    if element != torch.int8:
        layers = [kernels.linear_fp8, partial(kernels.linear_fp8, fast=True)]
    expected = x.double() @ weight.double().t() * x_scale.double()[:, None] * weight_scale.double()
    for layer in layers:
        got = layer(x, weight, x_scale, weight_scale, activation="relu")
        compared.assert_close(got, F.relu(expected))


def _four_bits(m: int, dtype: torch.dtype) -> None:
    n, k, group = 264, 1024, 128
    x, weight = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype, seed=1)
    packed, scale = kernels.quantize_int4(weight, group)
    bytes_, half = packed.view(n, -1, group // 2).double(), scale.double().unsqueeze(-1)
    high = (bytes_ / 16).floor()
    numbers = torch.cat((bytes_ - 16 * high, high), -1) - 8
    compared.assert_close(kernels.linear_int4(x, packed, scale), x.double() @ (numbers * half).view(n, k).t())


def _gated(dtype: torch.dtype) -> None:
    gate, up = normal(37, 2056, dtype=dtype), normal(37, 2056, dtype=dtype, seed=1)
    _compare(kernels.swiglu, lambda a, b: F.silu(a) * b, gate, up, scale=8.0)
    _compare(kernels.geglu, lambda a, b: F.gelu(a) * b, gate, up, scale=8.0)
    _compare(
        partial(kernels.geglu, approximate="tanh"),
        lambda a, b: F.gelu(a, approximate="tanh") * b,
        *(gate[:, 1:124], up[:, 3:126]),
        scale=8.0,
    )


def _rope(dtype: torch.dtype, interleaved: bool) -> None:
    angles = normal(33, 64)
    cos, sin = angles.cos(), angles.sin()

    def rotated(x: Tensor) -> Tensor:
        c, s = (table.double()[:, None, :] for table in (cos, sin))
        a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
        first, second = a * c - b * s, b * c + a * s
        return torch.stack((first, second), -1).flatten(-2) if interleaved else torch.cat((first, second), -1)

    q, k = normal(2, 33, 12, 128, dtype=dtype), normal(2, 33, 3, 128, dtype=dtype)
    _compare(
        lambda q, k: kernels.rope(q, k, cos, sin, interleaved=interleaved), lambda q, k: (rotated(q), rotated(k)), q, k
    )


def _batch_norm_act(last: bool) -> None:
    x, residual = normal(3, 40, 7, 9, dtype=torch.bfloat16), normal(3, 40, 7, 9, dtype=torch.bfloat16, seed=1)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    mean, variance, weight, bias = normal(40), normal(40, seed=1) ** 2 + 0.1, normal(40, seed=2), normal(40, seed=3)
    got = kernels.batch_norm_act(x, mean, variance, weight, bias, residual=residual, activation="relu")
    exact = F.batch_norm(x.double(), mean.double(), variance.double(), weight.double(), bias.double())
    compared.assert_close(got, F.relu(exact + residual.double()), ROUNDINGS)


def _checks() -> list[tuple[str, Callable[[], None]]]:
    found: list[tuple[str, Callable[[], None]]] = []

    def add(name: str, function: Callable[..., None], *arguments: Any) -> None:
        shown = " ".join(str(one).removeprefix("torch.") for one in arguments)
        found.append((f"{name} {shown}".strip(), partial(function, *arguments)))

    add("products of all configurations", _configurations)  # first, for it compiles longest
    for shape in ((1, 129, 77), (40, 136, 512), (129, 123, 77), (256, 512, 1024), (2048, 4352, 256)):
        add("linear", _linear, shape, torch.bfloat16, "gelu")
    add("linear", _linear, (640, 264, 520), torch.float16, "silu")
    add("linear", _linear, (129, 136, 77), torch.float32, "relu")
    add("linear tf32", _tf32)
    for element in (torch.int8, torch.float8_e4m3fn):
        for shape in ((3, 136, 512), (200, 264, 528), (2048, 4352, 256)):
            add("linear", _eight_bits, element, shape)
    for m in (1, 16, 100):
        add("linear_int4", _four_bits, m, BF16)
    add("linear_int4", _four_bits, 5, torch.float16)
    for columns, dtype in ((123, BF16), (4096, BF16), (20000, BF16), (1000, torch.float32)):
        add("layer_norm", _layer_norm, columns, dtype)
        add("rms_norm", _rms_norm, columns, dtype)
        add("softmax", _softmax, columns, dtype)
    add("cross_entropy", _cross_entropy, 123, torch.float32)
    add("cross_entropy", _cross_entropy, 20000, BF16)
    add("gated", _gated, BF16)
    add("gated", _gated, torch.float16)
    add("rope", _rope, torch.bfloat16, False)
    add("rope interleaved", _rope, torch.bfloat16, True)
    add("batch_norm_act channels-first", _batch_norm_act, False)
    add("batch_norm_act channels-last", _batch_norm_act, True)
    add("linear_cross_entropy", _linear_cross_entropy)
    return found


CHECKS = _checks()
