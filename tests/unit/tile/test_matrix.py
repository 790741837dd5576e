"""Contractions whose sums a matrix unit holds: which these are, that they are right, and what is refused and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest

from benchmarks.decisions import written
from opweld.errors import OptionError, OpweldError
from opweld.ledger import Decision, Ledger
from opweld.schedule.cost import Product, contraction, matrix_contraction, steps_at_once
from opweld.schedule.file import parse_schedules
from opweld.target import Target
from opweld.tensor.dtype import DType
from opweld.tensor.interpret import interpret
from opweld.tensor.program import TensorProgram
from opweld.tile.check import check_kernel
from opweld.tile.matrix import REGISTERS, Shape
from opweld.tile.parse import parse_kernel
from opweld.tile.text import print_kernel
from tests.unit.fuse import test_precision as halves
from tests.unit.fuse.test_integers import feeds_of, with_bytes
from tests.unit.tile.pipeline import Compiled, compile_with, run
from tests.unit.tile.programs import quantized, quantized_convolution, rounded

V4 = Target.of("x86-64-v4")
AMX = dataclasses.replace(V4, features=(*V4.features, "avx512vnni", "avx512bf16", "amx-tile", "amx-int8", "amx-bf16"))
RULE = "schedule.unit"


def units(made: Compiled) -> list[Decision]:
    return [decision for decision in made.ledger if decision.rule == RULE]


def in_matrix(program: TensorProgram, pins: Mapping[str, str] | None = None) -> Compiled:
    """The program compiled so that a matrix unit holds all sums that it can hold, and with `pins` by rule."""
    wanted = {RULE: "matrix", **(pins or {})}
    found: dict[str, str] = {}
    for rule, name in wanted.items():
        made = compile_with(program, Ledger(pins=found), AMX)
        found |= {d.id: name for d in made.ledger if d.rule == rule and name not in d.failed}
    return compile_with(program, Ledger(pins=found), AMX)


def texts(made: Compiled) -> list[str]:
    return [text for text in (print_kernel(item.kernel) for item in made.kernels) if "acc matrix" in text]


def check_exactly(program: TensorProgram, made: Compiled, rows: int = 7) -> None:
    feeds = feeds_of(program, rows)
    found, expected = run(made, feeds), interpret(program, feeds, float64=True)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 64, 32), (16, 64, 32), (33, 128, 64), (48, 60, 48), (20, 76, 40), (56, 64, 64)]
)
def test_products_of_bytes_are_exact(m: int, k: int, n: int) -> None:
    """Rows, steps and lanes that fill registers, and some that do not."""
    program = with_bytes(quantized(m, k, n))
    made = in_matrix(program)
    assert len(texts(made)) == (m > 1), "a single row is none that a tile could count"
    check_exactly(program, made)


@pytest.mark.parametrize("rows", [1, 16, 50])
def test_any_number_of_rows(rows: int) -> None:
    program = with_bytes(quantized("N", 64, 40))
    made = in_matrix(program)
    assert texts(made)
    check_exactly(program, made, rows)


@pytest.mark.parametrize("vectors", ["1", "2", "3", "4"])
def test_tiles_of_any_width(vectors: str) -> None:
    program = with_bytes(quantized(50, 64, 16 * 12))
    made = in_matrix(program, {"schedule.vectors": vectors})
    assert texts(made) and f"lane l0: {16 * int(vectors)} " in texts(made)[0]
    check_exactly(program, made)


def test_a_convolution_sums_taps_and_channels() -> None:
    program = with_bytes(quantized_convolution(16, 40, 5, 20, "u8"))
    made = in_matrix(program)
    assert texts(made)
    check_exactly(program, made)


def test_signed_values_are_made_unsigned_as_they_are_loaded() -> None:
    """That is an operation between memory and their product, which the unit has not."""
    program = with_bytes(quantized(20, 64, 48, x="i8", w="u8"))
    made = in_matrix(program)
    assert not texts(made)
    assert all("changed" in str(d.failed["matrix"]) for d in units(made))
    check_exactly(program, made)


def test_halves_are_rounded_as_any_sums() -> None:
    program = halves.with_whole_numbers(rounded(20, 40, 48))
    made = in_matrix(program)
    assert len(texts(made)) == 2
    halves.check_exactly(program, made)


def test_without_such_a_unit_nothing_is_decided() -> None:
    made = compile_with(with_bytes(quantized(32, 64, 32)), Ledger(), V4)
    assert not units(made) and not texts(made)


def test_sums_of_floats_have_no_such_unit() -> None:
    made = compile_with(halves.with_whole_numbers(rounded(20, 40, 48).replace("precision bf16", "")), Ledger(), AMX)
    assert not units(made)


def test_the_price_decides() -> None:
    def unit(rows: int) -> str:
        (decision,) = units(compile_with(with_bytes(quantized(rows, 512, 512)), Ledger(), AMX))
        return decision.taken

    assert (unit(2), unit(64)) == ("vector", "matrix")


def test_what_a_unit_is_priced_like() -> None:
    """At best eight times as many products as by vectors of words."""
    shape = Product(256, 256, 256, 1, DType.I32, AMX, dot="dot4")
    ratio = contraction(shape, 2, 12).seconds / matrix_contraction(shape, 2, 32)
    assert 4 < ratio < 9


@pytest.mark.parametrize(("extent", "size"), [(16, 16), (192, 16), (24, 12), (20, 10), (17, 16), (3, 3)])
def test_steps_of_a_sum_are_divided_so_that_few_are_left(extent: int, size: int) -> None:
    assert steps_at_once(extent, 32, 2, AMX) == size


def test_registers_do_not_overlap() -> None:
    for across in range(1, 5):
        for down in (1, 2, 3):
            shape = Shape(down, across)
            if down * 16 > {1: 48, 2: 32}.get(across, 16):
                continue
            sums = {shape.accumulator(i, j) for i in range(down) for j in range(across)}
            rows, lanes = {shape.rows(i) for i in range(down)}, {shape.lanes(j) for j in range(across)}
            assert len(sums) == down * across and len(rows) == down
            assert not sums & rows and not (sums | rows) & lanes
            assert max(sums | rows | lanes) < REGISTERS


GOOD = """kernel
read b0 u8
read b1 i8
write b2 i32
grid g0: 2
lane l0: 32 at 0
  row r0: 32 at 32*g0 below 50
    acc matrix a0 i32<l0, r0> = 0
    loop k0: 32 unroll 16
      sum a0 = dot4(b0[1024*g0 + k0 + 32*r0]:i32, b1[32*k0 + l0]:i32)
    store b2[1024*g0 + l0 + 32*r0] = a0
"""


def test_text_comes_back() -> None:
    kernel = parse_kernel(GOOD)
    check_kernel(kernel, 16)
    assert print_kernel(kernel) == GOOD


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a0 i32<l0, r0> = 0", "a0 i32<l0, r0> = 1", "no sum from zero"),
        ("unroll 16", "unroll 5", "takes 5 steps"),
        ("unroll 16", "unroll 32", "takes 32 steps"),
        ("32*k0 + l0", "32*k0 + 2*l0", "no neighbours along the lanes"),
        ("k0 + 32*r0", "2*k0 + 32*r0", "no neighbours along the sum"),
        ("k0 + 32*r0", "k0 + 32*r0 + l0", "depends on rows and on lanes"),
        ("k0 + 32*r0]:i32", "k0 + 32*r0 if k0 - 1 >= 0 else 0]:i32", "outside of memory"),
        ("dot4(", "add(", "no dot products"),
        ("= a0", "= add(a0, 1:i32)", "stored as it is"),
        ("r0: 32", "r0: 48", "has 48 rows"),
        ("store b2[1024*g0 + l0 + 32*r0]", "store b2[1024*g0 + 32*l0 + r0]", "stored in no rows of lanes"),
        ("lane l0: 32 at 0", "lane l0: 32 at 0 below 20", "in a full tile of lanes"),
    ],
)
def test_what_the_unit_cannot_do_is_refused(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(OpweldError, match=message):
        check_kernel(parse_kernel(GOOD.replace(old, new)), 16)


def test_a_schedule_with_other_heights_is_refused() -> None:
    program = with_bytes(quantized(50, 64, 64))
    made = in_matrix(program)
    text = written(made)
    assert "height=32" in text and "unit=matrix" in text
    again = compile_with(program, Ledger(schedules=parse_schedules(text)), AMX)
    assert texts(again) == texts(made)
    with pytest.raises(OptionError, match="height"):
        compile_with(program, Ledger(schedules=parse_schedules(text.replace("height=32", "height=13"))), AMX)


def test_a_schedule_for_a_unit_that_is_not_there_is_refused() -> None:
    program = with_bytes(quantized(50, 64, 64))
    text = written(in_matrix(program))
    with pytest.raises(OptionError, match=r"schedule\.(unit|height)"):
        compile_with(program, Ledger(schedules=parse_schedules(text)), V4)


def test_rows_and_sums_of_nothing_have_no_unit() -> None:
    for m, k in ((0, 64), (16, 0)):
        made = compile_with(with_bytes(quantized(m, k, 32)), Ledger(), AMX)
        assert not texts(made)
