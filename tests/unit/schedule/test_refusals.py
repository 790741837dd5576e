"""What a register tile cannot have is in the ledger, with what ruled it out."""

from __future__ import annotations

import re

import pytest

from opweld.errors import OptionError
from opweld.ledger import Decision, Ledger
from opweld.tensor.parse import parse_program
from tests.unit.tile import programs
from tests.unit.tile.pipeline import compile_text, compile_with, with_data

NO_TURNS = {"turns": "no recurrence reads the operand again"}


def decided(text: str, rule: str) -> list[Decision]:
    return [decision for decision in compile_text(text).ledger if decision.rule == rule]


def names(decision: Decision) -> list[str]:
    return [alternative.name for alternative in decision.alternatives]


def refused(text: str, decision: Decision, alternative: str) -> str:
    """What a pin of an alternative is told."""
    with pytest.raises(OptionError) as raised:
        compile_with(with_data(parse_program(text)), Ledger(pins={decision.id: alternative}))
    return str(raised.value)


def test_rows_and_lanes_are_two_axes() -> None:
    text = programs.dense(17, 7, 33)
    (row,) = decided(text, "schedule.row")
    assert (names(row), row.taken) == (["one", "i0", "i1"], "i0")
    assert row.failed == {"i1": "the lanes run along it"}
    assert not row.near_miss
    told = refused(text, row, "i1")
    assert told.endswith("schedule.row cannot do that here (i1 = the lanes run along it), only one, i0")


def test_where_there_is_no_axis_but_that_of_the_lanes_no_row_is_legal() -> None:
    (row,) = decided(programs.dense(1, 7, 33), "schedule.row")
    assert (names(row), row.taken) == (["one", "i1"], "one")
    assert row.failed == {"i1": "the lanes run along it"}
    assert row.near_miss and row.reason == "there is no axis but that of the lanes"


def test_an_axis_whose_rows_share_nothing_is_legal() -> None:
    """Each product of a batch has a matrix of its own."""
    text = """program batch
input x f32[5, 4, 7]
input z f32[5, 7, 33]
tensor result f32[i0: 5, i1: 4, i2: 33] from "MatMul"
  over r0: 7
  = sum<r0>(mul(x[i0, i1, r0], z[i0, r0, i2]))
output y = result
"""
    (row,) = decided(text, "schedule.row")
    assert (sorted(names(row)), row.taken) == (["i0", "i1", "i2", "one"], "i1")
    assert row.failed == {"i2": "the lanes run along it"}
    prices = {alternative.name: alternative.seconds for alternative in row.alternatives}
    assert prices["i2"] is None and (prices["i0"] or 0) > (prices["one"] or 0) > (prices["i1"] or 0) > 0


def test_an_element_alone_has_no_row_to_decide_about() -> None:
    text = """program dot
input x f32[64]
input z f32[64]
tensor result f32[] from "MatMul"
  over r0: 64
  = sum<r0>(mul(x[r0], z[r0]))
output y = result
"""
    assert decided(text, "schedule.row") == []


def test_only_a_recurrence_turns() -> None:
    text = programs.dense(17, 7, 33)
    (order,) = decided(text, "schedule.order")
    assert (names(order), order.taken) == (["rows", "lanes", "turns"], "lanes")
    assert order.failed == NO_TURNS
    told = refused(text, order, "turns")
    assert told.endswith("(turns = no recurrence reads the operand again), only rows, lanes")
    outside, step = decided(programs.lstm(4, 2, 5, 3), "schedule.order")
    assert names(outside) == names(step) == ["rows", "lanes", "turns"]
    assert (outside.failed, step.failed) == (NO_TURNS, {})


def test_rows_that_are_chosen_by_cost_are_no_near_miss() -> None:
    (order,) = decided(programs.dense(64, 512, 256), "schedule.order")
    assert (order.taken, order.failed, order.near_miss) == ("rows", NO_TURNS, False)
    assert re.match(r"[0-9,]+ bytes of operand along the lanes, [0-9,]+ stay", order.reason)


def test_a_tile_is_no_higher_than_its_registers() -> None:
    text = programs.dense(17, 7, 33)
    (height,) = decided(text, "schedule.height")
    assert names(height) == ["1", "2", "3", "4", "5", "6", "7"]
    assert height.failed == {"7": "a tile of 2 vectors has at most 6 rows"}
    assert refused(text, height, "7").endswith("(7 = a tile of 2 vectors has at most 6 rows), only 1, 2, 3, 4, 5, 6")
    (height,) = decided(programs.dense(2, 7, 33), "schedule.height")
    assert (names(height), height.failed) == (["1", "2"], {})


def test_so_is_that_of_a_window() -> None:
    _, height = decided(programs.max_pool(16, 31, 16), "schedule.height")
    assert (height.taken, height.failed) == ("4", {"7": "a tile of 2 vectors has at most 6 rows"})
