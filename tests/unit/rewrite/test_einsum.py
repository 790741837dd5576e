from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import for_onnxruntime, kinds, model_of, normal, refusals, rewritten

EIGHTH = {"k": np.array(0.35, np.float32)}


@pytest.mark.parametrize(
    ("equation", "shapes", "result"),
    [
        ("bhqk,bhkd->bhqd", ("b, 3, 5, 7", "b, 3, 7, 4"), "b, 3, 5, 4"),
        ("ij,jk->ik", ("b, 4", "4, 6"), "b, 6"),
        ("bkn,bmk->bmn", ("b, 4, 6", "b, 5, 4"), "b, 5, 6"),
    ],
)
@pytest.mark.parametrize("batch", [1, 2])
def test_a_sum_over_one_index_is_a_product(equation: str, shapes: tuple[str, str], result: str, batch: int) -> None:
    x, y = ([batch if dim == "b" else int(dim) for dim in shape.split(", ")] for shape in shapes)
    text = f"""g (float[{shapes[0]}] x, float[{shapes[1]}] y) => (float[{result}] z) {{
        z = Einsum<equation = "{equation}">(x, y) }}"""
    assert kinds(rewritten(model_of(text, None, 13), {"x": normal(*x), "y": normal(*y)})) == ["MatMul"]


@pytest.mark.parametrize("equation", ["bhqd,bhkd->bhqk", "bqd,bkd->bqk", "ij,ij->i", "ij,jk->i", "ii,ij->ij"])
def test_others_stay(equation: str) -> None:
    letters = {letter: size for size, letter in enumerate("bhqkd", 2)} | dict.fromkeys("ij", 3)
    a, rest = equation.split(",")
    b, output = rest.split("->")
    shapes = [[letters[letter] for letter in part] for part in (a, b, output)]
    x, y, z = (", ".join(map(str, shape)) for shape in shapes)
    text = f'g (float[{x}] x, float[{y}] y) => (float[{z}] z) {{ z = Einsum<equation = "{equation}">(x, y) }}'
    made = rewritten(model_of(text, None, 23), {"x": normal(*shapes[0]), "y": normal(*shapes[1])})
    assert kinds(made) == ["Einsum"]
    reasons = [refused.reason for refused in refusals(made, "rewrite.einsum")]
    assert reasons == (["it needs transpositions, and is not in an attention"] if "d" in equation else [])


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("scores", "weighted", "rows"),
    [("bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd", "b, 3, t, 8"), ("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "b, t, 3, 8")],
)
def test_attention_by_einsum(scores: str, weighted: str, rows: str, batch: int) -> None:
    text = f"""g (float[{rows}] q, float[{rows}] k, float[{rows}] v) => (float[{rows}] y) {{
        s = Einsum<equation = "{scores}">(q, k) m = Mul(s, n) w = Softmax<axis = -1>(m)
        y = Einsum<equation = "{weighted}">(w, v) }}"""
    sizes = [batch if dim == "b" else 5 if dim == "t" else int(dim) for dim in rows.split(", ")]
    feeds = {name: normal(*sizes, seed=seed) for seed, name in enumerate("qkv")}
    for opset in (20, 23):
        made = for_onnxruntime(model_of(text, {"n": EIGHTH["k"]}, opset), feeds)
        assert not {"Einsum", "Softmax", "MatMul"} & set(kinds(made)), kinds(made)
