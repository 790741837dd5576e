"""Zeros that a recurrence begins with by itself."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, rewritten

WEIGHTS = {"w": normal(1, 16, 3), "r": normal(1, 16, 4)}
TEXT = """g (float[t, b, 3] x) => (float[t, 1, b, 4] y) {{
    s = Shape<start = 1, end = 2>(x) n = Concat<axis = 0>(one, s, four) {}
    y = LSTM<hidden_size = 4>(x, w, r, , , h, h) }}"""
SIZES = {"one": np.array([1]), "four": np.array([4])}


@pytest.mark.parametrize(
    "zeros", ["h = ConstantOfShape(n)", "h = Expand(zero, n)", "c = ConstantOfShape(n) h = Identity(c)"]
)
def test_zeros(zeros: str) -> None:
    zero = {"zero": np.zeros(1, np.float32)} if "zero" in zeros else {}
    made = rewritten(model_of(TEXT.format(zeros), WEIGHTS | SIZES | zero), {"x": normal(5, 2, 3)})
    assert kinds(made) == ["LSTM"]


def test_other_states_stay() -> None:
    text = TEXT.format("h = ConstantOfShape<value = float[1] {0.5}>(n)")
    made = rewritten(model_of(text, WEIGHTS | SIZES), {"x": normal(5, 2, 3)})
    assert kinds(made)[-2:] == ["ConstantOfShape", "LSTM"]
