"""Schedules are chosen by what the kernels are predicted to take that they make."""

from __future__ import annotations

import pytest

from opweld.ledger import Ledger
from opweld.schedule.schedule import ReductionSchedule
from opweld.target import Target
from opweld.tile import pricing
from opweld.tile.predict import Prediction, predict
from tests.unit.tile import programs
from tests.unit.tile.pipeline import Compiled, compile_text, compile_with, parse_program, with_data

V3, V4 = Target.of("x86-64-v3"), Target.of("x86-64-v4")


def heights(made: Compiled) -> list[int]:
    members = (member for plan in made.plans for member in plan.schedule.members)
    return [member.height for member in members if isinstance(member, ReductionSchedule)]


@pytest.mark.parametrize("sizes", [(512, 3072, 768), (512, 768, 3072), (512, 768, 768), (3136, 96, 384)])
def test_large_products_have_as_many_rows_as_avx2_holds(sizes: tuple[int, int, int]) -> None:
    """Eight sums of four are not enough for two units that take four cycles for each: 18% longer (measured)."""
    assert heights(compile_text(programs.dense(*sizes), V3)) == [6]


@pytest.mark.parametrize("target", [V3, V4])
def test_what_is_taken_is_predicted_to_take_the_least(target: Target) -> None:
    """Of all rows that a tile may have, none is predicted to take a percent less."""
    program = with_data(parse_program(programs.dense(100, 250, 250)))
    ledger = Ledger()
    (taken,) = compile_with(program, ledger, target).kernels
    (height,) = (decision for decision in ledger if decision.rule == "schedule.height")
    for other in height.legal:
        (kernel,) = compile_with(program, Ledger(pins={height.id: other}), target).kernels
        assert kernel.prediction.cost.seconds > 0.99 * taken.prediction.cost.seconds, other


def test_what_a_ledger_says_is_what_the_kernel_is_predicted_to_take() -> None:
    made = compile_text(programs.dense(512, 768, 3072), V3)
    (height,) = (decision for decision in made.ledger if decision.rule == "schedule.height")
    (taken,) = (entry for entry in height.alternatives if entry.name == height.taken)
    assert taken.seconds == pytest.approx(made.kernels[0].prediction.cost.seconds, rel=0.02)


def test_kernels_that_are_alike_are_predicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def counted(*arguments: object) -> Prediction:
        nonlocal asked
        asked += 1
        return predict(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(pricing, "predict", counted)
    compile_text(programs.layers(64, 96, 96, 96), V3)
    two = asked
    asked = 0
    compile_text(programs.dense(64, 96, 96), V3)
    assert 0 < asked <= 4
    assert two <= 2 * asked, "the two layers differ in what is done with their sums"
