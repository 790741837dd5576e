"""Schedules as values: text and back, errors of the parser, what a member cannot have."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opweld.errors import OptionError
from opweld.schedule.schedule import (
    LoopSchedule,
    MapSchedule,
    ReductionSchedule,
    RowSchedule,
    Schedule,
    WindowSchedule,
    parse_schedule,
)
from opweld.schedule.verify import verify_map, verify_reduction, verify_rows
from opweld.target import Target
from opweld.tensor.dtype import DType

V3 = Target.of("x86-64-v3")

counts = st.integers(0, 10**6)
axes = st.from_regex(r"[irc][0-9]{1,3}[oi]{0,2}", fullmatch=True) | st.just("one")
tiles = {
    "lane": axes,
    "vectors": counts,
    "row": axes,
    "height": counts,
    "order": st.sampled_from(("rows", "lanes")),
    "taps": st.sampled_from(("loop", "written")),
}
members = st.one_of(
    st.builds(MapSchedule, lane=axes, vectors=counts, chunk=counts, inner=counts, square=axes),
    st.builds(ReductionSchedule, **tiles),
    st.builds(WindowSchedule, **tiles),
    st.builds(RowSchedule, lane=axes, vectors=counts, kept=st.lists(counts, max_size=4).map(tuple)),
)
loops = st.builds(LoopSchedule, unroll=counts, fetch=st.integers(0, 8), separate=st.booleans())
schedules = st.builds(
    lambda parts, rows, columns, masked, loops: (
        Schedule(parts, rows, columns, masked, loops) if rows else Schedule(parts, loops=loops)
    ),
    st.lists(members, max_size=4).map(tuple),
    counts,
    counts,
    st.sampled_from(("computed", "skipped")),
    st.lists(loops, max_size=4).map(tuple),
)


@given(schedules)
def test_text_round_trips(schedule: Schedule) -> None:
    text = str(schedule)
    assert parse_schedule(text) == schedule
    assert text.isprintable()


@given(schedules, schedules)
def test_schedules_with_the_same_fields_are_the_same(one: Schedule, other: Schedule) -> None:
    """What a file says of a region is compared by its fields: two schedules must not look alike."""

    def plain(schedule: Schedule) -> Schedule:
        kept = [
            RowSchedule(m.lane, m.vectors, tuple(sorted(set(m.kept)))) if isinstance(m, RowSchedule) else m
            for m in schedule.members
        ]
        return replace(schedule, members=tuple(kept))

    assert (dict(one.fields()) == dict(other.fields())) == (plain(one) == plain(other))


def test_text_reads_like_this() -> None:
    schedule = Schedule(
        (ReductionSchedule("i1", 2, "i0", 14), RowSchedule("c0", 1, (1, 3)), MapSchedule("one", 1)),
        rows=4,
        loops=(LoopSchedule(), LoopSchedule(4, 3)),
    )
    assert str(schedule) == (
        "block rows=4; contraction lane=i1 vectors=2 row=i0 height=14 order=rows taps=loop; "
        "rows lane=c0 vectors=1 kept=1,3; map lane=one vectors=1 chunk=0 inner=0; loop; loop unroll=4 fetch=3"
    )
    assert dict(schedule.fields())["member 1 tensor 3", "schedule.keep"] == "scratch"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weld lane=i0", "'weld lane=i0' begins with none of block, loop, map, contraction, window, rows"),
        ("map lane=i0", "'map lane=i0' lacks vectors"),
        ("map lane=i0 vectors", "'vectors' in 'map lane=i0 vectors' is not NAME=VALUE"),
        ("map lane=i0 vectors=", "'vectors=' in 'map lane=i0 vectors=' is not NAME=VALUE"),
        ("map lane=i0 vectors=two", "'two' in 'map lane=i0 vectors=two' is no whole number"),
        ("map lane=i0 vectors=-1", "'-1' in"),
        ("map lane=i0 vectors=1 vectors=2", "says vectors twice"),
        ("map lane=i0 vectors=1 height=3", "has no 'height', only lane, vectors, chunk, inner"),
        ("loop separate=maybe", "'maybe' in 'loop separate=maybe' is neither yes nor no"),
        ("rows lane=c0 vectors=1 kept=1,,2", "'' in"),
        ("block", "'' in 'block' is no whole number"),
    ],
)
def test_the_parser_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        parse_schedule(text)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (MapSchedule("i7", 1), "map has lane=i7, expected one of i0, i1, one"),
        (MapSchedule("i0", 5), "map has vectors=5, expected 1 to 4"),
        (MapSchedule("i0", 0), "map has vectors=0"),
        (MapSchedule("i0", 1, 0, 3), "inner=3, expected none below 0, inner to 2"),
        (MapSchedule("i0", 1, 16, 1), "chunk and inner"),
        (ReductionSchedule("i0", 1, "i7"), "contraction has row=i7, expected one of i0, i1, one"),
        (ReductionSchedule("i0", 1, "i0"), "i0 as lane and row"),
        (ReductionSchedule("i0", 2, "i1", 7), "contraction has height=7, expected 1 to 6 in the registers"),
        (ReductionSchedule("i0", 2, "i1", 0), "height=0"),
        (ReductionSchedule("i0", 2, "one", 2), "height=2, expected 1 to 1 without a row axis"),
        (WindowSchedule("i0", 1, order="columns"), "window has order=columns, expected one of rows, lanes"),
        (ReductionSchedule("i0", 1, order="turns"), "contraction has order=turns, expected one of rows, lanes"),
        (WindowSchedule("i0", 1, taps="none"), "window has taps=none, expected one of loop, written"),
    ],
    ids=str,
)
def test_what_a_member_cannot_have(schedule: MapSchedule | ReductionSchedule, message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        verify(schedule)


def verify(schedule: MapSchedule | ReductionSchedule, dtype: DType = DType.F32) -> None:
    """Over two axes, for AVX2."""
    if isinstance(schedule, MapSchedule):
        verify_map(schedule, ("i0", "i1"))
    else:
        verify_reduction(schedule, ("i0", "i1"), dtype, V3)


def test_what_a_row_cannot_have() -> None:
    verify_rows(RowSchedule("c0", 1, (0, 2)), ("c0", "r0"), 3)
    with pytest.raises(OptionError, match="lane=one"):
        verify_rows(RowSchedule("one", 1), ("c0",), 3)
    with pytest.raises(OptionError, match="kept=3, expected positions from 0 to 2"):
        verify_rows(RowSchedule("c0", 1, (3,)), ("c0",), 3)


@pytest.mark.parametrize("schedule", [MapSchedule("one", 4, 16), ReductionSchedule("i1", 2, "i0", 6)], ids=str)
def test_what_a_member_can_have(schedule: MapSchedule | ReductionSchedule) -> None:
    verify(schedule)


def test_sums_of_wide_elements_leave_room_for_fewer_rows() -> None:
    verify(ReductionSchedule("i1", 2, "i0", 2), DType.F64)
    with pytest.raises(OptionError, match="height=6, expected 1 to 2 in the registers beside 2 vectors"):
        verify(ReductionSchedule("i1", 2, "i0", 6), DType.F64)


def test_a_recurrence_may_turn() -> None:
    verify_reduction(ReductionSchedule("i0", 1, order="turns"), ("i0", "i1"), DType.F32, V3, recurrent=True)
