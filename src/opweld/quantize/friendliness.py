"""How well nodes take to fewer bits, and why: high, medium or low."""

from __future__ import annotations

from typing import Literal

from opweld.calibration.graph import Graph
from opweld.quantize.placement import MOVING, POINTWISE

Level = Literal["high", "medium", "low"]

SMALL, LARGE = 0.01, 0.05
"""Errors at the outputs, of one layer alone, from which it is of medium and of low friendliness."""

NORMALISING = frozenset({
    "LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization",
    "MeanVarianceNormalization", "BatchNormalization", "LpNormalization", "Softmax", "LogSoftmax",
})  # fmt: skip
WIDE = frozenset({
    "Exp", "Log", "Pow", "Sqrt", "Reciprocal", "Div", "Erf", "Softplus", "Sin", "Cos",
})  # fmt: skip
RECURRENT = frozenset({
    "LSTM", "GRU", "RNN",
})  # fmt: skip
SUMS = frozenset({
    "ReduceMean", "ReduceSum", "ReduceL2", "ReduceSumSquare", "CumSum",
})  # fmt: skip


def friendliness(graph: Graph, node: int, error: float | None) -> tuple[Level, str] | None:
    """Of a node; `error` is what the outputs lose where it alone is quantised, if it can be and was measured. None for
    what computes no numbers, such as sizes."""
    op = graph.nodes[node].op_type
    if error is not None:
        level: Level = "high" if error < SMALL else "medium" if error < LARGE else "low"
        return level, f"alone, it moves the outputs by {error:.2g} of their size"
    if op in MOVING:
        return "high", "codes are handed on, with one scale for what is read and written"
    if op in POINTWISE:
        return "high", "computed on the way from sums to codes"
    if op in NORMALISING:
        return "low", "divides by a sum of its own: stays in float"
    if op in WIDE:
        return "low", "spreads a range over many magnitudes: stays in float"
    if op in RECURRENT:
        return "low", "errors come back in every step: stays in float"
    if op in SUMS:
        return "medium", "sums are exact in integers, what follows is not: stays in float"
    if op in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        return "medium", "no product of float32 with stored weights: stays in float"
    if op in ("Attention", "Einsum"):
        return "medium", "multiplies two values that both vary: stays in float"
    return None
