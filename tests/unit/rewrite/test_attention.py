"""Attention of 2 rows, 3 heads of size 4, 5 queries and 7 keys, however it is written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.rewrite.rewritten import for_onnxruntime, kinds, normal, refusals, rewritten
from tests.unit.rewrite.written.attention import ATTENTION, FEEDS, GROUPED, ONE_HEAD, OUT, ROWS, fed, model

MASKED = ROWS + "t = Transpose<perm = [0, 2, 3, 1]>(b) m = MatMul(q, t) s = Mul(m, scale) {} w = MatMul(p, v)" + OUT
MASKS = {
    "added": ("u = Add(s, mask) p = Softmax(u)", "float[2, 1, 5, 7] mask"),
    "added to all queries": ("u = Add(mask, s) p = Softmax(u)", "float[2, 1, 1, 7] mask"),
    "of queries and keys": ("u = Add(mask, s) p = Softmax(u)", "float[5, 7] mask"),
    "of heads too": ("u = Add(mask, s) p = Softmax(u)", "float[3, 5, 7] mask"),
    "two": ("u = Add(mask, s) n = Neg(mask) l = Add(u, n) p = Softmax(l)", "float[2, 1, 1, 7] mask"),
    "two of few axes": ("u = Add(s, mask) n = Neg(mask) l = Add(u, n) p = Softmax(l)", "float[5, 7] mask"),
    "filled": ("u = Where(mask, s, infinite) p = Softmax(u)", "bool[2, 1, 5, 7] mask"),
    "filled elsewhere": ("u = Where(mask, lowest, s) p = Softmax(u)", "bool[2, 1, 1, 7] mask"),
    "filled and scaled": ("u = Where(mask, m, lowest) n = Div(u, two) p = Softmax(n)", "bool[2, 1, 5, 7] mask"),
    "added and scaled": ("u = Add(s, mask) n = Mul(u, two) p = Softmax(n)", "float[2, 1, 5, 7] mask"),
    "guarded": ("n = Where(mask, zero, lowest) u = Add(s, n) l = Softmax(u) i = IsNaN(l) p = Where(i, zero, l)",
                "bool[5, 7] mask"),
}  # fmt: skip


OF_ANY_SIZE = [who for who, body in ATTENTION.items() if not any(name in body for name in ("single", "packed", "wide"))]
"""Those that say no size but that of the heads."""


@pytest.mark.parametrize("who", OF_ANY_SIZE)
def test_attention_of_any_size(who: str) -> None:
    """The batch and both lengths are symbolic, and run at two sizes each."""
    sizes = "b, q, 12|b, k, 12"
    assert kinds(rewritten(model(ATTENTION[who], sizes=sizes), FEEDS)) == ["Attention"]
    assert kinds(for_onnxruntime(model(ATTENTION[who], 18, sizes=sizes), FEEDS)) == ["MultiHeadAttention"]


@pytest.mark.parametrize("body", ATTENTION.values(), ids=ATTENTION)
def test_attention_whoever_wrote_it(body: str) -> None:
    made = rewritten(model(body), FEEDS)
    assert kinds(made) == ["Attention"]
    node = made.model.graph[0]
    assert (node.attributes["q_num_heads"].value, node.attributes["kv_num_heads"].value) == (3, 3)
    assert node.attributes["scale"].value == pytest.approx(1.0 if "Softmax(m)" in body else 0.5)
    made = for_onnxruntime(model(body, 18), FEEDS)
    assert kinds(made) == ["MultiHeadAttention"]
    assert made.model.graph[0].attributes["num_heads"].value == 3


@pytest.mark.parametrize("body", ATTENTION.values(), ids=ATTENTION)
def test_attention_of_sizes_that_are_fed(body: str) -> None:
    if "single" in body:
        return  # that form needs the sizes
    for made in (
        rewritten(model(body, 23, sizes="n, l, 12|n, t, 12"), FEEDS),
        for_onnxruntime(model(body, 18, sizes="n, l, 12|n, t, 12"), FEEDS),
    ):
        assert [kind for kind in kinds(made) if kind != "Softmax"] in (["Attention"], ["MultiHeadAttention"])


@pytest.mark.parametrize(("body", "mask"), MASKS.values(), ids=MASKS)
def test_masks(body: str, mask: str) -> None:
    feeds = fed(mask)
    made = rewritten(model(MASKED.format(body), 23, mask), feeds)
    assert kinds(made)[-1] == "Attention"
    assert not {"Softmax", "MatMul", "IsNaN", "Transpose"} & set(kinds(made))
    assert kinds(for_onnxruntime(model(MASKED.format(body), 23, mask), feeds)) == kinds(made)
    made = for_onnxruntime(model(MASKED.format(body), 18, mask), feeds)
    assert kinds(made)[-1] == "MultiHeadAttention"
    assert not {"Softmax", "MatMul", "IsNaN", "Transpose"} & set(kinds(made))


def test_a_mask_is_expanded_to_queries_whose_number_is_fed() -> None:
    written = model(MASKED.format(MASKS["added"][0]), 18, "float[n, 1, 1, t] mask", "n, l, 12|n, t, 12")
    made = for_onnxruntime(written, fed("float[2, 1, 1, 7]"))
    assert kinds(made) == ["Shape", "Slice", "Concat", "Expand", "MultiHeadAttention"]


def test_repeated_keys_and_values_are_read_once() -> None:
    body = GROUPED["by hand: scores are scaled"]
    feeds = {"x": FEEDS["x"], "y": normal(2, 1, 7, 4), "z": normal(2, 1, 7, 4, seed=1)}
    made = rewritten(model(body, 23, sizes=ONE_HEAD), feeds)
    assert "Expand" not in kinds(made)
    assert [list(v.shape or ()) for v in made.model.graph.inputs[1:]] == [[2, 1, 7, 4]] * 2
    made = for_onnxruntime(model(body, 18, sizes=ONE_HEAD), feeds)
    assert kinds(made).count("MultiHeadAttention") == 1
    assert kinds(made).count("Expand") == 2, "ONNX Runtime's operator has as many heads of each"


GUARDED = MASKED.format(
    "n = Where(mask, zero, infinite) u = Add(s, n) l = Softmax(u) i = IsNaN(l) p = Where(i, zero, l)"
)


@pytest.mark.parametrize("sizes", ["2, 1, 5, 7", "2, 1, 1, 7", "5, 7"])
def test_rows_that_are_masked_wholly_are_zero_where_the_model_says_so(sizes: str) -> None:
    feeds = fed(f"bool[{sizes}]")
    feeds["mask"][..., -1, :] = False
    for opset, operator in ((18, "MultiHeadAttention"), (17, "MultiHeadAttention"), (23, "Attention")):
        made = for_onnxruntime(model(GUARDED, opset, f"bool[{sizes}] mask"), feeds)
        assert operator in kinds(made)
        assert not {"Softmax", "MatMul", "IsNaN", "Transpose"} & set(kinds(made))
    rewritten(model(GUARDED, 23, f"bool[{sizes}] mask"), feeds)


def test_attentions_share_their_masks() -> None:
    second = """ a2 = Reshape(r1, apart) q2 = Transpose<perm = [0, 2, 1, 3]>(a2) m2 = MatMul(q2, t) s2 = Mul(m2, scale)
        u2 = Add(s2, n) l2 = Softmax(u2) i2 = IsNaN(l2) p2 = Where(i2, zero, l2) w2 = MatMul(p2, v)
        o2 = Transpose<perm = [0, 2, 1, 3]>(w2) r = Reshape(o2, flat)"""
    for opset in (18, 23):
        written = model(GUARDED.replace("r = Reshape(o, flat)", "r1 = Reshape(o, flat)") + second, opset,
                        "bool[2, 1, 1, 7] mask")  # fmt: skip
        made = for_onnxruntime(written, fed("bool[2, 1, 1, 7]"))
        left = kinds(made)
        assert left.count("Where") == 4, "of the mask, of its rows, and of the rows of each attention"
        assert [left.count(kind) for kind in ("ReduceMax", "Greater", "Expand", "Reshape")] == [1] * 4


LOW = {
    "a mask that is chosen": "n = Where(mask, zero, lowest) u = Add(s, n) p = Softmax(u)",
    "a mask that is computed": "j = Cast<to = 1>(mask) i = Sub(one, j) n = Mul(i, lowest) u = Add(s, n) p = Softmax(u)",
    "scores that are filled": "u = Where(mask, s, lowest) p = Softmax(u)",
    "two of them": "f = Where(mask, s, lowest) i = Not(mask) n = Where(i, zero, lowest) u = Add(f, n) p = Softmax(u)",
}


@pytest.mark.parametrize("body", LOW.values(), ids=LOW)
def test_rows_of_the_lowest_number_alone_are_means(body: str) -> None:
    feeds = fed("bool[2, 1, 5, 7]")
    feeds["mask"][..., -1, :] = False
    for opset, operator in ((18, "MultiHeadAttention"), (23, "Attention")):
        made = for_onnxruntime(model(MASKED.format(body), opset, "bool[2, 1, 5, 7] mask"), feeds)
        assert kinds(made)[-1] == operator


NEAR = {
    "a guard against rows of -inf in heads": (
        "n = Where(mask, zero, infinite) u = Add(s, n) l = Softmax(u) i = IsNaN(l) p = Where(i, zero, l)",
        "bool[3, 5, 7] mask", "rows of -inf alone are 0, and the mask differs from head to head", {"mask": "3x5x7"},
    ),
    "filled with a number": (
        "u = Where(mask, s, near) p = Softmax(u)", "bool[5, 7] mask",
        "scores are filled with a number that others may be near", {"filled": "-100.0"},
    ),
    "what is filled in is turned": (
        "u = Where(mask, s, lowest) n = Mul(u, near) p = Softmax(n)", "bool[5, 7] mask",
        "the filled-in number is scaled with the scores", {"filled": "3.4028234663852886e+40"},
    ),
    "a cast of the weights": (
        "u = Add(s, mask) d = Cast<to = 11>(u) e = Softmax(d) p = Cast<to = 1>(e)", "float[5, 7] mask",
        "there are Casts in between", {"from": "FLOAT, DOUBLE", "to": "DOUBLE, FLOAT", "values": "d, p"},
    ),
    "a cast of the scores": (
        "d = Cast<to = 10>(s) u = Cast<to = 1>(d) p = Softmax(u)", "float[5, 7] mask",
        "there are Casts in between", {"from": "FLOAT, FLOAT16", "to": "FLOAT16, FLOAT", "values": "d, u"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "mask", "reason", "failed"), NEAR.values(), ids=NEAR)
def test_what_is_nearly_attention_stays(body: str, mask: str, reason: str, failed: dict[str, Any]) -> None:
    made = rewritten(model(MASKED.format(body), 23, mask))
    assert "Attention" not in kinds(made)
    (refusal,) = refusals(made, "rewrite.attention")
    assert (refusal.reason, refusal.failed) == (reason, failed)


def test_attention_before_it_was_an_operator() -> None:
    made = rewritten(model(ATTENTION["torch dynamo"], 18), FEEDS)
    assert kinds(made).count("Softmax") == 1
    assert refusals(made, "rewrite.attention")[0].failed == {"opset": 18, "needed": 23}


def test_swapped_axes_are_no_attention() -> None:
    body = (
        ROWS + "t = Transpose<perm = [0, 2, 3, 1]>(b) m = MatMul(q, t) p = Softmax<axis = 2>(m) w = MatMul(p, v)" + OUT
    )
    made = rewritten(model(body), FEEDS)
    assert "Softmax" in kinds(made)
    assert refusals(made, "rewrite.attention")[0].failed == {"value": "p.axis", "is": "2", "wanted": "3"}


def test_weights_that_are_read_elsewhere_stay() -> None:
    body = MASKED.format("p = Softmax(s)").replace("r = Reshape(o, flat)", "n = Reshape(o, flat) j = ReduceMax(p) ")
    made = rewritten(model(body + "l = Squeeze(j) r = Add(n, l)"), FEEDS)
    assert "Attention" not in kinds(made)
    (refusal,) = refusals(made, "rewrite.attention")
    assert refusal.failed == {"value": "p", "other readers": 1}
