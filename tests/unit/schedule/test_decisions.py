"""Nothing is decided off the ledger, and whatever is pinned, granted or given back gives a right compiler."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re

import pytest

from benchmarks.decisions import (
    PROGRAMS,
    UNMET,
    check_answer,
    compile_as,
    compiled,
    given_back,
    others,
    pinned,
    places,
    replayed,
    schedules,
    written,
)
from opweld.errors import OptionError
from opweld.ledger import Decision, Ledger
from opweld.rules import LEVELS, RULES, allowed
from opweld.schedule.schedule import MEMBERS, LoopSchedule
from opweld.tile.kernels import schedules_of
from opweld.tile.text import print_kernel
from tests.unit.tile.pipeline import Compiled

KINDS = [rule for rule in RULES if rule not in UNMET]

ABSENT = {
    (kind.__name__, entry.metadata["rule"]): str(entry.metadata["absent"])
    for kind in (*MEMBERS.values(), LoopSchedule)
    for entry in dataclasses.fields(kind)
}


def kernels(made: Compiled) -> list[str]:
    return [print_kernel(item.kernel) for item in made.kernels]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_field_of_a_schedule_has_a_decision_behind_it(name: str, level: str) -> None:
    made = compiled(name, level)
    behind: dict[tuple[str, str, str], Decision] = {}
    for decision in made.ledger:
        if decision.part:
            key = (decision.region, decision.part, decision.rule)
            assert key not in behind, f"{key} is decided twice"
            behind[key] = decision
    for (_, region), schedule in schedules(made).items():
        fields = dict(schedule.fields())
        kinds = {f"member {n}": type(member).__name__ for n, member in enumerate(schedule.members)}
        for (part, rule), text in fields.items():
            if rule == "kind":
                continue
            decision = behind.pop((region, part, rule), None)
            if decision is not None:
                assert decision.taken == text, f"{region}: {part} has {rule} = {text}, {decision.taken} was decided"
                continue
            absent = ABSENT.get((kinds.get(part, "LoopSchedule"), rule))
            absent = {"True": "yes", "False": "no"}.get(absent or "", absent)
            assert text == absent, f"{region}: nothing decided that {part} has {rule} = {text}"
    left = {key: d.taken for key, d in behind.items()}
    assert set(left.values()) <= {"again"}, f"decided, and in no schedule: {left}"


def test_every_kind_of_decision_is_in_the_table_and_met() -> None:
    met = {decision.rule for name in PROGRAMS for decision in compiled(name).ledger}
    assert met <= set(RULES)
    assert met == set(KINDS), "UNMET of benchmarks.decisions lists what no test program meets"


@pytest.mark.parametrize("name", PROGRAMS)
def test_levels_are_nested_sets(name: str) -> None:
    """What is fused at a level is fused at the next one, where that question still comes up: what has become a part of
    something else is asked about no more. So fewer and fewer values are stored, never other ones. (Storage and
    schedules are of other kernels then, and not nested.)"""
    for lower, higher in itertools.pairwise(LEVELS):
        below, above = compiled(name, lower), compiled(name, higher)
        known = {d.id: d for d in above.ledger}
        for d in below.ledger:
            if d.stage == "fuse" and d.fired and d.id in known:
                assert known[d.id].taken == d.taken, f"{d.rule} of {d.subject}: {d.taken} at {lower}, not at {higher}"
        stored = [{value for region in made.regions.regions for value in region.outputs} for made in (below, above)]
        assert stored[1] <= stored[0]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_level_takes_all_that_is_wanted_and_allowed_to_it(name: str, level: str) -> None:
    for d in compiled(name, level).ledger:
        refused = d.preferred != d.baseline and not allowed(d.rule, level, d.level)
        assert d.taken == (d.baseline if refused else d.preferred)


@pytest.mark.parametrize("rule", KINDS)
def test_every_kind_can_be_pinned(rule: str) -> None:
    name = pinned(rule)
    legal = [d.id for decisions in places(rule).values() for d in decisions if others(d)]
    assert bool(name) == bool(legal)


@pytest.mark.parametrize("rule", KINDS)
def test_every_kind_comes_back_from_a_file(rule: str) -> None:
    assert replayed(rule, "all") > 0
    assert replayed(rule, "basic") >= 0


@pytest.mark.parametrize("level", ("none", "basic", "all"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_file_gives_the_same_kernels(name: str, level: str) -> None:
    first = compiled(name, level)
    again = given_back(name, written(first))
    assert kernels(again) == kernels(first)
    assert schedules(again) == schedules(first)


@pytest.mark.parametrize("name", PROGRAMS)
def test_whatever_is_granted_is_right(name: str) -> None:
    """24 random grant sets."""
    for seed in range(24):
        chance = random.Random(f"{name} {seed}")
        share = chance.random()
        draws = [chance.random() < share for _ in range(4096)]
        check_answer(name, compile_as(name, Ledger(grants=lambda number, draws=draws: draws[number % 4096])))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_prefix_is_right(name: str) -> None:
    for prefix in range(compiled(name).ledger.requests):
        made = compile_as(name, Ledger(prefix=prefix))
        assert sum(d.fired for d in made.ledger) == prefix
        check_answer(name, made)


# ----------------------------------------------------------------------------------------------------- edited files


def dense() -> tuple[str, str]:
    text = written(compiled("dense"))
    (line,) = (line for line in text.splitlines() if line.startswith("region"))
    return text, line


@pytest.mark.parametrize(
    "change",
    [("height=6", "height=3"), ("vectors=2", "vectors=1"), ("order=lanes", "order=rows"), ("row=i0", "row=one")],
)
def test_an_edited_line_changes_the_kernel_and_not_the_answer(change: tuple[str, str]) -> None:
    text, line = dense()
    assert change[0] in line
    edited = line.replace(*change)
    # Wider tiles have fewer rows, and without a row axis there is one.
    edited = edited.replace("height=6", {"vectors=3": "height=4", "row=one": "height=1"}.get(change[1], "height=6"))
    made = given_back("dense", text.replace(line, edited))
    assert kernels(made) != kernels(compiled("dense"))
    assert edited.partition(" : ")[2] == str(made.plans[0].schedule)
    check_answer("dense", made)


def test_unrolling_is_edited_alike() -> None:
    first = compiled("deep")
    text = written(first)
    assert "loop unroll=4" in text
    made = given_back("deep", re.sub(r"loop unroll=4( fetch=\d)?", "loop", text))
    assert {loop.unroll for plan in made.plans for loop in plan.schedule.loops} == {1}
    assert kernels(made) != kernels(first)
    check_answer("deep", made)


def test_another_lane_moves_storage_and_packing_along() -> None:
    first = compiled("product")
    text = written(first)
    (line,) = (line for line in text.splitlines() if line.startswith('region "MatMul'))
    assert "lane=i1" in line and "row=i0" in line
    edited = re.sub("lane=i1 vectors=[0-9] row=i0 height=[0-9]+", "lane=i0 vectors=1 row=i1 height=2", line)
    # Another lane needs other decisions about storage: they are left to the compiler.
    kept = [row for row in text.replace(line, edited).splitlines() if not row.startswith("decision")]
    made = given_back("product", "\n".join(kept))
    assert {schedule.members[0].lane for schedule in schedules_of(made.program, made.plans, made.ledger).values()} >= {
        "i0"
    }
    check_answer("product", made)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("height=6", "height=8"), "region 'Relu 0', member 0: schedule.height has no alternative '8' here, only 1, 2"),
        (("height=6", "height=7"), "schedule.height cannot do that here (7 = a tile of 2 vectors has at most 6 rows)"),
        (("lane=i1", "lane=i9"), "schedule.lane has no alternative 'i9' here, only i1, i0"),
        (("contraction", "window"), "member 0 should have kind = window, but has contraction"),
        (("taps=loop", "taps=written"), "member 0 should have schedule.taps = written, but has loop"),
        (("taps=loop", "taps=loop; loop unroll=4 fetch=1"), "loop 0: schedule.prefetch cannot do that here ("),
        (("taps=loop", "taps=loop; loop; loop"), "loop 1 should have schedule.unroll = 1, but has nothing"),
        (("taps=loop", "taps=loop; map lane=i0 vectors=1"), "member 1 should have kind = map, but has nothing"),
        (
            ("contraction lane", "block rows=2; contraction lane"),
            "should have schedule.block = 2, but has nothing",
        ),
        (('"Relu 0"', '"Relu 7"'), "variant 'dense' has no such region; did you mean 'Relu 0'?"),
        (("variant dense", "variant sparse"), "variant 'sparse' has no such region"),
        (("vectors=2", "vectors=two"), "'two' in"),
        (("region", "reigon"), "expected `variant NAME`, `region NAME : SCHEDULE` or `decision ID RULE ALTERNATIVE`"),
        (('"Relu 0"', '"Relu 0'), "is no quoted text"),
    ],
)
def test_a_line_that_cannot_be_followed_is_named(change: tuple[str, str], message: str) -> None:
    text, line = dense()
    assert change[0] in text
    edited = text.replace(*change)
    number = 1 + text.splitlines().index(line)
    with pytest.raises(OptionError, match=re.escape(message)) as raised:
        given_back("dense", edited)
    assert f"line {number}: " in str(raised.value)


def test_lines_of_decisions_are_checked() -> None:
    text, _ = dense()
    known = next(iter(d for d in compiled("dense").ledger if d.rule == "fuse.epilogue"))
    line = f"decision {known.id} {known.rule} {known.taken}"
    assert line in text
    for edited, message in (
        (f"{line}\ndecision 0123456789 {known.rule} {known.taken}", "the model has no such decision"),
        (f"decision {known.id} fuse.chain {known.taken}", "is of fuse.epilogue, not fuse.chain"),
        (f"decision {known.id} {known.rule} welded", "has no alternative 'welded' here, only separate, fused"),
        (f"{line}\n{line}", f"decision {known.id} is there twice"),
    ):
        with pytest.raises(OptionError, match=re.escape(message)):
            given_back("dense", text.replace(line, edited))


def test_a_file_may_hold_a_single_region() -> None:
    _, line = dense()
    edited = line.replace("height=6", "height=2")
    made = given_back("dense", f"variant dense\n{edited}  # half as high\n")
    assert [str(plan.schedule) for plan in made.plans] == [edited.partition(" : ")[2]]
    assert [d.rule for d in made.ledger if d.pinned and not d.part] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_file_of_a_higher_level_comes_back_at_none(name: str) -> None:
    first = compiled(name)
    made = given_back(name, written(first), level="none")
    assert kernels(made) == kernels(first)
