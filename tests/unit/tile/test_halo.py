"""Padding around values is filled as the schedule of the region says, like all that a kernel does."""

from __future__ import annotations

import re

import pytest

from benchmarks.decisions import check_answer, compile_as, compiled, given_back, written
from opweld.errors import OptionError
from opweld.ledger import Decision, Ledger
from opweld.schedule.schedule import MapSchedule, ReductionSchedule
from opweld.tile.text import print_kernel
from tests.unit.tile.pipeline import Compiled

SIDES = ("before axis 2", "after axis 2", "before axis 3", "after axis 3")


def fills(made: Compiled) -> list[str]:
    """The text of each kernel that fills padding."""
    return [print_kernel(item.kernel) for item in made.kernels if item.kernel.name.endswith("_halo")]


def decided(made: Compiled, subject: str) -> dict[str, Decision]:
    """The decisions about a subject that are fields of schedules, by rule."""
    return {d.rule: d for d in made.ledger if d.part and d.subject == subject}


def test_each_side_of_the_padding_is_a_map_after_the_other_members() -> None:
    made = compiled("convolution")
    (plan,) = (plan for plan in made.plans if plan.region.outputs == ("relu",))
    last, *sides = plan.schedule.members
    assert isinstance(last, ReductionSchedule)
    # Rows of nine lie above and below; to the left and right, elements of five rows, with a stride.
    assert sides == [MapSchedule("i3", 2), MapSchedule("i3", 2), MapSchedule("i2", 1), MapSchedule("i2", 1)]
    for number, side in enumerate(SIDES, 1):
        found = decided(made, f"Relu 0 > halo > {side}")
        assert {rule: d.part for rule, d in found.items()} == dict.fromkeys(
            ("schedule.lane", "schedule.vectors"), f"member {number}"
        )


def test_the_padding_is_filled_before_the_value_by_one_thread() -> None:
    made = compiled("convolution")
    names = [item.kernel.name for item in made.kernels]
    assert names == ["k1_halo", "k2_map", "k3_halo", "k4_contraction", "k5_contraction"]
    for item in made.kernels:
        assert item.serial == (item.kernel.grid == ()) == item.kernel.name.endswith("_halo")


def test_how_much_an_iteration_does_is_asked_of_no_map_of_a_single_thread() -> None:
    for name in ("convolution", "lstm"):
        for decision in compiled(name).ledger:
            if decision.rule in ("schedule.chunk", "schedule.inner"):
                assert not re.search("halo|initial|update|stack|final", decision.subject)


@pytest.mark.parametrize("side", SIDES)
def test_a_pin_changes_the_padding_of_one_value_and_not_the_answer(side: str) -> None:
    first = compiled("convolution")
    for decision in decided(first, f"Relu 0 > halo > {side}").values():
        other = next(a.name for a in decision.alternatives if a.name != decision.taken)
        made = compile_as("convolution", Ledger(pins={decision.id: other}))
        assert [old != new for old, new in zip(fills(first), fills(made), strict=True)] == [False, True]
        check_answer("convolution", made)


def test_an_edited_line_changes_how_padding_is_filled_and_not_the_answer() -> None:
    first = compiled("convolution")
    text = written(first)
    (line,) = (line for line in text.splitlines() if line.startswith('region "Relu 0"'))
    edited = line.replace("map lane=i3 vectors=2", "map lane=i1 vectors=1", 1)
    made = given_back("convolution", text.replace(line, edited))
    assert edited.partition(" : ")[2] == str(next(p.schedule for p in made.plans if p.region.outputs == ("relu",)))
    old = "loop k0: 10\n  lane l0: 16 at 0 below 9\n    store b0[63*k0 + l0] = 0.0\n"
    new = "loop k0: 9\n  loop k1: 2\n    lane l0: 8 at 8*k1 below 10\n      store b0[k0 + 504*k1 + 63*l0] = 0.0\n"
    assert fills(first)[1].startswith(f"kernel\nwrite b0 f32\n{old}")
    assert fills(made)[1].startswith(f"kernel\nwrite b0 f32\n{new}")
    check_answer("convolution", made)


def test_a_line_without_the_padding_is_told_what_is_missing() -> None:
    text = written(compiled("convolution"))
    with pytest.raises(OptionError, match="region 'Relu 0', member 1: the region has that member, but the line"):
        given_back("convolution", re.sub(r'(region "Relu 0" : contraction[^;]*)(; map[^;\n]*)+', r"\1", text))
