"""What runs take, and when calls come, learned."""

from __future__ import annotations

import math
from random import Random

import pytest

from opweld.serve.inference.arrivals import Arrivals
from opweld.serve.inference.cost import Cost


def test_a_line_through_runs() -> None:
    cost, random = Cost(), Random(1)
    for _ in range(100):
        size = random.randint(1, 32)
        cost.observe(size, (4 + 2 * size) * (1 + random.uniform(-0.1, 0.1)))
    assert cost.fixed == pytest.approx(4, rel=0.2) and cost.each == pytest.approx(2, rel=0.1)
    assert cost.seconds(10) == pytest.approx(24, rel=0.1)


def test_nothing_is_known_to_be_fixed_before_there_are_two_sizes() -> None:
    cost = Cost()
    assert not cost.known and cost.seconds(3) == 0
    cost.observe(4, 8.0)
    assert (cost.known, cost.fixed, cost.each) == (False, 0, 2)


def test_a_run_that_lost_its_core_counts_little() -> None:
    cost = Cost()
    for size in (1, 2, 4, 8) * 4:
        cost.observe(size, 4 + 2 * size)
    cost.observe(1, 6000.0)
    assert cost.seconds(1) < 3 * 6


def test_runs_of_one_size_do_not_forget_the_others() -> None:
    cost = Cost()
    for size in (1, 16):
        cost.observe(size, 4 + 2 * size)
    for _ in range(1000):
        cost.observe(1, 6.0)
    assert cost.fixed == pytest.approx(4) and cost.each == pytest.approx(2)


def test_it_follows_a_machine_that_becomes_slower() -> None:
    cost = Cost()
    for _ in range(20):
        for size in (1, 16):
            cost.observe(size, 4 + 2 * size)
    for _ in range(100):
        for size in (1, 16):
            cost.observe(size, 2 * (4 + 2 * size))
    assert cost.seconds(16) == pytest.approx(72, rel=0.05)


def test_what_was_measured_beside_other_work_is_forgotten_with_the_first_run_alone() -> None:
    cost = Cost()
    for _ in range(64):
        cost.observe(4, 80.0)
    cost.observe(4, 8.0)
    assert cost.seconds(4) == pytest.approx(8.0)


def test_more_that_takes_less_is_free() -> None:
    cost = Cost()
    cost.observe(1, 5.0)
    cost.observe(8, 4.0)
    assert cost.known and cost.each == 0 and 4 <= cost.fixed <= 5


def test_the_next_call() -> None:
    arrivals = Arrivals()
    assert arrivals.expected(0) == math.inf
    arrivals.came(10)
    assert arrivals.expected(10) == math.inf
    arrivals.came(12)
    assert arrivals.expected(12) == 2 and arrivals.expected(13) == 2 and arrivals.expected(20) == 8
    for _ in range(100):
        arrivals.came(arrivals._last + 1)
    assert arrivals.expected(arrivals._last) == pytest.approx(1, rel=0.05)


def test_after_a_pause_calls_come_as_they_come_then() -> None:
    arrivals = Arrivals()
    for now in (0, 1, 2, 1000):
        arrivals.came(now)
    assert arrivals.expected(1000) == math.inf
    arrivals.came(1003)
    assert arrivals.expected(1003) == 3
