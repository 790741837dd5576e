"""Constants of 4 or 2 bits as words: 8 or 16 neighbours along what is summed are one integer of 32 bits.

    sum<k>(mul(x[i, k], f32(w[k, j])))   becomes   sum<k>(mul(x[i, k] * 2 ** -s, f32(i32(field))))
                                                   field = w_words[k // 8, j] & (15 << s), s = 4 * (k % 8)

so that a vector of lanes loads eight elements for each of them at once, and half of the bytes are moved. A field is
not shifted down: as an integer it is the code times a power of two, which the other factor is divided by. Both are
exact, so that the products are those of the codes; a zero point that is not moved out of the sum is multiplied by that
power, too. The other factor is the same for all lanes, and is divided once, in
memory, where that takes less than in each register tile. What is left for a vector is a mask, a conversion and the
product. The last field holds the sign of the word, and is shifted down. Codes with a sign are stored with what makes
them no less than 0 added, which is taken off again. The words are an ordinary constant, laid out as any other; axes
that addresses divide are split, and all but words are numbers where the eight are written out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opweld.tensor.dim import ONE, Mod, floordiv, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Binary,
    Cast,
    Expr,
    Index,
    Load,
    Reduce,
    binary,
    bitcast,
    cast,
    const,
    index,
    load,
    loads,
    transform,
)
from opweld.tensor.program import Constant

NARROW = (DType.U4, DType.I4, DType.U2, DType.I2)
"""The types of which a byte would hold a single element."""
WIDTH = 32
"""Bits of a word."""
MANTISSA = 23
"""Bits of the mantissa of float32."""
BIAS = 127
"""The exponent of float32 1, as it is stored."""


@dataclass(frozen=True)
class Field:
    """A value computed from the field of a word that holds an element: the value times a power of two, and what it is
    to be multiplied by for that to be nothing, a number for each element."""

    value: Expr
    inverse: Expr


def counted(operand: Load, summed: Reduce) -> int | None:
    """The position of the index of a constant along which whole words of neighbours are summed; None where there is
    none, or where elements have 8 bits or more."""
    if operand.dtype not in NARROW or operand.guards:
        return None
    codes = WIDTH // operand.dtype.bits
    for position, place in enumerate(operand.indices):
        axis = next((axis for axis in summed.axes if place.coefficient(axis) is ONE), None)
        if axis is None or sum(dim.depends_on(axis) for dim in operand.indices) > 1:
            continue
        extent = axis.extent.constant
        factors = (extent or 1, *(factor for _, factor in place.without(axis).terms))
        if extent != codes and all(factor % codes == 0 for factor in factors):
            return position
    return None


def words_of(name: str, constant: Constant, position: int) -> Constant:
    """A constant as words along an axis, which has whole ones; the first element is in the lowest bits."""
    bits, shape = constant.dtype.bits, list(constant.shape)
    offset = _offset(constant.dtype)
    count = WIDTH // bits
    shape[position] //= count

    def packed() -> NDArray[np.uint32]:
        codes = np.asarray(constant.read()).reshape(constant.shape).view(np.uint8)
        words = np.zeros(shape, np.uint32)
        for number in range(count):
            part = codes[tuple([slice(None)] * position + [slice(number, None, count)])]
            words |= (part + np.uint8(offset) & np.uint8((1 << bits) - 1)).astype(np.uint32) << np.uint32(bits * number)
        return words

    return Constant(name, DType.U32, tuple(shape), packed, constant.origin)


def from_words(value: Expr, operand: Load, name: str, position: int) -> Field | None:
    """A value computed from an element as one of the word that holds it; None where it is not such that twice the
    element and twice its zero point are twice the value."""
    bits, place = operand.dtype.bits, operand.indices[position]
    count = WIDTH // bits
    at = (*operand.indices[:position], floordiv(place, count), *operand.indices[position + 1 :])
    # Which field of the word, in integers and not by further divisions of the axis: these would cut its loop again.
    number = cast(index(mod(place, count)), DType.U32)
    last = binary("shr", binary("add", number, _u32(1)), _u32(count.bit_length() - 1))
    down = binary("mul", last, _u32(WIDTH - bits))
    shift = binary("sub", binary("mul", number, _u32(bits)), down)
    word = binary("shr", load(name, DType.U32, at), down)
    field = binary("bitand", word, binary("shl", _u32((1 << bits) - 1), shift))
    code = cast(bitcast(field, DType.I32), DType.F32)
    power = _power("add", shift)
    if operand.dtype.is_signed:
        code = binary("sub", code, binary("mul", const(float(_offset(operand.dtype)), DType.F32), power))
    found = _times(value, operand, code, power)
    return None if found is None else Field(found, _power("sub", shift))


def counting_in_bits(value: Expr) -> Expr:
    """A value with the place in a word, where it is a number, as the lowest bits of the index: an element of a tensor
    has an axis of its own, which a division would cut in two, and whoever computes the tensor would take every eighth
    element."""

    def rewritten(node: Expr) -> Expr | None:
        if not isinstance(node, Cast) or node.dtype is not DType.U32 or not isinstance(node.x, Index):
            return None
        place = node.x.dim.atom
        count = place.right.constant if isinstance(place, Mod) else None
        if not isinstance(place, Mod) or count is None or count & (count - 1):
            return None
        return binary("bitand", cast(index(place.left), DType.U32), _u32(count - 1))

    return transform(value, rewritten)


def _times(value: Expr, operand: Load, code: Expr, power: Expr) -> Expr | None:
    """A value times a power of two, where `code` is that of the element: powers of two are exact factors of sums, and a
    zero point that is subtracted is multiplied as well."""
    if isinstance(value, Cast) and value.x is operand:
        return code if value.dtype is DType.F32 else None
    if not any(node is operand for node in loads(value)):
        return binary("mul", value, power) if value.dtype is DType.F32 else None
    if not isinstance(value, Binary):
        return None
    held = [any(node is operand for node in loads(side)) for side in (value.x, value.y)]
    if value.op in ("add", "sub"):
        held = [True, True]
    elif not (value.op == "mul" and not all(held)) and not (value.op == "div" and not held[1]):
        return None
    sides = [
        _times(side, operand, code, power) if of_it else side
        for side, of_it in zip((value.x, value.y), held, strict=True)
    ]
    return None if sides[0] is None or sides[1] is None else binary(value.op, sides[0], sides[1])


def _power(sign: str, exponent: Expr) -> Expr:
    """2 to the power of an exponent, or of its negative."""
    return bitcast(binary("shl", binary(sign, _u32(BIAS), exponent), _u32(MANTISSA)), DType.F32)


def _u32(number: int) -> Expr:
    return const(number, DType.U32)


def _offset(dtype: DType) -> int:
    """What is added to a code for it to be no less than 0."""
    return 1 << (dtype.bits - 1) if dtype.is_signed else 0
