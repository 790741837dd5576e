"""Two nodes of one operator in a row that one node says."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten


@pytest.mark.parametrize("opset", [11, 21])
@pytest.mark.parametrize(
    ("inner", "outer", "rank"), [([0], [0], 4), ([1], [0], 4), ([-1], [1, 2], 5), ([0, 3], [2], 5), ([1], [-1], 4)]
)
def test_added_axes(inner: list[int], outer: list[int], rank: int, opset: int) -> None:
    dims = ", ".join(f"d{axis}" for axis in range(rank))
    axes = {"a": np.array(inner), "b": np.array(outer)}
    if opset < 13:
        text = f"t = Unsqueeze<axes = {inner}>(x) y = Unsqueeze<axes = {outer}>(t)"
        axes = {}
    else:
        text = "t = Unsqueeze(x, a) y = Unsqueeze(t, b)"
    made = rewritten(model_of(f"g (float[n, m] x) => (float[{dims}] y) {{ {text} }}", axes, opset), {"x": normal(2, 3)})
    assert kinds(made) == ["Unsqueeze"]


def test_removed_axes() -> None:
    text = "g (float[1, n, 1, m, 1] x) => (float[n, m] y) { t = Squeeze(x, a) y = Squeeze(t, b) }"
    model = model_of(text, {"a": np.array([2]), "b": np.array([0, -1])})
    assert kinds(rewritten(model, {"x": normal(1, 2, 1, 3, 1)})) == ["Squeeze"]


def test_slices_of_different_axes() -> None:
    text = "g (float[n, 8, 9] x) => (float[n, 3, 4] y) { t = Slice(x, s, e, a) y = Slice(t, s, f, b, d) }"
    bounds = {"s": [2], "e": [5], "a": [1], "f": [-1], "b": [-1], "d": [2]}
    stored = {name: np.array(numbers) for name, numbers in bounds.items()}
    text = text.replace("float[n, 3, 4]", "float[n, 3, k]")
    assert kinds(rewritten(model_of(text, stored), {"x": normal(2, 8, 9)})) == ["Slice"]
    made = rewritten(model_of(text.replace("float[n, 3, k]", "float[n, p, k]"), stored | {"b": np.array([1])}))
    assert refusals(made, "rewrite.slices")[0].reason == "both cut the same axis"


def test_parts_of_parts() -> None:
    text = """g (float[n, 2] x, float[n, 3] z) => (float[n, 7] y) {
        t = Concat<axis = 1>(x, z) y = Concat<axis = -1>(x, t) }"""
    made = rewritten(model_of(text), {"x": normal(4, 2), "z": normal(4, 3)})
    assert kinds(made) == ["Concat"] and [value.name for value in made.model.graph[0].inputs if value] == [
        "x",
        "x",
        "z",
    ]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("t = MatMul(x, v) y = MatMul(t, w)", (5, 8)),
        ("t = Gemm(x, v, b) y = Gemm<transB = 1>(t, u, c)", (5, 8)),
        ("t = Conv(x, p, b) y = Conv(t, q, c)", (2, 8, 3, 4)),
        ("t = Conv(x, p) y = Conv(t, q)", (2, 8, 3, 4)),
    ],
)
def test_products_in_a_row(text: str, shape: tuple[int, ...]) -> None:
    weights = {"v": normal(8, 6), "w": normal(6, 4), "u": normal(4, 6), "b": normal(6), "c": normal(4)}
    weights |= {"p": normal(6, 8, 1, 1), "q": normal(4, 6, 1, 1)}
    dims = ", ".join(map(str, shape))
    result = ", ".join(str(4 if size == 8 else size) for size in shape)
    used = {name: array for name, array in weights.items() if f"{name})" in text or f"{name}," in text}
    made = rewritten(model_of(f"g (float[{dims}] x) => (float[{result}] y) {{ {text} }}", used), {"x": normal(*shape)})
    assert len(kinds(made)) == 1


def test_a_product_of_what_is_transposed_stays() -> None:
    text = "g (float[8, 5] x) => (float[5, 4] y) { t = Gemm<transA = 1>(x, v) y = Gemm(t, w) }"
    made = rewritten(model_of(text, {"v": normal(8, 6), "w": normal(6, 4)}), {"x": normal(8, 5)})
    assert kinds(made) == ["Gemm", "Gemm"]


def test_a_bottleneck_stays() -> None:
    text = "g (float[n, 8] x) => (float[n, 9] y) { t = MatMul(x, v) y = MatMul(t, w) }"
    made = rewritten(model_of(text, {"v": normal(8, 2), "w": normal(2, 9)}), {"x": normal(3, 8)})
    (refused,) = refusals(made, "rewrite.consecutive")
    assert refused.reason == "one product would cost more than two" and refused.failed == {"products": 72, "now": 34}
