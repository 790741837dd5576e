"""Expressions that jump: where an operand is rounded decides what they are.

What is folded is computed in float64 and rounded once, which is more precise than what the model computes. Below a jump
it would be another answer: 0.7 * 10 is 7 in float32, of which the integer is 7, and less than that in float64."""

from __future__ import annotations

from opweld.tensor.expr import Binary, Cast, Expr, Reduce, Unary

_JUMPS = frozenset({"floor", "ceil", "round", "sign", "isnan", "isinf"})
_COMPARES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "mod"})
_EDGES = frozenset({"sqrt", "rsqrt", "log", "log1p", "asin", "acos", "acosh", "atanh", "pow"})


def jumps(node: Expr) -> bool:
    """Whether a node gives something else for operands that differ by a rounding."""
    if isinstance(node, Unary):
        return node.op in _JUMPS and node.x.dtype.is_float
    if isinstance(node, Binary):
        return node.op in _COMPARES and node.x.dtype.is_float
    if isinstance(node, Cast):
        return node.x.dtype.is_float and not node.dtype.is_float
    return isinstance(node, Reduce) and node.kind.startswith("arg") and node.body.dtype.is_float


def has_edge(node: Expr) -> bool:
    """Whether a node is NaN beside numbers where it is none, as the root of what is 0, and in float64 a little less."""
    return isinstance(node, Unary | Binary) and node.op in _EDGES and node.dtype.is_float
