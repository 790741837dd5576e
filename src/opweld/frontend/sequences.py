"""Sequences and optionals, replaced by the tensors that they hold.

What a sequence holds is told by the graph alone: lists of tensors, and the pieces into which a tensor is split. So
operators on them vanish before inference, into Split, Slice, Gather, Concat and names of tensors. A model whose inputs,
outputs, loops or branches are sequences is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from opweld.errors import ModelError, UnsupportedError
from opweld.ops.operands import describe, given, required
from opweld.ops.registry import attribute, required_attribute

MAX_NODES = 100_000
"""Bodies that are written out for each element of a sequence may make a model this large."""

MAX_PIECES = 10_000
"""Pieces into which a tensor may be split."""


@dataclass(frozen=True)
class Listed:
    """Tensors one after the other."""

    values: tuple[ir.Value, ...]


@dataclass(frozen=True)
class Pieces:
    """A tensor split along an axis into pieces of `length`, the last one possibly shorter; without the axis when it is
    dropped, where `length` is 1."""

    whole: ir.Value
    axis: int
    length: int
    dropped: bool


@dataclass(frozen=True)
class Nothing:
    """An optional that holds nothing."""


Held: TypeAlias = Listed | Pieces | Nothing


def resolve_sequences(model: ir.Model) -> None:
    """Replaces operators on sequences and optionals in place. Raises ModelError for what is out of range,
    UnsupportedError for sequences that only running the model would tell."""
    _Resolver(model.graph, {}).run()


class _Resolver:
    """One graph; `held` is what the values that are no tensors hold, those of the graphs around it included."""

    def __init__(self, graph: ir.Graph, held: Mapping[ir.Value, Held]) -> None:
        self.graph = graph
        self.held = dict(held)
        self.replaced: list[ir.Node] = []

    def run(self) -> None:
        """Replaces the operators of the graph and of its bodies."""
        for node in list(self.graph):
            self.visit(node)
        for value in self.graph.outputs:
            if value in self.held:
                raise UnsupportedError(f"output {value.name!r} is a sequence, which is not supported; return tensors")
        self.graph.remove(reversed(self.replaced), safe=True)

    def visit(self, node: ir.Node) -> None:
        """Replaces a node, or looks into its bodies."""
        if self._replaces(node):
            self.replaced.append(node)
            return
        for value in node.inputs:
            if value in self.held:
                raise UnsupportedError(
                    f"{describe(node)}: its input {value.name!r} is a sequence or an empty optional, which is not "
                    "supported here. Export the model with tensors in its place."
                )
        for found in node.attributes.values():
            graphs = [found.value] if found.type is ir.AttributeType.GRAPH else ()
            for body in found.value if found.type is ir.AttributeType.GRAPHS else graphs:
                _Resolver(body, self.held).run()

    def _replaces(self, node: ir.Node) -> bool:
        """Whether an operator is on sequences or optionals; then its output is a tensor made otherwise, or is held."""
        handler = None if node.domain not in ("", "ai.onnx") else _HANDLERS.get(node.op_type)
        if node.op_type == "Identity" and node.inputs and node.inputs[0] in self.held:
            handler = _identity
        if handler is None:
            return False
        result = handler(self, node)
        if isinstance(result, ir.Value):
            self._stands_for(node, result)
        else:
            self.held |= zip(node.outputs, result if isinstance(result, list) else [result], strict=True)
        return True

    def _stands_for(self, node: ir.Node, value: ir.Value) -> None:
        """Gives the users of the node the value, by another name where it is an output of the graph."""
        output = node.outputs[0]
        if output.is_graph_output():
            (value,) = self.new(node, "Identity", [value])
            value.name, value.type, value.shape = output.name, output.type, output.shape
        output.replace_all_uses_with(value, replace_graph_outputs=True)

    # -------------------------------------------------------------------------------------------- what handlers need

    def new(
        self, node: ir.Node, op_type: str, inputs: Sequence[ir.Value], outputs: int = 1, **attributes: int
    ) -> Sequence[ir.Value]:
        """The outputs of a new node before the one that it replaces."""
        made = ir.node(op_type, inputs, attributes, num_outputs=outputs, name=f"{node.name}_{op_type}")
        self.graph.insert_before(node, made)
        return made.outputs

    def constant(self, node: ir.Node, numbers: int | Sequence[int]) -> ir.Value:
        """Integers as a tensor."""
        tensor = ir.tensor(np.array(numbers, np.int64))
        made = ir.node("Constant", [], {"value": tensor}, name=f"{node.name}_numbers")
        self.graph.insert_before(node, made)
        return made.outputs[0]

    def written_out(
        self, node: ir.Node, body: ir.Graph, inputs: Sequence[Held | ir.Value], number: int
    ) -> list[ir.Value]:
        """The outputs of a copy of the body, for these inputs, before the node."""
        if self.graph.num_nodes() > MAX_NODES:
            raise UnsupportedError(f"{describe(node)}: written out, the model has more than {MAX_NODES:,} nodes")
        copy = body.clone(allow_outer_scope_values=True)
        outputs = list(copy.outputs)
        for own, value in zip(copy.inputs, inputs, strict=True):
            assert isinstance(value, ir.Value)
            own.replace_all_uses_with(value, replace_graph_outputs=True)
            outputs = [value if output is own else output for output in outputs]
        copy.outputs.clear()
        prefix = f"{node.name}_{number}"
        for name, value in list(copy.initializers.items()):
            del copy.initializers[name]
            value.name = f"{prefix}_{name}"
            self.graph.register_initializer(value)
        nodes = list(copy)
        copy.remove(nodes)
        self.graph.insert_before(node, nodes)
        for inner in nodes:
            inner.name = f"{prefix}_{inner.name}"
            for value in inner.outputs:
                value.name = f"{prefix}_{value.name}"
            self.visit(inner)
        return outputs

    def sequence(self, node: ir.Node) -> Listed | Pieces:
        """What the first input holds; UnsupportedError when nobody can tell."""
        value = required(node, 0)
        found = self.held.get(value)
        if not isinstance(found, Listed | Pieces):
            raise UnsupportedError(
                f"{describe(node)}: what the sequence {value.name!r} holds is unknown before the model runs, which is "
                "not supported. Export the model with tensors in its place."
            )
        return found

    def listed(self, node: ir.Node) -> tuple[ir.Value, ...]:
        """The tensors of the first input."""
        found = self.sequence(node)
        if isinstance(found, Pieces):
            raise UnsupportedError(
                f"{describe(node)}: how many pieces {found.whole.name!r} is split into is unknown before its shape is. "
                "Export the model with the sizes of the pieces as constants."
            )
        return found.values

    def position(self, node: ir.Node, place: int) -> int | None:
        """A position that is a constant; None when the input is absent."""
        value = given(node, place)
        numbers = None if value is None else _numbers(value)
        if value is not None and (numbers is None or numbers.size != 1):
            raise UnsupportedError(f"{describe(node)}: position {value.name!r} must be a constant")
        return None if numbers is None else int(numbers.flat[0])


def _numbers(value: ir.Value) -> np.ndarray | None:
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def _within(node: ir.Node, position: int, count: int) -> int:
    if not -count <= position < count:
        raise ModelError(f"{describe(node)}: position {position} is out of range for a sequence of {count}")
    return position % count


# ---------------------------------------------------------------------------------------------------------- operators


def _construct(_: _Resolver, node: ir.Node) -> Listed:
    return Listed(tuple(required(node, position) for position in range(len(node.inputs))))


def _empty(_: _Resolver, __: ir.Node) -> Listed:
    return Listed(())


def _insert(scope: _Resolver, node: ir.Node) -> Listed:
    values, position = scope.listed(node), scope.position(node, 2)
    at = len(values) if position is None else position
    if not -len(values) <= at <= len(values):
        raise ModelError(f"{describe(node)}: position {at} is out of range for a sequence of {len(values)}")
    at += len(values) if at < 0 else 0
    return Listed((*values[:at], required(node, 1), *values[at:]))


def _erase(scope: _Resolver, node: ir.Node) -> Listed:
    values, position = scope.listed(node), scope.position(node, 1)
    at = _within(node, -1 if position is None else position, len(values))
    return Listed((*values[:at], *values[at + 1 :]))


def _at(scope: _Resolver, node: ir.Node) -> ir.Value:
    found, position = scope.sequence(node), scope.position(node, 1)
    if position is None:
        raise ModelError(f"{describe(node)}: the position is missing")
    if isinstance(found, Listed):
        return found.values[_within(node, position, len(found.values))]
    if found.length == 1:
        place = scope.constant(node, position if found.dropped else [position])
        return scope.new(node, "Gather", [found.whole, place], axis=found.axis)[0]
    if position < 0:
        raise UnsupportedError(f"{describe(node)}: position {position} from the end of pieces of unknown number")
    bounds = [scope.constant(node, [n]) for n in (position * found.length, (position + 1) * found.length, found.axis)]
    return scope.new(node, "Slice", [found.whole, *bounds])[0]


def _length(scope: _Resolver, node: ir.Node) -> ir.Value:
    found = scope.sequence(node)
    if isinstance(found, Listed):
        return scope.constant(node, len(found.values))
    (shape,) = scope.new(node, "Shape", [found.whole])
    (size,) = scope.new(node, "Gather", [shape, scope.constant(node, found.axis)])
    (rounded,) = scope.new(node, "Add", [size, scope.constant(node, found.length - 1)])
    return scope.new(node, "Div", [rounded, scope.constant(node, found.length)])[0]


def _split(scope: _Resolver, node: ir.Node) -> Listed | Pieces:
    whole, sizes = required(node, 0), given(node, 1)
    axis, keeps = int(attribute(node, "axis", 0)), bool(attribute(node, "keepdims", 1))
    if sizes is None:
        return Pieces(whole, axis, 1, dropped=not keeps)
    numbers = _numbers(sizes)
    if numbers is None:
        raise UnsupportedError(f"{describe(node)}: the sizes {sizes.name!r} of the pieces must be constants")
    if numbers.ndim == 0:
        if int(numbers) < 1:
            raise ModelError(f"{describe(node)}: pieces of {int(numbers)} elements")
        return Pieces(whole, axis, int(numbers), dropped=False)
    if not 0 < numbers.size <= MAX_PIECES:
        raise UnsupportedError(f"{describe(node)}: {numbers.size:,} pieces; there may be 1 to {MAX_PIECES:,}")
    return Listed(tuple(scope.new(node, "Split", [whole, sizes], outputs=numbers.size, axis=axis)))


def _concat(scope: _Resolver, node: ir.Node) -> ir.Value:
    found, axis, stacks = scope.sequence(node), int(attribute(node, "axis", 0)), bool(attribute(node, "new_axis", 0))
    if isinstance(found, Pieces) and found.axis == axis and found.dropped == stacks:
        return found.whole
    values = scope.listed(node)
    if not values:
        raise ModelError(f"{describe(node)}: the sequence is empty")
    if stacks:
        place = scope.constant(node, [axis])
        values = tuple(scope.new(node, "Unsqueeze", [value, place])[0] for value in values)
    return scope.new(node, "Concat", values, axis=axis)[0]


def _identity(scope: _Resolver, node: ir.Node) -> Held:
    return scope.held[required(node, 0)]


def _map(scope: _Resolver, node: ir.Node) -> list[Held]:
    """The body once for each element, in place of the node."""
    body, values = required_attribute(node, "body"), scope.listed(node)
    inputs = [required(node, position) for position in range(len(node.inputs))]
    columns = [scope.held.get(value, value) for value in inputs]
    if len(inputs) != len(body.inputs) or len(node.outputs) != len(body.outputs):
        raise ModelError(f"{describe(node)}: its inputs and outputs are not those of its body")
    if any(
        not isinstance(c, ir.Value) and (not isinstance(c, Listed) or len(c.values) != len(values)) for c in columns
    ):
        raise UnsupportedError(f"{describe(node)}: its sequences must be lists of one length")
    rows = [
        scope.written_out(node, body, [c.values[n] if isinstance(c, Listed) else c for c in columns], n)
        for n in range(len(values))
    ]
    return [Listed(tuple(row[position] for row in rows)) for position in range(len(body.outputs))]


def _optional(scope: _Resolver, node: ir.Node) -> Held | ir.Value:
    value = given(node, 0)
    return Nothing() if value is None else scope.held.get(value, value)


def _has_element(scope: _Resolver, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    there = value is not None and not isinstance(scope.held.get(value), Nothing)
    made = ir.node("Constant", [], {"value": ir.tensor(np.array(there))}, name=f"{node.name}_there")
    scope.graph.insert_before(node, made)
    return made.outputs[0]


def _get_element(scope: _Resolver, node: ir.Node) -> Held | ir.Value:
    value = required(node, 0)
    found = scope.held.get(value, value)
    if isinstance(found, Nothing):
        raise ModelError(f"{describe(node)}: {value.name!r} holds nothing")
    return found


_HANDLERS = {
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceAt": _at,
    "SequenceLength": _length,
    "SplitToSequence": _split,
    "SequenceMap": _map,
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalHasElement": _has_element,
    "OptionalGetElement": _get_element,
}

RESOLVED = frozenset(_HANDLERS)
"""The operators that are replaced."""
