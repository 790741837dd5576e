"""Sums of products of bytes as dot products of words, where the operands lie so that four neighbours make one.

sum<k>(mul(i32(x[k]), i32(w[4*j + k % 4 + ...])))   becomes   sum<k'>(dot4(x[k']:i32, w[j + ...]:i32))
"""

from __future__ import annotations

from opweld.fuse.region import are_bytes
from opweld.tensor.dim import ONE, ZERO, Axis, Dim, floordiv
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    binary,
    cast,
    const,
    load,
    loads,
    reduce,
    substitute,
    transform,
)
from opweld.tensor.operators import WORD

_EVERY = 0x01010101
"""What repeats a byte four times."""


def with_dots(body: Expr) -> Expr:
    """The expression, over addresses, with sums of products of bytes as dot products of words."""
    return transform(body, lambda node: _dots(node) if isinstance(node, Reduce) and are_bytes(node) else None)


def _dots(node: Reduce) -> Expr | None:
    """The sum of dot products; None where four neighbours of either operand are no word."""
    axis = next((axis for axis in node.axes if all(_is_word(site, axis) for site in loads(node.body))), None)
    if axis is None or len(node.axes) == 1:
        return None  # a single word is no sum
    assert isinstance(node.body, Binary)
    first, second = (substitute(factor.x, {axis: ZERO}) for factor in _casts(node.body))
    if first.dtype is DType.I8:
        first, second = second, first
    if first.dtype is not DType.U8 or second.dtype is not DType.I8:
        return None
    x, y = _word(first), _word(second)
    if x is None or y is None:
        return None
    return reduce("sum", tuple(a for a in node.axes if a is not axis), binary("dot4", x, y))


def _casts(body: Binary) -> tuple[Cast, Cast]:
    x, y = body.x, body.y
    assert isinstance(x, Cast), "of products of bytes, see `are_bytes`"
    assert isinstance(y, Cast), "of products of bytes, see `are_bytes`"
    return x, y


def _is_word(site: Load, axis: Axis) -> bool:
    """Whether an axis counts the bytes of a word at the address of a load."""
    (address,) = site.indices
    if axis.extent.constant != WORD or address.coefficient(axis) is not ONE:
        return False
    return not any(guard.depends_on(axis) for guard in site.guards) and _words(address.without(axis)) is not None


def _words(address: Dim) -> Dim | None:
    """An address of bytes in words; None where it is none of a word."""
    words = floordiv(address, WORD)
    return words if words * WORD is address else None


def _word(value: Expr) -> Expr | None:
    """Four bytes at once, that of the first of them given."""
    if isinstance(value, Load):
        words = _words(value.indices[0])
        if words is None:
            return None
        fill = None if value.fill is None else binary("mul", _widened(value.fill), const(_EVERY, DType.I32))
        if isinstance(value.fill, Const):
            fill = const((int(value.fill.value) & 255) * _EVERY, DType.I32)
        return load(value.tensor, DType.I32, (words,), value.guards, fill)
    if isinstance(value, Bitcast):
        return _word(value.x)
    if isinstance(value, Binary) and value.op == "bitxor" and isinstance(value.y, Const):
        x = _word(value.x)
        return None if x is None else binary("bitxor", x, const((int(value.y.value) & 255) * _EVERY, DType.I32))
    return None


def _widened(value: Expr) -> Expr:
    return binary("bitand", cast(value, DType.I32), const(255, DType.I32))
