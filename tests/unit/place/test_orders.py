"""In which order axes are stored is in the ledger, whoever chose it, and can be pinned."""

from __future__ import annotations

import pytest

from benchmarks.decisions import PROGRAMS, check_answer, compile_as, compiled
from opweld.ledger import Decision, Ledger
from opweld.place.storage import Storage, dense
from opweld.rules import LEVELS
from opweld.tensor.dim import Dim
from opweld.tensor.parse import parse_program
from tests.unit.tile.pipeline import Compiled, check_compiled, compile_with, with_data

FOLLOWED = """program followed
input x f32[4, 24, 5, 7]
input z f32[4, 5, 7, 24]
tensor turned f32[i0: 4, i1: 5, i2: 7, i3: 24] from "Transpose"
  = exp(x[i0, i3, i1, i2])
tensor raised f32[i0: 4, i1: 5, i2: 7, i3: 24] from "Relu"
  = add(turned[i0, i1, i2, i3], z[i0, i1, i2, i3])
tensor y f32[i0: 4, i1: 5, i2: 7, i3: 24] from "Neg"
  = neg(raised[i0, i1, i2, i3])
tensor s f32[i0: 4] from "ReduceSum"
  over r0: 5, r1: 7, r2: 24
  = sum<r0, r1, r2>(raised[i0, r0, r1, r2])
output y = y
output s = s
"""

JOINED = """program joined
input planes f32[1, 24, 20, 28]
input x f32[1, 16, 20, 28]
constant w1 f32[24, 16]
constant w2 f32[32, 48, 3, 3]
tensor middle f32[i0: 1, i1: 24, i2: 20, i3: 28] from "Conv_1"
  over r0: 16
  = sum<r0>(mul(x[i0, r0, i2, i3], w1[i1, r0]))
tensor joined f32[i0: 1, i1: 48, i2: 20, i3: 28] from "Concat"
  = select(ge(index(i1 - 24), 0:i64), planes[i0, i1 - 24, i2, i3], middle[i0, i1, i2, i3])
tensor scaled f32[i0: 1, i1: 48, i2: 20, i3: 28] from "Relu"
  = max(joined[i0, i1, i2, i3], 0.0)
tensor result f32[i0: 1, i1: 32, i2: 18, i3: 26] from "Conv_2"
  over r0: 48, r1: 3, r2: 3
  = sum<r0, r1, r2>(mul(scaled[i0, r0, i2 + r1, i3 + r2], w2[i1, r0, r1, r2]))
tensor y f32[i0: 1, i1: 32] from "ReduceMax"
  over r0: 18, r1: 26
  = max<r0, r1>(result[i0, i1, r0, r1])
output y = y
"""
"""A concatenation of planes and of channels-last values, as large as each other; a convolution reads it, rescaled."""


def row_major(storage: Storage, shape: tuple[Dim, ...]) -> bool:
    return storage.terms == dense("", storage.dtype, shape, None, storage.halo or None).terms


def unexplained(made: Compiled) -> set[str]:
    """Values that are not stored row-major without a decision about them, or about the whole that they are part of."""
    decided = {
        d.subject for d in made.ledger if d.rule == "place.order" or (d.rule, d.taken) == ("place.rows", "apart")
    }
    shapes, label = made.placed.shapes, made.ledger.label
    return {
        name
        for name, storage in made.placed.storages.items()
        if name in shapes and name not in made.placed.constants and not row_major(storage, shapes[name])
        if not decided & {label(name), label(storage.root)}
    }


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_not_row_major_was_decided(name: str, level: str) -> None:
    assert not unexplained(compiled(name, level))


def orders(made: Compiled) -> dict[str, Decision]:
    return {d.subject: d for d in made.ledger if d.rule == "place.order"}


def test_some_values_are_not_row_major() -> None:
    """Or the test above could not fail."""
    met = {d.taken.partition(" ")[0] for name in PROGRAMS for d in orders(compiled(name)).values()}
    assert met >= {"row-major", "lanes-innermost", "like"}


def test_elementwise_work_follows_its_largest_operand_unless_pinned() -> None:
    program = with_data(parse_program(FOLLOWED))
    made = compile_with(program, Ledger(disable=("fuse.chain",)))
    assert not unexplained(made)
    (decision,) = (d for d in orders(made).values() if "raised" in d.subject or "Relu" in d.subject)
    for alternative in decision.alternatives:
        again = compile_with(program, Ledger(disable=("fuse.chain",), pins={decision.id: alternative.name}))
        check_compiled(program, again, {})


def test_a_value_is_stored_as_those_want_it_who_multiply_it() -> None:
    """Also where elementwise work lies between, and where its operands want as much of each order."""
    program = with_data(parse_program(JOINED))
    made = compile_with(program, Ledger())
    assert orders(made)["Concat 0"].taken == "like Conv_1 0"
    (algorithm,) = (decision for decision in made.ledger if decision.rule == "schedule.algorithm")
    assert algorithm.taken == "winograd"
    check_compiled(program, made, {})


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_order_is_right(name: str) -> None:
    for decision in orders(compiled(name)).values():
        for alternative in decision.alternatives:
            if alternative.name != decision.taken:
                check_answer(name, compile_as(name, Ledger(pins={decision.id: alternative.name})))
