"""What a malformed program is told, and that it names the tensor."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from opweld.errors import OpweldError
from opweld.tensor.dim import Axis, Symbol, Value
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index, load, reduce, select, unary
from opweld.tensor.program import Constant, Guard, Input, Item, Scan, State, SymbolSource, Tensor, TensorProgram
from opweld.tensor.verify import verify
from tests.unit.tensor.programs import BOOL, EXAMPLES, F32, I64, axes, f32, read, shape

I, J = axes(i=4, j=3)  # noqa: E741


def program(*items: Item, outputs: tuple[tuple[str, str], ...] = ()) -> TensorProgram:
    return TensorProgram("p", (Input("x", F32, shape(4)), Input("n", I64, shape(4))), (), items, outputs)


def of(body: Expr, *own: Axis, dtype: DType | None = None) -> TensorProgram:
    return program(Tensor("y", dtype or body.dtype, own or (I,), body, ("Node_3",)))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_well_formed(name: str) -> None:
    verify(EXAMPLES[name]().program)


K = Axis("k", 4)
INNER = reduce("sum", (K,), read("x", K))
BODIES: dict[str, tuple[TensorProgram, str]] = {
    "load before definition": (of(read("z", I)), "loads 'z', which is not defined before"),
    "load of another dtype": (of(read("n", I)), "loads 'n' as f32, but it is i64"),
    "load of another rank": (of(read("x", I, 0)), "loads 'x' of rank 1 at 2 indices"),
    "body of another dtype": (of(read("x", I), dtype=I64), "is i64, but its body is f32"),
    "free axis": (of(read("x", J), I), "depends on the axis j"),
    "axis twice": (of(read("x", I), I, I), "has an axis twice"),
    "unknown symbol": (of(index(Symbol("s").dim)), "uses the symbol s, which no input defines"),
    "unknown symbol in an extent": (of(f32(0), Axis("a", Symbol("s").dim)), "uses the symbol s"),
    "extent that depends on an axis": (of(f32(0), Axis("a", I.dim + 1)), "depends on i"),
    "reduced own axis": (of(reduce("sum", (I,), read("x", I)), I), "reduces over the axis i"),
    "nested reduction of one axis": (
        of(reduce("max", (K,), binary("add", INNER, read("x", K)))),
        "reduces over the axis k, which is bound inside or around already",
    ),
    "exp of an integer": (of(unary("exp", read("n", I, dtype=I64))), "applies exp to i64"),
    "not of a float": (of(unary("not", read("x", I))), "applies not to f32"),
    "bits of a float": (of(binary("bitand", read("x", I), f32(1))), "applies bitand to f32 and f32"),
    "sum of bools": (of(binary("add", const(True, BOOL), const(False, BOOL))), "applies add to b8"),
    "sum of codes": (of(binary("add", const(1, DType.I4), const(1, DType.I4))), "applies add to i4 and i4"),
    "exp of a code": (of(unary("exp", const(1, DType.F8E5M2))), "applies exp to f8e5m2"),
    "greatest code": (of(reduce("max", (K,), cast(read("x", K), DType.F4E2M1))), "reduces f4e2m1 by max"),
    "any of numbers": (of(reduce("any", (K,), read("x", K))), "reduces f32 by any"),
    "sum of conditions": (of(reduce("sum", (K,), binary("gt", read("x", K), f32(0)))), "reduces b8 by sum"),
    "float index": (of(load("x", F32, (Value(read("x", I), 4).dim,))), "of f32 as an index"),
    "fill of another dtype": (of(load("x", F32, (I.dim - 1,), (I.dim - 1,), const(0, I64))), "fills a load of f32"),
    "defined twice": (program(*(Tensor("y", F32, (), f32(0)),) * 2), "'y' is defined twice"),
    "output of nothing": (program(outputs=(("o", "y"),)), "output 'o' is the value 'y', which is not defined"),
    "output twice": (program(outputs=(("o", "x"), ("o", "n"))), "output 'o' is there twice, as different values"),
}


def test_a_graph_may_list_an_output_twice() -> None:
    verify(program(outputs=(("o", "x"), ("o", "x"), ("p", "x"))))


@pytest.mark.parametrize("name", BODIES)
def test_tensors(name: str) -> None:
    malformed, message = BODIES[name]
    with pytest.raises(OpweldError) as error:
        verify(malformed)
    assert message in str(error.value)
    if "'y'" not in message and not name.startswith("output"):
        assert "tensor 'y' (from Node_3)" in str(error.value)


def test_what_is_allowed() -> None:
    positive = binary("gt", read("x", I), f32(0))
    verify(of(select(positive, read("x", I), cast(read("n", I, dtype=I64), F32))))
    # two reductions may share an axis object when neither is inside the other
    verify(of(binary("add", INNER, reduce("max", (K,), read("x", K)))))


def symbols(**change: object) -> TensorProgram:
    n = Symbol("n")
    source = SymbolSource(n, "x", 0)
    return TensorProgram(
        "p",
        (Input("x", F32, (n.dim,)),),
        (),
        (),
        (),
        (dataclasses.replace(source, **change),),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": "z"}, "symbol n comes from 'z', which is not an input"),
        ({"divisor": 0}, "symbol n has the divisor 0"),
        ({"by_value": True}, "not an integer"),
        ({"position": 1}, "is at position 1 of 'x' of rank 1"),
        ({"symbol": Symbol("m")}, "input 'x' uses the symbol n, which no input defines"),
    ],
)
def test_symbol_sources(change: dict[str, object], message: str) -> None:
    with pytest.raises(OpweldError, match=message.replace("(", r"\(")):
        verify(symbols(**change))


def test_two_symbols_of_one_name() -> None:
    p = symbols()
    twin = SymbolSource(Symbol("n", None), "x", 0)
    with pytest.raises(OpweldError, match="symbol n has the name of another symbol"):
        verify(dataclasses.replace(p, symbols=(*p.symbols, twin)))


@pytest.mark.parametrize(
    ("guard", "message"),
    [
        (Guard("maybe", Symbol("n").dim, "why"), "has the kind 'maybe'"),
        (Guard("zero", Symbol("other").dim, "why"), "uses the symbol other"),
        (Guard("zero", I.dim, "why"), "depends on i"),
    ],
)
def test_guards(guard: Guard, message: str) -> None:
    with pytest.raises(OpweldError, match=message):
        verify(dataclasses.replace(symbols(), guards=(guard,)))


def scan(**change: object) -> TensorProgram:
    time = Axis("t", 4)
    state = State("h", F32, (), f32(0), "next")
    step = Tensor("next", F32, (), binary("add", read("h"), read("x", time)))
    whole = Scan(time, (state,), (step,), (("all", "next"),), (("last", "h"),), ("RNN_0",))
    return program(dataclasses.replace(whole, **change), outputs=(("o", "last"),))  # type: ignore[arg-type]


def test_a_scan_is_well_formed() -> None:
    verify(scan())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stacked": (("all", "h"),)}, "stacks 'h' as 'all', which is not one of its steps"),
        ({"final": (("last", "next"),)}, "gives 'next' as 'last', which is not one of its states"),
        ({"states": (State("h", F32, (), f32(0), "x"),)}, "updates 'h' by 'x', which is not one of its steps"),
        ({"states": (State("h", F32, axes(i=2), f32(0), "next"),)}, "loads 'h' of rank 1 at 0 indices"),
        ({"states": (State("h", I64, (), f32(0), "next"),)}, "is i64, but its initial value is f32"),
        ({"states": (State("h", F32, (), read("next"), "next"),)}, "loads 'next', which is not defined before"),
        ({"time": Axis("u", 4)}, "depends on the axis t"),
    ],
)
def test_malformed_scans(change: dict[str, object], message: str) -> None:
    with pytest.raises(OpweldError) as error:
        verify(scan(**change))
    assert message in str(error.value)


def test_what_is_inside_a_scan_is_not_visible_outside() -> None:
    inside = scan()
    with pytest.raises(OpweldError, match="'next', which is not defined"):
        verify(dataclasses.replace(inside, outputs=(("o", "next"),)))


def test_negative_constant_shapes() -> None:
    bad = dataclasses.replace(program(), constants=(Constant("c", F32, (-1,), lambda: np.zeros(0, np.float32)),))
    with pytest.raises(OpweldError, match=r"constant 'c' has the negative shape"):
        verify(bad)
