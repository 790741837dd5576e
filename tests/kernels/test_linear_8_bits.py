"""Linear layers of int8 and float8 against float64 in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import linear_fp8, linear_int8
from opweld.kernels.product import Configuration, product
from tests.kernels.compared import assert_close, random

KINDS = {torch.int8: linear_int8, torch.float8_e4m3fn: linear_fp8}


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    x = 40 * random(*shape, seed=seed)
    return x.round().clamp(-128, 127).to(torch.int8) if dtype == torch.int8 else x.to(dtype)


def reference(x: Tensor, weight: Tensor, x_scale: Tensor, weight_scale: Tensor) -> Tensor:
    sums = x.double() @ weight.double().t()
    return sums * x_scale.double().unsqueeze(-1) * weight_scale.double()


@pytest.mark.parametrize("element", KINDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 17, 33), (3, 2, 40, 300)], ids=str)
def test_linear(element: torch.dtype, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    layer = KINDS[element]
    *rows, n, k = shape
    x, weight = numbers(*rows, k, dtype=element), numbers(n, k, dtype=element, seed=1)
    x_scale, weight_scale = random(*rows).abs() / 100, random(n, seed=2).abs() / 100
    z = reference(x, weight, x_scale, weight_scale)
    assert_close(layer(x, weight, x_scale, weight_scale, dtype=dtype), z)
    bias, residual = random(n, dtype=dtype), random(*rows, n, dtype=dtype)
    y = layer(x, weight, x_scale, weight_scale, bias, activation="relu", residual=residual, dtype=dtype)
    assert_close(y, F.relu(z + bias.double()) + residual.double())


@pytest.mark.parametrize("element", KINDS, ids=str)
@pytest.mark.parametrize(
    "chosen",
    [Configuration(16, 32, 32, 4, 2, split=3), Configuration(16, 32, 32, 4, 2, tma=True)],
    ids=str,
)
def test_configurations(element: torch.dtype, chosen: Configuration) -> None:
    x, weight = numbers(40, 96, dtype=element), numbers(48, 96, dtype=element, seed=1)
    scales = (random(40).abs(), random(48).abs())
    out, _ = product(x, weight, torch.float32, scales=scales, chosen=chosen)
    assert_close(out, reference(x, weight, *scales))


def test_sums_of_int8_are_exact() -> None:
    """The largest of them is beyond what float32 counts."""
    x, weight = torch.full((1, 2000), -128, dtype=torch.int8), torch.full((3, 2000), -128, dtype=torch.int8)
    x[0, 0], weight[1:, 0] = 127, 127
    expected = x.int() @ weight.int().t()
    one = torch.ones(1)
    assert torch.equal(linear_int8(x, weight, one, one, dtype=torch.float32), expected.float())


def test_one_scale_for_all_strides_and_nothing() -> None:
    x, weight = numbers(24, 9, dtype=torch.int8).t(), numbers(7, 48, dtype=torch.int8, seed=1)[:, ::2]
    scale = torch.tensor(0.01)
    y = linear_int8(x, weight, scale, scale, dtype=torch.float32)
    assert_close(y, reference(x, weight, scale.expand(9), scale.expand(7)))
    assert linear_int8(x[:0], weight, torch.ones(0), scale).shape == (0, 7)


def test_operators() -> None:
    x, weight = numbers(4, 16, dtype=torch.int8), numbers(8, 16, dtype=torch.int8)
    tail: tuple[Any, ...] = (random(4) / 1e4, random(8), None, None, "silu", torch.bfloat16)
    torch.library.opcheck(torch.ops.opweld.linear_int8.default, (x, weight, *tail))


def test_what_does_not_fit_is_named() -> None:
    x, weight, scale = numbers(4, 16, dtype=torch.int8), numbers(8, 16, dtype=torch.int8), torch.ones(1)
    with pytest.raises(InputError, match=r"x_scale has shape \(5,\), expected \(4,\): one number for all, or one for"):
        linear_int8(x, weight, torch.ones(5), scale)
    with pytest.raises(InputError, match="x is int8, expected float8_e4m3fn"):
        linear_fp8(x, weight, scale, scale)
    with pytest.raises(InputError, match="bias is float32, expected bfloat16"):
        linear_int8(x, weight, scale, scale, torch.ones(8))
    with pytest.raises(InputError, match=r"dtype is torch\.int32"):
        linear_int8(x, weight, scale, scale, dtype=torch.int32)
