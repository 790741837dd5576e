"""Linear layers with weights of 4 bits, against float64 in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import linear_int4, quantize_int4
from opweld.kernels.linear_int4 import pack_int4
from tests.kernels.compared import assert_close, random


def integers(n: int, k: int) -> Tensor:
    return torch.randint(16, (n, k), generator=torch.Generator().manual_seed(n + k), dtype=torch.uint8)


def reference(x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    group = weight.shape[1] // scale.shape[1]
    numbers = weight.double() - zero.double().repeat_interleave(group, 1)
    return x.double() @ (numbers * scale.double().repeat_interleave(group, 1)).t()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("group", [32, 64, 128, 256])
@pytest.mark.parametrize("m", [1, 5, 17])
def test_linear(dtype: torch.dtype, group: int, m: int) -> None:
    n, k = 37, 3 * group
    x, weight, scale = random(m, k, dtype=dtype), integers(n, k), random(n, 3, dtype=dtype).abs()
    packed = pack_int4(weight, group)
    assert_close(linear_int4(x, packed, scale), reference(x, weight, scale, torch.full((n, 3), 8)))
    zero, bias, residual = integers(n, 3), random(n, dtype=dtype), random(m, n, dtype=dtype)
    y = linear_int4(x, packed, scale, zero, bias, activation="relu", residual=residual)
    assert_close(y, F.relu(reference(x, weight, scale, zero) + bias.double()) + residual.double())


def test_more_rows_and_columns_than_a_tile_and_whole_sums() -> None:
    x, weight, scale = random(2, 70, 64, dtype=torch.float16), integers(140, 64), random(140, 1, dtype=torch.float16)
    y = linear_int4(x, pack_int4(weight, 64), scale)
    assert_close(y, reference(x, weight, scale, torch.full((140, 1), 8)))


def test_quantized_weights_are_within_half_a_step() -> None:
    weight = random(9, 256)
    weight[3, :128] = 0
    packed, scale = quantize_int4(weight)
    rows = torch.eye(256, dtype=torch.float16)
    got = linear_int4(rows, packed, scale.half()).t().double()
    steps = scale.half().double().repeat_interleave(128, 1)
    assert ((got - weight).abs() <= 0.51 * steps).all()


def test_operator_and_nothing() -> None:
    x, weight, scale = random(4, 64, dtype=torch.float16), integers(8, 64), random(8, 2, dtype=torch.float16)
    packed = pack_int4(weight, 32)
    torch.library.opcheck(torch.ops.opweld.linear_int4.default, (x, packed, scale, None, None, None, "none"))
    assert linear_int4(x[:0], packed, scale).shape == (0, 8)


def test_what_does_not_fit_is_named() -> None:
    x, weight, scale = random(4, 64, dtype=torch.float16), integers(8, 64), random(8, 2, dtype=torch.float16)
    packed = pack_int4(weight, 32)
    with pytest.raises(InputError, match=r"packed has shape \(8, 64\), expected \(8, 32\): half a byte"):
        linear_int4(x, weight, scale)
    with pytest.raises(InputError, match="64 weights of a row are no whole groups of 21, one of 32, 64, 128, 256"):
        linear_int4(x, packed, random(8, 3, dtype=torch.float16))
    with pytest.raises(InputError, match=r"zero has shape \(8, 1\), expected \(8, 2\): as scale"):
        linear_int4(x, packed, scale, integers(8, 1))
    with pytest.raises(InputError, match="60 weights of a row are no whole groups of 128"):
        quantize_int4(random(4, 60))
