"""Recognises values that are put together side by side: what Concat means."""

from __future__ import annotations

from dataclasses import dataclass

from opweld.tensor.dim import ZERO, Axis, Dim
from opweld.tensor.expr import Binary, Const, Expr, Index, Load, Select
from opweld.tensor.program import Tensor


@dataclass(frozen=True)
class Piece:
    """One part: the value it comes from, where it starts, where it ends. `whole` when it is exactly that value."""

    source: str
    start: Dim
    end: Dim
    load: Load
    whole: bool


@dataclass(frozen=True)
class Pieces:
    """All parts along an axis, in order."""

    axis: int
    parts: tuple[Piece, ...]


def pieces_of(tensor: Tensor) -> Pieces | None:
    """The parts of a tensor whose body selects between plain loads by thresholds on one axis; else None."""
    found = _split(tensor.body, tensor.axes)
    if found is None:
        return None
    axis, branches = found
    parts: list[Piece] = []
    for start, end, body in branches:
        if not isinstance(body, Load) or body.guards:
            return None
        parts.append(Piece(body.tensor, start, end, body, _is_whole(body, tensor, axis, start)))
    return Pieces(axis, tuple(parts))


def _split(body: Expr, axes: tuple[Axis, ...]) -> tuple[int, list[tuple[Dim, Dim, Expr]]] | None:
    """Flattens nested selects on `axis - start >= 0` or `start - 1 - axis >= 0` into ranges of one axis."""
    axis = _tested_axis(body, axes)
    if axis is None:
        return None
    ranges: list[tuple[Dim, Dim, Expr]] = []

    def descend(node: Expr, low: Dim, high: Dim) -> bool:
        if not isinstance(node, Select):
            ranges.append((low, high, node))
            return True
        test = _threshold(node.condition, axes[axis])
        if test is None:
            return False
        at, above = test
        upper, lower = (node.x, node.y) if above else (node.y, node.x)
        return descend(lower, low, at) and descend(upper, at, high)

    if not descend(body, ZERO, axes[axis].extent):
        return None
    return axis, ranges


def _tested_axis(body: Expr, axes: tuple[Axis, ...]) -> int | None:
    if not isinstance(body, Select):
        return None
    for position, axis in enumerate(axes):
        if _threshold(body.condition, axis) is not None:
            return position
    return None


def _threshold(condition: Expr, axis: Axis) -> tuple[Dim, bool] | None:
    """(start, True) for `axis >= start`, (start, False) for `axis < start`."""
    if not isinstance(condition, Binary) or condition.op != "ge":
        return None
    if not isinstance(condition.x, Index) or not isinstance(condition.y, Const) or condition.y.value != 0:
        return None
    dim = condition.x.dim
    slope = dim.coefficient(axis)
    rest = dim.without(axis)
    if slope is None or any(isinstance(a, Axis) for m, _ in rest.terms for a in m):
        return None
    if slope.constant == 1:
        return -rest, True
    if slope.constant == -1:
        return rest + 1, False
    return None


def _is_whole(body: Load, tensor: Tensor, axis: int, start: Dim) -> bool:
    if len(body.indices) != len(tensor.axes):
        return False
    for position, (dim, own) in enumerate(zip(body.indices, tensor.axes, strict=True)):
        expected = own.dim - start if position == axis else own.dim
        if dim is not expected and not (own.extent.constant == 1 and dim is ZERO):
            return False
    return True
