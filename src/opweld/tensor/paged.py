"""Attention over keys and values that lie in blocks of a pool, through block tables (PagedAttention), as externs.

`attend` computes parts: for a query, a head and some chunks of CHUNK keys, the largest score m, the sum l of
exp(score - m), and the sum of values so weighted. `join_parts` joins the parts of a query and divides by l. Chunks are
joined one after the other from position 0 on, by either, so that the result of a query does not depend on how its keys
were divided among rows of `work`. The C is `runtime/c/opweld_attend.h`.

A row of `work` says which queries a call computes:

    token, count     queries [token, token + count) of the step
    position         of the first one in its sequence, where attention is `causal`: query i sees the keys up to
                     position + i; else of the last key, which they all see with those before it
    table            where the block table of the sequence begins in `tables`
    head             of keys and values, with its `group` heads of queries: the first of `heads`
    chunk, end       the chunks of keys
    first, stride    query i has part first + i * stride; with `apart`, one for each chunk: first + i * stride + chunk
    apart            1: chunks are parts of their own, for `join_parts` to join; 0: joined at once
    heads            of keys and values, one after the other: those of a token are read together, as they lie in memory

`attend` is one function for each type of the pool (POOLS). Keys lie as [blocks, kv_heads, size, block], values as
[blocks, kv_heads, block, padded], padded being size rounded up to 16, queries as [tokens, kv_heads * group * size].
`owners` has the query of each part.

`attend_pairs` reads bfloat16 in pairs, a word each, as matrix units do: two neighbouring features of a key, [blocks,
kv_heads, size / 2, block, 2], and a feature of two neighbouring keys, [blocks, kv_heads, block / 2, padded, 2]. Queries
and weights are rounded to bfloat16 there, and l is the sum of rounded weights; sums are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opweld.errors import OpweldError
from opweld.tensor.dim import ceildiv
from opweld.tensor.dtype import DType
from opweld.tensor.function import Array, Function, Numbers

CHUNK = 256
"""Keys that are computed together: OPW_CHUNK."""
WORK = 11
"""Numbers of a row of work."""
BLOCKS = (32, 64, 128, 256)
"""Lengths that blocks may have: whole pairs of vectors, of which a chunk has whole ones."""

_HEAD = 16
"""Floats of a part before the weighted sum: m, l, and what aligns the rest."""
_ROWS = 12
"""Of a register tile: OPW_QUERY_ROWS at most."""
_PAIRED_ROWS = 16
"""The same of `attend_pairs`: OPW_PAIRS_ROWS at most."""
_SLICE = 32
"""Keys of a slice: OPW_PAIRS_KEYS."""
_LANES = 16


def padded_size(size: Any) -> Any:
    """A head of `size` features with those that fill its last vector."""
    return -(-size // _LANES) * _LANES if isinstance(size, int) else ceildiv(size, _LANES) * _LANES


def part_size(size: Any) -> Any:
    """Floats of a part."""
    return _HEAD + padded_size(size)


def _attend_parts(numbers: Numbers) -> tuple[Any, ...]:
    """A row of work; queries, keys, values, block tables, owners; parts."""
    tokens, blocks, entries, count, kv_heads, group, size, block, _, _, _ = numbers
    heads, pool = kv_heads * group, blocks * kv_heads * block
    padded = padded_size(size)
    return WORK, tokens * heads * size, pool * size, pool * padded, entries, count, count * heads * part_size(size)


def _attend_work(numbers: Numbers) -> Any:
    """Of a few queries and two chunks."""
    return numbers[5] * numbers[6] * CHUNK * 8


def _attend_scratch(numbers: Numbers) -> tuple[tuple[DType, Any], ...]:
    """Scores, and a part, of each row of a register tile; its queries, feature by feature."""
    return (DType.F32, _ROWS * CHUNK), (DType.F32, part_size(numbers[6]) * _ROWS), (DType.F32, numbers[6] * _ROWS)


def _pairs_scratch(numbers: Numbers) -> tuple[tuple[DType, Any], ...]:
    """Rounded queries, scores, rounded weights, and a part, of each row of a register tile; a slice of values."""
    size, chunk = numbers[6], CHUNK * _PAIRED_ROWS
    return (
        (DType.F32, size * _PAIRED_ROWS),
        (DType.F32, chunk),
        (DType.F32, chunk),
        (DType.F32, part_size(size) * _PAIRED_ROWS),
        (DType.BF16, padded_size(size) * _SLICE),
    )


def _attend_pairs(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    row, queries, keys, values, *rest = operands
    _, blocks, _, _, kv_heads, _, size, block, *_ = map(int, numbers)
    keys = keys.reshape(blocks, kv_heads, size // 2, block, 2).swapaxes(-1, -2)
    values = values.reshape(blocks, kv_heads, block // 2, padded_size(size), 2).swapaxes(-1, -2)
    _attend([row, _rounded(queries), keys.ravel(), values.ravel(), *rest], results, numbers, _rounded)


def _rounded(x: Array) -> Array:
    return x.astype(DType.BF16.numpy).astype(x.dtype)


def _attend(
    operands: Sequence[Array],
    results: Sequence[Array],
    numbers: Numbers,
    weigh: Callable[[Array], Array] = lambda weights: weights,
) -> None:
    """weigh: rounds weights."""
    row, queries, keys, values, tables, owners = operands
    tokens, blocks, entries, count, kv_heads, group, size, block, window, cap_bits, causal = map(int, numbers)
    token, queried, position, table, begin, chunk, end, first, stride, apart, together = map(int, row)
    cap = float(np.int32(cap_bits).view(np.float32))
    q = queries.reshape(tokens, kv_heads, group, size)
    parts = results[0].reshape(count, kv_heads, group, part_size(size))
    needed = (position + causal * (queried - 1)) // block + 1
    heads = range(begin, begin + together)
    known = begin >= 0 and together >= 1 and heads.stop <= kv_heads
    if not (0 <= token <= tokens - queried and known and 0 <= table <= entries - needed):
        raise OpweldError("an index is out of range: a row of work")
    own = tables[table : table + needed].astype(np.int64)
    if ((own < 0) | (own >= blocks)).any():
        raise OpweldError("an index is out of range: a block of a table")
    keys, values = (array.astype(queries.dtype) for array in (keys, values))
    for head in heads:
        k = np.concatenate(list(keys.reshape(blocks, kv_heads, size, block)[own, head]), axis=-1)
        v = np.concatenate(list(values.reshape(blocks, kv_heads, block, padded_size(size))[own, head]))
        for i in range(queried):
            if not 0 <= first + i * stride < count or owners[first + i * stride] != token + i:
                raise OpweldError("an index is out of range: a part")
            high = position + causal * i + 1
            low = max(0, high - window) if window else 0
            for g in range(group):
                if not apart:
                    parts[first + i * stride, head, g] = 0
                for c in range(chunk, end):
                    seen = slice(max(low, c * CHUNK), max(low, min(high, (c + 1) * CHUNK)))
                    found = _part(q[token + i, head, g] @ k[:, seen], v[seen], cap, parts.shape[-1], weigh)
                    if apart:
                        parts[first + i * stride + c - chunk, head, g] = found
                    else:
                        _join(parts[first + i * stride, head, g], found)


def _part(scores: Array, values: Array, cap: float, width: int, weigh: Callable[[Array], Array]) -> Array:
    found = np.zeros(width, values.dtype)
    if cap:
        scores = np.tanh(scores / cap) * cap
    if not len(scores) or scores.max() == -np.inf:
        return found
    weights = weigh(np.exp(scores - scores.max()))
    found[0], found[1] = scores.max(), weights.sum()
    found[_HEAD:] = weights @ values
    return found


def _join(into: Array, part: Array) -> None:
    """Adds a part to another one."""
    if part[1] == 0:
        return
    if into[1] == 0:
        into[:] = part
        return
    most = max(into[0], part[0])
    old, new = np.exp(into[0] - most), np.exp(part[0] - most)
    into[1:] = into[1:] * old + part[1:] * new
    into[0] = most


def _join_parts(numbers: Numbers) -> tuple[Any, ...]:
    """The first part of a query, and how many; parts; a row of results."""
    count, heads, size = numbers
    return 2, count * heads * part_size(size), heads * size


def _join_work(numbers: Numbers) -> Any:
    return numbers[1] * numbers[2] * 4


def _join_scratch(numbers: Numbers) -> tuple[tuple[DType, Any], ...]:
    return ((DType.F32, part_size(numbers[2])),)


def _joined(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    (first, chunks), parts, (out,) = operands[0], operands[1], results
    count, heads, size = map(int, numbers)
    if not (0 <= first <= count - chunks and chunks >= 1):
        raise OpweldError("an index is out of range: parts")
    own = parts.reshape(count, heads, part_size(size))
    for head in range(heads):
        total = np.zeros(part_size(size), parts.dtype)
        for part in own[int(first) : int(first + chunks), head]:
            _join(total, part)
        out.reshape(heads, size)[head] = total[_HEAD : _HEAD + size] / total[1] if total[1] else 0


_SOURCE = '#include "opweld_attend.h"'

POOLS = {DType.F32: "attend_f32", DType.F16: "attend_f16", DType.BF16: "attend_bf16"}
"""What keys and values may be in memory, and the function that reads them so."""

PAIRED = "attend_pairs"
"""The function that reads pairs of bfloat16."""

_ATTEND = Function(_attend_parts, _attend_work, _attend, _attend_scratch, tables=5, source=_SOURCE, shared_results=True)

PAGED: dict[str, Function] = {
    **dict.fromkeys(POOLS.values(), _ATTEND),
    PAIRED: Function(
        _attend_parts, _attend_work, _attend_pairs, _pairs_scratch, tables=5, source=_SOURCE, shared_results=True
    ),
    "join_parts": Function(_join_parts, _join_work, _joined, _join_scratch, tables=1, source=_SOURCE),
}
"""These functions by name."""
