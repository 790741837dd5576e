"""Random expressions: simplification keeps their values, text brings them back, and both are as fast as the DAG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from opweld.tensor.dim import Axis, Value, floordiv, mod
from opweld.tensor.dtype import DType
from opweld.tensor.evaluate import evaluate_tensor
from opweld.tensor.expr import (
    Expr,
    at_least_zero,
    binary,
    cast,
    const,
    index,
    load,
    reduce,
    select,
    substitute,
    unary,
)
from opweld.tensor.program import Input, Tensor, TensorProgram
from opweld.tensor.simplify import simplify, simplify_program
from opweld.tensor.text import parse_program, print_program
from opweld.tensor.verify import verify
from tests.counted import calls
from tests.unit.tensor.programs import shape

F64, I64, BOOL = DType.F64, DType.I64, DType.BOOL
I, J = Axis("i", 4), Axis("j", 3)  # noqa: E741
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, 4.0, 6.0, np.inf, -np.inf, np.nan]

ENV: dict[str, np.ndarray[Any, Any]] = {
    "x": np.array([[0.0, -0.0, np.inf], [-np.inf, np.nan, 1.0], [-2.5, 3.0, 0.5], [7.0, -1.0, 1e300]]),
    "y": np.array([-0.0, np.nan, -np.inf]),
    "n": np.array([0, -1, 3, 2]),
}


INDICES = [I.dim, mod(I.dim + J.dim, 4), floordiv(3 * I.dim + J.dim, 3), mod(2 * J.dim, 4), I.dim - I.dim]
UNARIES = ["neg", "abs", "floor", "ceil", "round", "sign", "sqrt", "reciprocal", "rsqrt", "exp", "sigmoid"]
ZERO = const(0.0, F64)
"""Added to minima and maxima, which may be either zero: the sum is 0.0."""
BINARIES = ["add", "sub", "mul", "div", "min", "max"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


class Grower:
    """Draws expressions of a dtype and a depth."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def one_of(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def floats(self, depth: int) -> Expr:
        if depth == 0:
            return self.float_leaf()
        x = self.floats(depth - 1)
        kind = self.draw(st.integers(0, 8))
        if kind <= 1:
            return unary(self.one_of(UNARIES), x)
        if kind <= 4:
            operands = [x, self.floats(self.draw(st.integers(0, depth - 1)))]
            made = binary(op := self.one_of(BINARIES), *self.draw(st.permutations(operands)))
            return binary("add", made, ZERO) if op in ("min", "max") else made
        if kind == 5:
            return select(self.bools(depth - 1), x, self.floats(self.draw(st.integers(0, depth - 1))))
        if kind == 6:
            return binary("pow", x, const(self.one_of([0.0, 1.0, 2.0, -1.0, 0.5, -0.5]), F64))
        if kind == 7:
            k = Axis("k", 3)
            return binary("add", reduce(self.one_of(["max", "min"]), (k,), substitute(x, {J: k.dim})), ZERO)
        inner = self.integers(depth - 1) if self.draw(st.booleans()) else self.bools(depth - 1)
        return cast(cast(inner, self.one_of([DType.I32, I64, F64])), F64)

    def float_leaf(self) -> Expr:
        kind = self.draw(st.integers(0, 5))
        if kind <= 1:
            return const(self.one_of(SPECIAL), F64)
        dim = self.one_of(INDICES)
        if kind == 2:
            return load("y", F64, (J.dim,))
        if kind == 3:
            return load("x", F64, (Value(binary("mod", load("n", I64, (dim,)), const(4, I64)), 4).dim, J.dim))
        if kind == 4:
            return load("x", F64, (dim - 1, J.dim), (dim - 1,), const(self.one_of([-0.0, 5.0]), F64))
        return load("x", F64, (dim, J.dim))

    def integers(self, depth: int) -> Expr:
        if depth > 0 and self.draw(st.booleans()):
            op = self.one_of(["add", "sub", "mul", "min", "max", "bitand"])
            return binary(op, self.integers(depth - 1), self.integers(depth - 1))
        kind = self.draw(st.integers(0, 2))
        if kind == 0:
            return const(self.draw(st.integers(-4, 4)), I64)
        dim = self.one_of(INDICES)
        return index(dim) if kind == 1 else load("n", I64, (dim,))

    def bools(self, depth: int) -> Expr:
        kind = self.draw(st.integers(0, 5))
        if kind == 0:
            return at_least_zero(self.one_of(INDICES) - 2)
        if kind == 1 or depth == 0:
            return const(self.draw(st.booleans()), BOOL)
        if kind == 2:
            return unary("not", self.bools(depth - 1))
        if kind == 3:
            return binary(self.one_of(["and", "or", "xor"]), self.bools(depth - 1), self.bools(depth - 1))
        grow = self.floats if kind == 4 else self.integers
        return binary(self.one_of(COMPARISONS), grow(depth - 1), grow(depth - 1))


@st.composite
def float_expressions(draw: st.DrawFn) -> Expr:
    return Grower(draw).floats(draw(st.integers(1, 5)))


FLOATS = float_expressions()


def values(body: Expr) -> np.ndarray[Any, Any]:
    return evaluate_tensor(Tensor("z", body.dtype, (I, J), body), ENV)


def same_up_to_zero_sign_and_last_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.all((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= 4e-15 * np.abs(a))))


@given(FLOATS)
@settings(max_examples=800)
def test_simplification_keeps_every_value(body: Expr) -> None:
    assert same_up_to_zero_sign_and_last_bits(values(body), values(simplify(body))), simplify(body)


@given(FLOATS)
@settings(max_examples=200)
def test_simplification_is_idempotent(body: Expr) -> None:
    once = simplify(body)
    assert simplify(once) is once


def program(body: Expr) -> TensorProgram:
    inputs = (Input("x", F64, shape(4, 3)), Input("y", F64, shape(3)), Input("n", I64, shape(4)))
    return TensorProgram("p", inputs, (), (Tensor("z", body.dtype, (I, J), body),), (("z", "z"),))


@given(FLOATS)
@settings(max_examples=300)
def test_text_brings_programs_back(body: Expr) -> None:
    before = program(body)
    verify(before)
    text = print_program(before)
    after = parse_program(text)
    verify(after)
    assert print_program(after) == text
    item = after.items[0]
    assert isinstance(item, Tensor)
    assert np.array_equal(evaluate_tensor(item, ENV), values(body), equal_nan=True)


@given(FLOATS)
@settings(max_examples=100)
def test_simplified_programs_verify_and_stay(body: Expr) -> None:
    once = simplify_program(program(body))
    verify(once)
    assert simplify_program(once) is once


def test_sixty_nested_products_take_little_work() -> None:
    """Each is read twice by the next: whoever visits them once for each reader makes 2 ** 60 calls."""

    def work() -> None:
        body = load("x", F64, (I.dim, J.dim))
        for _ in range(60):
            body = binary("mul", body, binary("add", body, const(0.0, F64)))
        once = simplify_program(program(body))
        parse_program(print_program(once))
        values(body)

    calls(work, 1_000_000)
