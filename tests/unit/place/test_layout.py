"""Where values come to live: axis orders, halos, slices, packed operands."""

from __future__ import annotations

from opweld.ledger import Ledger
from opweld.place.storage import Storage
from opweld.target import Target
from opweld.tensor.parse import parse_program
from tests.unit.tile import programs
from tests.unit.tile.pipeline import Compiled, check_compiled, compile_text, compile_with, with_data


def rules(compiled: Compiled, rule: str) -> list[str]:
    return [decision.taken for decision in compiled.ledger if decision.rule == rule]


def storage_of(compiled: Compiled, name: str) -> Storage:
    return compiled.placed.storages[name]


def test_convolutions_store_channels_last_with_a_halo() -> None:
    compiled = compile_text(programs.convolution(4, 8, 6, 6))
    middle = storage_of(compiled, "relu")
    assert middle.halo == ((0, 0), (0, 0), (1, 1), (1, 1))
    assert [str(middle.stride(axis)) for axis in (1, 2, 3)] == ["1", "64", "8"]
    assert "halo" in rules(compiled, "place.halo")


def test_callers_see_row_major_values() -> None:
    compiled = compile_text(programs.convolution(4, 8, 6, 6))
    for name in ("x", "second"):
        storage = storage_of(compiled, name)
        assert not storage.padded
        assert [str(storage.stride(axis)) for axis in (1, 2, 3)] == ["36", "6", "1"]


def test_without_permission_everything_is_row_major() -> None:
    compiled = compile_text(programs.convolution(4, 8, 6, 6), disable=("place",))
    for name in ("relu", "second"):
        assert str(storage_of(compiled, name).stride(3)) == "1"
        assert not storage_of(compiled, name).padded
    assert not any(term.modulus for storage in compiled.placed.storages.values() for term in storage.terms)


def test_parts_of_a_concatenation_are_slices_of_it() -> None:
    compiled = compile_text(programs.concatenation(4, 8, 6, 6))
    assert storage_of(compiled, "left").root == storage_of(compiled, "right").root == "joined"
    assert rules(compiled, "place.slice").count("slice") == 2
    near = [d for d in compiled.ledger if d.rule == "place.slice" and d.failed]
    assert [d.failed for d in near] == [{"part": "a graph input, output or constant"}]


def test_weights_are_packed_in_blocks_of_the_register_tile() -> None:
    compiled = compile_text(programs.dense(32, 12, 44))
    packed = storage_of(compiled, "w_packed0")
    assert str(packed.elements) == str(12 * 48)
    assert sorted((t.axis, str(t.stride), t.divisor, t.modulus) for t in packed.terms) == [
        (0, "16", 1, None),
        (1, "1", 1, 16),
        (1, "192", 16, None),
    ]


def test_equal_packings_are_made_once() -> None:
    text = """program twice
input x f32[4, 8]
constant w f32[8, 8]
tensor a f32[i0: 4, i1: 8] from "first"
  over r0: 8
  = sum<r0>(mul(x[i0, r0], w[r0, i1]))
tensor b f32[i0: 4, i1: 8] from "second"
  over r0: 8
  = sum<r0>(mul(a[i0, r0], w[r0, i1]))
output y = b
"""
    compiled = compile_text(text)
    assert [name for name in compiled.placed.constants if "packed" in name] == ["w_packed0"]


def test_lanes_run_along_the_weights_even_when_the_result_is_channels_first() -> None:
    """Packed weights cost nothing at run time; lanes along the result would need nine copies of the input."""
    compiled = compile_text(programs.convolution(8, 16, 6, 6))
    assert compiled.names == ["halo", "map", "halo", "contraction", "contraction"]


def test_depthwise_weights_have_their_channels_innermost() -> None:
    compiled = compile_text(programs.separable(4, 16, 6, 6))
    assert str(storage_of(compiled, "w1_packed0").stride(0)) == "1"


def test_a_strided_computed_operand_is_copied_once() -> None:
    compiled = compile_text(programs.product(40, 16, 32, transposed=True))
    assert compiled.names == ["map", "contraction"]
    assert rules(compiled, "place.pack") == ["copy"]
    assert compile_text(programs.product(40, 16, 32)).names == ["contraction"]


def test_wider_vectors_pack_wider() -> None:
    compiled = compile_text(programs.dense(32, 12, 40), target=Target.of("x86-64-v4"))
    assert any(term.modulus == 48 for term in storage_of(compiled, "w_packed0").terms)


def test_the_indices_of_a_gather_do_not_decide_the_order() -> None:
    text = """program embedding
input ids i64[16]
constant table f32[50, 24]
tensor rows f32[i0: 16, i1: 24] from "Gather"
  = table[at(ids[i0], 50), i1]
tensor total f32[i0: 16] from "ReduceSum"
  over r0: 24
  = sum<r0>(rows[i0, r0])
tensor centred f32[i0: 16, i1: 24] from "Sub"
  = sub(rows[i0, i1], total[i0])
tensor mixed f32[i0: 16, i1: 24] from "MatMul"
  over r0: 24
  = sum<r0>(mul(centred[i0, r0], table[r0, i1]))
output y = mixed
"""
    assert str(storage_of(compile_text(text), "centred").stride(1)) == "1"


def lanes_of(compiled: Compiled, name: str) -> str:
    lane = compiled.placed.lanes[name].axis
    assert lane is not None
    return lane.name


def test_lanes_do_not_leave_large_weights_to_be_read_by_columns() -> None:
    """64 rows of x and 8192 columns of w both fill vectors; but w lies row by row."""
    text = """program wide
input x f32[64, 128]
constant w f32[128, 8192]
tensor y f32[i0: 8192, i1: 64] from "MatMul"
  over r0: 128
  = sum<r0>(mul(w[r0, i0], x[i1, r0]))
tensor z f32[i0: 8192, i1: 64] from "Relu"
  = max(y[i0, i1], 0.0)
output out = z
"""
    assert lanes_of(compile_text(text), "z") == "i0"


def test_rows_store_what_they_compute_as_they_walk() -> None:
    """A pool of a channels-last value is channels-last, although what it sums stays in the kernel."""
    text = """program pooled
input x f32[1, 8, 6, 6]
constant w f32[16, 8]
tensor made f32[i0: 1, i1: 16, i2: 6, i3: 6] from "Conv"
  over r0: 8
  = sum<r0>(mul(w[i1, r0], x[i0, r0, i2, i3]))
tensor total f32[i0: 1, i1: 16, i2: 1, i3: 3] from "AveragePool"
  over r0: 6, r1: 2
  = sum<r0, r1>(made[i0, i1, r0, 2*i3 + r1])
tensor pool f32[i0: 1, i1: 16, i2: 1, i3: 3] from "AveragePool"
  = div(total[i0, i1, 0, i3], 12.0)
tensor last f32[i0: 1, i1: 16, i2: 1, i3: 3] from "Conv"
  over r0: 16
  = sum<r0>(mul(w[i1, (r0 // 2)], pool[i0, r0, 0, i3]))
output out = last
"""
    compiled = compile_text(text)
    assert str(storage_of(compiled, "made").stride(1)) == "1"
    assert str(storage_of(compiled, "pool").stride(1)) == "1"


TWO_READERS = """program two
input x f32[1, 6, 120]
constant w f32[5, 6, 3]
constant u f32[7, 6, 3]
tensor a f32[i0: 1, i1: 5, i2: 120] from "Conv"
  over r0: 6, r1: 3
  %0 = x[i0, r0, i2 + r1 - 1 if i2 + r1 - 1 >= 0, 120 - i2 - r1 >= 0 else 0.0]
  = sum<r0, r1>(mul(%0, w[i1, r0, r1]))
tensor b f32[i0: 1, i1: 7, i2: 120] from "Conv_1"
  over r0: 6, r1: 3
  %0 = x[i0, r0, i2 + r1 - 1 if i2 + r1 - 1 >= 0, 120 - i2 - r1 >= 0 else 0.0]
  = sum<r0, r1>(mul(%0, u[i1, r0, r1]))
output first = a
output second = b
"""


def test_each_reader_of_a_padded_copy_is_asked() -> None:
    program = with_data(parse_program(TWO_READERS))
    found = [d for d in compile_with(program, Ledger()).ledger if d.rule == "place.halo" and "copy" in d.taken]
    assert [d.subject for d in found] == ["x > Conv 0", "x > Conv_1 0"]
    for decision in found:
        made = compile_with(program, Ledger(pins={decision.id: "test-edges"}))
        assert "x_padded" in made.placed.storages
        check_compiled(program, made, {})
        readers = {t.name for r in made.placed.regions for t in r.tensors if "x_padded" in r.inputs}
        assert readers == {"a", "b"} - {"a" if decision is found[0] else "b"}
    made = compile_with(program, Ledger(disable=("place.halo",)))
    assert "x_padded" not in made.placed.storages
