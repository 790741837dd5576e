from __future__ import annotations

import numpy as np

from opweld.frontend.onnx import load
from opweld.rewrite.facts import certain_facts
from tests.unit.rewrite.rewritten import Array, model_of


def shapes(text: str, weights: dict[str, Array] | None = None) -> dict[str, str]:
    facts = certain_facts(load(model_of(text, weights))).values
    return {name: "x".join(map(str, fact.shape)) for name, fact in facts.items()}


def test_sizes_that_a_node_demands_to_be_equal_are() -> None:
    """Where it has run, they were."""
    found = shapes("g (float[n, 3] x, float[3, k] w, float[m, k] b) => (float[p, k] y, float[q] z) {"
                   " made = MatMul(x, w) y = Concat<axis = 0>(made, b) flat = Reshape(made, to) z = Relu(flat) }",
                   {"to": np.array([12])})  # fmt: skip
    assert (found["y"], found["z"]) == ("m + nxk", "12")


def test_a_size_that_may_be_one_is_a_symbol_of_its_own() -> None:
    found = shapes("g (float[n, 4] x, float[m, 1] y, float[k, 4] z) => (float[p, 4] a, float[q, 4] b) {"
                   " a = Add(x, y) b = Mul(a, z) }")  # fmt: skip
    assert (found["a"], found["b"]) == ("(m with n)x4", "((m with n) with k)x4")


def test_a_known_size_is_that_of_what_is_broadcast() -> None:
    found = shapes("g (float[n, 4] x, float[7, 1] y, float[m, k] z) => (float[7, 4] a, float[7, 4] b) {"
                   " a = Add(x, y) b = Mul(a, z) }")  # fmt: skip
    assert (found["a"], found["b"]) == ("7x4", "7x4")


def test_axes_of_one_value_are_told_apart() -> None:
    text = """g (float[n, m] x, float[p, q] y) => (float[r, s] z) {
        size = Shape(y) e = Expand(x, size) es = Shape(e) turned = Gather(es, order) z = Reshape(e, turned) }"""
    found = shapes(text, {"order": np.array([1, 0])})
    assert found["e"] == "(n with p)x(m with q)"


def test_what_an_operator_does_not_demand_is_not_certain() -> None:
    """Axes of Einsum are broadcast, and the last part of a Split may be smaller."""
    inputs, outputs = (
        "float[n, 2, 3] a, float[m, 3, 4] b, float[k, 4] c",
        "float[p, 2, 4] y, float[q, 4] d, float[r, 4] e",
    )
    nodes = 'y = Einsum<equation = "...ij,...jk->...ik">(a, b) d, e = Split<axis = 0, num_outputs = 2>(c)'
    found = shapes(f"g ({inputs}) => ({outputs}) {{ {nodes} }}")
    assert not {"y", "d", "e"} & set(found)


def test_a_target_that_may_say_zero_is_not_certain() -> None:
    """0 would keep the size of the input, which is another."""
    text = """g (float[n, 4] x, float[m] y) => (float[p, 4] z) {
        s = Shape(y) less = Sub(s, one) t = Concat<axis = 0>(less, four) z = Reshape(x, t) }"""
    assert "z" not in shapes(text, {"one": np.array([1]), "four": np.array([4])})


def test_a_slice_beyond_an_axis_takes_what_is_there() -> None:
    """Of a batch of one, element 4 to the first, every other one: one, not three."""
    text = """g (float[n, 7] x, float[n, 7] z) => (float[a, b] y, float[c, d] w, float[e, f] v) {
        y = Slice(x, start, end, axes, steps) w = Slice(z, start, end, axes, steps) v = Slice(x, one, four, second) }"""
    bounds = {"start": [0, 4], "end": [-1, -(2**40)], "axes": [1, 0], "steps": [2, -2], "one": [1], "four": [4]}
    found = shapes(text, {name: np.array(numbers) for name, numbers in bounds.items()} | {"second": np.array([1])})
    assert (found["y"], found["w"]) == ("(y 0)x3", "(w 0)x3"), "each for itself, though both suppose the same"
    assert found["v"] == "nx3", "certain"
