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


def test_what_is_out_of_range_stays_so() -> None:
    """Infinity and what float8 has no number for are NaN where they are not to be the greatest number."""
    text = """g (float16[n] x) => (float[n] y) {
        a = Cast<to = 1>(x) b = Cast<to = 17, saturate = 0>(a) y = Cast<to = 1>(b) }"""
    made = rewritten(model_of(text))
    assert kinds(made) == ["Cast", "Cast"]
    assert made.model.graph[0].attributes["saturate"].value == 0


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


def test_matrices_that_are_transposed_as_a_batch() -> None:
    weights = {"flat": np.array([-1, 4, 5]), "wide": np.array([2, 3, 5, 4]), "other": np.array([3, 2, 5, 4])}
    text = """g (float[2, 3, 4, 5] x) => (float[{0}, 5, 4] y) {{
        a = Reshape(x, flat) b = Transpose<perm = [0, 2, 1]>(a) c = Reshape(b, {1}) y = Neg(c) }}"""
    made = rewritten(model_of(text.format("2, 3", "wide"), weights), {"x": normal(2, 3, 4, 5)})
    assert kinds(made) == ["Transpose", "Neg"]
    assert list(made.model.graph[0].attributes["perm"].value) == [0, 1, 3, 2]
    made = rewritten(model_of(text.format("3, 2", "other"), weights), {"x": normal(2, 3, 4, 5)})
    assert kinds(made) == ["Reshape", "Transpose", "Reshape", "Neg"]


def test_a_target_says_the_shape_of_what_is_not_certain() -> None:
    """Whether the pooled sizes are 1 nobody knows: the new shape is [n, 4] wherever the model runs at all."""
    text = """g (float[n, 4, h, w] x) => (float[p, q] y) {
        s = Shape(x) first = Gather(s, zero) only = Unsqueeze(first, axes) shape = Concat<axis = 0>(only, four)
        pooled = AveragePool<kernel_shape = [3, 3], strides = [3, 3]>(x) y = Reshape(pooled, shape) }"""
    stored = {"zero": np.int64(0), "axes": np.array([0]), "four": np.array([4])}
    arrays = {name: np.asarray(array) for name, array in stored.items()}
    made = rewritten(model_of(text, arrays), {"x": normal(2, 4, 3, 3)})
    assert kinds(made) == ["AveragePool", "Reshape"]
    text = text.replace("Gather(s, zero)", "Gather(s, two)")
    made = rewritten(model_of(text, arrays | {"two": np.asarray(np.int64(2))}))
    assert "-1 would hide" in refusals(made, "rewrite.target")[0].reason


def test_types_are_known_where_shapes_are_not() -> None:
    """The size of a selection is not known; that it is of float32, and that a comparison is of truth values, is."""
    text = """g (float[n] x, bool[n] take) => (float[p] y, bool[q] z, float16[r] h) {
        some = Compress<axis = 0>(x, take) same = Cast<to = 1>(some) y = Relu(same)
        few = Less(some, zero) truth = Cast<to = 9>(few) z = Not(truth)
        wide = Cast<to = 11>(some) half = Cast<to = 10>(wide) h = Neg(half) }"""
    made = rewritten(
        model_of(text, {"zero": np.zeros((), "float32")}),
        {"x": normal(5), "take": np.array([True, False, True, True, False])},
    )
    assert kinds(made) == ["Compress", "Relu", "Less", "Not", "Cast", "Neg"]


def test_a_reshape_that_may_fail_stays() -> None:
    """Of 2 by 5 there are no threes, though all of it has a size."""
    text = "g (float[n, 5] x) => (float[p] y) { t = Reshape(x, threes) y = Reshape(t, all) }"
    made = rewritten(model_of(text, {"threes": np.array([-1, 3]), "all": np.array([-1])}), {"x": normal(3, 5)})
    assert kinds(made) == ["Reshape", "Reshape"]
    assert refusals(made, "rewrite.reshapes")[0].reason == "the first may fail, which -1 would hide"


def test_casts_that_name_their_type() -> None:
    text = """g (float[n] x) => (float[n] y) { a = Cast<to = "DOUBLE">(x) b = Cast<to = "FLOAT">(a) y = Neg(b) }"""
    assert kinds(rewritten(model_of(text, opset=5))) == ["Neg"]
