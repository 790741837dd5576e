"""Models of old opsets: what is written is read there."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, rewritten

STORED = {
    "w": normal(4, 4), "v": normal(4, 4, seed=1), "k": normal(4, seed=2), "row": normal(1, 4, seed=3),
    "s": np.array([2, 8]), "t": np.array([4, 4]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("p = MatMul(x, w) y = Add<broadcast = 1>(p, k)", ["Gemm"]),
        ("p = MatMul(x, w) y = Add<broadcast = 1, axis = 0>(p, k)", ["MatMul", "Add"]),
        ("p = Gemm<broadcast = 1>(x, w, k) y = Mul<broadcast = 1, axis = 0>(p, k)", ["Gemm", "Mul"]),
        ("p = Gemm<broadcast = 1>(x, w, k) y = Mul<broadcast = 1>(p, row)", ["Gemm", "Mul"]),
        ("p = Gemm<broadcast = 1>(x, w, k) y = Gemm<broadcast = 1>(p, v, k)", ["Gemm"]),
        ("p = MatMul(x, w) q = MatMul(p, v) y = Add<broadcast = 1, axis = 0>(q, k)", ["MatMul", "Add"]),
        (
            "p = MatMul(x, w) q = Add<broadcast = 1, axis = 0>(p, k) y = Add<broadcast = 1>(q, k)",
            ["MatMul", "Add", "Add"],
        ),
        ("a = Reshape(x, s) b = Reshape(a, t) y = Relu(b)", ["Relu"]),
    ],
)
def test_operands_are_broadcast_as_they_say(nodes: str, left: list[str]) -> None:
    """A square, so that nothing fails where an axis is taken for the other one."""
    used = {name: array for name, array in STORED.items() if f"{name})" in nodes or f" {name}," in nodes}
    model = model_of(f"g (float[4, 4] x) => (float[4, 4] y) {{ {nodes} }}", used, 6)
    assert kinds(rewritten(model, {"x": normal(4, 4, seed=5)})) == left
