"""How a node is computed with permuted axes of its operands: which operators can be, and how they are written.

In an order, axis a of the original is axis order[a] of the permuted value, as for a value that a Transpose of this
`perm` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rules.bounds import BY_INPUT
from opweld.rewrite.rules.selection import BROADCAST, ELEMENTWISE
from opweld.rewrite.rules.target import SINCE
from opweld.rewrite.scope import Array, Scope, attribute, kept, operand
from opweld.tensor.dim import ONE, Dim

Order = tuple[int, ...]

Write = Callable[[Sequence[ir.Value | None]], Sequence[ir.Value]]
"""Adds the node with permuted operands; returns its results."""


@dataclass(frozen=True)
class Permuted:
    """How a node is written with permuted axes.

    Attributes:
        operands: the positions of the inputs that are permuted.
        write: adds it.
        results: whether its results are permuted; else they are the same as before.
        stored: stored tensors that are permuted at compile time.
        more: additional nodes.
        product: whether a product becomes a convolution, or vice versa.
    """

    operands: tuple[int, ...]
    write: Write
    results: bool = True
    stored: tuple[ir.Value, ...] = ()
    more: int = 0
    product: bool = False


UNARY = ELEMENTWISE | {
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cos", "Cosh", "IsInf", "IsNaN", "Shrink", "Sin",
    "Sinh", "Tan",
}  # fmt: skip

COMBINING = BROADCAST | {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mean", "Mod", "PRelu"}

REDUCING = frozenset((
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
))  # fmt: skip

RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")

BY_NUMPY = 7
"""The opset since which operands are broadcast from the last axis on."""

ONE_AXIS = 13
"""The opset since which softmax is along one axis."""


def inverse(order: Order) -> Order:
    """The inverse order."""
    return tuple(int(axis) for axis in np.argsort(order))


def permuted_shape(shape: Sequence[Dim], order: Order) -> tuple[Dim, ...]:
    """The permuted shape."""
    return tuple(shape[axis] for axis in inverse(order))


def keeps_elements(shape: Sequence[Dim], order: Order) -> bool:
    """Whether a permutation keeps the order of elements in memory: it only moves axes of size 1."""
    moved = [order[axis] for axis, extent in enumerate(shape) if extent != ONE]
    return moved == sorted(moved)


def permuted(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    """How a node is written with permuted axes of its operands or results; None if it cannot be."""
    if node.domain not in ("", "ai.onnx"):
        return None
    ranks = [len(shape) if (shape := scope.shape(value)) is not None else -1 for value in node.outputs[:1]]
    first = scope.shape(operand(node, 0))
    if first is None or -1 in ranks:
        return None
    if node.op_type in RESHAPES:
        return _laid_out(node, order, scope)
    if node.op_type in COMBINING:
        return _combined(node, order, scope)
    if len(first) != len(order) or scope.constant(node.inputs[0]) is not None:
        return None
    if node.op_type in UNARY:
        return _same(node, scope)
    if node.op_type in REDUCING:
        return _reduced(node, order, scope)
    if node.op_type == "MatMul":
        return _product(node, order, scope)
    known = ALONG.get(node.op_type)
    return None if known is None else known(node, order, scope)


def written(node: ir.Node, scope: Scope, operands: tuple[int, ...] = (0,), **changed: Any) -> Permuted:
    """The same node, with other attributes."""
    attributes = {**kept(node), **changed}
    wanted = [bool(value.name) for value in node.outputs]

    def write(inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        return scope.add_several(node, node.op_type, inputs, wanted, **attributes)

    return Permuted(operands, write)


def _same(node: ir.Node, scope: Scope) -> Permuted:
    return written(node, scope)


def _combined(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    """Operands of full rank are permuted, stored ones at compile time; single numbers are unchanged."""
    whole = scope.shape(node.outputs[0])
    if whole is None or len(whole) != len(order) or scope.opset < BY_NUMPY:
        return None
    operands, stored = list[int](), dict[int, ir.Value]()
    for position, value in enumerate(node.inputs):
        shape = scope.shape(value)
        if value is None or shape is None:
            return None
        if all(extent == ONE for extent in shape) and len(shape) < len(order):
            continue
        if scope.constant(value) is not None:
            stored[position] = value
        elif len(shape) == len(order):
            operands.append(position)
        else:
            return None
    if not operands:
        return None

    def write(inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        read = _with_stored(node, inputs, stored, lambda array: _turned_operand(array, order), scope)
        return [scope.add(node, node.op_type, read, **kept(node))]

    return Permuted(tuple(operands), write, stored=tuple(stored.values()))


def _with_stored(
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    stored: Mapping[int, ir.Value],
    turn: Callable[[Array], Array],
    scope: Scope,
) -> Sequence[ir.Value | None]:
    """The inputs of a node, with the stored ones among them permuted at compile time."""
    read = list(inputs)
    for position, value in stored.items():
        known = scope.constant(value)
        assert known is not None
        read[position] = scope.store(node, turn(known))
    return read


def _turned_operand(array: Array, order: Order) -> Array:
    """A value that broadcasts against another, reshaped to broadcast against the permuted one, without unneeded
    axes."""
    if array.size == 1:
        return array
    wide = array.reshape((1,) * (len(order) - array.ndim) + array.shape).transpose(inverse(order))
    while wide.ndim > 1 and wide.shape[0] == 1:
        wide = wide[0]
    return wide


def _axis(default: int, since: int = 0) -> Callable[[ir.Node, Order, Scope], Permuted | None]:
    """Operators along the axis of an attribute."""

    def check(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
        if scope.opset < since:
            return None
        axis = int(attribute(node, "axis", default)) % len(order)
        return written(node, scope, axis=order[axis])

    return check


def _joined(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    axis = order[int(attribute(node, "axis", 1)) % len(order)]
    stored = {at: value for at, value in enumerate(node.inputs) if value and scope.constant(value) is not None}
    if any(scope.shape(value) is None for value in node.inputs):
        return None

    def write(inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        read = _with_stored(node, inputs, stored, lambda array: array.transpose(inverse(order)), scope)
        return [scope.add(node, "Concat", read, axis=axis)]

    operands = tuple(at for at in range(len(node.inputs)) if at not in stored)
    return Permuted(operands, write, stored=tuple(stored.values()))


def _by_one_index(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    """A Gather that keeps its axis."""
    indices = scope.shape(operand(node, 1))
    if indices is None or len(indices) != 1:
        return None
    return written(node, scope, axis=order[int(attribute(node, "axis", 0)) % len(order)])


def _quantized(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    scale = scope.shape(operand(node, 1))
    if scale is None or len(scale) > 1:
        return None
    if not scale:
        return _same(node, scope)
    return _axis(1, since=ONE_AXIS)(node, order, scope)


def _reduced(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    axes = scope.integers(node, "axes", 1)
    if not axes:
        return None
    axes = [axis % len(order) for axis in axes]
    moved = sorted(order[axis] for axis in axes)
    attributes = kept(node, "axes")
    stays = [order[axis] for axis in range(len(order)) if axis not in axes]
    keeps = bool(attribute(node, "keepdims", 1))
    if not keeps and stays != sorted(stays):
        return None

    def write(inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        if "axes" in node.attributes:
            return [scope.add(node, node.op_type, inputs[:1], axes=moved, **attributes)]
        named = scope.store(node, np.array(moved, np.int64))
        return [scope.add(node, node.op_type, [inputs[0], named], **attributes)]

    return Permuted((0,), write, results=keeps)


def _first_of(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    """ArgMax and ArgMin."""
    axis = int(attribute(node, "axis", 0)) % len(order)
    stays = [order[other] for other in range(len(order)) if other != axis]
    if not attribute(node, "keepdims", 1):
        found = written(node, scope, axis=order[axis])
        return Permuted(found.operands, found.write, results=False) if stays == sorted(stays) else None
    return written(node, scope, axis=order[axis])


def _padded(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    pads = scope.integers(node, "pads", 1)
    named = operand(node, 3)
    axes = list(range(len(order))) if named is None else scope.integers(node, "axes", 3)
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return None
    total = [0] * (2 * len(order))
    for place, axis in enumerate(axes):
        at = order[axis % len(order)]
        total[at], total[at + len(order)] = pads[place], pads[place + len(axes)]

    def write(inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        if "pads" in node.attributes:
            return [scope.add(node, "Pad", inputs[:1], pads=total, **kept(node, "pads"))]
        read = [inputs[0], scope.store(node, np.array(total, np.int64)), *inputs[2:3]]
        return [scope.add(node, "Pad", read, **kept(node))]

    return Permuted((0,), write)


def _cut(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    if "axes" in node.attributes or operand(node, 3) is not None:
        axes = scope.integers(node, "axes", 3)
    else:
        starts = scope.integers(node, "starts", 1)
        axes = None if starts is None else list(range(len(starts)))
    if axes is None:
        return None
    moved = [order[axis % len(order)] for axis in axes]

    def write(inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        if scope.opset < BY_INPUT:
            return [scope.add(node, "Slice", inputs[:1], axes=moved, **kept(node, "axes"))]
        named = scope.store(node, np.array(moved, np.int64))
        return [scope.add(node, "Slice", [*inputs[:3], named, *inputs[4:]])]

    return Permuted((0,), write)


def _pooled(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    """The mean over all axes but the first two, as a ReduceMean over the permuted axes."""
    operator = "ReduceMean" if node.op_type == "GlobalAveragePool" else "ReduceMax"
    moved = sorted(order[2:])

    def write(inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        if scope.opset < REDUCED_BY_INPUT:
            return [scope.add(node, operator, inputs, axes=moved)]
        return [scope.add(node, operator, [*inputs, scope.store(node, np.array(moved, np.int64))])]

    return Permuted((0,), write)


REDUCED_BY_INPUT = 18
"""The opset in which the axes of ReduceMean and ReduceMax became an input."""


def _normalised(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    """Operators on rows of the last axes, if those keep their positions."""
    axis = int(attribute(node, "axis", -1)) % len(order)
    if any(order[at] != at for at in range(axis, len(order))) or any(value.uses() for value in node.outputs[1:]):
        return None
    return written(node, scope)


def _product(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    """Matrix products whose matrix axes keep their positions; or products of rows by a stored matrix, whose last axis
    does."""
    left, right = (scope.shape(operand(node, position)) for position in (0, 1))
    if left is None or right is None or order[-1] != len(order) - 1:
        return None
    if len(right) == 2:
        return written(node, scope)
    if len(left) == len(right) == len(order) > 2 and order[-2] == len(order) - 2:
        return written(node, scope, (0, 1)) if scope.constant(node.inputs[1]) is None else None
    return None


def _laid_out(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    """A reshape may have a permuted input or result if the order of elements stays the same."""
    before, after = scope.shape(node.inputs[0]), scope.shape(node.outputs[0])
    if before is None or after is None or scope.constant(node.inputs[0]) is not None or scope.opset < SINCE:
        return None
    reads = len(before) == len(order) and keeps_elements(before, order)
    gives = len(after) == len(order) and keeps_elements(after, order)
    if not reads and not gives:
        return None
    wanted = [dim.constant for dim in (after if reads else permuted_shape(after, order))]
    if wanted.count(None) > 1 or 0 in wanted or (None in wanted and 0 in [dim.constant for dim in before]):
        return None

    def write(inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        target = scope.store(node, np.array([-1 if size is None else size for size in wanted], np.int64))
        return [scope.add(node, "Reshape", [inputs[0], target])]

    return Permuted((0,), write, results=False) if reads else Permuted((), write)


ALONG: dict[str, Callable[[ir.Node, Order, Scope], Permuted | None]] = {
    "ArgMax": _first_of,
    "ArgMin": _first_of,
    "Concat": _joined,
    "DequantizeLinear": _quantized,
    "Gather": _by_one_index,
    "GlobalAveragePool": _pooled,
    "GlobalMaxPool": _pooled,
    "LayerNormalization": _normalised,
    "LogSoftmax": _axis(-1, since=ONE_AXIS),
    "Pad": _padded,
    "QuantizeLinear": _quantized,
    "RMSNormalization": _normalised,
    "Slice": _cut,
    "Softmax": _axis(-1, since=ONE_AXIS),
    "Split": _axis(0),
}
"""Operators that name axes: how they are written with permuted axes."""
