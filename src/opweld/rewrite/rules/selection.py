"""Moves selections before the nodes that compute the selected values: unused elements are not computed.

A classifier that reads the first token needs no other token after the products of its last layer. Each rule here moves
a selection over one node, towards the inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.bounds import BY_INPUT
from opweld.rewrite.scope import Scope, attribute, operand
from opweld.tensor.dim import Dim, as_dim

ELEMENTWISE = frozenset((
    "Abs", "Cast", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign",
    "Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
))  # fmt: skip
"""Operators element-wise in the first operand; their other operands are single numbers."""

BROADCAST = frozenset((
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul", "Or", "Pow",
    "Sub", "Sum", "Where", "Xor",
))  # fmt: skip
"""Operators element-wise in operands that are broadcast."""


@dataclass(frozen=True)
class Selection:
    """The selection of a Gather or Slice: `count` indices of an axis, or, if `count` is None, one index, which removes
    the axis."""

    node: ir.Node
    axis: int
    count: Dim | None

    def shape(self, shape: Sequence[Dim], axis: int) -> tuple[Dim, ...]:
        """The shape after a selection along an axis."""
        kept = () if self.count is None else (self.count,)
        return (*shape[:axis], *kept, *shape[axis + 1 :])

    def below(self, axis: int) -> int:
        """The position of another axis after the selection."""
        return axis - 1 if self.count is None and axis > self.axis else axis

    def of(self, value: ir.Value, axis: int, scope: Scope) -> ir.Value:
        """The same selection of another value, along an axis of its own."""
        node, inputs = self.node, list(self.node.inputs)
        known, indices = scope.constant(value), scope.constant(inputs[1])
        if node.op_type == "Gather" and known is not None and indices is not None:
            return scope.store(node, np.take(known, indices, axis))
        if node.op_type == "Gather":
            made = scope.add(node, "Gather", [value, inputs[1]], axis=axis)
        else:
            made = scope.add(node, "Slice", [value, *inputs[1:3], scope.store(node, np.array([axis])), *inputs[4:]])
        return scope.tell(made, self.shape(scope.shape(value) or (), axis), value)


def selection(node: ir.Node, scope: Scope) -> Selection | None:
    """What a node selects; None if it selects everything, or along several axes, or an unknown number."""
    before, after = scope.shape(operand(node, 0)), scope.shape(node.outputs[0])
    if before is None or after is None:
        return None
    if node.op_type == "Gather":
        indices = scope.shape(operand(node, 1))
        axis = int(attribute(node, "axis", 0)) % len(before) if before else 0
        if indices is None or len(indices) > 1 or not before:
            return None
        count = indices[0] if indices else None
    else:
        if scope.opset < BY_INPUT or operand(node, 3) is None:
            return None
        axes = scope.integers(node, "axes", 3)
        if axes is None or len(axes) != 1:
            return None
        axis = axes[0] % len(before)
        count = after[axis]
    extent, taken = before[axis].constant, 1 if count is None else count.constant
    if extent is not None and taken is not None and taken >= extent:
        return None
    if count is not None and (extent is None or taken is None):
        return None  # it may select more elements than there are, again and again
    return Selection(node, axis, count)


Moved = Callable[[], ir.Value]
"""Writes the node before the selection with selected operands; returns its result."""


class Select(Rule):
    """A selection moves over the node whose result it selects from."""

    name = "rewrite.selection"
    operators = ("Gather", "Slice")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        data = operand(node, 0)
        found = selection(node, scope)
        if data is None or found is None:
            return None
        output = node.outputs[0]
        for other in scope.readers(data):
            if other is not node and _same(other, node) and scope.replaceable(output, other.outputs[0]):
                return Proposal(
                    "it is selected already", lambda other=other: scope.replace(output, other.outputs[0]), (other,)
                )
        made = scope.producer(data)
        moved = None if made is None else _moved(made, found, scope)
        if made is None or moved is None:
            return None
        if isinstance(moved, Refusal):
            return moved
        if not scope.only_reader(data):
            return Refusal("it has other readers", {"readers": len(scope.readers(data))}, (made,))
        saved = scope.traffic(data)
        return Proposal(
            "unselected elements need not be computed", lambda: scope.replace(output, moved()), (made,), saved
        )


def _same(a: ir.Node, b: ir.Node) -> bool:
    if a.op_type != b.op_type or a.domain != b.domain or len(a.inputs) != len(b.inputs) or a.graph is not b.graph:
        return False
    axes = [attribute(node, "axis", 0) for node in (a, b)]
    return axes[0] == axes[1] and all(x is y or _equal(x, y) for x, y in zip(a.inputs, b.inputs, strict=True))


def _equal(x: ir.Value | None, y: ir.Value | None) -> bool:
    """Whether two stored numbers are the same."""
    one, other = (None if value is None else value.const_value for value in (x, y))
    if one is None or other is None or max(one.size, other.size) > 1:
        return False
    return np.array_equal(one.numpy(), other.numpy())


def _moved(made: ir.Node, found: Selection, scope: Scope) -> Moved | Refusal | None:
    shapes = [scope.shape(value) for value in made.inputs]
    kept = {name: value.value for name, value in made.attributes.items()}
    if any(other.uses() or other.is_graph_output() for other in made.outputs[1:]):
        return None
    if made.op_type in ELEMENTWISE:
        return _first(made, found, scope, kept, found.axis)
    if made.op_type in BROADCAST:
        return _broadcast(made, found, scope)
    shape = shapes[0] if shapes else None
    if shape is None:
        return None
    if made.op_type in ("Softmax", "LogSoftmax", "LayerNormalization"):
        axis = int(attribute(made, "axis", -1)) % len(shape)
        if found.axis == axis or (made.op_type == "LayerNormalization" and found.axis > axis) or scope.opset < 13:
            return Refusal("it needs all elements of the axis", {"axis": axis}, (made,))
        return _first(made, found, scope, {**kept, "axis": found.below(axis)}, found.axis)
    if made.op_type == "Transpose":
        order = list(attribute(made, "perm", [*range(len(shape))][::-1]))
        taken = order[found.axis]
        if found.count is None:
            order = [axis - (axis > taken) for axis in order if axis != taken]
        return _first(made, found, scope, {"perm": order}, taken)
    if made.op_type == "MatMul" and shapes[1] is not None and len(shapes[1]) == 2 and found.axis < len(shape) - 1:
        return _first(made, found, scope, kept, found.axis)
    if made.op_type == "Gemm" and found.axis == 0 and found.count is not None and not attribute(made, "transA", 0):
        bias = shapes[2] if len(shapes) > 2 else ()
        return _first(made, found, scope, kept, 0) if bias is not None and len(bias) < 2 else None
    return None


def _first(made: ir.Node, found: Selection, scope: Scope, attributes: dict[str, Any], axis: int) -> Moved | None:
    """Over the first operand, along its `axis`."""
    data = made.inputs[0]
    if data is None or scope.shape(data) is None:
        return None

    def moved() -> ir.Value:
        return scope.add(made, made.op_type, [found.of(data, axis, scope), *made.inputs[1:]], **attributes)

    return moved


def _broadcast(made: ir.Node, found: Selection, scope: Scope) -> Moved | Refusal | None:
    """Over each operand that has the axis."""
    whole = scope.shape(made.outputs[0])
    if whole is None:
        return None
    axes: list[int | None] = []
    for value in made.inputs:
        shape = scope.shape(value)
        if value is None or shape is None:
            return None
        axis = found.axis - (len(whole) - len(shape))
        single = axis >= 0 and shape[axis] == as_dim(1) != whole[found.axis]
        if axis >= 0 and not single and shape[axis] != whole[found.axis]:
            return Refusal("the broadcast is not certain", {"operand": value.name or ""}, (made,))
        if single and found.count is None and scope.constant(value) is None:
            return Refusal("an operand is the same for all of them", {"operand": value.name or ""}, (made,))
        axes.append(axis if axis >= 0 and (not single or found.count is None) else None)

    def moved() -> ir.Value:
        inputs: list[ir.Value | None] = []
        for value, axis in zip(made.inputs, axes, strict=True):
            assert value is not None
            known = scope.constant(value)
            if axis is None:
                inputs.append(value)
            elif found.count is None and known is not None and known.shape[axis] == 1:
                inputs.append(scope.store(made, known.squeeze(axis)))
            else:
                inputs.append(found.of(value, axis, scope))
        return scope.add(made, made.op_type, inputs)

    return moved
