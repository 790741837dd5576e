"""The table of scalar operators: starts of reductions, costs, tests."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.tensor.dtype import DType
from opweld.tensor.expr import binary, const, unary
from opweld.tensor.operators import BINARY, REDUCTIONS, UNARY, is_expensive, neutral
from opweld.tensor.semantics import apply_cast, apply_reduce

_VALUES = [
    (kind, dtype)
    for kind, reduction in REDUCTIONS.items()
    for dtype in DType
    if not dtype.is_storage_only and not reduction.position and (kind in ("any", "all")) == (dtype is DType.BOOL)
]


@pytest.mark.parametrize(("kind", "dtype"), _VALUES, ids=str)
def test_a_reduction_does_not_see_its_neutral_element(kind: str, dtype: DType) -> None:
    start = np.asarray(neutral(kind, dtype), dtype.numpy)
    for value in (0, 1) if dtype is DType.BOOL else (0, 1, 3, 100):
        x = np.asarray(value, dtype.numpy)
        assert apply_reduce(kind, np.stack([start, x])) == x
        assert apply_reduce(kind, np.stack([x, start])) == x
    assert apply_reduce(kind, np.zeros(0, dtype.numpy)) == start


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.I8, DType.U64], ids=repr)
def test_the_start_of_an_extreme_loses_to_every_other_value(dtype: DType) -> None:
    for kind in ("argmax", "argmax_last", "argmin", "argmin_last"):
        pair = np.asarray([neutral(kind, dtype), 7], dtype.numpy)
        assert apply_reduce(kind, pair) == 1
        assert apply_reduce(kind, pair[::-1]) == 0


def test_what_costs_more_than_a_load_is_dear() -> None:
    expensive = {op for op in (*UNARY, *BINARY) if is_expensive(op)}
    assert {"exp", "erf", "log1p", "tanh", "sigmoid", "reciprocal", "sqrt", "tan", "div", "pow", "mod"} <= expensive
    assert not expensive & {"neg", "abs", "not", "add", "mul", "max", "lt", "shl", "isnan", "floor"}


def test_tests_give_bools_and_everything_else_what_it_takes() -> None:
    x = const(1.5, DType.F32)
    unary_tests = {op for op in UNARY if unary(op, x).dtype is DType.BOOL}
    binary_tests = {op for op in BINARY if binary(op, x, x).dtype is DType.BOOL}
    assert unary_tests == {"isnan", "isinf"}
    assert binary_tests == {"eq", "ne", "lt", "le", "gt", "ge"}


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_casts_between_floats_are_numpys(dtype: DType) -> None:
    x = np.random.default_rng(0).standard_normal(10_000)
    ties = x.astype(dtype.numpy).astype(np.float64) * 7 / 4
    for values in (x, ties):
        np.testing.assert_array_equal(apply_cast(values, dtype.numpy), values.astype(dtype.numpy))
