"""Clamps before and after a rounding give the same numbers, and rounded numbers are integers."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.tensor.algebra import simplify
from opweld.tensor.dim import Axis
from opweld.tensor.dtype import DType
from opweld.tensor.evaluate import evaluate_tensor
from opweld.tensor.expr import Binary, Cast, Expr, Unary, binary, cast, const, unary, walk
from opweld.tensor.program import Tensor
from opweld.tensor.rounding import without_integers
from tests.unit.tensor.programs import f32, read

SCALES = (0.5, 0.0235294122248888, 0.013186641037464142, 0.007144625298678875, 1.0 / 3, 3.0, 1e-12, 1e12)
RANGES = {DType.U8: (0, (0, 255)), DType.I8: (-7, (-128, 127)), DType.U16: (40000, (0, 65535)), DType.I16: (3, (-9, 9))}


def quantized(x: Expr, scale: float, zero: int, limits: tuple[int, int], dtype: DType) -> Expr:
    shifted = binary("add", unary("round", binary("div", x, f32(scale))), f32(zero))
    return cast(binary("min", binary("max", shifted, f32(limits[0])), f32(limits[1])), dtype)


def values_near_ties(scale: float) -> np.ndarray:
    """Float32 numbers around halves of steps, and far beyond all of them."""
    steps = (np.arange(-70000, 70000, 7) + 0.5) * scale
    near = steps.astype(np.float32)
    beyond = np.array([0.0, -0.0, np.inf, -np.inf, 3e38, -3e38, 1e-44], np.float32)
    return np.concatenate([near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(0)), beyond])


def evaluated(body: Expr, axis: Axis, x: np.ndarray) -> np.ndarray:
    return evaluate_tensor(Tensor("y", body.dtype, (axis,), body), {"x": x})


@pytest.mark.parametrize("dtype", RANGES, ids=lambda d: d.short)
@pytest.mark.parametrize("scale", SCALES)
def test_clamps_before_the_rounding_give_what_clamps_after_it_do(dtype: DType, scale: float) -> None:
    x = values_near_ties(scale)
    axis = Axis("i", len(x))
    before = quantized(read("x", axis), scale, *RANGES[dtype], dtype)
    after = simplify(before)
    rounded = [node for node in walk(after) if isinstance(node, Unary) and node.op == "round"]
    clamps = [node for node in walk(rounded[0].x) if isinstance(node, Binary) and node.op in ("min", "max")]
    assert len(rounded) == 1 and len(clamps) == 2
    np.testing.assert_array_equal(evaluated(after, axis, x), evaluated(before, axis, x))


def test_clamps_join_those_before_a_quotient() -> None:
    x = read("x", Axis("i", 8))
    clipped = binary("min", binary("max", x, f32(0)), f32(6))
    found = simplify(quantized(clipped, 0.025, 0, (0, 255), DType.U8))
    assert sum(isinstance(node, Binary) and node.op in ("min", "max") for node in walk(found)) == 2


def test_bounds_that_are_no_whole_numbers_stay_where_they_are() -> None:
    body = binary("max", unary("round", read("x", Axis("i", 8))), f32(0.5))
    assert simplify(body) is body


def test_unbounded_numbers_are_converted_as_floats() -> None:
    x = read("x", Axis("i", 8))
    body = cast(binary("add", unary("round", x), f32(3)), DType.U8)
    assert simplify(body) is body
    assert simplify(cast(binary("add", unary("round", x), const(3, DType.F32)), DType.I64)).dtype is DType.I64


def dequantized(x: Expr, scale: float, zero: int) -> Expr:
    return binary("mul", binary("sub", cast(x, DType.F32), f32(zero)), f32(scale))


@pytest.mark.parametrize("dtype", RANGES, ids=lambda d: d.short)
@pytest.mark.parametrize("scale", SCALES)
def test_what_becomes_an_integer_and_a_number_again_stays_a_number(dtype: DType, scale: float) -> None:
    """To the bit, the sign of zero too."""
    zero, limits = RANGES[dtype]
    x = values_near_ties(scale)
    axis = Axis("i", len(x))
    before = simplify(dequantized(quantized(read("x", axis), scale, zero, limits, dtype), 0.3, zero))
    after = without_integers(before)
    assert not any(isinstance(node, Cast) for node in walk(after))
    sums = [node for node in walk(after) if isinstance(node, Binary) and node.op in ("add", "sub")]
    assert len(sums) == 1, "the zero point and what is taken from it are one number"
    found, wanted = (evaluated(body, axis, x).view(np.uint32) for body in (after, before))
    np.testing.assert_array_equal(found, wanted)


def test_integers_that_wrap_stay_integers() -> None:
    x = read("x", Axis("i", 8))
    bounded = binary("min", binary("max", x, f32(0)), f32(100))
    for body in (
        cast(cast(binary("add", cast(unary("round", bounded), DType.I32), const(156, DType.I32)), DType.U8), DType.F32),
        cast(cast(unary("round", x), DType.I16), DType.F32),
        cast(cast(bounded, DType.U8), DType.F32),
    ):
        assert without_integers(body) is body
