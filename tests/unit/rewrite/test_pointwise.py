"""Products of rows and convolutions of single places are one thing in two orders of axes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten

ROWS = """g (float[n, 8, {places}] x) => (float[n, 6, {places}] y) {{
    a = Transpose<perm = {last}>(x) b = MatMul(a, w) c = Add(b, v) d = Gelu(c) e = MatMul(d, u) f = Mul(e, s)
    y = Transpose<perm = {first}>(f) }}"""
"""Two layers over the channels of each place."""

WEIGHTS = {"w": normal(8, 12), "v": normal(12), "u": normal(12, 6), "s": normal(6)}


@pytest.mark.parametrize(
    ("places", "last", "first"),
    [([5], [0, 2, 1], [0, 2, 1]), ([5, 4], [0, 2, 3, 1], [0, 3, 1, 2]), ([5, 4, 3], [0, 2, 3, 4, 1], [0, 4, 1, 2, 3])],
)
def test_products_between_transpositions_are_convolutions(places: list[int], last: list[int], first: list[int]) -> None:
    """What is added and multiplied goes into them."""
    text = ROWS.format(places=", ".join(map(str, places)), last=last, first=first)
    made = rewritten(model_of(text, WEIGHTS), {"x": normal(2, 8, *places)})
    assert kinds(made) == ["Conv", "Gelu", "Conv"]


def test_places_whose_number_is_not_known() -> None:
    text = ROWS.format(places="h, w0", last=[0, 2, 3, 1], first=[0, 3, 1, 2])
    made = rewritten(model_of(text, WEIGHTS), {"x": normal(2, 8, 3, 4)})
    assert kinds(made) == ["Conv", "Gelu", "Conv"]


def test_what_convolutions_read_before_and_after() -> None:
    """A normalisation of channels needs them last, so one transposition has to stay, and products are as good."""
    text = """g (float[n, 8, 5, 4] x) => (float[n, 8, 5, 4] y) {
        t = Transpose<perm = [0, 2, 3, 1]>(x) l = LayerNormalization(t, v) p = MatMul(l, w) q = Add(p, v)
        r = Transpose<perm = [0, 3, 1, 2]>(q) y = Add(r, x) }"""
    made = rewritten(model_of(text, {"v": normal(8), "w": normal(8, 8)}), {"x": normal(2, 8, 5, 4)})
    assert kinds(made) == ["Transpose", "LayerNormalization", "MatMul", "Add", "Transpose", "Add"]
    (refused,) = {decision.reason for decision in refusals(made, "rewrite.pointwise") if len(decision.site) == 1}
    assert refused == "as many transpositions would be needed elsewhere"


@pytest.mark.parametrize(("bias", "left"), [(True, ["MatMul", "Add", "Relu"]), (False, ["MatMul", "Relu"])])
def test_convolutions_between_transpositions_are_products(bias: bool, left: list[str]) -> None:
    text = f"""g (float[n, 5, 4, 8] x) => (float[n, 5, 4, 6] y) {{
        a = Transpose<perm = [0, 3, 1, 2]>(x) b = Conv(a, w{", v" if bias else ""}) c = Relu(b)
        y = Transpose<perm = [0, 2, 3, 1]>(c) }}"""
    weights = {"w": normal(6, 8, 1, 1)} | ({"v": normal(6)} if bias else {})
    assert kinds(rewritten(model_of(text, weights), {"x": normal(2, 5, 4, 8)})) == left


@pytest.mark.parametrize("attributes", ["strides = [2, 1]", "group = 2", "pads = [1, 1, 1, 1]", 'auto_pad = "VALID"'])
def test_which_convolutions_are_products(attributes: str) -> None:
    text = f"""g (float[n, 5, 4, 8] x) => (float[n, h, w0, 6] y) {{
        a = Transpose<perm = [0, 3, 1, 2]>(x) b = Conv<{attributes}>(a, w) y = Transpose<perm = [0, 2, 3, 1]>(b) }}"""
    made = rewritten(
        model_of(text, {"w": normal(6, 4 if "group" in attributes else 8, 1, 1)}), {"x": normal(2, 5, 4, 8)}
    )
    assert kinds(made) == (["MatMul"] if "auto_pad" in attributes else ["Transpose", "Conv", "Transpose"])


def test_one_transposition_that_stays_is_not_worth_it() -> None:
    """Something else needs the rows too."""
    text = """g (float[n, 8, 5, 4] x) => (float[n, 6, 5, 4] y, float[n, 6, 5, 4] o, float[n, 5, 4, 6] z) {
        a = Transpose<perm = [0, 2, 3, 1]>(x) b = MatMul(a, w) z = LayerNormalization(b, v) r = Relu(b)
        y = Transpose<perm = [0, 3, 1, 2]>(r) s = Sigmoid(b) t = Neg(z) k = Mul(s, t)
        o = Transpose<perm = [0, 3, 1, 2]>(k) }"""
    made = rewritten(model_of(text, {"w": normal(8, 6), "v": normal(6)}), {"x": normal(2, 8, 5, 4)})
    reasons = {decision.reason for decision in refusals(made, "rewrite.pointwise")}
    assert "MatMul" in kinds(made) and "a transposition would be needed elsewhere" in reasons


def test_weights_that_are_read_elsewhere_are_not_stored_twice() -> None:
    text = """g (float[n, 8, 5, 4] x, float[n, 8] o) => (float[n, 40, 5, 4] y, float[n, 40] z) {
        a = Transpose<perm = [0, 2, 3, 1]>(x) b = MatMul(a, w) y = Transpose<perm = [0, 3, 1, 2]>(b)
        z = MatMul(o, w) }"""
    made = rewritten(model_of(text, {"w": normal(8, 40)}), {"x": normal(2, 8, 5, 4), "o": normal(2, 8)})
    assert kinds(made).count("MatMul") == 2
    assert "the file would grow" in {decision.reason for decision in refusals(made, "rewrite.pointwise")}


def test_levels() -> None:
    text = ROWS.format(places="5", last=[0, 2, 1], first=[0, 2, 1])
    made = rewritten(model_of(text, WEIGHTS), {"x": normal(2, 8, 5)}, level="extended")
    assert "Conv" not in kinds(made) and np.array_equal(kinds(made).count("MatMul"), 2)
