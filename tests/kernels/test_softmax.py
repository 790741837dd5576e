"""Softmax against float64, forward and backward, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from opweld.errors import InputError
from opweld.kernels import softmax
from opweld.kernels.softmax import WHOLE
from tests.kernels.compared import compare, random


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (5, 123), (3, 2, 129), (17, 5)], ids=str)
def test_softmax(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    compare(softmax, reference, [random(*shape, dtype=dtype)])


def test_rows_longer_than_registers() -> None:
    x = random(3, WHOLE + 5)
    x[1] += torch.arange(WHOLE + 5) / 64  # the largest is met last
    compare(softmax, reference, [x], roundings=8)


@pytest.mark.parametrize("columns", [7, WHOLE + 5])
def test_large_numbers_and_masked_ones(columns: int) -> None:
    x = 1e4 * random(2, columns)
    x[:, : columns // 2] = float("-inf")
    y = softmax(x)
    torch.testing.assert_close(y.double(), reference(x.double()), rtol=1e-6, atol=1e-7)


def test_strides_and_nothing() -> None:
    compare(
        softmax,
        reference,
        [
            random(6, 40)[::2, 3:20],
        ],
    )
    compare(softmax, reference, [random(13, 4).t()])
    assert softmax(random(0, 4)).shape == (0, 4)
    assert softmax(random(4, 0)).shape == (4, 0)


def test_gradcheck_and_operator() -> None:
    x = random(3, 5, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(softmax, [x])
    torch.library.opcheck(torch.ops.opweld.softmax.default, (x,))


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match="x has 0 dimensions, expected 1 to 8"):
        softmax(torch.tensor(1.0))
    with pytest.raises(InputError, match="x is int64"):
        softmax(torch.arange(4))
