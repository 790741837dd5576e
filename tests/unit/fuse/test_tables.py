"""Functions of a byte as tables: which parts of an expression these are, and that they are what was computed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from opweld.fuse.tables import functions_of_bytes, table_of
from opweld.ledger import Ledger
from opweld.target import Target
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Lookup, binary, bitcast, cast, const, load, lookup, unary, walk
from opweld.tensor.interpret import interpret
from opweld.tensor.parse import parse_program
from opweld.tensor.text import print_program
from opweld.tile.text import print_kernel
from tests.unit.tile.pipeline import Compiled, compile_with, run
from tests.unit.tile.programs import rounded_between

V3, V4 = Target.of("x86-64-v3"), Target.of("x86-64-v4")
VBMI = dataclasses.replace(V4, features=(*V4.features, "avx512vbmi"))
RULE = "fuse.table"


def lookups(made: Compiled) -> int:
    tensors = [tensor for region in made.regions.regions for tensor in region.tensors]
    return sum(isinstance(node, Lookup) for tensor in tensors for node in walk(tensor.body))


def rounded(value: Expr, dtype: DType = DType.U8) -> Expr:
    return cast(unary("round", value), dtype)


def half(byte: Expr) -> Expr:
    return binary("mul", cast(byte, DType.F32), const(0.5, DType.F32))


X, Y = load("x", DType.U8, ()), load("y", DType.F32, ())


def test_the_largest_functions_of_one_byte() -> None:
    inner = rounded(half(X))
    outer = rounded(binary("mul", half(inner), half(inner)))
    mixed = rounded(binary("add", half(outer), Y))
    again = rounded(half(mixed))
    (last, first) = functions_of_bytes(again)
    assert (last.value, last.byte) == (again, mixed)
    assert (first.value, first.byte) == (outer, X)


def test_two_bytes_or_another_value_make_no_function() -> None:
    other = load("z", DType.U8, ())
    assert not functions_of_bytes(rounded(binary("add", half(X), half(other))))
    assert not functions_of_bytes(rounded(binary("add", half(X), Y)))
    assert not functions_of_bytes(half(X)), "a float is no byte"
    assert not functions_of_bytes(X)


def test_signed_bytes_are_counted_by_their_bits() -> None:
    byte = load("x", DType.I8, ())
    (item,) = functions_of_bytes(rounded(half(byte), DType.I8))
    signed = np.frombuffer(table_of(item), np.int8)
    assert (signed[3], signed[253], signed[128]) == (2, -2, -64), "of 1.5, -1.5 and -64, ties to even"


def test_a_lookup_is_a_value_like_any_other() -> None:
    table = bytes(reversed(range(256)))
    assert lookup(table, X) is lookup(table, X) and lookup(table, X) is not lookup(bytes(range(256)), X)
    assert lookup(table, const(3, DType.U8)) is const(252, DType.U8)
    assert not functions_of_bytes(bitcast(lookup(table, X), DType.U8)), "it is there already"


@pytest.mark.parametrize("target", [V3, VBMI], ids=lambda t: t.name)
@pytest.mark.parametrize(("x", "hidden", "y"), [("u8", "u8", "u8"), ("i8", "u8", "i8"), ("u8", "i8", "u8")])
def test_what_is_looked_up_is_what_was_computed(x: str, hidden: str, y: str, target: Target) -> None:
    program = parse_program(rounded_between(9, 37, x, hidden, y))
    ledger = Ledger()
    made = compile_with(program, ledger, target)
    assert lookups(made) == 1, "of erf and the square, but not of the sum with another value"
    assert [d.taken for d in ledger if d.rule == RULE] == ["looked up"]
    random = np.random.default_rng(0)
    bits = random.integers(0, 256, (9, 37)).astype(np.uint8)
    feeds = {"x": bits.view(program.inputs[0].dtype.numpy), "z": random.integers(0, 9, (9, 37)).astype(np.float32)}
    np.testing.assert_array_equal(run(made, feeds)["y"], interpret(program, feeds)["y"])


def test_it_can_stay_computed() -> None:
    program = parse_program(rounded_between(9, 37))
    made = compile_with(program, Ledger(disable=(RULE,)), V3)
    assert lookups(made) == 0
    with_table = compile_with(program, Ledger(), V3)
    assert "table_" in print_kernel(with_table.kernels[0].kernel)


def test_text_comes_back() -> None:
    table = bytes(range(255, -1, -1)).hex()
    text = f"""program looked_up
input x u8[4]
tensor y u8[i0: 4] from "Neg"
  = table_{table}(x[i0])
output y = y
"""
    program = parse_program(text)
    assert table in print_program(program)
    assert print_program(parse_program(print_program(program))) == print_program(program)
    np.testing.assert_array_equal(
        interpret(program, {"x": np.array([0, 1, 128, 255], np.uint8)})["y"], [255, 254, 127, 0]
    )
