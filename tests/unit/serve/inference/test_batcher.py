"""When batches are closed, by a clock that the tests move."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from opweld.serve.inference.batcher import Batch, Batcher, Waiting
from opweld.serve.inference.cores import Cores
from tests.unit.serve.inference.simulation import Model, NeverWaits, Outcome, Waits, poisson, simulated

FIXED, EACH, TARGET = 4.0, 1.0, 50.0
"""Milliseconds are the unit of these tests."""


def known(max_rows: int = 16, *, threads: Sequence[int] = (1,), processors: int = 1, useful: float = 1.0) -> Batcher:
    """Of a model whose runs take FIXED + EACH * rows of one thread; of n, by the part of their time that is useful."""
    batcher = Batcher(max_rows, TARGET, threads=threads, processors=processors)
    for count in threads:
        for rows in (1, 2, 4, 8):
            speedup = 1 if count == 1 else useful * count
            batcher.cost("k", count).observe(rows, (FIXED + EACH * rows) / speedup)
    return batcher


def call(
    now: float, *, rows: int = 1, length: int = 1, kind: str = "k", deadline: float = math.inf, target: float = TARGET
) -> Waiting:
    return Waiting(kind, rows, length, now, min(now + target, deadline), deadline)


def came(batcher: Batcher, *times: float) -> None:
    """Calls that came, and were run, so that those to come are expected."""
    for now in times:
        batcher.add(call(now))
        for one in [*batcher._of("k").waiting]:
            batcher.remove(one)


def closed(found: Batch | float) -> tuple[str, int]:
    assert isinstance(found, Batch)
    return found.reason, found.rows


def test_a_call_that_comes_alone_waits_for_nothing() -> None:
    batcher = known()
    came(batcher, 0, 2, 4)  # soon after each other; then nothing for a while
    batcher.add(call(1000))
    assert closed(batcher.next(1000)) == ("idle", 1)
    assert batcher.next(1000) == math.inf and not len(batcher)


def test_what_nothing_is_known_of_waits_for_nothing() -> None:
    batcher = Batcher(16, TARGET)
    for now in (0, 1, 2, 3):
        batcher.add(call(now))
        assert closed(batcher.next(now)) == ("idle", 1)


def test_it_waits_for_the_next_call_while_that_costs_less_than_it_saves() -> None:
    batcher = known()
    came(batcher, 0, 1, 2, 3)
    batcher.add(call(4))
    assert batcher.next(4) == pytest.approx(4 + FIXED)  # one waits: 1 * 1 < FIXED; no longer than would be saved
    batcher.add(call(5))
    assert batcher.next(5) == pytest.approx(5 + (FIXED - 1) / 2)  # two wait, and one has for 1
    batcher.add(call(6))
    assert closed(batcher.next(6)) == (
        "arrival",
        3,
    )  # three would wait for 1 more, 2 + 1 have they waited: not worth it


def test_nobody_waits_in_vain_for_longer_than_would_have_been_saved() -> None:
    batcher = known()
    came(batcher, 0, 1, 2, 3)
    batcher.add(call(4))
    again = batcher.next(4)
    assert isinstance(again, float)
    assert closed(batcher.next(again)) == ("arrival", 1)


def test_it_waits_less_where_a_run_leaves_processors_to_others() -> None:
    batcher = known(processors=4)
    came(batcher, 0, 2, 4, 6)
    batcher.add(call(8))
    assert closed(batcher.next(8)) == ("idle", 1)  # a quarter of FIXED is less than the 2 until the next call


def test_it_does_not_wait_beyond_the_target() -> None:
    batcher = known()
    came(batcher, 0, 1, 2, 3)
    batcher.add(call(4, deadline=4 + FIXED + 2 * EACH + 0.5))
    assert batcher.next(4) == pytest.approx(4.5)
    assert closed(batcher.next(4.5)) == ("target", 1)
    late = known()
    late.add(call(4, deadline=5))
    assert closed(late.next(4)) == ("idle", 1)


def test_calls_that_waited_for_processors_share_a_run() -> None:
    batcher = known()
    for now in range(5):
        batcher.add(call(now))
    assert closed(batcher.next(60)) == ("worker", 5)


def test_a_batch_has_no_more_rows_than_it_may() -> None:
    batcher = known(8)
    for now in range(10):
        batcher.add(call(now))
    assert closed(batcher.next(10)) == ("full", 8) and len(batcher) == 2
    batcher.add(call(11, rows=20))
    assert closed(batcher.next(60)) == ("full", 2)
    assert closed(batcher.next(60)) == ("worker", 20)  # more than share a run, but they came so


def test_a_batch_takes_no_longer_than_the_target() -> None:
    batcher, late = Batcher(1000, TARGET), Batcher(1000, TARGET)
    for one in (batcher, late):
        for rows in (1, 8):
            one.cost("k").observe(rows, 10 + rows)
    for now in range(100):
        batcher.add(call(now / 100))
    assert closed(batcher.next(1)) == ("full", 40)
    for now in range(100):
        late.add(call(now / 100))
    assert closed(late.next(100)) == ("worker", 100)  # they are late anyway


def test_rows_that_gain_nothing_do_not_wait_for_each_other() -> None:
    batcher = Batcher(1000, 1e6)
    for rows in (1, 8):
        batcher.cost("k").observe(rows, 1 + rows)
    for now in range(100):
        batcher.add(call(now, target=1e6))
    reason, rows = closed(batcher.next(100))
    assert reason == "full" and rows == pytest.approx(1 / 0.1, abs=1)


def test_only_calls_of_a_kind_share_a_run() -> None:
    batcher = known()
    for now, kind in enumerate(["a", "b", "a"]):
        batcher.add(call(now, kind=kind))
    assert [one.arrived for one in batcher_run(batcher, 9)] == [0, 2]
    assert [one.arrived for one in batcher_run(batcher, 9)] == [1]


def batcher_run(batcher: Batcher, now: float) -> list[Waiting]:
    found = batcher.next(now)
    assert isinstance(found, Batch)
    return list(found.calls)


def test_calls_of_no_kind_run_alone_and_are_no_reason_to_forget_others() -> None:
    batcher = known()
    for now in range(1000):
        one = Waiting(None, 2, 1, now, now + TARGET)
        batcher.add(one)
        batcher.add(Waiting(None, 2, 1, now, now + TARGET))
        assert batcher_run(batcher, now) == [one] and len(batcher_run(batcher, now)) == 1
    assert batcher.cost("k").known


def test_padding_costs_no_more_than_the_run_that_it_saves() -> None:
    batcher = Batcher(16, 1e6, pads=True)
    for size in (64, 512):
        batcher.cost("k").observe(size, 80 + size)
    for now, length in enumerate((128, 800, 160, 112, 320)):
        batcher.add(call(now, length=length, target=1e6))
    assert [one.length for one in batcher_run(batcher, 1000)] == [128, 112, 160]  # 320 pads 3 * 160 for 80
    assert [one.length for one in batcher_run(batcher, 1000)] == [800]
    assert [one.length for one in batcher_run(batcher, 1000)] == [320]


@pytest.mark.parametrize(("lengths", "together"), [((25, 26, 32), 1), ((25, 25, 25), 3), ((31, 32, 30), 3)])
def test_padding_counts_up_to_the_length_that_rows_get(lengths: tuple[int, ...], together: int) -> None:
    batcher = Batcher(16, 1e6, pads=True)
    for size in (8, 64):
        batcher.cost("k").observe(size, 10 + size)
    for now, length in enumerate(lengths):
        batcher.add(call(now, length=length, target=1e6))
    batch = batcher.next(50)
    assert isinstance(batch, Batch)
    assert len(batch.calls) == together  # 25 and 26 become 32 both: 13 for a run of 10
    assert batch.size == together * (25 if 25 in lengths else 32), "what costs are told of is what the run has"


def test_no_call_misses_its_deadline_for_those_that_share_its_run() -> None:
    batcher = known(1000)
    for now in range(20):
        batcher.add(call(now, deadline=now + 70.0))
    assert closed(batcher.next(60)) == ("full", 2)  # the first one wants its answer by 70, and surely


def test_what_cannot_be_in_time_is_not_begun() -> None:
    batcher = known()
    batcher.add(call(0))
    first = batcher.next(0)
    assert isinstance(first, Batch)
    soon, later = call(0, deadline=4), call(0, deadline=100)
    batcher.add(soon)
    batcher.add(later)
    assert list(batcher.late(0)) == [soon]
    batcher.ended(first)
    assert batcher_run(batcher, 50) == [later]


def test_nobody_is_refused_by_an_estimate_where_nothing_corrects_it() -> None:
    """Of a run that was measured when the machine was slow."""
    batcher, cores = Batcher(16, TARGET), Cores(1)
    cores.add(batcher)
    batcher.cost("k").observe(1, 400)
    for now in range(0, 32_000, 1000):
        batcher.add(call(now, deadline=now + 300))
        (going,), late, _ = cores.begin(now)
        assert late == []
        cores.end(going)
        batcher.observe(going.batch, 10)
    assert batcher.cost("k").seconds(1) < 100
    batcher.add(call(0, deadline=4))
    assert [one.deadline for _, one in cores.begin(5)[1]] == [4]  # it has passed
    assert not len(batcher)


def test_a_call_that_is_taken_back_is_gone() -> None:
    batcher = known()
    first, second = call(0), call(1)
    batcher.add(first)
    batcher.add(second)
    assert batcher.remove(first) and not batcher.remove(first) and len(batcher) == 1
    assert batcher_run(batcher, 60) == [second]


def test_a_call_that_was_held_and_is_gone_is_forgotten() -> None:
    batcher = known()
    came(batcher, 0, 1, 2, 3)
    gone = call(4)
    batcher.add(gone)
    assert isinstance(batcher.next(4), float)
    batcher.remove(gone)
    batcher.add(call(1000))
    assert closed(batcher.next(1000)) == ("idle", 1)


def test_a_call_that_comes_alone_has_all_threads_and_many_have_a_run_each() -> None:
    batcher = known(threads=(1, 2), processors=2, useful=0.75)
    batcher.add(call(0))
    alone = batcher.next(0, 2)
    assert isinstance(alone, Batch) and alone.threads == 2
    for now in range(11):
        batcher.add(call(now))
    first, second = batcher.next(60, 2), batcher.next(60, 1)
    assert isinstance(first, Batch) and isinstance(second, Batch)
    assert [(one.threads, one.rows) for one in (first, second)] == [(1, 6), (1, 5)]


def test_few_calls_share_what_is_fixed_and_all_threads() -> None:
    batcher = known(threads=(1, 2), processors=2, useful=0.75)
    for now in range(4):
        batcher.add(call(now))
    found = batcher.next(60, 2)  # (4 + 4) / 1.5 are less than 4 + 2
    assert isinstance(found, Batch) and (found.threads, found.rows) == (2, 4)


def test_a_run_has_no_more_processors_than_are_free() -> None:
    batcher = known(threads=(1, 2, 4), processors=4)
    for now, (free, threads) in enumerate(((4, 4), (3, 2), (1, 1))):
        batcher.add(call(1000 * now))
        found = batcher.next(1000 * now, free)
        assert isinstance(found, Batch) and found.threads == threads


def used_threads(batcher: Batcher, seconds: Callable[[int, int], float], *, at_once: int, turns: int) -> list[int]:
    """The threads of the runs of calls of four rows that come, so many at once, when all processors are free. seconds:
    of a run by its rows and threads."""
    used: list[int] = []
    for turn in range(turns):
        now = 1000.0 * turn
        for _ in range(at_once):
            batcher.add(call(now, rows=4))
        free = 2
        while len(batcher) and free:
            found = batcher.next(now + TARGET, free)  # so that nobody waits for another
            assert isinstance(found, Batch)
            free -= found.threads
            used.append(found.threads)
            batcher.observe(found, seconds(found.rows, found.threads))
            batcher.ended(found)
    return used


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("slow", [1, 2])
def test_threads_that_were_slow_beside_other_work_are_used_again(slow: int, at_once: int) -> None:
    """Alone, a call is answered soonest by both processors, and of two calls each by one."""
    batcher = known(threads=(1, 2), processors=2, useful=0.75)
    for rows in (1, 2, 4, 8) * 16:
        batcher.cost("k", slow).observe(rows, 10 * (FIXED + EACH * rows))
    speedup = {1: 1.0, 2: 1.5 if at_once == 1 else 1.1}
    used = used_threads(batcher, lambda rows, n: (FIXED + EACH * rows) / speedup[n], at_once=at_once, turns=4000)
    best = 2 if at_once == 1 else 1
    assert used[:10] == [3 - slow] * 10 and used[-200:].count(best) >= 198


@pytest.mark.parametrize("useful", [0.2, 0.45])
def test_threads_that_make_bad_use_of_their_processors_are_tried_for_a_small_part_of_the_time(useful: float) -> None:
    batcher = known(threads=(1, 2), processors=2, useful=useful)
    speedup = {1: 1.0, 2: 2 * useful}
    used = used_threads(batcher, lambda rows, n: (FIXED + EACH * rows) / speedup[n], at_once=1, turns=4000)
    assert 0 < used.count(2) <= 4000 / 128 * 1.2  # shorter ones are tried more often


def test_models_share_the_processors_and_who_is_due_first_begins() -> None:
    one, another, third = known(threads=(1, 2), processors=2), known(threads=(1, 2), processors=2), known()
    cores = Cores(2)
    for batcher in (one, another, third):
        cores.add(batcher)
    for now, batcher in enumerate((another, one, third)):
        batcher.add(call(now))
    begun, _, _ = cores.begin(2)
    assert [(going.batcher, going.batch.threads) for going in begun] == [(another, 1), (one, 1)]
    cores.end(begun[0])
    assert [going.batcher for going in cores.begin(5)[0]] == [third]
    for going in list(cores.going):
        cores.end(going)
    one.add(call(6))
    assert [going.batch.threads for going in cores.begin(6)[0]] == [2]
    another.add(call(7))
    assert cores.begin(7)[0] == []  # no processor is free


LOADS = (0.1, 0.5, 0.9, 1.2)


@pytest.mark.parametrize("at_once", [1, 8])
def test_beside_a_server_that_never_waits_and_one_that_waits_for_a_fixed_time(at_once: int) -> None:
    """Of a model whose batches of 32 have five times the throughput of single rows. Time is the simulation's."""
    model, target, rows, calls = Model(0.004, 0.001), 0.05, 32, 1000
    for load in LOADS:
        arrive = poisson(load * at_once * model.capacity(rows))
        outcomes: list[Outcome] = [
            simulated(policy(rows, target, processors=at_once), model, arrive, calls, at_once)
            for policy in (Batcher, NeverWaits, Waits)
        ]
        mine, eager, patient = outcomes
        assert mine.rate >= 0.97 * max(eager.rate, patient.rate)
        assert mine.mean <= 1.1 * eager.mean
        assert mine.work <= 1.03 * eager.work  # what it waits for saves work
        if load <= 0.7:
            assert mine.p99 <= target
            assert mine.p99 <= 1.1 * eager.p99
        if load <= 0.3:
            assert mine.mean < patient.mean
