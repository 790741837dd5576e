"""The graph as rules see it: what is known of its values, who reads them, and the few ways to change it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from opweld.ops.elements import known_integers_of
from opweld.ops.fact import Fact
from opweld.tensor.dim import Dim, as_dim

Array = NDArray[Any]


class Scope:
    """One graph under rewriting. `opset` is that of the default domain, `changed` are nodes to be looked at again.
    `contributed`: operators of com.microsoft may be written too, for ONNX Runtime."""

    def __init__(self, model: ir.Model, facts: Mapping[str, Fact], contributed: bool = False) -> None:
        self.graph = model.graph
        self.contributed = contributed
        self.opsets: Mapping[str, int] = model.opset_imports
        self.opset = self.opsets.get("", 0)
        self.changed: dict[ir.Node, None] = {}
        self._facts = dict(facts)
        self._fresh = 0
        self._names = {value.name for value in self._values()}

    def _values(self) -> Iterable[ir.Value]:
        yield from self.graph.inputs
        yield from self.graph.initializers.values()
        for node in ir.traversal.RecursiveGraphIterator(self.graph):
            yield from node.outputs

    # ------------------------------------------------------------------------------------------------- what is known

    def fact(self, value: ir.Value | None) -> Fact | None:
        """The fact of a value, None where nothing is certain."""
        return None if value is None else self._facts.get(value.name or "")

    def shape(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The shape of a value, where it is certain."""
        if value is not None and value.const_value is not None:
            return tuple(as_dim(int(extent)) for extent in value.const_value.shape.numpy())
        fact = self.fact(value)
        return None if fact is None else fact.shape

    def constant(self, value: ir.Value | None) -> Array | None:
        """The data of a stored tensor; None for what is computed or fed."""
        if value is None or value.const_value is None or value.is_graph_input():
            return None
        return value.const_value.numpy()

    def integers(self, node: ir.Node, name: str, position: int) -> list[int] | None:
        """Integers that are an attribute in some opsets and an input in others; None where they are not known."""
        if name in node.attributes:
            attribute = node.attributes[name]
            one = attribute.type == ir.AttributeType.INT
            return [int(attribute.value)] if one else [int(number) for number in attribute.value]
        value = operand(node, position)
        known = self.constant(value)
        if known is not None:
            return [int(number) for number in known.reshape(-1)]
        fact = self.fact(value)
        return None if fact is None else known_integers_of(fact.elements)

    def single(self, value: ir.Value | None) -> float | None:
        """The number that all elements of a stored tensor are."""
        known = self.constant(value)
        if known is None or known.size == 0 or known.dtype.kind not in "fiu":
            return None
        first = known.reshape(-1)[0]
        return float(first) if bool(np.all(known == first)) else None

    def traffic(self, value: ir.Value) -> int | None:
        """Bytes of writing a value and reading it once; None where its size is not certain."""
        fact = self.fact(value)
        sizes = [None] if fact is None else [dim.constant for dim in fact.shape]
        if fact is None or None in sizes:
            return None
        return 2 * math.prod(size for size in sizes if size is not None) * fact.dtype.bytes

    # ------------------------------------------------------------------------------------------------- who reads what

    def readers(self, value: ir.Value) -> list[ir.Node]:
        """The nodes that read a value, once each; those of bodies too."""
        return list(dict.fromkeys(use.node for use in value.uses()))

    def only_reader(self, value: ir.Value) -> bool:
        """Whether one place reads a value, and it is no output of the model."""
        return not value.is_graph_output() and len(value.uses()) == 1

    def maker(self, value: ir.Value | None, *operators: str) -> ir.Node | None:
        """The node of this graph that makes a value, where it is one of these operators of the default domain."""
        node = None if value is None else value.producer()
        if node is None or node.graph is not self.graph or node.domain not in ("", "ai.onnx"):
            return None
        return node if not operators or node.op_type in operators else None

    # ---------------------------------------------------------------------------------------------------- how to change

    def add(
        self, before: ir.Node, op_type: str, inputs: Sequence[ir.Value | None], domain: str = "", **attributes: Any
    ) -> ir.Value:
        """Adds a node of one output before another, named after it; returns the output."""
        kept = {name: value for name, value in attributes.items() if value is not None}
        node = ir.node(
            op_type, inputs, kept, domain=domain, outputs=[ir.Value(name=self._fresh_name(before))], name=before.name
        )
        node.metadata_props.update(before.metadata_props)
        self.graph.insert_before(before, node)
        self.changed[node] = None
        return node.outputs[0]

    def store(self, near: ir.Node, array: Array) -> ir.Value:
        """Adds a stored tensor, named after a node."""
        name = self._fresh_name(near)
        tensor = ir.tensor(np.ascontiguousarray(array).reshape(array.shape), name=name)
        value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape))
        self.graph.register_initializer(value)
        return value

    def _fresh_name(self, near: ir.Node) -> str:
        stem = next((value.name for value in near.outputs if value.name), "value")
        while True:
            self._fresh += 1
            name = f"{stem}_opweld{self._fresh}"
            if name not in self._names:
                self._names.add(name)
                return name

    def replaceable(self, old: ir.Value, new: ir.Value) -> bool:
        """Whether `new` can stand wherever `old` does: an output of the model needs a node of this graph that takes its
        name."""
        if not old.is_graph_output():
            return True
        maker = new.producer()
        return maker is not None and maker.graph is self.graph and not new.is_graph_output()

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Puts `new` wherever `old` is read; an output of the model keeps its name. Nodes that nobody needs go."""
        for node in self.readers(old):
            self.touch(node)
        fact = self.fact(old)
        if fact is not None and new.name:
            self._facts.setdefault(new.name, fact)
        maker = old.producer()
        if old.is_graph_output():
            name, kind, shape = old.name, old.type, old.shape
            old.name = None
            ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
            new.name, new.type, new.shape = name, kind, shape
        else:
            ir.convenience.replace_all_uses_with(old, new)
        for node in self.readers(new):
            self.touch(node)
        made = new.producer()
        if made is not None:
            self.touch(made)
        if maker is not None:
            self.drop(maker)

    def drop(self, node: ir.Node) -> None:
        """Removes a node that nobody needs, then those that only it needed; stored tensors likewise."""
        pending = [node]
        while pending:
            dead = pending.pop()
            if dead.graph is not self.graph or any(v.uses() or v.is_graph_output() for v in dead.outputs):
                continue
            inputs = list(dict.fromkeys(value for value in dead.inputs if value is not None))
            self.graph.remove(dead, safe=True)
            self.changed.pop(dead, None)
            for value in inputs:
                maker = value.producer()
                if maker is not None:
                    pending.append(maker)
                    self.changed.setdefault(maker)
                elif value.is_initializer() and not value.uses() and not value.is_graph_output():
                    self.graph.initializers.pop(value.name or "", None)
                for reader in self.readers(value):
                    self.touch(reader)  # of fewer readers more may be true

    def touch(self, node: ir.Node) -> None:
        """Has a node of this graph looked at again."""
        if node.graph is self.graph:
            self.changed[node] = None


def operand(node: ir.Node, position: int) -> ir.Value | None:
    """An input of a node; None where it is absent."""
    return node.inputs[position] if position < len(node.inputs) else None


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of an attribute."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def nbytes(array: Array) -> int:
    """Bytes that an array takes in a file."""
    return int(array.size) * array.dtype.itemsize
