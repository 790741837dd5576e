"""Pairs: a contraction and what it sums over as one block, right however it is cut; and why something is none."""

from __future__ import annotations

import pytest

from opweld.codegen.c.render import render_body
from opweld.fuse.blocks import join_blocks
from opweld.fuse.pair_prices import FEW, PairPrices
from opweld.fuse.pairs import join_pairs
from opweld.fuse.parse import parse_regions
from opweld.fuse.partition import partition
from opweld.fuse.region import Regions
from opweld.fuse.text import print_regions
from opweld.fuse.verify import verify_regions
from opweld.ledger import Decision, Ledger
from opweld.schedule.expected import expected_sizes
from opweld.schedule.schedule import Schedule
from opweld.target import Target
from opweld.tensor.parse import parse_program
from tests.unit.tile import programs
from tests.unit.tile.pipeline import Compiled, check_compiled, compile_with, with_data

V4 = Target.of("x86-64-v4")


def joined(text: str, pins: dict[str, str] | None = None) -> tuple[Regions, list[Decision]]:
    program, ledger = with_data(parse_program(text)), Ledger(pins=pins)
    expected = expected_sizes(program)
    regions = join_blocks(partition(program, expected, V4, ledger), expected, V4, ledger)
    regions = join_pairs(regions, expected, V4, ledger)
    return regions, [decision for decision in ledger if decision.rule == "fuse.block"]


def inside(text: str) -> str:
    """A program of pictures whose result stays in the model: its sum over each picture leaves it."""
    shape = next(line for line in text.splitlines() if line.startswith("tensor result")).partition("[")[2]
    _, channels, height, width = (size.partition(": ")[2] for size in shape.partition("]")[0].split(", "))
    summed = f"""tensor summed f32[i0: 1, i1: {channels}] from "ReduceSum"
  over r0: {height}, r1: {width}
  = sum<r0, r1>(result[0, i1, r0, r1])
output y = summed"""
    return text.replace("output y = result", summed)


def kinds(regions: Regions) -> list[list[str]]:
    return [[member.kind.value for member in region.members] for region in regions.regions]


def pair(text: str, target: str = "x86-64-v4", rows: int | None = None) -> Compiled:
    """Compiled with every pair as a block, of so many rows at a time; but for what `inside` reads the result by."""
    program, machine = with_data(parse_program(text)), Target.of(target)
    pins: dict[str, str] = {}
    for _ in range(5):  # what is computed last chooses first
        found = compile_with(program, Ledger(pins=pins), machine).ledger
        asked = [d for d in found if d.rule == "fuse.block" and "ReduceSum" not in d.site]
        legal = [d.id for d in asked if not d.failed and d.id not in pins]
        pins |= dict.fromkeys(legal[:1], "block")
    if rows is not None:
        found = compile_with(program, Ledger(pins=pins), machine).ledger
        pins |= {d.id: str(rows) for d in found if d.rule == "schedule.block"}
    made = compile_with(program, Ledger(pins=pins), machine)
    assert "block" in made.names
    for item in made.kernels:  # the interpreter of tile programs asks less of them than C does
        render_body(item.kernel, machine.vector_lanes_f32, "kernel")
    return made


def schedule_of(made: Compiled) -> Schedule:
    return next(plan.schedule for plan in made.plans if plan.region.block is not None)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize(("height", "width", "rows"), [(9, 7, 1), (9, 7, 4), (14, 14, 7), (5, 33, 2), (1, 5, 4)])
def test_a_depthwise_convolution_and_the_one_behind_it(target: str, height: int, width: int, rows: int) -> None:
    """Rows that blocks divide and that they do not, on channels that are no whole vectors."""
    text = inside(programs.separable(11, 37, height, width))
    made = pair(text, target, rows)
    assert schedule_of(made).rows == rows
    check_compiled(with_data(parse_program(text)), made, {})


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("rows", [1, 6, 16])
def test_two_products_and_what_lies_between(target: str, rows: int) -> None:
    text = programs.layers(45, 19, 70, 23)
    check_compiled(with_data(parse_program(text)), pair(text, target, rows), {})


def test_sizes_that_are_known_when_it_runs() -> None:
    head = programs.symbols(M="0 of x")
    text = programs.layers("M", 16, 48, 20).replace("program layers\n", f"program layers\n{head}")
    made = pair(text)
    for rows in (1, 5, 16, 100):
        check_compiled(with_data(parse_program(text)), made, {"M": rows})


def test_what_lies_between_lies_as_its_lanes_want_it() -> None:
    """Channels innermost in scratch, whatever their place in the value: no element is stored on its own."""
    made = pair(inside(programs.separable(16, 64, 14, 14)))
    (kernel,) = (item.kernel for item in made.kernels if item.kernel.name.endswith("block"))
    (scratch,) = kernel.scratch
    assert int(scratch.elements) == schedule_of(made).rows * (14 * 64 + 16), "rows are a cache line apart"
    assert str(schedule_of(made)).count("lane=i1") == 2


def test_a_result_that_lies_as_the_caller_wants_it() -> None:
    """Lanes run along the rows then, and what lies between is gathered: right, and no pair by itself."""
    text = programs.separable(16, 64, 14, 14)
    assert kinds(joined(text)[0])[-1] == ["contraction"]
    check_compiled(with_data(parse_program(text)), pair(text), {})


def test_a_result_takes_the_place_of_what_is_added_to_it() -> None:
    """A block's, too; but not of what its first member reads, of which other iterations want the neighbours."""
    own = """constant wx f32[64, 64, 1, 1]
tensor own f32[i0: 1, i1: 64, i2: 14, i3: 14] from "Conv_0"
  over r0: 64
  = sum<r0>(mul(x[0, r0, i2, i3], wx[i1, r0, 0, 0]))
tensor wide"""
    text = inside(programs.separable(64, 64, 14, 14)).replace("tensor wide", own, 1)
    text = text.replace("x[0, r0, i2, i3], w0", "own[0, r0, i2, i3], w0").replace("i3], x[", "i3], own[")
    for changed, root in ((text, "own"), (text.replace("wide[0, i1,", "own[0, i1,"), "result")):
        made = pair(changed)
        assert made.placed.storages["result"].root == root
        check_compiled(with_data(parse_program(changed)), made, {})


def test_a_pair_is_text_and_comes_back() -> None:
    for text in (programs.separable(16, 64, 14, 14), programs.layers(40, 16, 48, 20)):
        (decision, *_) = joined(text)[1]
        regions, _ = joined(text, {decision.id: "block"})
        printed = print_regions(regions)
        assert "block row" in printed
        again = parse_regions(printed)
        verify_regions(again)
        assert print_regions(again) == printed


def test_small_weights_are_read_again_and_large_ones_are_not() -> None:
    assert ["window", "contraction"] in kinds(joined(inside(programs.separable(24, 144, 56, 56)))[0])
    regions, (decision,) = joined(programs.layers(128, 768, 3072, 768))
    assert kinds(regions) == [["contraction"], ["contraction"]]
    assert not decision.failed and decision.taken == "separate"
    separate, block = decision.alternatives
    assert separate.seconds is not None and block.seconds is not None and block.seconds > separate.seconds


def test_rows_that_nobody_knows_leave_work_for_all_cores() -> None:
    """A picture of any height may be low: no block takes more rows than a core's part of it."""
    text = programs.separable(24, 48, 7, 40).replace(" 7,", " H,").replace(" 7 -", " H -")
    text = text.replace("program separable\n", f"program separable\n{programs.symbols(H='2 of x')}")
    (decision, *_) = joined(text)[1]
    regions, _ = joined(text, {decision.id: "block"})
    found = PairPrices.of(regions.regions[-1], regions.program, expected_sizes(regions.program), V4)
    assert {case.rows for case in found.cases} == {FEW, 64}
    assert min(found.heights, key=found.seconds) <= FEW / V4.cores


HEADS = """program heads
input q f32[3, 9, 8]
input k f32[3, 7, 8]
constant w f32[5, 3]
tensor scores f32[i0: 3, i1: 9, i2: 7] from "MatMul"
  over r0: 8
  = sum<r0>(mul(q[i0, i1, r0], k[i0, i2, r0]))
tensor result f32[i0: 5, i1: 9, i2: 7] from "Conv"
  over r0: 3
  = sum<r0>(mul(scores[r0, i1, i2], w[i0, r0]))
output y = result
"""
"""Heads that talk: what is summed over lies along both factors of the scores."""


def test_prices_are_the_same_when_operands_are_packed() -> None:
    """How a block is cut is priced by the weights that it was joined by."""
    program = with_data(parse_program(programs.layers(197, 192, 768, 192)))
    made = compile_with(program, Ledger())
    pins = {d.id: "block" for d in made.ledger if d.rule == "fuse.block"}
    made = compile_with(program, Ledger(pins=pins))
    (joined_,), (cut,) = ([d for d in made.ledger if d.rule == rule] for rule in ("fuse.block", "schedule.block"))
    block = next(a for a in joined_.alternatives if a.name == "block")
    assert block.seconds == min(a.seconds for a in cut.alternatives if a.seconds is not None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            programs.layers(40, 16, 48, 20).replace("output y = result", "output y = result\noutput h = hidden"),
            {"output": "the caller reads it from memory"},
        ),
        (
            programs.layers(40, 16, 48, 20)
            .replace("hidden[i0, r0], v[r0, i1]", "hidden[i0, r0 + 8], v[r0, i1]")
            .replace("over r0: 48", "over r0: 40")
            .replace("constant v f32[48, 20]", "constant v f32[40, 20]"),
            {"rows": "result reads hidden at r0 + 8, which is made at i1"},
        ),
        (programs.layers(1, 7, 5, 3), {"rows": "hidden has one row"}),
        (HEADS, {"rows": "along the columns of scores lie both of its factors, and lanes along none"}),
    ],
    ids=["output", "part", "one row", "no lanes"],
)
def test_what_is_no_pair_says_why(text: str, why: dict[str, str]) -> None:
    regions, decisions = joined(text)
    assert why in [decision.failed for decision in decisions]
    assert all(len(region.members) == 1 for region in regions.regions)
