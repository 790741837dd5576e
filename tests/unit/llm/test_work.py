"""The work of attention: how threads share the keys of a token."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from opweld.llm.step import Span
from opweld.llm.work import Division, work_of

HEAD, CHUNK, END, HEADS = 4, 5, 6, 10
"""Of a row of work."""


def token(chunks: int) -> Span:
    """One token that sees so many chunks of 256 keys."""
    return Span([1], chunks * 256 - 1, range(chunks * 256 // 32), 1)


@pytest.mark.parametrize(("kv_heads", "threads", "shares"), [(3, 2, 4), (3, 4, 8), (1, 2, 8), (8, 2, 1), (5, 3, 3)])
def test_threads_get_as_many_shares_of_a_long_context_as_the_others(kv_heads: int, threads: int, shares: int) -> None:
    chunks = 16
    work = work_of([token(chunks)], 32, kv_heads, Division(threads, together=False)).work
    assert len(work) == kv_heads * shares
    assert shares == 1 or len(work) % threads == 0
    for head in range(kv_heads):
        begins_and_ends = [(int(begin), int(end)) for begin, end in work[work[:, HEAD] == head, CHUNK : END + 1]]
        assert begins_and_ends[0][0] == 0 and begins_and_ends[-1][1] == chunks
        assert all(one[1] == two[0] for one, two in pairwise(begins_and_ends))


def test_a_short_context_has_no_more_shares_than_chunks() -> None:
    span = Span([1], 300, range(10), 1)
    assert len(work_of([span], 32, 3, Division(2)).work) == 3 * 2


@pytest.mark.parametrize(("spans", "threads", "rows"), [(1, 1, 1), (1, 2, 8), (1, 4, 16), (3, 1, 3), (8, 2, 8)])
def test_heads_of_a_token_are_read_together_where_threads_share_its_keys(spans: int, threads: int, rows: int) -> None:
    work = work_of([token(16)] * spans, 32, 3, Division(threads)).work
    assert len(work) == rows
    assert (work[:, HEAD] == 0).all() and (work[:, HEADS] == 3).all()
    assert np.sum(work[:, END] - work[:, CHUNK]) == spans * 16


def test_several_tokens_and_few_keys_take_a_head_at_a_time() -> None:
    for span in (Span([1] * 5, 4000, range(128), 1), Span([1], 300, range(10), 1)):
        work = work_of([span], 32, 3, Division(2)).work
        assert (work[:, HEADS] == 1).all() and set(work[:, HEAD]) == {0, 1, 2}
