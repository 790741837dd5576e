"""Columns that a mask of positions rules out are not visited; all others are, whatever the mask looks like."""

from __future__ import annotations

import pytest

from opweld.fuse.live import Live, live_columns, values_of
from opweld.fuse.online import softmax_of
from opweld.ledger import Decision, Ledger
from opweld.tensor.parse import parse_program
from opweld.tile.text import print_kernel
from tests.unit.tile import programs
from tests.unit.tile.pipeline import Compiled, check_compiled, compile_with, with_data

LENGTH = 200
PLAIN = "= mul(scores[i0, i1, i2, i3], 0.5)"
SCORE = "scores[i0, i1, i2, i3]"
CAUSAL = "le(index(i3), index(i2))"
WINDOW = "and(le(index(i3), index(i2)), lt(index(-i3 + i2), 40:i64))"


def masked(score: str, length: int | str = LENGTH, head: str = "") -> str:
    return programs.attention(1, length, 2, 4, head).replace(PLAIN, f"= {score}")


def compiled(text: str, rows: int = 24, columns: int = 64, masked: str = "skipped") -> Compiled:
    """Compiled with so many rows and columns at a time."""
    program = with_data(parse_program(text))
    found = {d.rule: d for d in compile_with(program, Ledger()).ledger if d.part == "block"}
    pins = {found["schedule.block"].id: str(rows), found["schedule.columns"].id: str(columns)}
    return compile_with(program, Ledger(pins=pins | {found["schedule.masked"].id: masked}))


def decision(made: Compiled) -> Decision:
    (found,) = (d for d in made.ledger if d.rule == "schedule.masked")
    return found


def live(made: Compiled) -> Live | str:
    (region,) = (region for region in made.placed.regions if region.block is not None)
    softmax, _ = softmax_of(region.members[1])
    assert softmax is not None and region.block is not None
    return live_columns(softmax, region.block.space, values_of(made.placed.regions))


def ends(made: Compiled) -> tuple[list[str], list[str]]:
    found = live(made)
    assert isinstance(found, Live)
    return [str(dim) for dim in found.first], [str(dim) for dim in found.end]


NEVER = f"select({CAUSAL}, 0.0, -inf)"


@pytest.mark.parametrize(
    ("score", "first", "end"),
    [
        (f"select({CAUSAL}, {SCORE}, -inf)", [], ["r1 + 1"]),
        (f"select(not({CAUSAL}), -inf, {SCORE})", [], ["r1 + 1"]),
        (f"select(gt(index(i3), index(i2)), -inf, {SCORE})", [], ["r1 + 1"]),
        (f"add(mul({SCORE}, 0.5), {NEVER})", [], ["r1 + 1"]),
        (f"mul(add({SCORE}, {NEVER}), 0.5)", [], ["r1 + 1"]),
        (f"select({WINDOW}, {SCORE}, -inf)", ["r1 - 39"], ["r1 + 1"]),
        (f"select(ge(index(i3), index(i2)), {SCORE}, -inf)", ["r1"], []),
        (f"select(lt(index(i3), index(-i2 + 200)), {SCORE}, -inf)", [], ["-r1 + 200"]),
        (f"select(or({CAUSAL}, lt(index(i3), 7:i64)), {SCORE}, -inf)", None, "no mask of minus infinity"),
        (f"select({CAUSAL}, {SCORE}, -1000000.0)", None, "no mask of minus infinity"),
        (f"select(le(index(2*i3), index(i2)), {SCORE}, -inf)", None, "no mask of minus infinity"),
        (f"select(lt(index(i2 - i3), index(10*i1 + 5)), {SCORE}, -inf)", ["-10*r0 + r1 - 4"], []),
        (f"add({SCORE}, f32(f16({NEVER})))", [], ["r1 + 1"]),
        (f"add({SCORE}, f32(f4e2m1({NEVER})))", None, "no mask of minus infinity"),
        (f"mul(add({SCORE}, {NEVER}), -0.5)", None, "no mask of minus infinity"),
    ],
)
def test_what_a_mask_says(score: str, first: list[str] | None, end: list[str] | str) -> None:
    text = masked(score)
    program = with_data(parse_program(text))
    made = compile_with(program, Ledger(pins={}))
    if first is None:
        found = live(made)
        assert isinstance(found, str) and str(end) in found
    else:
        assert ends(made) == (first, end)


@pytest.mark.parametrize(("rows", "length"), [(1, 100), (24, LENGTH), (64, 128), (64, 100)])
@pytest.mark.parametrize(
    "condition",
    [
        CAUSAL,
        WINDOW,
        "le(index(i3), index(i2 - 90))",
        "le(index(i3), index(i2 + 70))",
        "ge(index(i3), index(i2))",
        "gt(index(i3), index(i2 + 90))",
        "lt(index(i3), index(-i2 + 150))",
        "lt(index(i2 - i3), index(30*i1 + 5))",
    ],
)
def test_what_is_left_gives_the_answer(condition: str, rows: int, length: int) -> None:
    """Of rows that see some columns, all or none; with rows and columns left over, and without."""
    text = masked(f"select({condition}, {SCORE}, -inf)", length)
    made = compiled(text, rows)
    assert decision(made).taken == "skipped"
    check_compiled(with_data(parse_program(text)), made, {})


@pytest.mark.parametrize("length", [1, 63, 64, 130, 200])
def test_of_any_length(length: int) -> None:
    text = masked(f"select({CAUSAL}, {SCORE}, -inf)", "L", programs.symbols(L="1 of q"))
    made = compiled(text)
    assert ends(made) == ([], ["r1 + 1"])
    check_compiled(with_data(parse_program(text)), made, {"L": length})


@pytest.mark.parametrize(("length", "seen"), [(200, 3 / 4), (192, 2 / 3), (128, 3 / 4)])
def test_the_part_that_is_seen_is_priced(length: int, seen: float) -> None:
    """Of blocks of columns those up to the diagonal are seen, and what is left of them always."""
    made = compiled(masked(f"select({CAUSAL}, {SCORE}, -inf)", length), rows=64)
    computed, skipped = (alternative.seconds for alternative in decision(made).alternatives)
    assert computed is not None and skipped is not None
    whole = length // 64 * 64 / length
    assert skipped / computed == pytest.approx(seen * whole + 1 - whole, abs=0.03)


def test_it_is_a_loop_that_ends_early() -> None:
    text = masked(f"select({WINDOW}, {SCORE}, -inf)")
    assert decision(compiled(text, masked="computed")).overridden
    assert ": 3 from (max(0, 24*g1 - 39) // 64) to min(" in print_kernel(compiled(text).kernels[-1].kernel)
    assert " from " not in print_kernel(compiled(text, masked="computed").kernels[-1].kernel)


def test_a_mask_that_another_kernel_computes() -> None:
    """Of several heads or layers: each reads it, and what it is made of says what it rules out. A shorter one would be
    a constant."""
    mask = """tensor seen b8[i0: 520, i1: 520] from "LessOrEqual"
  = le(index(i1), index(i0))
tensor mask f32[i0: 520, i1: 520] from "Where"
  = select(seen[i0, i1], 0.0, -inf)
tensor scores"""
    text = masked(f"add({SCORE}, mask[i2, i3])", 520).replace("tensor scores", mask)
    text = text.replace("output y = result", "output y = result\noutput m = mask")
    made = compiled(text)
    assert "map" in made.names
    assert ends(made) == ([], ["r1 + 1"])
    check_compiled(with_data(parse_program(text)), made, {})


def test_what_is_fed_decides_nothing() -> None:
    text = masked(f"select(and({CAUSAL}, gt(q[0, i3, 0], 0.0)), {SCORE}, -inf)")
    made = compiled(text)
    assert ends(made) == ([], ["r1 + 1"])
    check_compiled(with_data(parse_program(text)), made, {})
    other = f"select(gt(q[0, i3, 0], 0.0), {SCORE}, -inf)"
    assert decision(compiled(masked(other), masked="computed")).failed


def test_whole_rows_are_computed() -> None:
    made = compiled(masked(f"select({CAUSAL}, {SCORE}, -inf)"), columns=0, masked="computed")
    assert decision(made).failed == {"skipped": "whole rows are reduced at once"}
