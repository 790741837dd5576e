"""Bytes that saturate: what clamps a number to the ends of a byte, before it is rounded to one, comes after it.

    u8(i32(round(min(max(y, -z), 255 - z))) + z)  =  u8(min(max(i32(round(y)) + z, 0), 255))

Rounding is monotonic, so that either side is the same byte. Integers that are clamped to the ends of a byte are packed
with saturation: instructions that narrow them, of several vectors at once, clamp them by the way. What rounds to no
integer of 32 bits would be another one than its clamp, so that y has to be known to be no such number: what scales a
sum of products of bytes, and is added to it, are constants.

    u8(i8(i32(round(y)) + z) ^ -128)  =  u8(i32(round(y)) + z + 128)    of what is a signed byte

Products read signed bytes with the highest bit flipped: such a byte is rounded to as an unsigned one with another zero
point, which saturates then.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from opweld.fuse.integer_storage import FLIPPED
from opweld.fuse.integers import BYTES
from opweld.fuse.use_def import UseDef
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Unary,
    binary,
    cast,
    const,
    transform,
    unary,
)
from opweld.tensor.program import Constant
from opweld.tensor.rounding import rounded_bounds, rounded_integer
from opweld.tensor.semantics import apply_binary, apply_unary

MOST = 2.0**30
"""Magnitudes up to which a number plus a zero point is an int32."""
_INTEGERS = {DType.I32: 2.0**31, DType.U8: 255.0, DType.I8: 128.0, DType.I16: 2.0**15, DType.U16: 2.0**16}
"""The largest magnitude of a dtype."""
_CLAMPS = ("min", "max")


def clamp_last(graph: UseDef) -> None:
    """Moves clamps of numbers that are rounded to bytes behind the rounding, where they are those of a byte."""
    magnitudes = _Magnitudes({constant.name: constant for constant in graph.program().constants})

    def moved(body: Expr) -> Expr:
        return transform(body, lambda node: _moved(node, magnitudes.of) if isinstance(node, Cast) else None)

    graph.rewrite(moved)


def without_flips(graph: UseDef) -> None:
    """Makes a signed byte whose highest bit is flipped, as products store it, the unsigned one that is 128 more."""
    graph.rewrite(lambda body: transform(body, lambda node: _unsigned(node) if isinstance(node, Bitcast) else None))


def _unsigned(node: Bitcast) -> Expr | None:
    """A signed byte of an integer that is known to be one, flipped: an unsigned byte of 128 more."""
    flip = node.x
    if node.dtype is not DType.U8 or not isinstance(flip, Binary) or flip.op != "bitxor":
        return None
    byte, bit = flip.x, flip.y
    if not isinstance(bit, Const) or bit.value != -FLIPPED or not isinstance(byte, Cast) or byte.dtype is not DType.I8:
        return None
    rounded, zero = rounded_integer(byte.x)
    if rounded is None or rounded.dtype is not DType.F32:
        return None
    low, high = rounded_bounds(rounded.x, rounded.dtype)
    if low + zero < -FLIPPED or high + zero >= FLIPPED:
        return None
    if zero == -FLIPPED:
        return cast(rounded, DType.U8)
    return cast(binary("add", cast(rounded, DType.I32), const(zero + FLIPPED, DType.I32)), DType.U8)


def _moved(node: Cast, magnitude: Callable[[Expr], float]) -> Expr | None:
    """A byte of a rounded number without those clamps before it that are clamps to the ends of a byte."""
    if node.dtype not in BYTES:
        return None
    rounded, zero = rounded_integer(node.x)
    if rounded is None or rounded.dtype is not DType.F32 or abs(zero) > 256:
        return None
    low, high = (int(limit) for limit in node.dtype.limits)
    ends = {"max": low - zero, "min": high - zero}
    number, scale = rounded.x, None
    if isinstance(number, Binary) and number.op == "mul" and isinstance(number.y, Const) and number.y.value > 0:
        number, scale = number.x, number.y
    left = _without(number, ends, scale)
    if left is number:
        return None
    inner = left if scale is None else binary("mul", left, scale)
    if not magnitude(inner) <= MOST:
        return None
    found = cast(unary("round", inner), DType.I32)
    if zero:
        found = binary("add", found, const(zero, DType.I32))
    return cast(binary("min", binary("max", found, const(low, DType.I32)), const(high, DType.I32)), node.dtype)


def _without(number: Expr, ends: dict[str, int], scale: Const | None) -> Expr:
    """A number without the outermost clamps, where these are rounded to the ends."""
    if not isinstance(number, Binary) or number.op not in _CLAMPS or not isinstance(number.y, Const):
        return number
    bound = number.dtype.numpy.type(number.y.value)
    if scale is not None:
        bound = apply_binary("mul", bound, number.dtype.numpy.type(scale.value))
    inner = _without(number.x, ends, scale)
    if float(apply_unary("round", bound)) == ends[number.op]:
        return inner
    return number if inner is number.x else binary(number.op, inner, number.y)


class _Magnitudes:
    """Bounds of what expressions are made of, from the dtypes and the numbers that they read."""

    def __init__(self, constants: dict[str, Constant]) -> None:
        self._constants = constants
        self._largest: dict[str, float] = {}
        self._found: dict[Expr, float] = {}

    def of(self, root: Expr) -> float:
        """A magnitude that no value of an expression exceeds; infinity where none is known."""
        if root not in self._found:
            found = self._of(root)
            self._found[root] = min(found, _INTEGERS.get(root.dtype, math.inf)) if found == found else math.inf
        return self._found[root]

    def _of(self, node: Expr) -> float:
        if isinstance(node, Const):
            return abs(float(node.value))
        if isinstance(node, Load):
            return self._read(node) if node.dtype.is_float else math.inf
        if isinstance(node, Cast):
            return self.of(node.x)
        if isinstance(node, Unary) and node.op == "round":
            return self.of(node.x) + 1
        if isinstance(node, Reduce) and node.kind == "sum":
            count = math.prod(axis.extent.constant or math.inf for axis in node.axes)
            return count * self.of(node.body) if node.dtype.is_float else math.inf
        if isinstance(node, Binary) and node.op in ("add", "sub"):
            return self.of(node.x) + self.of(node.y)
        if isinstance(node, Binary) and node.op in _CLAMPS:
            return max(self.of(node.x), self.of(node.y))
        if isinstance(node, Binary) and node.op == "mul":
            return self.of(node.x) * self.of(node.y) if node.dtype.is_float else math.inf
        return math.inf

    def _read(self, node: Load) -> float:
        constant = self._constants.get(node.tensor)
        if constant is None:
            return math.inf
        if node.tensor not in self._largest:
            self._largest[node.tensor] = float(np.abs(constant.read().astype(np.float64)).max(initial=0))
        fill = 0.0 if node.fill is None else self.of(node.fill)
        return max(self._largest[node.tensor], fill)
