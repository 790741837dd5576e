"""Products of rows rounded to 8 bits by matrices of integers in blocks, as externs.

`round_rows` rounds each group of 256 elements of a row, the last one of what is left, to integers of -127 to 127 times
a step of its own; `rounded_*` multiply such rows by a matrix (`llm/weights.py`), whose scales and minimums are
integers, too, times a unit of its row (`fixed_point`):

    x[k] = codes[k] * steps[g] * 2**15, of group g = k // 256, where 127 is the largest
    w[j, k] = (weights[j, k] - zero) * scales[j, b] + minimums[j, b], of 16 bits, of block b of the weights
    sums[g, j] = sum<k in g>(codes[k] * w[j, k])
    result[j] = sum<g>(sums[g, j] * steps[g]) * units[j]

So w is a fraction with 15 bits, and what is added up no larger than 256 times x: where x is near the largest float32,
sums are no infinities before units make them small.

Sums of a group are integers of 32 bits and exact, groups are added in order: results are the same bits for one row and
for many, by whichever instructions. An extern, since no schedule has sums of integers, in a matrix unit for many rows,
inside of a sum of floats. Rows that hold an infinity or a NaN have NaNs as results.

Blocks have whole parts of 32 elements; `totals` are the sums of the codes of each. A matrix lies in panels of 16 rows
of it, the columns of the result; the last one is filled with zeros: [panels, parts, words, 16, 4] of bytes. A word is
four neighbours along the sum. Codes of four bits are two in a byte, those of word w and of word w + 4, and their zero
is 8. Units are [panels, 16], numbers [panels, blocks, 16] of scales, or of pairs of a scale and a minimum.
`rounded_row_*` look up a row, of such codes and of scales and minimums as they were, [out, blocks], so that codes of a
tied embedding are stored once: (codes - added) * scale + minimum. The C is `runtime/c/opweld_rounded.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from opweld.errors import OpweldError
from opweld.tensor.dim import ceildiv
from opweld.tensor.dtype import DType
from opweld.tensor.function import Array, Function, Numbers

GROUP = 256
"""Elements of a row that share a step; the last ones may be fewer."""
LINE = 64
"""Elements of a row in a register of a matrix unit; rows are whole ones."""
PART = 32
"""Elements that have a total."""
PANEL = 16
"""Columns of a panel."""
CALL = 2
"""Panels of a call: as many as give each thread some of a small matrix."""
ITEM = 2
"""Numbers of a call: the first panel, and how many."""
WORD = 4
LARGEST = 127
FRACTION = 2.0**15
"""A weight is an integer / FRACTION * the unit of its row."""

KINDS = {bits: f"rounded_u{bits}" for bits in (4, 8)}
"""Functions that multiply, by the bits of a code."""
ROWS = {bits: f"rounded_row_u{bits}" for bits in (4, 8)}
"""Functions that look up a row."""


def fixed_point(scales: Array, minimums: Array | None, low: int, high: int) -> tuple[Array, Array]:
    """Units float32 [out], and scales int16 [out, blocks], or pairs with minimums [out, blocks, 2], of a matrix
    code * scale + minimum whose codes are `low` to `high`: as fine as such integers of 16 bits are.

    A row of zeros has numbers of zero; one with an infinity or a NaN has a unit of NaN, as its column of results."""
    scales = scales.astype(np.float64)
    least = np.zeros_like(scales) if minimums is None else minimums.astype(np.float64)
    # Both numbers are rounded by up to half of a unit, the scale's error times the code.
    limit = 2**15 - 1 - (max(-low, high) + 1) // 2 - 1
    with np.errstate(all="ignore"):
        reach = np.maximum(np.abs(scales * low + least), np.abs(scales * high + least)).max(1)
        units = np.where(np.isfinite(reach), reach / limit * FRACTION, np.nan).astype(np.float32)
        parts = [
            np.rint(np.nan_to_num(part / units[:, None].astype(np.float64) * FRACTION)) for part in (scales, least)
        ]
    # What is next to nothing has no unit that is precise.
    there = (units > 2.0**-105)[:, None]
    whole = [np.where(there, part, 0).astype(np.int16) for part in parts]
    return units, whole[0] if minimums is None else np.stack(whole, -1)


def panels_of(codes: Array, bits: int) -> Array:
    """Codes uint8 [out, in] as panels, [panels, bytes]."""
    out, size = codes.shape
    filled = np.zeros((-(-out // PANEL) * PANEL, size), np.uint8)
    filled[:out] = codes
    words = filled.reshape(-1, PANEL, size // PART, PART // WORD, WORD).transpose(0, 2, 3, 1, 4)
    if bits == 4:
        words = words[:, :, : PART // WORD // 2] | words[:, :, PART // WORD // 2 :] << 4
    return np.ascontiguousarray(words).reshape(len(words), -1)


def numbers_of(numbers: Array) -> Array:
    """Units [out], scales [out, blocks] or pairs [out, blocks, 2] as panels, [panels, numbers of a panel]."""
    out, *rest = numbers.shape
    filled = np.zeros((-(-out // PANEL) * PANEL, *rest), numbers.dtype)
    filled[:out] = numbers
    panels = np.moveaxis(filled.reshape(-1, PANEL, *rest), 1, min(2, 1 + len(rest)))
    return np.ascontiguousarray(panels).reshape(len(panels), -1)


def _matrix(codes: Array, bits: int, out: int, size: int) -> Array:
    """The codes of `panels_of` as they were."""
    words = codes.reshape(-1, size // PART, PART // WORD * bits // 8, PANEL, WORD)
    if bits == 4:
        words = np.concatenate([words & 15, words >> 4], axis=2)
    return words.transpose(0, 3, 1, 2, 4).reshape(-1, size)[:out]


def _round_parts(numbers: Numbers) -> tuple[Any, ...]:
    """A row; its codes, steps and totals."""
    size = numbers[0]
    return size, size, ceildiv(size, GROUP), _divided(size, PART)


def _in_groups(x: Array) -> Array:
    """[..., size] as [..., groups, GROUP], zeros behind the last."""
    missing = -x.shape[-1] % GROUP
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)]).reshape(*x.shape[:-1], -1, GROUP)


def _divided(size: Any, by: int) -> Any:
    return size // by if isinstance(size, int) else ceildiv(size, by)


def _round(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    del numbers
    (x,), (codes, steps, totals) = operands, results
    groups = _in_groups(x).astype(np.float32)
    reach = np.abs(groups).max(1)
    finite = np.isfinite(reach)
    with np.errstate(all="ignore"):
        inverse = np.where(finite & (reach > 2.0**-100), np.float32(LARGEST) / reach, np.float32(0))
        found = np.where(finite[:, None], np.rint(groups * inverse[:, None]), 0)
    codes[:] = found.reshape(-1)[: len(x)]
    steps[:] = np.where(finite, reach / np.float32(LARGEST) / np.float32(FRACTION), np.float32(np.nan))
    totals[:] = codes.reshape(-1, PART).sum(1)


def _product_parts(bits: int, numbers: Numbers) -> tuple[Any, ...]:
    """An item; codes, steps, totals of rows; codes, units, numbers of blocks; a result for each row."""
    rows, out, size, each, _, has_least = numbers
    parts, wide = _divided(size, PART), ceildiv(out, PANEL) * PANEL
    blocks = wide * ceildiv(parts, each) * (1 + has_least)
    row = (rows * size, rows * ceildiv(size, GROUP), rows * parts)
    return ITEM, *row, wide * ceildiv(size * bits, 8), wide, blocks, rows * out


def _product_work(numbers: Numbers) -> Any:
    """A vector takes 64 products."""
    rows, _, size, _, _, _ = numbers
    return ceildiv(rows * size * PANEL * CALL, 4)


def _product(bits: int, operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    item, x, steps, _, codes, units, numbers_of_blocks = operands
    rows, out, size, each, zero, has_least = map(int, numbers)
    columns = slice(int(item[0]) * PANEL, min(out, int(item[0] + item[1]) * PANEL))
    kinds, blocks, groups = 1 + has_least, size // PART // each, -(-size // GROUP)
    spread = numbers_of_blocks.reshape(-1, blocks, PANEL, kinds).transpose(0, 2, 1, 3).reshape(-1, blocks, kinds)
    spread = np.repeat(spread[columns].astype(np.int64), each * PART, axis=1)
    weights = (_matrix(codes, bits, out, size)[columns].astype(np.int64) - zero) * spread[..., 0]
    if has_least:
        weights += spread[..., 1]
    sums = np.einsum("rgk,cgk->rgc", _in_groups(x.reshape(rows, size)).astype(np.int64), _in_groups(weights))
    found = (sums * steps.reshape(rows, groups, 1)).sum(1) * units.reshape(-1)[columns]
    results[0].reshape(rows, out)[:, columns] = found


def _row_parts(bits: int, numbers: Numbers) -> tuple[Any, ...]:
    """The number of a row; codes, scales, minimums, or scales where there are none; the row."""
    out, size, each, *_ = numbers
    blocks = out * ceildiv(_divided(size, PART), each)
    return 1, ceildiv(out, PANEL) * PANEL * ceildiv(size * bits, 8), blocks, blocks, size


def _row(bits: int, operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    (row,), codes, scales, minimums = operands
    out, size, each, added, has_least = map(int, numbers)
    if not 0 <= row < out:
        raise OpweldError("an index is out of range: a row")
    scale, least = (np.repeat(part.reshape(out, -1)[row], each * PART) for part in (scales, minimums))
    whole = _matrix(codes, bits, out, size)[row].astype(np.float32) - np.float32(added)
    results[0][:] = whole * scale + (least if has_least else np.float32(0))


def _scratch(numbers: Numbers) -> tuple[tuple[DType, Any], ...]:
    """The weights of a panel, in two planes of bytes."""
    return ((DType.U8, numbers[2] * PANEL * 2),)


_SOURCE = '#include "opweld_rounded.h"'

_PRODUCTS = {
    name: Function(
        partial(_product_parts, bits),
        _product_work,
        partial(_product, bits),
        scratch=_scratch,
        tables=6,
        source=_SOURCE,
        shared_results=True,
    )
    for bits, name in KINDS.items()
}
_ROWS = {
    name: Function(
        partial(_row_parts, bits), lambda numbers: numbers[1] * 4, partial(_row, bits), tables=3, source=_SOURCE
    )
    for bits, name in ROWS.items()
}
ROUNDED: dict[str, Function] = {
    "round_rows": Function(_round_parts, lambda numbers: numbers[0] * 2, _round, source=_SOURCE),
    **_PRODUCTS,
    **_ROWS,
}
"""These functions by name."""
