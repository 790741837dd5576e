"""Values that live between runs: written in place, by tile programs as by the interpreter of tensor programs."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.errors import AssumptionError, OpweldError, UnsupportedError
from opweld.tensor.interpret import interpret_run
from opweld.tensor.parse import parse_program
from opweld.tensor.text import print_program
from opweld.tensor.verify import verify
from tests.unit.tile.pipeline import Compiled, check, compile_text, with_data
from tests.unit.tile.programs import COUNTER

SHIFTED = """program shifted
input window f32[5]
input x f32[1]
tensor moved f32[i0: 5] from "Concat"
  = select(ge(index(i0 - 4), 0:i64), x[i0 - 4], window[i0 + 1 if 3 - i0 >= 0 else 0.0])
tensor total f32[] from "Sum"
  over r0: 5
  = sum<r0>(moved[r0])
output y = total
output next = moved
state window becomes next
"""

CACHE = """program cache
symbol n >= 1 = dim 0 of x
symbol past >= 0 = value 0 of lengths
symbol room >= 1 = dim 1 of keys
guard room - past - n >= 0 because "there is room"
input x f32[n, 3]
input keys f32[2, room, 3]
input lengths i64[1]
constant w f32[3, 6]
tensor made f32[i0: n, i1: 6] from "MatMul"
  over r0: 3
  = sum<r0>(mul(x[i0, r0], w[r0, i1]))
tensor heads f32[i0: 2, i1: n, i2: 3] from "Transpose"
  = made[i1, 3*i0 + i2]
tensor all f32[i0: 2, i1: past + n, i2: 3] from "Concat"
  = select(ge(index(i1 - past), 0:i64), heads[i0, i1 - past, i2], keys[i0, i1, i2])
tensor scores f32[i0: n, i1: 2, i2: past + n] from "MatMul_1"
  over r0: 3
  = sum<r0>(mul(x[i0, r0], all[i1, i2, r0]))
tensor top f32[i0: n, i1: 2] from "Max"
  over r0: past + n
  = max<r0>(scores[i0, i1, r0])
output y = top
output next = all
state keys becomes next along axis 1 behind past
"""


def copies(compiled: Compiled) -> list[str]:
    """What was taken of the decisions that write a state in place or not."""
    return [decision.taken for decision in compiled.ledger if decision.rule == "place.state"]


@pytest.mark.parametrize("text", [COUNTER, SHIFTED, CACHE])
def test_a_program_with_states_prints_and_parses(text: str) -> None:
    program = parse_program(text)
    assert print_program(parse_program(print_program(program))) == print_program(program)
    assert parse_program(print_program(program)).states == program.states


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (COUNTER, "becomes next", "becomes other"),
        (COUNTER, "input count i64[]", "input count i32[]\ninput other i64[]"),
        (COUNTER, "state count", "state count becomes next\nstate count"),
        (CACHE, 'guard room - past - n >= 0 because "there is room"\n', ""),
        (CACHE, "along axis 1", "along axis 0"),
        (CACHE, "behind past", "behind past + n + 1"),
        (CACHE, " along axis 1 behind past", ""),
    ],
)
def test_the_verifier_finds_states_that_cannot_be(text: str, before: str, after: str) -> None:
    verify(parse_program(text))
    with pytest.raises(OpweldError):
        verify(parse_program(text.replace(before, after)))


@pytest.mark.parametrize("level", ["none", "basic", "all"])
def test_a_counter_is_counted_in_place(level: str) -> None:
    compiled = check(COUNTER, level=level)
    assert copies(compiled) == (["copied"] if level == "none" else ["in-place"])


@pytest.mark.parametrize("level", ["none", "basic", "all"])
def test_what_is_read_elsewhere_than_written_is_computed_apart(level: str) -> None:
    assert copies(check(SHIFTED, level=level)) == ["copied"]


@pytest.mark.parametrize(("level", "disable"), [("none", ""), ("all", ""), ("all", "place"), ("all", "fuse")])
@pytest.mark.parametrize(("past", "n", "room"), [(0, 1, 1), (0, 5, 8), (4, 1, 9), (17, 2, 40)])
def test_a_cache_grows_in_place(past: int, n: int, room: int, level: str, disable: str) -> None:
    sizes, feeds = {"past": past, "n": n, "room": room}, {"lengths": np.array([past])}
    compiled = check(CACHE, sizes, level=level, disable=(disable,) if disable else (), feeds=feeds)
    assert compiled.placed.storages["all"].root == "keys"


def test_the_interpreter_runs_from_state_to_state() -> None:
    program = with_data(parse_program(CACHE))
    random = np.random.default_rng(0)
    rows = [random.standard_normal((n, 3), np.float32) for n in (4, 1, 2)]
    states = {"keys": np.full((2, 9, 3), np.nan, np.float32)}
    for number, x in enumerate(rows):
        past = sum(map(len, rows[:number]))
        (y,) = interpret_run(program, {"x": x, "lengths": np.array([past])}, states).values()
        assert y.shape == (len(x), 2)
    whole = {"keys": np.full((2, 9, 3), np.nan, np.float32)}
    interpret_run(program, {"x": np.concatenate(rows), "lengths": np.array([0])}, whole)
    np.testing.assert_allclose(states["keys"], whole["keys"], rtol=1e-6)
    with pytest.raises(AssumptionError):
        interpret_run(program, {"x": np.concatenate(rows), "lengths": np.array([3])}, whole)


def test_only_what_is_appended_is_written() -> None:
    compiled = check(CACHE, {"past": 4, "n": 1, "room": 9}, feeds={"lengths": np.array([4])})
    assert compiled.placed.storages["all_appended"].root == "keys"
    writers = [
        item for item in compiled.kernels if any(b.name == "keys" and b.role != "read" for b in item.kernel.buffers)
    ]
    assert len(writers) == 1


def test_what_does_not_append_is_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        compile_text(
            CACHE.replace("heads[i0, i1 - past, i2], keys[i0, i1, i2]", "heads[i0, i1 - past, i2], heads[i0, 0, i2]")
        )
    assert "keys" in str(caught.value)
