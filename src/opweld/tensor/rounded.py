"""Products of rows rounded to 8 bits by matrices of integers in blocks, as externs.

`round_rows` rounds each group of 32 elements of a row to integers of -127 to 127 times a step of its own, the largest
magnitude / 127; `rounded_*` multiply such rows by a matrix (`llm/weights.py`):

    x[k] = codes[k] * steps[g], of group g = k // 32
    products[g, j] = sum<k in g>(codes[k] * (weights[j, k] - zero))
    result[j] = sum<g>(products[g, j] * scales[j, b] * steps[g] + minimums[j, b] * sums[g])

where b is the block of the weights that g lies in, and sums[g] that of x. Products of a group are integers and exact,
groups are added in order: results are the same bits for one row and for many, by whichever instructions. An extern,
since no schedule has sums of integers, in a matrix unit for many rows, inside of a sum of floats. Rows that hold an
infinity or a NaN have NaNs as results.

A matrix lies in panels of 16 rows of it, the columns of the result; the last one is filled with zeros: [panels, groups,
words, 16, 4] of bytes, where a word is four neighbours along the sum. Codes of four bits are two in a byte, those of
word w and of word w + 4. Scales and minimums are [panels, blocks, 16]. The C is `runtime/c/opweld_rounded.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from opweld.tensor.dim import ceildiv
from opweld.tensor.dtype import DType
from opweld.tensor.function import Array, Function, Numbers

GROUP = 32
"""Elements of a row that share a step."""
PANEL = 16
"""Columns of a panel."""
CALL = 2
"""Panels of a call: as many as give each thread some of a small matrix."""
ITEM = 2
"""Numbers of a call: the first panel, and how many."""
WORD = 4
LARGEST = 127

KINDS: dict[tuple[int, DType], str] = {
    (bits, number): f"rounded_u{bits}_{number.short}" for bits in (4, 8) for number in (DType.F32, DType.F16)
}
"""Functions by the bits of a code, and what scales are."""


def panels_of(codes: Array, bits: int) -> Array:
    """Codes uint8 [out, in] as panels, [panels, bytes]."""
    out, size = codes.shape
    filled = np.zeros((-(-out // PANEL) * PANEL, size), np.uint8)
    filled[:out] = codes
    words = filled.reshape(-1, PANEL, size // GROUP, GROUP // WORD, WORD).transpose(0, 2, 3, 1, 4)
    if bits == 4:
        words = words[:, :, : GROUP // WORD // 2] | words[:, :, GROUP // WORD // 2 :] << 4
    return np.ascontiguousarray(words).reshape(len(words), -1)


def numbers_of(numbers: Array) -> Array:
    """Scales or minimums [out, blocks] as panels, [panels, blocks * 16]."""
    out, blocks = numbers.shape
    filled = np.zeros((-(-out // PANEL) * PANEL, blocks), numbers.dtype)
    filled[:out] = numbers
    return np.ascontiguousarray(filled.reshape(-1, PANEL, blocks).transpose(0, 2, 1)).reshape(-1, blocks * PANEL)


def _matrix(codes: Array, bits: int, out: int, size: int) -> Array:
    """The codes of `panels_of` as they were."""
    words = codes.reshape(-1, size // GROUP, GROUP // WORD * bits // 8, PANEL, WORD)
    if bits == 4:
        words = np.concatenate([words & 15, words >> 4], axis=2)
    return words.transpose(0, 3, 1, 2, 4).reshape(-1, size)[:out]


def _round_parts(numbers: Numbers) -> tuple[Any, ...]:
    """A row; its codes, steps, sums and totals of codes."""
    size = numbers[0]
    groups = size // GROUP if isinstance(size, int) else ceildiv(size, GROUP)
    return size, size, groups, groups, groups


def _round(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    del numbers
    (x,), (codes, steps, sums, totals) = operands, results
    groups = x.reshape(-1, GROUP).astype(np.float32)
    reach = np.abs(groups).max(1)
    finite = np.isfinite(reach)
    with np.errstate(all="ignore"):
        inverse = np.where(finite & (reach > 2.0**-100), np.float32(LARGEST) / reach, np.float32(0))
        found = np.where(finite[:, None], np.rint(groups * inverse[:, None]), 0)
    codes[:] = found.reshape(-1)
    steps[:] = np.where(finite, reach / np.float32(LARGEST), np.float32(np.nan))
    totals[:] = found.sum(1)
    sums[:] = steps * totals


def _product_parts(bits: int, numbers: Numbers) -> tuple[Any, ...]:
    """An item; codes, steps, sums, totals of rows; codes, scales, minimums; a result for each row."""
    rows, out, size, each, _, _ = numbers
    groups, wide = ceildiv(size, GROUP), ceildiv(out, PANEL) * PANEL
    blocks = wide * ceildiv(groups, each)
    return ITEM, rows * size, *[rows * groups] * 3, wide * ceildiv(size * bits, 8), blocks, blocks, rows * out


def _product_work(numbers: Numbers) -> Any:
    """A vector takes 64 products."""
    rows, _, size, _, _, _ = numbers
    return ceildiv(rows * size * PANEL * CALL, 4)


def _product(bits: int, operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    item, x, steps, sums, _, codes, scales, minimums = operands
    rows, out, size, each, zero, has_least = map(int, numbers)
    first, end = int(item[0]) * PANEL, min(out, int(item[0] + item[1]) * PANEL)
    groups = size // GROUP
    matrix = _matrix(codes, bits, out, size)[first:end].astype(np.int32) - zero
    products = np.einsum(
        "rgk,cgk->rgc", x.reshape(rows, groups, GROUP).astype(np.int32), matrix.reshape(-1, groups, GROUP)
    )

    def spread(numbers: Array) -> Array:
        panels = numbers.reshape(-1, groups // each, PANEL).transpose(0, 2, 1).reshape(-1, groups // each)
        return np.repeat(panels[first:end].T, each, axis=0).astype(steps.dtype)

    found = products * spread(scales) * steps.reshape(rows, groups, 1)
    if has_least:
        found = found + spread(minimums) * sums.reshape(rows, groups, 1)
    results[0].reshape(rows, out)[:, first:end] = found.sum(1)


def _scratch(numbers: Numbers) -> tuple[tuple[DType, Any], ...]:
    """The codes of a panel, each in a byte."""
    return ((DType.U8, numbers[2] * PANEL),)


_SOURCE = '#include "opweld_rounded.h"'

ROUNDED: dict[str, Function] = {
    name: Function(
        partial(_product_parts, bits),
        _product_work,
        partial(_product, bits),
        scratch=_scratch,
        tables=7,
        source=_SOURCE,
        shared_results=True,
    )
    for (bits, _), name in KINDS.items()
} | {"round_rows": Function(_round_parts, lambda numbers: numbers[0] * 2, _round, source=_SOURCE)}
"""These functions by name."""
