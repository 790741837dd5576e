"""Blocks: softmax(q k^T) v as one region, and why something is none."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from opweld.fuse.blocks import join_blocks
from opweld.fuse.partition import partition
from opweld.fuse.region import Region
from opweld.ledger import Decision, Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.parse import parse_program
from tests.unit.tile import programs
from tests.unit.tile.pipeline import Compiled, check, check_compiled, compile_with, with_data

TARGET = Target.of("x86-64-v4")


def joined(
    text: str, disable: tuple[str, ...] = (), pins: Mapping[str, str] | None = None
) -> tuple[list[Region], list[Decision]]:
    program = with_data(parse_program(text))
    ledger = Ledger(disable, pins=pins)
    regions = join_blocks(
        partition(program, expected_sizes(program), TARGET, ledger), expected_sizes(program), TARGET, ledger
    )
    return list(regions.regions), [decision for decision in ledger if decision.rule == "fuse.block"]


def test_attention_is_one_block_of_three_members() -> None:
    (region,), (decision,) = joined(programs.attention(2, 64, 4, 16))
    assert [member.kind.value for member in region.members] == ["contraction", "rowwise", "contraction"]
    assert region.block is not None
    assert [str(extent) for extent in region.block.space.rows] == ["2", "4", "64"]
    assert region.block.row == 2, "blocks of queries: keys and values are shared by the rows of a head"
    assert region.inputs == ("q", "k", "v")
    assert decision.taken == "block"
    separate, block = decision.alternatives
    assert separate.seconds is not None and block.seconds is not None and block.seconds < separate.seconds


def test_disabled_it_is_three_regions() -> None:
    regions, (decision,) = joined(programs.attention(2, 64, 4, 16), ("fuse.block",))
    assert [region.members[0].kind.value for region in regions] == ["contraction", "rowwise", "contraction"]
    assert decision.overridden


PROJECTION = """program projection
input x f32[8, 16]
constant w f32[16, 16]
tensor top f32[i0: 8] from "Softmax"
  over r0: 16
  = max<r0>(x[i0, r0])
tensor raised f32[i0: 8, i1: 16] from "Softmax"
  = exp(sub(x[i0, i1], top[i0]))
tensor result f32[i0: 8, i1: 16] from "MatMul"
  over r0: 16
  = sum<r0>(mul(raised[i0, r0], w[r0, i1]))
output y = result
"""


def test_weights_are_not_read_again_for_every_block_unless_pinned() -> None:
    regions, (decision,) = joined(PROJECTION)
    assert len(regions) == 2
    assert not decision.failed
    assert "w are weights, which each block of rows would read again" in decision.reason
    separate, block = decision.alternatives
    assert separate.seconds is not None and block.seconds is not None and block.bytes == 0, "one block has all rows"
    regions, _ = joined(PROJECTION, pins={decision.id: "block"})
    assert len(regions) == 1


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_a_block_over_weights_gives_the_right_answer(target: str) -> None:
    program = with_data(parse_program(PROJECTION.replace(": 8", ": 37").replace("[8, ", "[37, ")))
    (decision,) = (d for d in compile_with(program, Ledger(), Target.of(target)).ledger if d.rule == "fuse.block")
    made = compile_with(program, Ledger(pins={decision.id: "block"}), Target.of(target))
    assert made.names == ["block"]
    check_compiled(program, made, {})


def test_rows_that_a_caller_sees_stay_in_memory() -> None:
    text = programs.attention(2, 8, 3, 4).replace("output y = result", "output y = result\noutput s = shares")
    regions, (decision,) = joined(text)
    assert len(regions) == 3
    assert decision.failed == {"output": "the caller reads it from memory"}


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 7), (1, 33), (3, 50)])
def test_blocks_of_any_length_give_the_right_answer(target: str, batch: int, length: int) -> None:
    head = programs.symbols(N="0 of q", L="1 of q")
    compiled = check(programs.attention("N", "L", 3, 16, head), {"N": batch, "L": length}, target=Target.of(target))
    assert "block" in compiled.names


def test_a_fixed_length_that_the_block_does_not_divide() -> None:
    assert "block" in check(programs.attention(1, 37, 2, 8), target=TARGET).names


NORMALISED = """tensor length f32[i0: 2, i1: 4, i2: 64] from "ReduceL2"
  over r0: 16
  = sum<r0>(mul(q[i0, i2, 16*i1 + r0], q[i0, i2, 16*i1 + r0]))
tensor unit f32[i0: 2, i1: 4, i2: 64, i3: 16] from "Div"
  = div(q[i0, i2, 16*i1 + i3], sqrt(length[i0, i1, i2]))
tensor scores"""


def test_a_contraction_between_rows_and_rows_is_in_one_block() -> None:
    """softmax((q / |q|) k^T) v: the scores are as large as both sides of them, so they stay in the block after them."""
    text = programs.attention(2, 64, 4, 16).replace("tensor scores", NORMALISED)
    regions, decisions = joined(text.replace("q[i0, i2, 16*i1 + r0], k", "unit[i0, i1, i2, r0], k"))
    assert [[member.kind.value for member in region.members] for region in regions] == [
        ["rowwise"],
        ["contraction", "rowwise", "contraction"],
    ]
    taken = {decision.taken: decision for decision in decisions}
    assert taken.keys() == {"block", "separate"}
    assert taken["separate"].failed == {"contraction": "it begins another block"}


def test_the_row_that_a_block_is_cut_along_can_be_pinned() -> None:
    """Heads that share keys and values: blocks of queries or of heads."""
    text = programs.attention(2, 9, 3, 8)
    for name in "kv":
        text = text.replace(f"input {name} f32[2, 9, 24]", f"input {name} f32[2, 9, 8]")
    text = text.replace("k[i0, i3, 8*i1 + r0]", "k[i0, i3, r0]").replace("8*i1 + i3]))", "i3]))")
    program = with_data(parse_program(text))
    decision, row = (d for d in compile_with(program, Ledger()).ledger if d.rule == "fuse.block")
    assert decision.taken == "block"
    assert (row.taken, [a.name for a in row.alternatives]) == ("r2", ["r2", "r1"])
    made = compile_with(program, Ledger(pins={row.id: "r1"}))
    assert made.names[-1] == "block"
    (region,) = made.regions.regions
    assert region.block is not None and region.block.row == 1
    check_compiled(program, made, {})


def online(text: str, columns: int = 64, rows: int | None = None, target: str = "x86-64-v4") -> Compiled:
    """Compiled with so many columns at a time."""
    program = with_data(parse_program(text))
    found = {d.rule: d for d in compile_with(program, Ledger(), Target.of(target)).ledger if d.part == "block"}
    pins = {found["schedule.columns"].id: str(columns)}
    if rows is not None:
        pins[found["schedule.block"].id] = str(rows)
    return compile_with(program, Ledger(pins=pins), Target.of(target))


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize(("length", "rows"), [(65, 1), (128, 4), (130, 24), (193, 64)])
def test_columns_of_a_softmax_at_a_time(target: str, length: int, rows: int) -> None:
    text = programs.attention(1, length, 2, 5)
    made = online(text, rows=rows, target=target)
    assert made.names[-1] == "block"
    ((_, schedule),) = ((r, p.schedule) for p in made.plans if (r := p.region).block is not None)
    parts = 3 if length in (65, 128) else 6  # a single column is none of its own
    assert (schedule.rows, schedule.columns, len(schedule.members)) == (rows, 64, parts + 2)
    check_compiled(with_data(parse_program(text)), made, {})


@pytest.mark.parametrize("length", [1, 7, 63, 64, 65, 128, 150])
def test_columns_at_a_time_of_any_length(length: int) -> None:
    """No whole block of columns, several, or nothing left of them: all of one text."""
    text = programs.attention("N", "L", 2, 4, programs.symbols(N="0 of q", L="1 of q"))
    check_compiled(with_data(parse_program(text)), online(text), {"N": 1, "L": length})


def masked(condition: str) -> str:
    text = programs.attention(1, 70, 1, 3)
    return text.replace("= mul(scores[i0, i1, i2, i3], 0.5)", f"= select({condition}, scores[i0, i1, i2, i3], -inf)")


@pytest.mark.parametrize("condition", ["le(index(i3), index(i2))", "ge(index(i3), 66:i64)", "gt(index(i3), index(i2))"])
def test_columns_that_are_masked(condition: str) -> None:
    """Each row sees those before it; only the last; those after it, so that the last has none and is NaN."""
    text = masked(condition)
    check_compiled(with_data(parse_program(text)), online(text), {})


@pytest.mark.parametrize("condition", ["ge(index(i3), index(i2))", "gt(index(i3), index(i2))"])
def test_rows_that_are_masked_may_give_zeros(condition: str) -> None:
    """As exporters write it: where a share is NaN, it is 0."""
    share = "div(raised[i0, i1, i2, i3], total[i0, i1, i2])"
    text = masked(condition).replace(f"= {share}", f"= select(isnan({share}), 0.0, {share})")
    check_compiled(with_data(parse_program(text)), online(text), {})


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("= div(raised", "= mul(raised", "the result is not what is summed divided by the sum"),
        ("= exp(sub(scaled", "= exp(add(scaled", "what is summed is not exp of the difference to the maximum"),
        ("= max<r0>", "= min<r0>", "its reductions are not a maximum and then a sum"),
        ("= exp(sub(scaled[i0, i1, i2, i3]", "= exp(sub(mul(2.0, scaled[i0, i1, i2, i3])", "difference to the maximum"),
    ],
)
def test_rows_that_are_no_softmax_are_computed_at_once(old: str, new: str, why: str) -> None:
    program = with_data(parse_program(programs.attention(1, 70, 1, 3).replace(old, new)))
    made = compile_with(program, Ledger())
    (decision,) = (d for d in made.ledger if d.rule == "schedule.columns")
    assert decision.taken == "0" and [why in str(value) for value in decision.failed.values()] == [True]
    check_compiled(program, made, {})


def test_the_test_for_nan_may_be_a_tensor_of_its_own() -> None:
    """As it comes from ONNX: the quotient, and then what replaces its NaN."""
    extents = "i0: 1, i1: 1, i2: 70, i3: 70"
    text = masked("gt(index(i3), index(i2))").replace(
        "tensor mixed",
        f'tensor kept f32[{extents}] from "Where"\n'
        "  = select(isnan(shares[i0, i1, i2, i3]), 0.0, shares[i0, i1, i2, i3])\ntensor mixed",
    )
    text = text.replace("sum<r0>(mul(shares[", "sum<r0>(mul(kept[")
    made = online(text)
    assert made.names[-1] == "block"
    check_compiled(with_data(parse_program(text)), made, {})
