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
from tests.unit.tile.pipeline import check, check_compiled, compile_with, with_data

TARGET = Target.of("x86-64-v4")


def joined(
    text: str, disable: tuple[str, ...] = (), pins: Mapping[str, str] | None = None
) -> tuple[list[Region], list[Decision]]:
    program = parse_program(text)
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
