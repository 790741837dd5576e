"""The graph of operators that inference and lowering read: nodes, and the values between them.

A front end converts its format to it, as that of ONNX does (`frontend/graph.py`). An operator is identified by its
domain and name (`ops/registry.py`), and attributes are plain Python values, so that other formats can use ONNX's
operators with their inference and lowering, and have operators of their own in another domain.

Nodes, values and graphs compare by identity. A value belongs to one graph; a body may read values of enclosing graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from opweld.tensor.dtype import DType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Stored:
    """The data of a stored tensor, read on demand. `dtype`: as of `Value`."""

    dtype: DType | str
    shape: tuple[int, ...]
    read: Callable[[], Array]

    @classmethod
    def of(cls, array: Array) -> Stored:
        """That of an array."""
        return cls(DType.of_numpy(array.dtype), array.shape, partial(_same, array))


def _same(array: Array) -> Array:
    return array


class Value:
    """A value of a graph.

    Attributes:
        name: "" where it has none; an output without a name is absent.
        dtype: as declared; the format's name of an element type that opweld has none for; None where not declared.
        shape: sizes, and names of dynamic dims, as declared; "" for a dim without one; None where not declared.
        stored: the data of a stored tensor. producer: the node that it is an output of.
        is_input: whether it is an input of the graph or a body. is_read: whether it is read, or output of a graph.
    """

    __slots__ = ("dtype", "is_input", "is_read", "name", "producer", "shape", "stored")

    def __init__(
        self,
        name: str = "",
        dtype: DType | str | None = None,
        shape: Sequence[int | str] | None = None,
        stored: Stored | None = None,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = None if shape is None else tuple(shape)
        self.stored = stored
        self.producer: Node | None = None
        self.is_input = False
        self.is_read = False

    def __repr__(self) -> str:
        return f"Value({self.name!r})"


class Node:
    """An application of an operator.

    Attributes:
        op_type, domain: identify the operator; "" is the domain of ONNX's own operators.
        inputs: None for an optional one that is absent. outputs: at least one.
        attributes: numbers, strings, sequences of these, arrays, and graphs, which are bodies.
        name: for messages, decisions and kernels. bodies: the graphs among its attributes.
    """

    __slots__ = ("attributes", "bodies", "domain", "inputs", "name", "op_type", "outputs")

    def __init__(
        self,
        op_type: str,
        inputs: Iterable[Value | None],
        outputs: Iterable[Value],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        name: str = "",
    ) -> None:
        self.op_type, self.domain, self.name = op_type, "" if domain == "ai.onnx" else domain, name
        self.inputs: Sequence[Value | None] = tuple(inputs)
        self.outputs: Sequence[Value] = tuple(outputs)
        self.attributes: Mapping[str, Any] = dict(attributes or {})
        self.bodies = tuple(body for attribute in self.attributes.values() for body in _bodies(attribute))
        for value in self.inputs:
            if value is not None:
                value.is_read = True
        for value in self.outputs:
            value.producer = self

    def __repr__(self) -> str:
        return f"Node({self.op_type!r}, {self.name!r})"


class Graph:
    """Nodes in topological order. `stored`: its stored tensors."""

    __slots__ = ("inputs", "name", "nodes", "outputs", "stored")

    def __init__(
        self,
        inputs: Iterable[Value],
        outputs: Iterable[Value],
        nodes: Iterable[Node],
        stored: Iterable[Value] = (),
        name: str = "",
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.nodes, self.stored, self.name = tuple(nodes), tuple(stored), name
        for value in self.inputs:
            value.is_input = True
        for value in self.outputs:
            value.is_read = True

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    @property
    def all_nodes(self) -> Iterator[Node]:
        """Its nodes and those of bodies, a node before those of its bodies."""
        todo = [iter(self.nodes)]
        while todo:
            node = next(todo[-1], None)
            if node is None:
                todo.pop()
                continue
            yield node
            todo += [iter(body.nodes) for body in reversed(node.bodies)]

    @property
    def subgraphs(self) -> Iterator[Graph]:
        """The bodies in it, and those in bodies."""
        for node in self.all_nodes:
            yield from node.bodies

    def copied(self) -> Graph:
        """A deep copy that reads the same values of enclosing graphs."""
        return _copied(self, {})

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.nodes)} nodes)"


def _bodies(attribute: Any) -> tuple[Graph, ...]:
    """The graph that an attribute is, or the graphs."""
    if isinstance(attribute, Graph):
        return (attribute,)
    if not isinstance(attribute, tuple):
        return ()
    parts = cast("tuple[object, ...]", attribute)
    return cast("tuple[Graph, ...]", parts) if parts and isinstance(parts[0], Graph) else ()


def _copied(graph: Graph, made: dict[Value, Value]) -> Graph:
    def own(value: Value) -> Value:
        made[value] = copy = Value(value.name, value.dtype, value.shape, value.stored)
        return copy

    def attribute(found: Any) -> Any:
        bodies = _bodies(found)
        copies = tuple(_copied(body, made) for body in bodies)
        return found if not bodies else copies[0] if found is bodies[0] else copies

    inputs, stored = [own(value) for value in graph.inputs], [own(value) for value in graph.stored]
    nodes: list[Node] = []
    for node in graph.nodes:
        read = [None if value is None else made.get(value, value) for value in node.inputs]
        attributes = {name: attribute(found) for name, found in node.attributes.items()}
        outputs = [own(value) for value in node.outputs]
        nodes.append(Node(node.op_type, read, outputs, attributes, domain=node.domain, name=node.name))
    return Graph(inputs, [made.get(value, value) for value in graph.outputs], nodes, stored, graph.name)
