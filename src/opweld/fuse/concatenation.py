"""Recognises concatenations: values side by side along an axis."""

from __future__ import annotations

from dataclasses import dataclass

from opweld.tensor.dim import ZERO, Axis, Dim, Value, atoms_of
from opweld.tensor.expr import Binary, Const, Expr, Index, Load, Select, loads
from opweld.tensor.program import Tensor


@dataclass(frozen=True)
class Part:
    """One part: the value it comes from, where it starts, where it ends. `whole` when it is exactly that value."""

    source: str
    start: Dim
    end: Dim
    load: Load
    whole: bool


@dataclass(frozen=True)
class Concatenation:
    """All parts along an axis, in order."""

    axis: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Range:
    """What the elements from `start` to `end` of the axis are."""

    start: Dim
    end: Dim
    body: Expr


def concatenation_of(tensor: Tensor) -> Concatenation | None:
    """The parts of a tensor whose body selects between plain loads by thresholds on one axis; else None."""
    found = ranges_of(tensor)
    if found is None:
        return None
    axis, ranges = found
    parts: list[Part] = []
    for part in ranges:
        load = part.body
        if not isinstance(load, Load) or load.guards:
            return None
        parts.append(Part(load.tensor, part.start, part.end, load, _is_whole(load, tensor, axis, part.start)))
    return Concatenation(axis, tuple(parts))


def is_joined(tensor: Tensor) -> bool:
    """Whether the tensor puts values side by side along an axis, whatever its parts do with what they load."""
    return ranges_of(tensor) is not None and bool(loads(tensor.body))


def ranges_of(tensor: Tensor) -> tuple[int, list[Range]] | None:
    """Flattens nested selects on `axis - start >= 0` or `start - 1 - axis >= 0` into ranges of one axis, in order."""
    axis = _tested_axis(tensor)
    if axis is None:
        return None
    ranges: list[Range] = []
    pending = [Range(ZERO, tensor.axes[axis].extent, tensor.body)]
    while pending:
        part = pending.pop()
        node = part.body
        test = _threshold(node.condition, tensor.axes[axis]) if isinstance(node, Select) else None
        if test is None or not isinstance(node, Select):
            ranges.append(part)
            continue
        at, above = test
        upper, lower = (node.x, node.y) if above else (node.y, node.x)
        pending += (Range(at, part.end, upper), Range(part.start, at, lower))
    return axis, ranges


def _tested_axis(tensor: Tensor) -> int | None:
    body = tensor.body
    if not isinstance(body, Select):
        return None
    for position, axis in enumerate(tensor.axes):
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
    if slope is None or any(isinstance(atom, Axis | Value) for atom in atoms_of(rest)):
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
