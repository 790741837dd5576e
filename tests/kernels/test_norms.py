"""LayerNorm and RMSNorm against float64, forward and backward, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import row_norm
from opweld.kernels.layer_norm import layer_norm
from opweld.kernels.rms_norm import rms_norm
from tests.kernels.compared import compare, random

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((1, 1), (5, 123), (3, 2, 129), (7, 128))


def layer_norm_reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def rms_norm_reference(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layer_norm(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    inputs = [random(*shape, dtype=dtype), random(shape[-1], dtype=dtype, seed=1), random(shape[-1], dtype=dtype)]
    compare(layer_norm, layer_norm_reference, inputs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rms_norm(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    inputs = [random(*shape, dtype=dtype), random(shape[-1], dtype=dtype, seed=1)]
    compare(rms_norm, rms_norm_reference, inputs)


@pytest.mark.parametrize("columns", [5, 129])
def test_what_is_added_before_is_returned_and_its_gradient_joins(columns: int) -> None:
    def added(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return rms_norm(x, weight, residual=residual)

    def reference(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return rms_norm_reference(x + residual, weight), x + residual

    compare(added, reference, [random(5, columns), random(5, columns, seed=1), random(columns, seed=2)])

    def centred(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return layer_norm(x, weight, residual=residual)

    def centred_reference(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return F.layer_norm(x + residual, (columns,), weight), x + residual

    compare(centred, centred_reference, [random(5, columns), random(5, columns, seed=1), random(columns, seed=2)])


def test_the_sum_is_rounded_before_it_is_normalised() -> None:
    x, residual = random(3, 128, dtype=torch.float16), random(3, 128, dtype=torch.float16, seed=1)
    y, total = rms_norm(x, residual=residual)
    assert torch.equal(total, x + residual)
    assert torch.equal(y, rms_norm(total))


def test_rows_longer_than_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_norm, "WHOLE", 64)
    monkeypatch.setattr(row_norm, "WHOLE_BACKWARD", 64)
    inputs = [random(35, 4099), random(4099, seed=1), random(4099, seed=2)]
    compare(layer_norm, layer_norm_reference, inputs)
    compare(rms_norm, rms_norm_reference, inputs[:2])
    residual = random(2, 4099, seed=3)
    y, total = layer_norm(inputs[0][:2], residual=residual)
    torch.testing.assert_close(total, inputs[0][:2] + residual)
    torch.testing.assert_close(y, F.layer_norm(total, (4099,)), rtol=0, atol=1e-5)


def test_variance_is_of_what_is_centred() -> None:
    """Squares of numbers around 4096 would have no digits left for a variance of 1."""
    x = 4096 + random(2, 123)
    torch.testing.assert_close(layer_norm(x).double(), F.layer_norm(x.double(), (123,)), rtol=0, atol=1e-3)


def test_strides_without_a_copy_and_with() -> None:
    wide = random(6, 4, 300)
    rows = wide[:, 1:3, 10:133]
    columns = random(123, 12).t()
    for x in (rows, columns, wide[::2, 0, :123]):
        compare(lambda x: layer_norm(x), lambda x: F.layer_norm(x, (123,)), [x])


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (0,)], ids=str)
def test_empty(shape: tuple[int, ...]) -> None:
    x, weight = random(*shape).requires_grad_(), random(shape[-1]).requires_grad_()
    y = layer_norm(x, weight)
    y.sum().backward()
    assert y.shape == shape
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.zeros(shape[-1]))


def test_gradcheck() -> None:
    x, residual = random(3, 5, dtype=torch.float64), random(3, 5, dtype=torch.float64, seed=1)
    weight, bias = random(5, dtype=torch.float64, seed=2), random(5, dtype=torch.float64, seed=3)
    inputs = [tensor.requires_grad_() for tensor in (x, residual, weight, bias)]
    assert torch.autograd.gradcheck(lambda x, r, w, b: layer_norm(x, w, b, residual=r), inputs)
    assert torch.autograd.gradcheck(lambda x, r, w: rms_norm(x, w, residual=r), inputs[:3])


def test_bias_without_weight_and_neither() -> None:
    compare(lambda x, b: layer_norm(x, None, b), lambda x, b: F.layer_norm(x, (9,)) + b, [random(4, 9), random(9)])
    compare(rms_norm, lambda x: rms_norm_reference(x, torch.ones(9).double()), [random(4, 9)])


def test_compilers_see_the_operator() -> None:
    x, weight = random(4, 9).requires_grad_(), random(9).requires_grad_()
    torch.library.opcheck(torch.ops.opweld.layer_norm.default, (x, None, weight, weight, 1e-5))
    torch.library.opcheck(torch.ops.opweld.rms_norm.default, (x, x.detach().clone(), weight, 1e-5))


def test_what_does_not_fit_is_named() -> None:
    x = random(4, 9)
    with pytest.raises(InputError, match=r"weight has shape \(8,\), expected \(9,\): one element for each column of x"):
        layer_norm(x, random(8))
    with pytest.raises(InputError, match=r"residual has shape \(4, 8\), expected \(4, 9\)"):
        rms_norm(x, residual=random(4, 8))
    with pytest.raises(InputError, match=r"residual is torch.float16 on cpu, x is torch.float32"):
        rms_norm(x, residual=x.half())
    with pytest.raises(InputError, match="x is int32, expected float16"):
        layer_norm(x.int())
