"""Whole programs in the interpreter: against NumPy, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.errors import AssumptionError, InputError, OpweldError
from opweld.tensor.dim import Axis, Symbol
from opweld.tensor.expr import binary, index
from opweld.tensor.interpret import interpret
from opweld.tensor.program import Input, Scan, State, SymbolSource, Tensor, TensorProgram
from opweld.tensor.simplify import simplify_program
from opweld.tensor.verify import verify
from tests.unit.tensor.programs import EXAMPLES, F32, I64, axes, f32, normal, read, recurrence, shape, softmax


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("float64", [False, True])
def test_examples_are_what_numpy_says(name: str, float64: bool) -> None:
    example = EXAMPLES[name]()
    verify(example.program)
    outputs = interpret(example.program, example.feeds, float64)
    assert list(outputs) == list(example.expected)
    for public, expected in example.expected.items():
        output = outputs[public]
        assert output.shape == expected.shape
        if expected.dtype.kind == "f":
            assert output.dtype == (np.float64 if float64 else np.float32)
            scale = np.abs(expected).max()
            assert np.abs(output - expected).max() <= (1e-12 if float64 else 4e-6) * scale
        else:
            assert np.array_equal(output, expected)


@pytest.mark.parametrize("name", EXAMPLES)
def test_simplified_examples_keep_their_values(name: str) -> None:
    example = EXAMPLES[name]()
    simplified = simplify_program(example.program)
    verify(simplified)
    before, after = interpret(example.program, example.feeds, True), interpret(simplified, example.feeds, True)
    for public in example.expected:
        # constants that were folded are rounded to float32 once
        np.testing.assert_allclose(after[public], before[public], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("feeds", [{}, {"scores": normal(3, 4), "extra": normal(1)}])
def test_missing_and_unknown_feeds(feeds: dict[str, np.ndarray]) -> None:
    with pytest.raises(InputError, match=r"scores|extra"):
        interpret(softmax().program, feeds)


@pytest.mark.parametrize("array", [normal(3), normal(3, 4).astype(np.float64)])
def test_wrong_rank_and_dtype(array: np.ndarray) -> None:
    with pytest.raises(InputError, match="must be f32 of rank 2"):
        interpret(softmax().program, {"scores": array})


def test_guards_are_checked() -> None:
    program = softmax().program
    assert interpret(program, {"scores": normal(1, 512)})["probabilities"].shape == (1, 512)
    with pytest.raises(AssumptionError, match="Slice_3 clamps at 512"):
        interpret(program, {"scores": normal(1, 513)})


def test_empty_dims_fit_no_symbol() -> None:
    with pytest.raises(AssumptionError, match="at least 1"):
        interpret(softmax().program, {"scores": normal(0, 4)})


def halves() -> TensorProgram:
    n, k = Symbol("n"), Symbol("k", None)
    i = Axis("i", n.dim)
    return TensorProgram(
        "halves",
        (Input("x", F32, (2 * n.dim,)), Input("k", I64, shape(2))),
        (),
        (Tensor("y", I64, (i,), index(i.dim * k.dim)),),
        (("y", "y"),),
        (SymbolSource(n, "x", 0, divisor=2, reason="Reshape_4 splits it"), SymbolSource(k, "k", 1, by_value=True)),
    )


def test_symbols_divide_and_come_from_values() -> None:
    outputs = interpret(halves(), {"x": normal(6), "k": np.array([9, -3])})
    assert outputs["y"].tolist() == [0, -3, -6]
    with pytest.raises(AssumptionError, match=r"multiple of 2.*Reshape_4 splits it"):
        interpret(halves(), {"x": normal(5), "k": np.array([9, -3])})


def test_fixed_sizes_are_checked() -> None:
    with pytest.raises(AssumptionError, match=r"'x' must have the shape \[5, 2, 4\]"):
        interpret(recurrence().program, {"x": normal(6, 2, 4)})


def test_a_scan_of_no_steps_gives_the_initial_state() -> None:
    time = Axis("t", 0)
    step = Tensor("next", F32, axes(n=3), f32(1))
    scan = Scan(time, (State("h", F32, axes(n=3), f32(7), "next"),), (step,), (("all", "next"),), (("last", "h"),))
    program = TensorProgram("scan", (), (), (scan,), (("all", "all"), ("last", "last")))
    outputs = interpret(program, {})
    assert outputs["all"].shape == (0, 3)
    assert outputs["last"].tolist() == [7, 7, 7]


def test_two_states_are_updated_together() -> None:
    """Fibonacci: both updates see the states before the step."""
    time = Axis("t", 6)
    states = (State("a", I64, (), index(0), "b2"), State("b", I64, (), index(1), "sum"))
    total = binary("add", read("a", dtype=I64), read("b", dtype=I64))
    steps = (Tensor("b2", I64, (), read("b", dtype=I64)), Tensor("sum", I64, (), total))
    scan = Scan(time, states, steps, (("sums", "sum"),), ())
    assert interpret(TensorProgram("fibonacci", (), (), (scan,), (("s", "sums"),)), {})["s"].tolist() == [
        1, 2, 3, 5, 8, 13,
    ]  # fmt: skip


def test_outputs_that_nothing_computes() -> None:
    with pytest.raises(OpweldError, match="not computed"):
        interpret(TensorProgram("p", (), (), (), (("y", "z"),)), {})
