"""Loads whose guards differ from lane to lane while their address does not: padding around a single element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from opweld.tensor.dim import Dim, Symbol, as_dim
from opweld.tensor.expr import Expr, at_least_zero, binary, load, select
from opweld.tile.tile import Buffer
from tests.unit.codegen.hand_written import F32, f32
from tests.unit.codegen.test_kernels import check, map_kernel

X = Buffer("x", F32, "read")
N = Symbol("n")


def padded(fill: float, start: int, end: int) -> Callable[[Dim], Expr]:
    """The element at 2 for every place of [start, end), the fill at the others."""

    def value(place: Dim) -> Expr:
        return load("x", F32, (as_dim(2),), (place - start, as_dim(end - 1) - place), f32(fill))

    return value


@pytest.mark.parametrize("fill", [0.0, -0.0, 2.5])
@pytest.mark.parametrize("total", [5, 16, 21, 35])
def test_one_element_in_its_padding(fill: float, total: int) -> None:
    start, end = 3, total - 1
    actual = check(map_kernel(padded(fill, start, end), total, (X,)), {"x": 4, "out": total}, given={"x": [1, 2, 7, 4]})
    expected = np.full(total, fill, np.float32)
    expected[start:end] = 7
    np.testing.assert_array_equal(actual["out"].view(np.int32), expected.view(np.int32))


def test_one_element_in_its_padding_under_the_mask_of_a_selection() -> None:
    def value(place: Dim) -> Expr:
        other = load("x", F32, (19 - place,), (19 - place,), f32(0))
        return select(at_least_zero(place - 9), binary("add", padded(0.0, 4, 14)(place), f32(1)), other)

    check(map_kernel(value, 23, (X,)), {"x": 20, "out": 23})


@pytest.mark.parametrize("stride", [1, 3])
def test_padding_with_a_negative_zero(stride: int) -> None:
    def value(place: Dim) -> Expr:
        return load("x", F32, (place * stride - 9,), (place * stride - 9,), f32(-0.0))

    actual = check(map_kernel(value, 40, (X,)), {"x": 120, "out": 40})
    assert np.signbit(actual["out"][:3]).all()


def test_a_whole_row_of_padding_with_a_negative_zero() -> None:
    def value(place: Dim) -> Expr:
        return load("x", F32, (place,), (N.dim - 7,), f32(-0.0))

    actual = check(map_kernel(value, 40, (X,), sizes=(N,)), {"x": 40, "out": 40}, {N: 5})
    assert np.signbit(actual["out"]).all()
