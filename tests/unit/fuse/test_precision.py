"""Contractions of operands rounded to bfloat16: what becomes one, what does not and why, and that it is right.

Data are whole numbers so small that bfloat16 holds their sums, so that answers are exact in any order; where
they are not, the operands are rounded first, and what is left is the rounding of sums."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from opweld.ledger import Ledger
from opweld.target import Target
from opweld.tensor.interpret import interpret
from opweld.tensor.parse import parse_program
from opweld.tensor.program import TensorProgram
from opweld.tensor.text import print_program
from opweld.tile.text import print_kernel
from tests.unit.tile.pipeline import Compiled, compile_with, run, with_data
from tests.unit.tile.programs import convolution, narrow, rounded

RULE = "fuse.precision"
V3, V4 = Target.of("x86-64-v3"), Target.of("x86-64-v4")
BF16 = dataclasses.replace(V4, features=(*V4.features, "avx512bf16"))


def with_whole_numbers(text: str, seed: int = 0) -> TensorProgram:
    random = np.random.default_rng(seed)
    program = parse_program(text)
    known = {c.name: random.integers(-1, 2, c.shape).astype(c.dtype.numpy) for c in program.constants}
    made = (dataclasses.replace(c, read=lambda name=c.name: known[name]) for c in program.constants)
    return dataclasses.replace(program, constants=tuple(made))


def feeds_of(program: TensorProgram, rows: int = 7) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    shapes = {v.name: [rows if d.constant is None else d.constant for d in v.shape] for v in program.inputs}
    return {v.name: random.integers(-1, 2, shapes[v.name]).astype(v.dtype.numpy) for v in program.inputs}


def compiled_of(text: str, target: Target = BF16, ledger: Ledger | None = None) -> tuple[TensorProgram, Compiled]:
    program = with_whole_numbers(text)
    return program, compile_with(program, Ledger() if ledger is None else ledger, target)


def dots(compiled: Compiled) -> int:
    return sum("dot2(" in print_kernel(item.kernel) for item in compiled.kernels)


def check_exactly(program: TensorProgram, compiled: Compiled, rows: int = 7) -> None:
    feeds = feeds_of(program, rows)
    expected = interpret(program, feeds, float64=True)
    for name, array in run(compiled, feeds).items():
        np.testing.assert_array_equal(array.astype(np.float64), expected[name].astype(np.float64), err_msg=name)


@pytest.mark.parametrize("rows", [1, 7, "N"])
def test_products_are_sums_of_words(rows: int | str) -> None:
    program, compiled = compiled_of(rounded(rows, 20, 36))
    assert dots(compiled) == 2
    check_exactly(program, compiled)


@pytest.mark.parametrize("head", [8, 7])
def test_neighbours_of_merged_heads_are_those_of_one_head(head: int) -> None:
    """What attention gives, [heads, rows, head], as the projection behind it reads it. Heads of an odd size have words
    that lie across two."""
    ledger = Ledger()
    program, compiled = compiled_of(merged(4, 7, head, 36), ledger=ledger)
    assert dots(compiled) == (1 if head == 8 else 0)
    assert [d.taken for d in ledger if d.rule == RULE] == ["bf16" if head == 8 else "fp32"]
    check_exactly(program, compiled)


def merged(heads: int, rows: int, head: int, width: int) -> str:
    return f"""
program main
precision bf16

input x f32[{heads}, {rows}, {head}]

constant w f32[{heads * head}, {width}] from ""

tensor y f32[i0: {rows}, i1: {width}] from ""
  over r0: {heads * head}
  = sum<r0>(mul(x[(r0 // {head}), i0, (r0 % {head})], w[r0, i1]))

output y = y
"""


def test_a_convolution_sums_words_of_channels() -> None:
    program, compiled = compiled_of(convolution(8, 20, 5, 7, head="precision bf16"))
    assert dots(compiled) == 2
    check_exactly(program, compiled)


def test_what_is_stored_as_bfloat16_is_summed_in_words_too() -> None:
    program, compiled = compiled_of(narrow(9, 24, 40, "bf16"))
    assert dots(compiled) >= 1
    check_exactly(program, compiled)


def test_sums_are_of_operands_rounded_once() -> None:
    """Each of k products and sums is rounded to float32 by at most 2 ** -24 of the sum of magnitudes."""
    program, k = parse_program(rounded(9, 64, 48)), 64
    random = np.random.default_rng(3)
    known = {c.name: random.standard_normal(c.shape).astype(np.float32) for c in program.constants}
    made = (dataclasses.replace(c, read=lambda name=c.name: known[name]) for c in program.constants)
    compiled = compile_with(dataclasses.replace(program, constants=tuple(made)), Ledger(), BF16)
    x = random.standard_normal((9, k)).astype(np.float32)
    halves = [a.astype(BF16_NUMPY).astype(np.float64) for a in (x, known["w"])]
    found = run(compiled, {"x": x})["hidden"]
    magnitudes = np.abs(halves[0]) @ np.abs(halves[1])
    assert (np.abs(found - np.maximum(halves[0] @ halves[1], 0)) <= 2 * k * 2.0**-24 * magnitudes).all()


BF16_NUMPY = parse_program(narrow(1, 2, 2, "bf16")).inputs[0].dtype.numpy


def test_nothing_is_rounded_unless_the_program_permits_it() -> None:
    ledger = Ledger()
    _, compiled = compiled_of(rounded(7, 20, 36).replace("precision bf16", ""), ledger=ledger)
    assert not dots(compiled) and not [d for d in ledger if d.rule == RULE]


def test_sums_without_whole_words_are_not_rounded() -> None:
    ledger = Ledger()
    program, compiled = compiled_of(rounded(7, 21, 35), ledger=ledger)
    made = [d for d in ledger if d.rule == RULE]
    assert [d.taken for d in made] == ["fp32", "fp32"] and "no axis" in made[0].reason
    assert not dots(compiled)
    check_exactly(program, compiled)


@pytest.mark.parametrize("target", [V3, V4], ids=lambda t: t.name)
def test_without_instructions_for_it_bytes_decide(target: Target) -> None:
    for rows, taken in ((64, "fp32"), (1, "bf16")):
        ledger = Ledger()
        compile_with(with_data(parse_program(rounded(rows, 4096, 4096))), ledger, target)
        assert {d.taken for d in ledger if d.rule == RULE} == {taken}


def test_a_permission_is_printed_and_parsed() -> None:
    program = parse_program(rounded(3, 4, 6))
    assert program.precision == "bf16"
    assert parse_program(print_program(program)).precision == "bf16"
