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

ENTRIES = 64
"""Block tables of a step have a multiple of so many entries: a sequence that comes to another block is no other shape,
which would need a plan of its own."""


@dataclass(frozen=True)
class Division:
    """How the work of attention is divided.

    Attributes:
        threads: that share it. queries: tokens of a call, where there are as many.
        padded: whether steps are padded to some of few sizes, see `llm/padded.py`.
        together: whether a call may take the heads of a token together. Those of a block lie side by side, so that its
            memory is read in a line; a GPU has a program for each.
    """

    threads: int
    queries: int = QUERIES
    padded: bool = False
    together: bool = True


@dataclass(frozen=True)
class Work:
    """The inputs of PagedAttention: rows of work, block tables, the token of each part, and the parts of each token."""

    work: Int64
    tables: Int64
    owners: Int64
    parts: Int64


def step_feeds(
    spans: Sequence[Span], block: int, kv_heads: int, division: Division, causal: bool = True
) -> dict[str, Int64]:
    """The inputs of every step: tokens, where their keys and values go, and the work of attention; see `work_of`."""
    tokens = [token for span in spans for token in span.tokens]
    places = [
        (span.blocks[at // block], at % block)
        for span in spans
        for at in range(span.start, span.start + len(span.tokens))
    ]
    work = work_of(spans, block, kv_heads, division, causal)
    return {
        "tokens": np.array(tokens, np.int64),
        "places": np.array(places, np.int64),
        "work": work.work,
        "tables": np.pad(work.tables, (0, -len(work.tables) % ENTRIES)),
        "owners": work.owners,
        "parts": work.parts,
    }


def work_of(spans: Sequence[Span], block: int, kv_heads: int, division: Division, causal: bool = True) -> Work:
    """The work of a step. Where a few tokens have many keys, threads share those of one head, or of all.

    causal: whether a token sees the keys up to its own; else each sees all of its span, and those before.

    A step of one token is made of a dozen numbers, so lists are faster here than arrays."""
    threads, queries = division.threads, division.queries
    rows: list[tuple[int, ...]] = []
    tables: list[int] = []
    owners: list[int] = []
    parts: list[tuple[int, int]] = []
    token = 0
    tiles = sum(-(-len(span.tokens) // queries) for span in spans)
    few = tiles * kv_heads < 4 * threads
    for span in spans:
        count, start, table, part = len(span.tokens), span.start, len(tables), len(owners)
        last = start + count - 1
        chunks = last // CHUNK + 1
        # Together where each thread has as much to do as with a head at a time.
        alone = threads == 1 or tiles >= 4 * threads
        if division.together and count == 1 and (alone or chunks >= 4 * threads):
            shares, heads = 1 if alone else 4 * threads, kv_heads
        else:
            shares = min(chunks, _shares(kv_heads, threads)) if few and threads > 1 and count <= queries else 1
            heads = 1
        stride = chunks if shares > 1 else 1
        first = start if causal else last
        for head in range(0, kv_heads, heads):
            if shares > 1:
                for share in range(shares):
                    chunk, end = share * chunks // shares, (share + 1) * chunks // shares
                    rows.append((token, count, first, table, head, chunk, end, part + chunk, stride, 1, heads))
                continue
            for i in range(0, count, queries):
                size = min(queries, count - i)
                position, seen = (start + i, start + i + size - 1) if causal else (last, last)
                rows.append((token + i, size, position, table, head, 0, seen // CHUNK + 1, part + i, 1, 0, heads))
        tables += span.blocks[: last // block + 1]
        for i in range(count):
            parts.append((part + i * stride, stride))
            owners += (token + i,) * stride
        token += count
    return Work(*(np.array(found, np.int64) for found in (rows, tables, owners, parts)))


def _shares(kv_heads: int, threads: int) -> int:
    """Of a head's chunks: the fewest of which each thread gets as many as the others, and four or more."""
    shares = -(-4 * threads // kv_heads)
    return shares + next(more for more in range(threads) if (shares + more) * kv_heads % threads == 0)
