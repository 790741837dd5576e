"""Conversions: Cast and CastLike of numbers, BitCast of their bits.

A conversion to float8 follows the tables in ONNX's definition of Cast: values beyond the greatest finite number become
that number, unless `saturate` is 0; float8e8m0 is a power of two, rounded according to `round_mode`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.arithmetic import add, apply, larger, smaller, where
from opweld.ops.element_algebra import track
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, bitcast, cast

SATURATING = (DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ)
"""Types that saturate at their greatest number; all others wrap, or have an infinity."""

_FRACTION = 1 << 52
_ROUNDING: Mapping[str, int] = {"up": _FRACTION - 1, "nearest": _FRACTION // 2, "down": 0}
"""Added to the bits of a float64 it carries into the exponent."""


def converted(x: Expr, dtype: DType, saturate: bool = True, round_mode: str = "up") -> Expr:
    """A value converted to the dtype."""
    if dtype is DType.F8E8M0:
        return _power_of_two(x, saturate, round_mode)
    if dtype not in SATURATING or not saturate:
        return cast(x, dtype)
    value = x if x.dtype.is_float and not x.dtype.is_storage_only else cast(x, DType.F32)
    return cast(smaller(larger(value, -dtype.greatest), dtype.greatest), dtype)


def _power_of_two(x: Expr, saturate: bool, round_mode: str) -> Expr:
    """A value as float8e8m0; NaN where it is out of range and does not saturate. Subnormal float64 values are no
    powers."""
    value = cast(x, DType.F64)
    least, greatest = 2.0**-127, 2.0**127
    limited = smaller(larger(value, least), greatest) if saturate else value
    # for NaN that gives zero or infinity, and float8e8m0 has neither
    moved = add(bitcast(limited, DType.U64), _ROUNDING[round_mode])
    power = bitcast(apply("bitand", moved, -_FRACTION), DType.F64)
    if not saturate:
        inside = apply("and", apply("ge", value, least), apply("le", value, greatest))
        power = where(inside, power, math.nan)
    return cast(power, DType.F8E8M0)


@infers("Cast", "CastLike")
def infer_cast(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the input; the dtype of the attribute `to`, or of the second input."""
    facts = [scope.fact(value) for value in node.inputs]
    dtype = facts[1].dtype if node.op_type == "CastLike" else _target(node)
    mode = attribute(node, "round_mode", "up")
    if mode not in _ROUNDING:
        raise ModelError(f"{describe(node)}: round_mode must be up, down or nearest, got {mode!r}")
    return [track(scope, node, Fact(dtype, facts[0].shape), facts[:1])]


@lowers("Cast", "CastLike")
def lower_cast(scope: Lowering, node: ir.Node) -> None:
    """Converts each element."""
    x, dtype = required(node, 0), scope.fact(node.outputs[0]).dtype
    saturate, mode = bool(attribute(node, "saturate", 1)), attribute(node, "round_mode", "up")
    define(scope, node.outputs[0], lambda at: converted(scope.load(x, at), dtype, saturate, mode))


@infers("BitCast")
def infer_bitcast(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the input; the dtype of the attribute `to`, which must have as many bits."""
    fact = scope.fact(required(node, 0))
    dtype = _target(node)
    if dtype.bits != fact.dtype.bits:
        raise ModelError(
            f"{describe(node)}: {fact.dtype!r} of {fact.dtype.bits} bits cannot be reinterpreted as {dtype!r}, which "
            f"has {dtype.bits}"
        )
    return [Fact(dtype, fact.shape)]


@lowers("BitCast")
def lower_bitcast(scope: Lowering, node: ir.Node) -> None:
    """Reinterprets the bits of each element."""
    x, dtype = required(node, 0), scope.fact(node.outputs[0]).dtype

    def body(at: Indices) -> Expr:
        return bitcast(scope.load(x, at), dtype)

    define(scope, node.outputs[0], body)


def _target(node: ir.Node) -> DType:
    """The dtype that attribute `to` names."""
    try:
        return DType.of_onnx(int(required_attribute(node, "to")))
    except ValueError as error:
        raise UnsupportedError(f"{describe(node)}: {error}. Cast to another type before export.") from error
