"""Constants of 4 or 2 bits as words: 8 or 16 neighbours along what is summed are one integer of 32 bits.

    f32(w[k, j])   becomes   f32_of_bits(field | one) - f32_of_bits(zero | one)
                             field = (w_words[k // 8, j] >> (16 * (k % 8 // 4))) & (15 << s), s = 4 * (k % 4)

so that a vector of lanes loads eight elements for each of them at once, and half of the bytes are moved. A field is not
shifted down and converted: `one` are the bits of 2 ** (23 - s), in whose mantissa the field counts ones wherever it
lies. So one shift serves four fields, and each takes a mask and a difference, which is exact. Codes with a sign are
stored with what makes them no less than 0 added, `zero`. The words are an ordinary constant, laid out as any other;
axes that addresses divide are split, and all but words are numbers where the eight are written out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opweld.tensor.dim import ONE, floordiv, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Cast,
    Expr,
    Load,
    Reduce,
    binary,
    bitcast,
    cast,
    const,
    index,
    load,
    transform,
)
from opweld.tensor.program import Constant

NARROW = (DType.U4, DType.I4, DType.U2, DType.I2)
"""The types of which a byte would hold a single element."""
WIDTH = 32
"""Bits of a word, of which half fit a mantissa."""
MANTISSA = 23
"""Bits of the mantissa of float32."""
EXPONENT = 127 + MANTISSA
"""The exponent, as it is stored, of float32 whose last bit counts ones."""


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


def from_words(value: Expr, operand: Load, name: str, position: int) -> Expr:
    """A value computed from an element as one of the word that holds it."""
    bits, place = operand.dtype.bits, operand.indices[position]
    count = WIDTH // bits
    at = (*operand.indices[:position], floordiv(place, count), *operand.indices[position + 1 :])
    # Which field of the word, in integers and not by further divisions of the axis: these would cut its loop again.
    number = cast(index(mod(place, count)), DType.U32)
    half = binary("bitand", number, _u32(count // 2))
    word = binary("shr", load(name, DType.U32, at), binary("mul", half, _u32(bits)))
    shift = binary("mul", binary("bitand", number, _u32(count // 2 - 1)), _u32(bits))
    one = binary("shl", binary("sub", _u32(EXPONENT), shift), _u32(MANTISSA))
    field = binary("bitand", word, binary("shl", _u32((1 << bits) - 1), shift))
    zero = binary("shl", _u32(_offset(operand.dtype)), shift)
    code = binary(
        "sub", bitcast(binary("bitor", field, one), DType.F32), bitcast(binary("bitor", zero, one), DType.F32)
    )
    return transform(value, lambda n: cast(code, n.dtype) if isinstance(n, Cast) and n.x is operand else None)


def _u32(number: int) -> Expr:
    return const(number, DType.U32)


def _offset(dtype: DType) -> int:
    """What is added to a code for it to be no less than 0."""
    return 1 << (dtype.bits - 1) if dtype.is_signed else 0
