"""The axis that vectors of elementwise work run along."""

from __future__ import annotations

import pytest

from opweld.codegen.c.render import render_body
from opweld.errors import OptionError
from opweld.ledger import Ledger
from opweld.schedule.choice import Choice
from opweld.schedule.expected import Expected
from opweld.schedule.schedule import MapSchedule, parse_schedule
from opweld.schedule.verify import verify_map
from opweld.target import Target
from opweld.tensor.dim import Axis
from opweld.tensor.dtype import DType
from opweld.tensor.expr import const
from opweld.tile.members.map import choose_map
from opweld.tile.nest import Nest
from tests.unit.tile.pipeline import TARGET, Compiled, check, compile_text
from tests.unit.tile.programs import symbols

V4 = Target.of("x86-64-v4")


def lane(rows: int, columns: int, stride: int, target: str) -> str:
    """The axis of the lanes of zeros that are stored with a stride: row by row, 4096 elements apart."""
    outer, inner = Axis("outer", rows), Axis("inner", columns)
    nest = Nest((outer, inner), outer.dim * 4096 + inner.dim * stride, const(0.0, DType.F32))
    return choose_map(nest, Choice(Ledger(), (), ("x",), Expected(), Target.of(target))).lane


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_where_nothing_is_contiguous_lanes_run_along_the_innermost_of_axes_that_fill_vectors(target: str) -> None:
    """Elements are stored one by one, so that lanes that do not exist cost nothing."""
    assert lane(64, 14, 16, target) == "inner"
    assert lane(64, 2, 16, target) == "outer"


def test_lanes_run_along_neighbours() -> None:
    assert lane(64, 9, 1, "x86-64-v3") == lane(64, 2, 1, "x86-64-v3") == "inner"


def transposed(rows: int | str, columns: int | str, dtype: str = "f32", head: str = "") -> str:
    """max(x^T, v), where v has one element for each row of x."""
    return f"""program transposed
{head}
input x {dtype}[2, {rows}, {columns}]
input v {dtype}[{rows}]
tensor result {dtype}[i0: 2, i1: {columns}, i2: {rows}] from "Transpose"
  = max(x[i0, i2, i1], v[i2])
output y = result
"""


def schedule_of(made: Compiled) -> MapSchedule:
    """The schedule of the only kernel."""
    ((member,),) = (plan.schedule.members for plan in made.plans)
    assert isinstance(member, MapSchedule)
    return member


@pytest.mark.parametrize("target", [TARGET, V4], ids=["AVX2", "AVX-512"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (64, 48), (33, 17), (100, 70)])
def test_squares_of_a_transposition_are_loaded_and_turned_in_registers(rows: int, columns: int, target: Target) -> None:
    made = compile_text(transposed(rows, columns), target)
    assert (schedule_of(made).lane, schedule_of(made).square) == ("i2", "i1")
    (item,) = made.kernels
    assert "opw_load_square_f32(" in render_body(item.kernel, target.vector_lanes_f32, "k")
    check(transposed(rows, columns), {}, target)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "i32"])
def test_squares_of_what_has_32_bits_in_registers(dtype: str) -> None:
    made = compile_text(transposed(40, 37, dtype), V4)
    assert f"opw_load_square_{dtype}(" in render_body(made.kernels[0].kernel, 16, "k")
    check(transposed(40, 37, dtype), {}, V4)


@pytest.mark.parametrize("sizes", [(1, 1), (7, 9), (8, 8), (31, 40), (50, 3)])
def test_squares_of_sizes_known_at_run_time(sizes: tuple[int, int]) -> None:
    text = transposed("A", "B", head=symbols(A="1 of x", B="2 of x"))
    assert schedule_of(compile_text(text)).square == "i1"
    check(text, dict(zip("AB", sizes, strict=True)))


def test_what_has_no_squares() -> None:
    """Too few elements along an axis; elements of 8 bytes; lanes that run along memory."""
    for text in (transposed(64, 5), transposed(5, 64), transposed(64, 64, "f64")):
        made = compile_text(text)
        assert schedule_of(made).square == "one"
        assert "square" not in str(made.plans[0].schedule)
        check(text, {})


def test_a_schedule_has_squares_along_another_axis_than_its_lanes() -> None:
    text = "map lane=i1 vectors=1 chunk=0 inner=0 square=i0"
    (member,) = parse_schedule(text).members
    assert str(parse_schedule(text)) == text
    assert isinstance(member, MapSchedule)
    verify_map(member, ["i0", "i1"])
    for square, lane, chunk in [("i1", "i1", 0), ("i0", "one", 0), ("i0", "i1", 16), ("i7", "i1", 0)]:
        with pytest.raises(OptionError, match="square"):
            verify_map(MapSchedule(lane, 1, chunk, 0, square), ["i0", "i1"])
