"""Rotary embeddings of 3 heads of size 8 at 5 places, however they are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.unit.rewrite.rewritten import for_onnxruntime, kinds, model_of, normal, refusals, rewritten
from tests.unit.rewrite.written.rotary import HALVES, ROTARY, TURN, X, model


@pytest.mark.parametrize("body", ROTARY.values(), ids=ROTARY)
def test_rotary_embedding_whoever_wrote_it(body: str) -> None:
    made = rewritten(model(body), X)
    assert kinds(made) == ["RotaryEmbedding"]
    assert kinds(for_onnxruntime(model(body), X)) == ["RotaryEmbedding"]
    made = for_onnxruntime(model(body, 18), X)
    assert [(node.domain, node.op_type) for node in made.model.graph] == [("com.microsoft", "RotaryEmbedding")]


def test_heads_that_lie_beside_each_other_are_turned_there() -> None:
    body = "a = Reshape(z, apart) x = Transpose<perm = [0, 2, 1, 3]>(a) " + HALVES + TURN.replace("y =", "w =")
    body += " y = Transpose<perm = [0, 2, 1, 3]>(w)"
    for opset in (18, 23):
        made = for_onnxruntime(model(body, opset, "float[1, 5, 24] z", "1, 5, 3, 8"), {"z": normal(1, 5, 24)})
        assert kinds(made) == ["RotaryEmbedding", "Reshape"]
        assert made.model.graph[0].attributes["num_heads"].value == 3


COMPUTED = """h = Concat<axis = -1>(angles, angles) i = Cos(h) j = Sin(h)
    cos = Unsqueeze(i, one) sin = Unsqueeze(j, one) """


def test_angles_that_are_computed() -> None:
    body, inputs = COMPUTED + HALVES + TURN, "float[1, 3, 5, 8] x, float[1, 5, 4] angles"
    for opset in (18, 23):
        made = for_onnxruntime(model(body, opset, inputs), {**X, "angles": normal(1, 5, 4)})
        assert kinds(made).count("RotaryEmbedding") == 1
        assert not {"Neg", "Mul", "Add"} & set(kinds(made))


TABLES = {
    "rank 2": ("h = Concat<axis = -1>(angles, angles) cos = Cos(h) sin = Sin(h) ", "t, 4", (5, 4)),
    "rank 3": ("h = Concat<axis = -1>(angles, angles) cos = Cos(h) sin = Sin(h) ", "1, t, 4", (1, 5, 4)),
    "rank 4": ("h = Concat<axis = -1>(angles, angles) cos = Cos(h) sin = Sin(h) ", "1, 1, t, 4", (1, 1, 5, 4)),
    "a row for each row of the batch": (COMPUTED, "b, t, 4", (2, 5, 4)),
}


@pytest.mark.parametrize(("computed", "declared", "shape"), TABLES.values(), ids=TABLES)
def test_tables_of_every_rank(computed: str, declared: str, shape: tuple[int, ...]) -> None:
    """Both the batch and the length are symbolic, so that neither is taken for the other."""
    inputs = f"float[b, 3, t, 8] x, float[{declared}] angles"
    for opset in (18, 23):
        feeds = {"x": normal(2, 3, 5, 8), "angles": normal(*shape)}
        made = for_onnxruntime(model(computed + HALVES + TURN, opset, inputs, "b, 3, t, 8"), feeds)
        assert kinds(made).count("RotaryEmbedding") == (0 if opset == 18 and shape[0] == 2 else 1)


def test_every_second_cosine_is_not_the_first_half() -> None:
    """Something else reads them with a step: as many, from the same start."""
    second = "float[1, 5, 4] r"
    body = COMPUTED + "k = Slice(cos, none, large, last, two) r = Reshape(k, rows) " + HALVES + TURN
    written = model(body, 23, "float[1, 3, 5, 8] x, float[1, 5, 4] angles")
    made = for_onnxruntime(with_output(written, second), {**X, "angles": normal(1, 5, 4)})
    assert kinds(made).count("RotaryEmbedding") == 1


def with_output(written: onnx.ModelProto, declared: str) -> onnx.ModelProto:
    """A model with another of its values as an output."""
    written.graph.output.extend(onnx.parser.parse_graph(f"g () => ({declared}) {{ }}").output)
    return written


def test_angles_of_each_row_of_the_batch() -> None:
    body, inputs = COMPUTED + HALVES + TURN, "float[2, 3, 5, 8] x, float[2, 5, 4] angles"
    feeds = {"x": normal(2, 3, 5, 8), "angles": normal(2, 5, 4)}
    assert "RotaryEmbedding" in kinds(rewritten(model(body, 23, inputs, "2, 3, 5, 8"), feeds))
    made = for_onnxruntime(model(body, 18, inputs, "2, 3, 5, 8"), feeds)
    (refusal,) = refusals(made, "rewrite.rotary_embedding")
    assert refusal.reason == "the cosines differ from row to row of the batch, or from head to head"
    assert refusal.failed == {"cosines": "2x1x5x8", "x": "2x3x5x8"}


def test_angles_of_all_rows_of_the_batch() -> None:
    """ONNX's operator wants those of each row, ONNX Runtime's those of all."""
    feeds = {"x": normal(2, 3, 5, 8), "angles": normal(1, 5, 4)}
    written = [
        (HALVES + TURN, "float[n, 3, 5, 8] x", "n"),
        (COMPUTED + HALVES + TURN, "float[n, 3, 5, 8] x, float[1, 5, 4] angles", "n"),
        (COMPUTED + HALVES + TURN, "float[2, 3, 5, 8] x, float[1, 5, 4] angles", "2"),
    ]
    for body, inputs, batch in written:
        fed = {name: array for name, array in feeds.items() if name in inputs}
        for opset in (18, 23):
            made = for_onnxruntime(model(body, opset, inputs, f"{batch}, 3, 5, 8"), fed)
            assert kinds(made).count("RotaryEmbedding") == 1
            assert kinds(made).count("Expand") == (2 if opset == 23 else 0)
            assert not {"Neg", "Mul", "Add"} & set(kinds(made))


def test_two_embeddings_share_their_angles() -> None:
    second = """ k = Slice(u, none, half, last) l = Slice(u, half, large, last) m = Neg(l) o = Concat<axis = -1>(m, k)
        p = Mul(u, cos) q = Mul(o, sin) y = Add(p, q)"""
    body = COMPUTED + HALVES + TURN.replace("y =", "u =") + second
    for opset in (18, 23):
        written = model(body, opset, "float[1, 3, 5, 8] x, float[1, 5, 4] angles")
        made = for_onnxruntime(written, {**X, "angles": normal(1, 5, 4)})
        assert kinds(made).count("RotaryEmbedding") == 2
        assert kinds(made).count("Slice") == 2


NEAR = {
    "other sines": (TURN.replace("sin", "other"), 23, "the sines of the halves may differ", {"sines": "other"}),
    "an old opset": (TURN, 21, "RotaryEmbedding exists since opset 23", {"opset": 21, "needed": 23}),
    "another reader": (
        TURN.replace("y =", "w =") + " y = Add(w, t)", 23, "Concat inside of it is read elsewhere too",
        {"value": "t", "other readers": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("turn", "opset", "reason", "failed"), NEAR.values(), ids=NEAR)
def test_what_is_nearly_rotary_stays(turn: str, opset: int, reason: str, failed: dict[str, Any]) -> None:
    made = rewritten(model(HALVES + turn, opset), X)
    assert "RotaryEmbedding" not in kinds(made)
    (refusal,) = refusals(made, "rewrite.rotary_embedding")
    assert (refusal.reason, refusal.failed) == (reason, failed)


def test_other_formulas_are_left_alone() -> None:
    for body in (
        HALVES.replace("half, large", "half, whole").replace("none, half, last", "one, five, last") + TURN,
        HALVES.replace("Neg(s)", "Abs(s)") + TURN,
        HALVES + TURN.replace("Add", "Sub"),
    ):
        made = rewritten(model(body), X)
        assert "RotaryEmbedding" not in kinds(made)
        assert not refusals(made, "rewrite.rotary_embedding")


TABLE = {"c": normal(5, 4), "s": normal(5, 4, seed=1)}
APART = " p = Mul(a, {0}) q = Mul(b, {1}) u = Sub(p, q) r = Mul(b, {0}) t = Mul({1}, a) v = Add(r, t) "
CHUNKED = "a, b = Split<axis = -1, num_outputs = 2>(x)" + APART + "y = Concat<axis = -1>(u, v)"
INTERLEAVED = (
    "a = Slice(x, zero, large, last, two) b = Slice(x, one, large, last, two)"
    + APART
    + "g = Unsqueeze(u, last) h = Unsqueeze(v, last) k = Concat<axis = -1>(g, h) y = Reshape(k, whole)"
)


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize(("body", "interleaved"), [(CHUNKED, 0), (INTERLEAVED, 1)], ids=["chunked", "interleaved"])
def test_parts_that_are_turned_apart(body: str, interleaved: int, rank: int) -> None:
    """As model code has it that never makes a table of both halves; the batch and the length are symbolic."""
    rows = ", ".join(["1"] * (rank - 2) + ["t", "4"])
    text = f"g (float[b, 3, t, 8] x, float[{rows}] c, float[{rows}] s) => (float[b, 3, t, 8] y) {{ "
    numbers = {"zero": [0], "one": [1], "two": [2], "last": [-1], "large": [2**62], "whole": [0, 0, 0, 8]}
    used = {name: np.array(value) for name, value in numbers.items() if f"{name}," in body or f"{name})" in body}
    feeds = {"x": normal(2, 3, 5, 8)} | {name: array.reshape(*[1] * (rank - 2), 5, 4) for name, array in TABLE.items()}
    for opset in (18, 23):
        written = model_of(text + body.format("c", "s") + " }", used, opset)
        made = for_onnxruntime(written, feeds)
        assert not {"Mul", "Sub"} & set(kinds(made))
        turned = next(node for node in made.model.graph if node.op_type == "RotaryEmbedding")
        found = turned.attributes.get("interleaved")
        assert (0 if found is None else found.value) == interleaved


def test_parts_turned_by_angles_of_each_head_stay() -> None:
    text = "g (float[b, 3, t, 8] x, float[3, t, 4] c, float[3, t, 4] s) => (float[b, 3, t, 8] y) { "
    feeds = {"x": normal(2, 3, 5, 8), "c": normal(3, 5, 4), "s": normal(3, 5, 4, seed=1)}
    made = rewritten(model_of(text + CHUNKED.format("c", "s") + " }", None, 23), feeds)
    assert "RotaryEmbedding" not in kinds(made)
    assert "from head to head" in refusals(made, "rewrite.rotary_parts")[0].reason


def test_parts_turned_the_other_way_round_stay() -> None:
    text = "g (float[b, 3, t, 8] x, float[t, 4] c, float[t, 4] s) => (float[b, 3, t, 8] y) { "
    body = CHUNKED.replace("Sub(p, q)", "Sub(q, p)").format("c", "s")
    made = rewritten(model_of(text + body + " }", None, 23), {"x": normal(2, 3, 5, 8), **TABLE})
    assert "RotaryEmbedding" not in kinds(made)
    assert refusals(made, "rewrite.rotary_parts")[0].reason == "the operands of Sub are the other way round"
