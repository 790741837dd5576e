"""The memory planner: no two live buffers overlap, whatever the lifetimes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opweld.runtime.library import load, plan_arena


@pytest.fixture(scope="module")
def library(runtime_so: Path) -> ctypes.CDLL:
    return load(runtime_so)


def lifetimes(max_size: int) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    def buffer(size: int, first: int, length: int) -> tuple[int, int, int]:
        return size, first, first + length

    return st.lists(st.builds(buffer, st.integers(0, max_size), st.integers(0, 40), st.integers(0, 20)), max_size=60)


def aligned(size: int) -> int:
    return (size + 63) // 64 * 64


@settings(max_examples=400)
@given(lifetimes(2000) | lifetimes(2**50))
def test_live_buffers_never_overlap(library: ctypes.CDLL, buffers: list[tuple[int, int, int]]) -> None:
    plan = plan_arena(library, buffers)
    assert plan is not None
    placed = [(offset, *buffer) for offset, buffer in zip(plan.offsets, buffers, strict=True) if buffer[0]]
    for i, (offset, size, first, last) in enumerate(placed):
        assert offset % 64 == 0
        assert 0 <= offset <= plan.peak - aligned(size)
        for other, other_size, other_first, other_last in placed[:i]:
            if first <= other_last and other_first <= last:
                assert offset + aligned(size) <= other or other + aligned(other_size) <= offset
    steps = range(max((last for _, _, last in buffers), default=-1) + 1)
    live = [sum(aligned(size) for size, first, last in buffers if first <= step <= last) for step in steps]
    assert plan.live == max(live, default=0)
    assert plan.total == sum(aligned(size) for size, _, _ in buffers)
    assert plan.live <= plan.peak <= plan.total


def test_chain_needs_two_buffers(library: ctypes.CDLL) -> None:
    plan = plan_arena(library, [(1000, i, i + 1) for i in range(500)])
    assert plan is not None
    assert plan.peak == plan.live == 2 * 1024


def test_gap_that_fits_best_is_taken(library: ctypes.CDLL) -> None:
    # Two gaps appear below the first three; the small buffer must take the small gap to leave the large one.
    plan = plan_arena(
        library, [(640, 0, 9), (576, 0, 3), (512, 0, 9), (448, 0, 3), (384, 0, 9), (512, 5, 9), (448, 5, 9)]
    )
    assert plan is not None
    assert plan.peak == plan.live


@pytest.mark.parametrize(
    "buffers",
    [
        [(2**63 - 1, 0, 0)],
        [(2**62, 0, 0), (2**62, 1, 1)],
        [(-1, 0, 0)],
        [(64, 3, 2)],
        [(64, -1, 2)],
        [(64, 0, 2**31 - 1)],
    ],
)
def test_refuses(library: ctypes.CDLL, buffers: list[tuple[int, int, int]]) -> None:
    assert plan_arena(library, buffers) is None


def test_thousands_of_buffers_share_memory(library: ctypes.CDLL) -> None:
    plan = plan_arena(library, [((i * 7919) % 100_000, i, i + 1 + (i % 97 == 0) * 50) for i in range(5000)])
    assert plan is not None
    assert plan.peak <= 1.2 * plan.live
