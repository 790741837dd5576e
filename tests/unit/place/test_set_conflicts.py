"""Rows that would drive each other out of the first-level cache lie apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.ledger import Decision
from opweld.target import Target
from tests.unit.tile import programs
from tests.unit.tile.pipeline import Compiled, check_compiled, compile_text, parse_program, with_data

TARGET = replace(Target.of("x86-64-v4"), l1_bytes=32 * 1024)


def decisions(made: Compiled) -> list[Decision]:
    return [decision for decision in made.ledger if decision.rule == "place.rows"]


def stride(made: Compiled, name: str = "hidden") -> str:
    return str(made.placed.storages[name].stride(0))


@pytest.mark.parametrize(("inner", "apart"), [(512, False), (1008, False), (1024, True), (1536, False), (3072, True)])
def test_rows_of_whole_pages_lie_a_line_further_apart(inner: int, apart: bool) -> None:
    made = compile_text(programs.layers(28, 4, inner, 40), TARGET)
    assert stride(made) == str(inner + 16 * apart)
    assert [decision.taken for decision in decisions(made)] == ["apart"] * apart


def test_the_answer_is_that_of_dense_rows() -> None:
    program = with_data(parse_program(programs.layers(28, 4, 1024, 40)))
    for disable in ((), ("place.rows",)):
        made = compile_text(programs.layers(28, 4, 1024, 40), TARGET, disable=disable)
        assert stride(made) == ("1024" if disable else "1040")
        check_compiled(program, made, {})


def test_few_rows_and_large_caches_have_room_for_all() -> None:
    assert not decisions(compile_text(programs.layers(7, 4, 1024, 40), TARGET))
    assert not decisions(compile_text(programs.layers(28, 4, 1024, 40), replace(TARGET, l1_bytes=64 * 1024)))


def test_what_callers_give_lies_as_they_give_it() -> None:
    made = compile_text(programs.dense(28, 1024, 40), TARGET)
    assert not decisions(made)
    assert stride(made, "x") == "1024"


def test_a_reader_that_walks_over_rows_as_one_keeps_them_together() -> None:
    """Its addresses would have to be divided."""
    flat = """tensor flat f32[i0: 28672] from "Flatten"
  = exp(hidden[(i0 // 1024), (i0 % 1024)])
output y = result
output z = flat
"""
    text = programs.layers(28, 4, 1024, 40).replace("output y = result\n", flat)
    (decision,) = decisions(compile_text(text, TARGET))
    assert decision.taken == "dense"
    assert decision.failed == {"reader": "iterates over rows as one"}
