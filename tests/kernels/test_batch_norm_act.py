"""Batch normalisation with what follows it, against float64 in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import batch_norm_act
from tests.kernels.compared import assert_close, random


def statistics(channels: int) -> list[Tensor]:
    return [random(channels, seed=1), random(channels, seed=2) ** 2, random(channels, seed=3), random(channels, seed=4)]


def reference(x: Tensor, parameters: list[Tensor], residual: Tensor | None = None) -> Tensor:
    mean, variance, weight, bias = (one.double() for one in parameters)
    y = F.batch_norm(x.double(), mean, variance, weight, bias)
    return F.relu(y if residual is None else y + residual.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (129, 5), (2, 5, 7), (2, 123, 3, 5), (1, 3, 2, 2, 700)], ids=str)
def test_channels_first(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, residual, parameters = random(*shape, dtype=dtype), random(*shape, dtype=dtype, seed=9), statistics(shape[1])
    y = batch_norm_act(x, *parameters, residual=residual, activation="relu")
    assert_close(y, reference(x, parameters, residual), 8)
    assert_close(batch_norm_act(x, *parameters, activation="relu"), reference(x, parameters), 8)


@pytest.mark.parametrize("shape", [(2, 5, 7, 3), (1, 600, 2, 3), (3, 1, 4, 4)], ids=str)
def test_channels_last(shape: tuple[int, ...]) -> None:
    x = random(*shape).contiguous(memory_format=torch.channels_last)
    parameters = statistics(shape[1])
    for residual in (random(*shape), random(*shape).contiguous(memory_format=torch.channels_last)):
        y = batch_norm_act(x, *parameters, residual=residual, activation="relu")
        assert y.stride() == x.stride()
        assert_close(y, reference(x, parameters, residual), 8)


def test_strides_parameters_and_nothing() -> None:
    x = random(4, 12, 10)[::2, 1::3, 2:9]
    mean, variance, weight, bias = (one.repeat_interleave(2)[::2] for one in statistics(4))
    expected = F.batch_norm(x.double(), mean.double(), variance.double())
    assert_close(batch_norm_act(x, mean, variance), expected, 8)
    expected = F.batch_norm(x.double(), mean.double(), variance.double(), weight.double())
    assert_close(batch_norm_act(x, mean, variance, weight), expected, 8)
    expected = F.batch_norm(x.double(), mean.double(), variance.double(), None, bias.double())
    assert_close(batch_norm_act(x, mean, variance, None, bias), expected, 8)
    for shape in ((0, 4, 3), (2, 4, 0)):
        assert batch_norm_act(random(*shape), mean, variance).shape == shape


def test_operator() -> None:
    x, parameters = random(2, 4, 3, 3), statistics(4)
    for one in (x, x.contiguous(memory_format=torch.channels_last)):
        torch.library.opcheck(torch.ops.opweld.batch_norm_act.default, (one, *parameters, None, 1e-5, "silu"))


def test_what_does_not_fit_is_named() -> None:
    x, parameters = random(2, 4, 3), statistics(4)
    with pytest.raises(InputError, match=r"variance has shape \(3,\), expected \(4,\): one element for each channel"):
        batch_norm_act(x, parameters[0], parameters[1][:3])
    with pytest.raises(InputError, match="activation is 'relu6'"):
        batch_norm_act(x, *parameters, activation="relu6")
    with pytest.raises(InputError, match=r"residual has shape \(2, 4\), expected \(2, 4, 3\)"):
        batch_norm_act(x, *parameters, residual=x[..., 0])
