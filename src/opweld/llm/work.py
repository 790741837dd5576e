"""The work of attention in a step: which queries, keys and heads each call computes, as `tensor/paged.py` has it.

How work is divided decides how threads share it, and nothing of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opweld.llm.step import Span
from opweld.tensor.paged import CHUNK

Int64 = NDArray[np.int64]

QUERIES = 8
"""Tokens of a call, where there are as many: their rows share what is read of keys and values."""


@dataclass(frozen=True)
class Work:
    """The inputs of PagedAttention: rows of work, block tables, the token of each part, and the parts of each token."""

    work: Int64
    tables: Int64
    owners: Int64
    parts: Int64


def work_of(spans: Sequence[Span], block: int, kv_heads: int, threads: int) -> Work:
    """The work of a step. Where a few tokens have many keys, threads share those of one head."""
    rows: list[Int64] = []
    tables: list[int] = []
    firsts: list[Int64] = []
    counts: list[Int64] = []
    token = part = 0
    few = sum(-(-len(span.tokens) // QUERIES) for span in spans) * kv_heads < 4 * threads
    for span in spans:
        count, last = len(span.tokens), span.start + len(span.tokens) - 1
        chunks = last // CHUNK + 1
        shares = min(chunks, -(-4 * threads // kv_heads)) if few and threads > 1 and count <= QUERIES else 1
        stride = chunks if shares > 1 else 1
        firsts.append(part + stride * np.arange(count))
        counts.append(np.full(count, stride))
        if shares > 1:
            edges = np.arange(shares + 1) * chunks // shares
            chunk, end = np.tile(edges[:-1], kv_heads), np.tile(edges[1:], kv_heads)
            heads = np.repeat(np.arange(kv_heads), shares)
            rows.append(_rows(token, count, span.start, len(tables), heads, chunk, end, part + chunk, stride, 1))
        else:
            begins = np.arange(0, count, QUERIES)
            sizes = np.minimum(QUERIES, count - begins)
            ends = (span.start + begins + sizes - 1) // CHUNK + 1
            begins, sizes, ends = (np.repeat(array, kv_heads) for array in (begins, sizes, ends))
            heads = np.tile(np.arange(kv_heads), len(begins) // kv_heads)
            places = (token + begins, sizes, span.start + begins, len(tables))
            rows.append(_rows(*places, heads, 0, ends, part + begins, 1, 0))
        tables += span.blocks[: last // block + 1]
        token, part = token + count, part + stride * count
    parts = np.stack([np.concatenate(firsts), np.concatenate(counts)], 1)
    return Work(
        np.concatenate(rows),
        np.asarray(tables, np.int64),
        np.repeat(np.arange(token), parts[:, 1]),
        parts.astype(np.int64),
    )


def _rows(*columns: int | Int64) -> Int64:
    return np.stack(np.broadcast_arrays(*columns), 1).astype(np.int64)
