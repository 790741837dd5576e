"""Products of a mixture of experts, as externs: each token by the matrices of the experts that it chose, and no others.

A pair is a token and one of its experts: pair p of tokens that choose k experts each is of token p // k. `group_pairs`
sorts pairs by their expert. A call of `experts_*` computes some columns of the product of one expert for all of its
pairs, none where it has none: so a step reads the weights of chosen experts alone. How many pairs an expert has depends
on data, which extents of a tensor program cannot; there are calls for every expert, and those of others return at once.

Matrices lie as [experts, out, in]: float32, or integers in blocks (`llm/weights.py`) that divide a row. Codes of four
bits are two in a byte: of each 32 codes of a row, code i and code i + 16. The C is `runtime/c/opweld_experts.h`.
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

COLUMNS = 32
"""Columns of a call: as many as give each thread some of a single token's experts."""
GROUP = 32
"""Codes of four bits that lie together."""
ITEM = 3
"""Numbers of a call: the expert, its first column, and how many."""

KINDS: dict[tuple[str, DType], str] = {
    (kind, number): f"experts_{kind}_{number.short}" for kind in ("u4", "u8", "i8") for number in (DType.F32, DType.F16)
} | {("f32", DType.F32): "experts_f32"}
"""Functions by what codes are, and what scales are."""


def packed(codes: Array) -> Array:
    """Codes of four bits, uint8 [..., in], two in a byte: [..., in / 2]."""
    groups = codes.reshape(*codes.shape[:-1], -1, 2, GROUP // 2)
    return (groups[..., 0, :] | groups[..., 1, :] << 4).reshape(*codes.shape[:-1], -1).astype(np.uint8)


def _unpacked(codes: Array, size: int) -> Array:
    groups = codes.reshape(-1, 1, GROUP // 2) >> np.array([0, 4], np.uint8).reshape(1, 2, 1)
    return (groups & 15).reshape(-1, size)


def _group_parts(numbers: Numbers) -> tuple[Any, ...]:
    """The expert of each pair; pairs in order; where those of each expert begin, and their end."""
    pairs, experts = numbers
    return pairs, pairs, experts + 1


def _group(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    chosen, (order, starts), (_, experts) = operands[0], results, map(int, numbers)
    if ((chosen < 0) | (chosen >= experts)).any():
        raise OpweldError("an index is out of range: an expert")
    order[:] = np.argsort(chosen, kind="stable")
    starts[:] = np.searchsorted(chosen[order], np.arange(experts + 1))


def _product_parts(kind: str, numbers: Numbers) -> tuple[Any, ...]:
    """An item; x, order, starts, codes, scales, minimums; a row for each pair."""
    pairs, rows, experts, out, size, block, _ = numbers
    matrix = experts * out
    codes = matrix * (size // 2 if kind == "u4" else size)
    blocks = matrix * (size // block)
    return ITEM, rows * size, pairs, experts + 1, codes, blocks, blocks, pairs * out


def _product_work(numbers: Numbers) -> Any:
    """Of the pairs that an expert has on average."""
    pairs, _, experts, _, size, _, _ = numbers
    return ceildiv(pairs * size * 2 * COLUMNS, experts)


def _product(kind: str, operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    item, x, order, starts, codes, scales, minimums = operands
    pairs, rows, experts, out, size, block, has_least = map(int, numbers)
    expert, first, count = map(int, item)
    if not (0 <= expert < experts and 0 <= first <= out - count):
        raise OpweldError("an index is out of range: columns of an expert")
    stored = codes if kind != "u4" else _unpacked(codes, size)
    weights = stored.reshape(experts, out, size)[expert, first : first + count].astype(x.dtype)
    if kind != "f32":
        own, least = (
            np.repeat(each.reshape(experts, out, -1)[expert, first : first + count].astype(x.dtype), block, axis=-1)
            for each in (scales, minimums)
        )
        weights = weights * own + (least if has_least else 0)
    chosen = order[int(starts[expert]) : int(starts[expert + 1])].astype(np.int64)
    results[0].reshape(pairs, out)[chosen, first : first + count] = (
        x.reshape(rows, size)[chosen * rows // pairs] @ weights.T
    )


_SOURCE = '#include "opweld_experts.h"'

EXPERTS: dict[str, Function] = {
    name: Function(
        partial(_product_parts, kind),
        _product_work,
        partial(_product, kind),
        tables=6,
        source=_SOURCE,
        shared_results=True,
    )
    for (kind, _), name in KINDS.items()
} | {"group_pairs": Function(_group_parts, lambda numbers: numbers[0] * 8, _group, source=_SOURCE)}
"""These functions by name."""
