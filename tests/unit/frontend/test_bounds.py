"""Sizes and indices that explode: what needs them is computed at run time or refused, and soon."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.frontend.explore import variants
from opweld.frontend.graph import graph_of
from opweld.frontend.onnx import load
from opweld.lower import to_tensors
from opweld.tensor.bounds import nonnegative
from opweld.tensor.dim import Dim, Symbol, TooLargeError, floordiv, product
from opweld.tensor.intern import compilation
from opweld.tensor.polynomial import MAX_DEGREE, MAX_TERMS
from opweld.tensor.program import TensorProgram
from tests.unit.frontend.models import model_of, node
from tests.unit.ops.one_node import flow_of


def lowered(model: Any) -> TensorProgram:
    (variant,) = variants(graph_of(load(model)))
    return to_tensors(variant)


def squares(count: int) -> list[Any]:
    """The sum of all dims of x, squared again and again."""
    nodes = [node("Shape", ["x"], "dims"), node("ReduceSum", ["dims"], "s0", keepdims=1)]
    return [*nodes, *(node("Mul", [f"s{i}", f"s{i}"], f"s{i + 1}") for i in range(count))]


def test_a_size_has_no_more_terms_and_factors_than_its_bounds() -> None:
    total = Symbol("a").dim + Symbol("b").dim + Symbol("c").dim + Symbol("d").dim
    with pytest.raises(TooLargeError, match="terms"):
        product([total] * 40)
    with pytest.raises(TooLargeError, match=f"degree {MAX_DEGREE + 1}"):
        product([Symbol("a").dim] * (MAX_DEGREE + 1))
    assert len((total * total * total).terms) < MAX_TERMS


def test_divisions_are_not_nested_without_end() -> None:
    with pytest.raises(TooLargeError, match="nested"), compilation():
        dim: Dim = Symbol("n").dim
        for i in range(40):
            dim = floordiv(dim * dim + i + 1, Symbol(f"m{i}").dim + dim)


def test_a_claim_beyond_the_bounds_is_not_proved() -> None:
    total = Symbol("n").dim + 1
    for i in range(6):
        total = total * (Symbol(f"m{i}").dim - 1)
    assert not nonnegative(-total)


def test_numbers_that_explode_are_data() -> None:
    nodes = [*squares(8), node("Cast", ["s8"], "f", to=1), node("Mul", ["x", "f"], "y")]
    program = lowered(model_of(nodes, {"x": ["a", "b", "c", "d"]}, ["y"]))
    assert program.outputs


def test_a_size_that_explodes_is_looked_at_when_it_is_computed() -> None:
    nodes = [*squares(8), node("Expand", ["one", "s8"], "y")]
    flow = flow_of(model_of(nodes, {"x": ["a", "b", "c", "d"]}, ["y"], {"one": np.ones(1, np.float32)}))
    assert len(flow.segments) > 1
