"""The work of attention: how threads share the keys of a token."""

from __future__ import annotations

from itertools import pairwise

import pytest

from opweld.llm.step import Span
from opweld.llm.work import work_of


@pytest.mark.parametrize(("kv_heads", "threads", "shares"), [(3, 2, 4), (3, 4, 8), (1, 2, 8), (8, 2, 1), (5, 3, 3)])
def test_threads_get_as_many_shares_of_a_long_context_as_the_others(kv_heads: int, threads: int, shares: int) -> None:
    chunks, block = 16, 32
    span = Span([1], chunks * 256 - 1, range(chunks * 256 // block), 1)
    work = work_of([span], block, kv_heads, threads).work
    assert len(work) == kv_heads * shares
    assert shares == 1 or len(work) % threads == 0
    for head in range(kv_heads):
        begins_and_ends = [(int(begin), int(end)) for begin, end in work[work[:, 4] == head, 5:7]]
        assert begins_and_ends[0][0] == 0 and begins_and_ends[-1][1] == chunks
        assert all(one[1] == two[0] for one, two in pairwise(begins_and_ends))


def test_a_short_context_has_no_more_shares_than_chunks() -> None:
    span = Span([1], 300, range(10), 1)
    assert len(work_of([span], 32, 3, 2).work) == 3 * 2
