from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten


def test_transpositions() -> None:
    text = """g (float[2, 3, 4] x) => (float[4, 3, 2] y, float[2, 3, 4] z) {
        a = Transpose<perm = [1, 0, 2]>(x) b = Transpose<perm = [2, 0, 1]>(a) y = Neg(b)
        c = Transpose(x) d = Transpose(c) z = Neg(d) }"""
    made = rewritten(model_of(text), {"x": normal(2, 3, 4)})
    assert kinds(made) == ["Transpose", "Neg", "Neg"]
    assert made.model.graph[0].attributes["perm"].value in ((2, 1, 0), [2, 1, 0])


def test_reshapes() -> None:
    weights = {"flat": np.array([-1, 12]), "other": np.array([-1, 2, 6]), "axes": np.array([0])}
    text = """g (float[n, 3, 4] x) => (float[n, 2, 6] y, float[n, 3, 4] z) {
        a = Reshape(x, flat) y = Reshape(a, other) b = Unsqueeze(x, axes) c = Squeeze(b, axes) z = Neg(c) }"""
    made = rewritten(model_of(text, weights), {"x": normal(5, 3, 4)})
    assert sorted(kinds(made)) == ["Neg", "Reshape"]


def test_a_reshape_of_several_unknown_sizes_stays() -> None:
    text = """g (float[n, m, 4] x) => (float[a, b, c, d] y) {
        f = Flatten<axis = 2>(x) s = Shape(x) t = Concat<axis = 0>(s, one) y = Reshape(f, t) }"""
    made = rewritten(model_of(text, {"one": np.array([1])}), {"x": normal(2, 3, 4)})
    assert "Flatten" in kinds(made)
    assert refusals(made, "rewrite.reshapes")[0].reason == "more than one size is not known"


@pytest.mark.parametrize(("between", "left"), [("double", ["Neg"]), ("float16", ["Cast", "Cast", "Neg"])])
def test_casts_that_lose_nothing(between: str, left: list[str]) -> None:
    code = {"double": 11, "float16": 10}[between]
    text = f"g (float[n] x) => (float[n] y) {{ a = Cast<to = {code}>(x) b = Cast<to = 1>(a) y = Neg(b) }}"
    made = rewritten(model_of(text), {"x": normal(9)} if between == "double" else None)
    assert kinds(made) == left
    if between == "float16":
        assert refusals(made, "rewrite.casts")[0].reason == "the type between cannot hold all numbers"


def test_parts_that_are_joined_as_they_were_split() -> None:
    text = """g (float[4, 6] x) => (float[4, 6] y, float[4, 6] z) {
        a, b, c = Split<axis = 1, num_outputs = 3>(x) d = Concat<axis = -1>(a, b, c) y = Neg(d)
        e = Concat<axis = 1>(b, a, c) z = Neg(e) }"""
    made = rewritten(model_of(text), {"x": normal(4, 6)})
    assert sorted(kinds(made)) == ["Concat", "Neg", "Neg", "Split"]


def test_a_slice_of_one_part() -> None:
    weights = {"two": np.array([2]), "five": np.array([5]), "axis": np.array([1]), "one": np.array([1])}
    text = """g (float[n, 2] x, float[n, 3] y) => (float[n, 3] z, float[n, 4] w) {
        a = Concat<axis = 1>(x, y) b = Slice(a, two, five, axis) z = Neg(b)
        c = Slice(a, one, five, axis) w = Neg(c) }"""
    made = rewritten(model_of(text, weights), {"x": normal(4, 2), "y": normal(4, 3)})
    assert sorted(kinds(made)) == ["Concat", "Neg", "Neg", "Slice"]
    assert refusals(made, "rewrite.concat_slice")[0].failed == {"from": 1, "to": 5}


def test_targets_of_reshapes() -> None:
    text = """g (float[n, m, 6] x) => (float[n, m, 2, 3] y, float[k, 6] z, float[a, b] w) {
        s = Shape(x) n0 = Gather(s, zero) m0 = Gather(s, one) t = Concat<axis = 0>(n0, m0, two, three) y = Reshape(x, t)
        p = Mul(n0, m0) u = Concat<axis = 0>(p, six) z = Reshape(x, u)
        q = Mul(n0, three) v = Concat<axis = 0>(m0, q, two) h = Reshape(x, v)
        r = Concat<axis = 0>(q, minus) w = Reshape(h, r)
    }"""
    numbers = {"zero": 0, "one": 1, "two": 2, "three": 3, "six": 6, "minus": -1}
    made = rewritten(model_of(text, {k: np.array([v]) for k, v in numbers.items()}), {"x": normal(2, 5, 6)})
    targets: dict[str | None, list[int]] = {}
    for node in made.model.graph:
        stored = node.inputs[1].const_value if node.op_type == "Reshape" and node.inputs[1] is not None else None
        targets[node.outputs[0].name] = [] if stored is None else stored.numpy().tolist()
    assert (targets["y"], targets["z"]) == ([0, 0, 2, 3], [-1, 6])
    assert refusals(made, "rewrite.target")[0].reason == "more than one size is not known"


def test_a_wrong_declaration_does_not_stand() -> None:
    text = """g (float[n, 6] x) => (float[a, b] y) {
        s = Shape(x) t = Concat<axis = 0>(s, one) y = Reshape(x, t) }"""
    made = rewritten(model_of(text, {"one": np.array([1])}))
    (output,) = made.model.graph.outputs
    assert list(output.shape or ()) == [None, 6, 1]
