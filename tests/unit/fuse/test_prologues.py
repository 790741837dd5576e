"""What a contraction does with an operand before it multiplies it: in registers, or once, in memory."""

from __future__ import annotations

import pytest

from opweld.fuse.region import Kind
from opweld.ledger import Ledger
from opweld.target import Target
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Reduce, loads
from opweld.tensor.parse import parse_program
from tests.unit.tile.pipeline import Compiled, check_compiled, compile_text, compile_with, with_data
from tests.unit.tile.programs import dequantized, narrow, narrow_convolution, symbols

RULE = "fuse.prologue"
PROGRAMS = {
    "narrow": narrow(17, 7, 33),
    "dequantized": dequantized(5, 7, 35),
    "narrow_convolution": narrow_convolution(3, 10, 5, 7),
}
TARGETS = {name: Target.of(name) for name in ("x86-64-v3", "x86-64-v4", "aarch64")}


def decisions(compiled: Compiled) -> dict[str, str]:
    return {decision.id: decision.taken for decision in compiled.ledger if decision.rule == RULE}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", ["in registers", "in memory"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_ways_are_right(name: str, way: str, target: str) -> None:
    program = with_data(parse_program(PROGRAMS[name]))
    first = compile_with(program, Ledger(), TARGETS[target])
    pinned = compile_with(program, Ledger(pins=dict.fromkeys(decisions(first), way)), TARGETS[target])
    assert decisions(pinned) and set(decisions(pinned).values()) == {way}
    assert all(region.kind is not Kind.ROWWISE for region in pinned.regions.regions)
    check_compiled(program, pinned, {})


def test_weights_in_registers_are_packed_in_their_own_type() -> None:
    program = with_data(parse_program(dequantized(5, 7, 35)))
    pins = dict.fromkeys(decisions(compile_with(program, Ledger())), "in registers")
    placed = compile_with(program, Ledger(pins=pins)).placed
    packed = [constant.dtype for name, constant in placed.constants.items() if "_packed" in name]
    assert packed == [DType.I8]


def test_few_rows_read_weights_as_they_are_stored() -> None:
    few = compile_text(narrow(1, 2048, 2048))
    many = compile_text(narrow(512, 2048, 2048))
    taken = [{d.subject: d.taken for d in compiled.ledger if d.rule == RULE} for compiled in (few, many)]
    weights = next(subject for subject in taken[0] if subject.endswith("constant 0"))
    assert [answers[weights] for answers in taken] == ["in registers", "in memory"]


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_one_row_reads_quantized_weights_as_they_are_stored(target: str) -> None:
    (taken,) = decisions(compile_text(dequantized(1, 2048, 4096), TARGETS[target])).values()
    assert taken == "in registers", "its zero points are converted once, before the sum"


def test_weights_that_fit_the_cache_as_they_are_stored_are_passed_over_for_each_tile_of_rows() -> None:
    """128 x 256 of int8 are 32 KiB, and four times as much as float32: a quarter of this cache lies between."""
    program = with_data(parse_program(dequantized(48, 128, 256)))
    first = compile_with(program, Ledger(), TARGETS["x86-64-v3"])
    orders: list[set[str]] = []
    for way in ("in registers", "in memory"):
        made = compile_with(program, Ledger(pins=dict.fromkeys(decisions(first), way)), TARGETS["x86-64-v3"])
        orders.append({decision.taken for decision in made.ledger if decision.rule == "schedule.order"})
    assert orders == [{"lanes"}, {"rows"}]


def test_a_batch_that_nobody_knows_may_be_one() -> None:
    compiled = compile_text(narrow("N", 2048, 2048, head=symbols(N="0 of x")))
    assert "in registers" in {d.taken for d in compiled.ledger if d.rule == RULE and "constant" in d.subject}


def test_all_readers_of_a_value_that_is_kept_wider_read_that_one() -> None:
    compiled = compile_text(narrow(64, 64, 64))
    (widened,) = [t for region in compiled.regions.regions for t in region.tensors if t.name.endswith("_f32")]
    assert widened.dtype is DType.F32
    read = {name for region in compiled.regions.regions for name in region.inputs}
    assert widened.name in read and "before" not in read


def test_a_factor_that_takes_long_is_no_factor_of_a_contraction() -> None:
    text = narrow(17, 7, 33).replace("f32(before[i0, r0])", "tanh(f32(before[i0, r0]))")
    compiled = compile_text(text)
    first = next(region for region in compiled.regions.regions if "MatMul" in region.origin)
    assert first.kind is not Kind.CONTRACTION


def test_a_scale_that_is_the_same_for_all_that_is_summed_multiplies_the_sum() -> None:
    program = with_data(parse_program(dequantized(1, 7, 35)))
    pins = dict.fromkeys(decisions(compile_with(program, Ledger())), "in registers")
    ((tensor,),) = [region.tensors for region in compile_with(program, Ledger(pins=pins)).regions.regions]
    assert isinstance(tensor.body, Binary) and isinstance(tensor.body.x, Reduce)
    assert [node.tensor for node in loads(tensor.body.y)] == ["scale"]


def test_what_a_window_multiplies_by_is_computed_when_compiling() -> None:
    text = """program depthwise
input x f32[9, 12]
constant q i8[9, 3]
constant scale f32[9]
tensor result f32[i0: 9, i1: 10] from "Conv"
  over r0: 3
  = sum<r0>(mul(x[i0, i1 + r0], mul(f32(q[i0, r0]), scale[i0])))
output y = result
"""
    program = with_data(parse_program(text))
    compiled = compile_with(program, Ledger())
    (decision,) = [d for d in compiled.ledger if d.rule == RULE]
    assert decision.taken == "in memory" and decision.failed == {"kind": "window"}
    check_compiled(program, compiled, {})


@pytest.mark.parametrize("scales", ["2, 1, 1", "2, 3, 1", "1, 1, 1"])
def test_an_index_that_is_a_number_is_that_of_its_own_axis(scales: str) -> None:
    """Of weights of two directions, as an LSTM's are, one is read, at 0, and so is whatever else has an axis there."""
    text = f"""program directions
input x f32[40, 8]
constant q i8[2, 8, 24]
constant scale f32[{scales}]
tensor result f32[i0: 40, i1: 24] from "MatMul"
  over r0: 8
  = sum<r0>(mul(x[i0, r0], mul(f32(q[0, r0, i1]), scale[0, 0, 0])))
output y = result
"""
    program = with_data(parse_program(text))
    first = compile_with(program, Ledger())
    made = compile_with(program, Ledger(pins=dict.fromkeys(decisions(first), "in memory")))
    check_compiled(program, made, {})


def recurrent(n: int) -> str:
    return f"""program recurrent
input x f32[5, 1, {n}]
constant r i8[{n}, {n}]
constant s f32[{n}]
scan t0: 5 from "RNN"
  state h f32[i0: 1, i1: {n}] updated by after
    = 0.0
  step product f32[i0: 1, i1: {n}] from "RNN"
    over r0: {n}
    = sum<r0>(mul(h[i0, r0], mul(f32(r[r0, i1]), s[i1])))
  step after f32[i0: 1, i1: {n}] from "RNN"
    = tanh(add(x[t0, i0, i1], product[i0, i1]))
  stack all = after
output y = all
"""


@pytest.mark.parametrize("way", ["in registers", "in memory"])
def test_weights_of_a_recurrence(way: str) -> None:
    program = with_data(parse_program(recurrent(40)))
    first = compile_with(program, Ledger())
    pinned = compile_with(program, Ledger(pins=dict.fromkeys(decisions(first), way)))
    assert list(decisions(pinned).values()) == [way]
    check_compiled(program, pinned, {})


def test_each_step_reads_weights_that_no_cache_near_it_holds_as_they_are_stored() -> None:
    (taken,) = decisions(compile_text(recurrent(1024))).values()
    assert taken == "in registers"
