"""Programs printed and parsed back, and what a malformed text is told."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from opweld.errors import OpweldError
from opweld.tensor.dim import Axis, Symbol, as_dim, floordiv, maximum, minimum, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, bitcast, cast, const, index, select, unary
from opweld.tensor.interpret import interpret
from opweld.tensor.program import Guard, Input, SymbolSource, Tensor, TensorProgram
from opweld.tensor.text import parse_program, print_program
from opweld.tensor.verify import verify
from tests.unit.tensor.programs import EXAMPLES, F32, I64, axes, f32, read, shape


def returned(program: TensorProgram) -> TensorProgram:
    text = print_program(program)
    parsed = parse_program(text, {constant.name: constant.read() for constant in program.constants})
    assert print_program(parsed) == text
    return parsed


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_come_back(name: str) -> None:
    example = EXAMPLES[name]()
    parsed = returned(example.program)
    verify(parsed)
    assert parsed.symbols == example.program.symbols
    before, after = interpret(example.program, example.feeds), interpret(parsed, example.feeds)
    for public, array in before.items():
        assert np.array_equal(after[public], array)


def body_text(body: Expr, *own: Axis) -> str:
    p = TensorProgram("p", (Input("x", F32, shape(4)),), (), (Tensor("y", body.dtype, own, body),), (("y", "y"),))
    returned(p)
    text = print_program(p)
    return text[text.index("tensor y") :].split("\n\n")[0]


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.is_storage_only])
def test_codes_come_back(dtype: DType) -> None:
    (i,) = axes(i=4)
    x = cast(read("x", i), dtype)
    body = select(binary("lt", read("x", i), f32(0)), const(1, dtype), x)
    parsed = returned(TensorProgram("p", (Input("x", F32, shape(4)),), (), (Tensor("y", dtype, (i,), body),), ()))
    assert isinstance(parsed.items[0], Tensor)
    assert parsed.items[0].dtype is dtype
    assert body_text(bitcast(read("x", i), DType.U32), i).endswith("= bits_u32(x[i0])")


def test_bits_of_another_size() -> None:
    with pytest.raises(OpweldError, match="expected an operator with operands of its types"):
        parse_program("program p\ninput x f32[4]\ntensor y u16[i0: 4]\n  = bits_u16(x[i0])")


def test_shared_expressions_are_named() -> None:
    (i,) = axes(row=4)
    x = unary("exp", read("x", i))
    assert body_text(binary("mul", x, binary("add", x, f32(0.5))), i) == (
        "tensor y f32[i0: 4]\n  %0 = exp(x[i0])\n  = mul(%0, add(%0, 0.5))"
    )


def test_literals() -> None:
    for value in (0.0, -0.0, 1e-45, float("inf"), float("-inf"), float("nan"), 3.4e38, 0.1, -2.0):
        p = TensorProgram("p", (), (), (Tensor("y", F32, (), f32(value)),), (("y", "y"),))
        parsed = returned(p)
        assert isinstance(parsed.items[0], Tensor)
        assert parsed.items[0].body is f32(value)
    (i,) = axes(i=4)
    compared = binary("lt", index(i.dim), const(-3, I64))
    assert body_text(compared, i).endswith("= lt(index(i0), -3:i64)")


def test_polynomials() -> None:
    n, m = Symbol("n"), Symbol("min", None)
    i = Axis("i", 6 * n.dim)
    quotient = floordiv(i.dim + 1, 2 * n.dim + 1)
    dim = 2 * n.dim * m.dim * i.dim - 3 * quotient + mod(i.dim, 4) - minimum(n.dim, m.dim) + maximum(i.dim, 7 - m.dim)
    p = TensorProgram(
        "p",
        (Input("x", F32, (n.dim, m.dim)),),
        (),
        (Tensor("y", I64, (i,), index(dim)),),
        (("y", "y"),),
        (SymbolSource(n, "x", 0), SymbolSource(m, "x", 1)),
    )
    parsed = returned(p)
    feeds = {"x": np.zeros((3, 5), np.float32)}
    assert np.array_equal(interpret(parsed, feeds)["y"], interpret(p, feeds)["y"])
    assert '"min"' in print_program(p)


HOSTILE = [
    "a b", 'quo"te', "new\nline", "*/ comment", "# hash", "", "%0", "i0", "exp", "ünïcode", "x" * 3000,
    "\\", "\x00",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_comes_back(name: str) -> None:
    symbol = Symbol(name)
    i = Axis("i", symbol.dim)
    p = TensorProgram(
        name,
        (Input(name, F32, (symbol.dim,)),),
        (),
        (Tensor(name + "'", F32, (i,), unary("exp", read(name, i)), (name,)),),
        ((name, name + "'"),),
        (SymbolSource(symbol, name, 0, reason=name),),
    )
    assert dataclasses.replace(returned(p), items=()).__dict__ == dataclasses.replace(p, items=()).__dict__


def test_deep_and_long_bodies() -> None:
    (i,) = axes(i=4)
    x = read("x", i)
    for _ in range(3000):
        x = unary("tanh", x)
    text = body_text(x, i)
    assert max(map(len, text.splitlines())) < 130


@pytest.mark.parametrize("kind", ["zero", "nonzero", "least"])
def test_guards_come_back(kind: str) -> None:
    n = Symbol("n")
    p = TensorProgram(
        "p", (Input("x", F32, (n.dim,)),), (), (), (), (SymbolSource(n, "x", 0),), (Guard(kind, n.dim - 2, "why"),)
    )
    (guard,) = returned(p).guards
    assert (guard.kind, str(guard.dim), guard.reason) == (kind, str(n.dim - 2), "why")


HEAD = "program p input x f32[4] "
BAD = {
    "not a program": ("tensor y f32[] = 1.0", "line 1: expected 'program', found 'tensor'"),
    "unknown statement": ("program p\nnonsense", "line 2: expected symbol, guard, input"),
    "unknown type": ("program p input x f33[4]", "expected an element type, found 'f33'"),
    "unknown value": (HEAD + "tensor y f32[i0: 4] = z[i0]", "expected the name of a value defined before"),
    "unknown operator": (HEAD + "tensor y f32[i0: 4] = foo(x[i0])", "expected an operator with operands of its types"),
    "operand count": (HEAD + "tensor y f32[i0: 4] = exp(x[i0], x[i0])", "expected an operator"),
    "operand types": (HEAD + "tensor y f32[i0: 4] = add(x[i0], 1:i64)", "expected an operator"),
    "unknown axis": (HEAD + "tensor y f32[i0: 4] = x[i1]", "expected a size or an index that is known here"),
    "unknown size": (HEAD + "tensor y f32[i0: n] = x[i0]", "expected a size or an index that is known here"),
    "unreduced axis": (HEAD + "tensor y f32[i0: 4] = sum<r0>(x[i0])", "expected an axis of this tensor"),
    "cut short": (HEAD + "tensor y f32[i0: 4] = exp(x[i0]", "expected ',', found 'the end'"),
    "wrong sign": (HEAD + "tensor y f32[i0: 4] = x[i0] $", "found '$'"),
    "open text": ('program "p', "found"),
    "bad escape": (r'program "\q"', "expected a quoted text"),
    "float size": ("program p input x f32[1.5]", "expected an integer, found '1.5'"),
    "nested too deeply": (HEAD + "tensor y f32[] = " + "exp(" * 100_000, "nested too deeply"),
    "division by zero": ("program p input x f32[(3 // 0)]", "expected a divisor above zero"),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_texts(name: str) -> None:
    text, message = BAD[name]
    with pytest.raises(OpweldError) as error:
        parse_program(text)
    assert message in str(error.value)


def test_constants_without_data_fail_when_they_are_read() -> None:
    (constant,) = parse_program("program p constant w f32[2, 3]").constants
    assert constant.shape == (2, 3)
    with pytest.raises(OpweldError, match="'w' was parsed from text without its data"):
        constant.read()


def test_comments_are_skipped() -> None:
    text = "program p # a comment\ninput x f32[(8 // 2)] # another"
    assert parse_program(text).inputs == (Input("x", F32, (as_dim(4),)),)
