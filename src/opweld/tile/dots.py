"""Sums of products of bytes as dot products of words, where the operands lie so that four neighbours make one.

sum<k>(mul(i32(x[k]), i32(w[4*j + k % 4 + ...])))   becomes   sum<k'>(dot4(x[k']:i32, w[j + ...]:i32))
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opweld.fuse.region import dot_of
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
    bitcast,
    cast,
    const,
    load,
    loads,
    reduce,
    substitute,
    transform,
)
from opweld.tensor.operators import WORD_BYTES, WORDS


def with_dots(body: Expr, fits: Callable[[str], bool]) -> Expr:
    """The expression, over addresses, with sums of products of narrow numbers as dot products of words. `fits`: whether
    what lies in a memory are signed bytes of which pairs, times any unsigned ones, sum to 16 bits."""
    return transform(body, lambda node: _dots(node, dot_of(node), fits) if isinstance(node, Reduce) else None)


def _dots(node: Reduce, op: str, fits: Callable[[str], bool]) -> Expr | None:
    """The sum of dot products of words; None where neighbours of either operand are no word."""
    if not op:
        return None
    size = WORDS[op]
    assert isinstance(node.body, Binary)
    elements = tuple(factor.x for factor in _casts(node.body))
    fills = set(loads(*(site.fill for site in loads(*elements) if site.fill is not None)))
    words = [site for site in loads(*elements) if site not in fills]  # what a fill loads is repeated in a word
    axis = next((axis for axis in node.axes if all(_is_word(site, axis, size) for site in words)), None)
    if axis is None or len(node.axes) == 1:
        return None  # a single word is no sum
    first, second = (substitute(element, {axis: ZERO}) for element in elements)
    if first.dtype is DType.I8:
        first, second = second, first
    if op == "dot4" and (first.dtype is not DType.U8 or second.dtype is not DType.I8):
        return None
    if op == "dot4" and isinstance(second, Load) and fits(second.tensor):
        op = "dot4s"
    x, y = _word(first, size), _word(second, size)
    if x is None or y is None:
        return None
    return reduce("sum", tuple(a for a in node.axes if a is not axis), binary(op, x, y))


def _casts(body: Binary) -> tuple[Cast, Cast]:
    x, y = body.x, body.y
    assert isinstance(x, Cast), "of products of words, see `word_of`"
    assert isinstance(y, Cast), "of products of words, see `word_of`"
    return x, y


def _is_word(site: Load, axis: Axis, size: int) -> bool:
    """Whether an axis counts the elements of a word at the address of a load."""
    (address,) = site.indices
    if axis.extent.constant != size or address.coefficient(axis) is not ONE:
        return False
    return not any(guard.depends_on(axis) for guard in site.guards) and _words(address.without(axis), size) is not None


def _words(address: Dim, size: int) -> Dim | None:
    """An address of elements in words; None where it is none of a word."""
    words = floordiv(address, size)
    return words if words * size is address else None


def _word(value: Expr, size: int) -> Expr | None:
    """The elements of a word at once, the first of them given."""
    if isinstance(value, Load):
        words = _words(value.indices[0], size)
        if words is None:
            return None
        fill = value.fill
        if isinstance(fill, Const):
            fill = const(_repeated(fill), DType.I32)
        elif fill is not None:
            fill = _repeated_value(fill)
        return load(value.tensor, DType.I32, (words,), value.guards, fill)
    if isinstance(value, Bitcast):
        return _word(value.x, size)
    if isinstance(value, Binary) and value.op == "bitxor" and isinstance(value.y, Const):
        x = _word(value.x, size)
        return None if x is None else binary("bitxor", x, const(_repeated(value.y), DType.I32))
    return None


def _repeated(value: Const) -> int:
    """The word, as an int32, of which each element is a constant."""
    element = np.asarray(value.value, value.dtype.numpy).tobytes()
    return int.from_bytes(element * (WORD_BYTES // len(element)), "little", signed=True)


def _repeated_value(value: Expr) -> Expr:
    """The same of an element that is not known."""
    bits = value.dtype.bits
    element = bitcast(value, DType.U16) if value.dtype.is_float else value
    wide = binary("bitand", cast(element, DType.I32), const((1 << bits) - 1, DType.I32))
    return binary("mul", wide, const(sum(1 << at for at in range(0, 8 * WORD_BYTES, bits)), DType.I32))
