"""Discontinuous expressions: the rounding of an operand decides their result.

Folding computes in float64 and rounds once, which is more precise than the model. Under a discontinuity that would give
another result: 0.7 * 10 is 7 in float32, and truncates to 7, but is less than 7 in float64."""

from __future__ import annotations

from opweld.tensor.expr import Binary, Cast, Expr, Reduce, Unary

_JUMPS = frozenset({"floor", "ceil", "round", "sign", "isnan", "isinf"})
_COMPARES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "mod"})
_EDGES = frozenset({"sqrt", "rsqrt", "log", "log1p", "asin", "acos", "acosh", "atanh", "pow"})


def is_discontinuous(node: Expr) -> bool:
    """Whether the result of a node can change by more than rounding if its operands are rounded."""
    if isinstance(node, Unary):
        return node.op in _JUMPS and node.x.dtype.is_float
    if isinstance(node, Binary):
        return node.op in _COMPARES and node.x.dtype.is_float
    if isinstance(node, Cast):
        return node.x.dtype.is_float and not node.dtype.is_float
    return isinstance(node, Reduce) and node.kind.startswith("arg") and node.body.dtype.is_float


def has_nan_edge(node: Expr) -> bool:
    """Whether a node is NaN next to regular values, as the root of a value that is 0, but slightly negative in
    float64."""
    return isinstance(node, Unary | Binary) and node.op in _EDGES and node.dtype.is_float
