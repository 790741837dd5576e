"""Who is computed when."""

from __future__ import annotations

import pytest

from opweld.errors import OptionError
from opweld.llm.blocks import BlockManager
from opweld.llm.sampler import Sampler
from opweld.llm.scheduler import Scheduler, Work
from opweld.llm.sequence import Sequence
from opweld.llm.settings import Settings
from opweld.llm.text import Text
from tests.unit.llm.fake import letters, request


def sequence(id: str, length: int, limit: int = 20) -> Sequence:
    """One whose prompt nobody shares."""
    one = request(id, [ord(id), *range(length - 1)])
    return Sequence(one, limit, Sampler(one.sampling, ()), Text(letters(), one, limit))


def scheduler(blocks: int = 100, **settings: int) -> Scheduler:
    return Scheduler(BlockManager(blocks, 4), Settings(**settings))


def planned(work: list[Work]) -> dict[str, int]:
    return {item.sequence.request.id: item.count for item in work}


def step(schedule: Scheduler) -> dict[str, int]:
    """Schedules a step, and does as a model would: a known prompt gets one token more."""
    work = schedule.schedule()
    assert sum(item.count + item.room for item in work) <= schedule.settings.budget
    for item in work:
        assert len(item.sequence.table.blocks) * 4 >= item.sequence.computed + item.count + item.room
        schedule.advance(item.sequence, item.count)
        if item.last:
            item.sequence.tokens.append(1)
    return planned(work)


def test_decoding_rows_come_first_and_prompts_take_the_rest_in_chunks() -> None:
    schedule = scheduler(budget=10, rows=4)
    schedule.add(sequence("a", 3))
    schedule.add(sequence("b", 20))
    schedule.add(sequence("c", 4))
    assert step(schedule) == {"a": 3, "b": 7}
    assert step(schedule) == {"a": 1, "b": 9}
    assert step(schedule) == {"a": 1, "b": 4, "c": 4}
    assert step(schedule) == {"a": 1, "b": 1, "c": 1}


def test_rows_are_limited() -> None:
    schedule = scheduler(budget=10, rows=2)
    several = [sequence(id, 2) for id in "abc"]
    for one in several:
        schedule.add(one)
    assert step(schedule) == {"a": 2, "b": 2}
    schedule.remove(several[0])
    assert step(schedule) == {"b": 1, "c": 2}


def test_nobody_overtakes_the_first_one_that_waits() -> None:
    schedule = scheduler(blocks=8)
    running = sequence("a", 20)
    schedule.add(running)
    step(schedule)
    schedule.add(sequence("b", 16))  # 4 blocks, of which there are 3
    schedule.add(sequence("c", 1))
    assert step(schedule) == {"a": 1}
    schedule.remove(running)
    assert step(schedule) == {"b": 16, "c": 1}


def test_who_would_leave_no_block_for_the_running_rows_waits() -> None:
    """It would be put back at once."""
    schedule = scheduler(blocks=6)
    first, second = sequence("a", 12), sequence("b", 12)
    schedule.add(first)
    schedule.add(second)
    assert step(schedule) == {"a": 12}
    assert step(schedule) == {"a": 1}
    assert schedule.preemptions == 0
    schedule.remove(first)
    assert step(schedule) == {"b": 12}


def test_the_youngest_is_put_back_where_blocks_run_out_and_found_again_in_the_cache() -> None:
    schedule = scheduler(blocks=4)
    old, young = sequence("a", 4), sequence("b", 4)
    for one in (old, young):
        schedule.add(one)
    while not schedule.preemptions:
        step(schedule)
    assert (schedule.running, list(schedule.waiting)) == ([old], [young])
    assert (young.computed, young.table.blocks) == (0, [])
    schedule.remove(old)
    known = len(young.tokens)
    assert step(schedule) == {"b": known - 4}  # of its two full blocks one is still there; the older took the other
    assert young.cached == 0  # told once: when it was first admitted


def test_who_is_put_back_stays_before_those_who_came_later() -> None:
    schedule = scheduler(blocks=6)
    for id in "abc":
        schedule.add(sequence(id, 4))
    step(schedule)
    schedule.add(sequence("d", 1))
    while len(schedule.running) > 1:
        step(schedule)
    assert [one.request.id for one in schedule.waiting] == ["b", "c", "d"]


def test_drafts_take_what_is_left_and_put_nobody_back() -> None:
    schedule = scheduler(budget=10, rows=4, lookup=4)
    for id in "ab":
        schedule.add(sequence(id, 3, limit=20))
    schedule.add(sequence("c", 30))
    step(schedule)
    assert [item.room for item in schedule.schedule()] == [0, 0, 0]
    schedule.remove(schedule.running[2])
    assert [item.room for item in schedule.schedule()] == [4, 4]
    schedule.add(sequence("d", 2))
    assert [item.room for item in schedule.schedule()] == [4, 2, 0]


def test_a_draft_has_as_many_tokens_as_the_answer_may_still_have_before_its_last() -> None:
    schedule = scheduler(lookup=4)
    schedule.add(sequence("a", 3, limit=3))
    rooms: list[int] = []
    for _ in range(3):
        work = schedule.schedule()
        rooms.append(work[0].room)
        schedule.advance(work[0].sequence, work[0].count)
        work[0].sequence.tokens.append(1)
    assert rooms == [2, 1, 0]


def test_drafts_are_as_long_as_there_are_blocks() -> None:
    schedule = scheduler(blocks=2, lookup=4)
    schedule.add(sequence("a", 6))
    assert [item.room for item in schedule.schedule()] == [2]


@pytest.mark.parametrize("wrong", [{"budget": 0}, {"rows": 0}, {"queue": -1}, {"lookup": -1}, {"budget": 3, "rows": 4}])
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="|".join(wrong)):
        Settings(**wrong)
