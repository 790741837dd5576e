"""The graph as rules see it: facts about its values, their readers, and the operations that change it."""

from __future__ import annotations

import copy
import math
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from opweld.frontend.aligned import BINARY, OPSET_OF_NUMPY
from opweld.frontend.nodes import values_read
from opweld.ledger import Ledger
from opweld.ops.elements import known_integers_of
from opweld.ops.fact import Fact
from opweld.rewrite.facts import Facts, bodies_of
from opweld.rewrite.spill import spilled
from opweld.tensor.dim import Dim, as_dim

Array = NDArray[Any]

BROADCAST = BINARY | {"Gemm"}
"""Operators that broadcast an operand before opset 7 only with an attribute."""


@dataclass
class Visited:
    """What a rule inspected while it was matched at a node, for near misses (see `near_misses.py`).

    Attributes:
        nodes: those that it visited.
        shared: values that must have no other reader, and have some.
        numbers: numbers that differ from the required ones, each with the required one.
    """

    nodes: dict[ir.Node, None]
    shared: dict[ir.Value, None] = field(default_factory=dict[ir.Value, None])
    numbers: dict[tuple[float, float], None] = field(default_factory=dict[tuple[float, float], None])


class Scope:
    """A graph under rewriting, of the model or a body. `opset` is that of the default domain, `changed` are nodes to be
    matched again, `added` those that rules created, `path` names the enclosing bodies. `contributed`: operators of
    com.microsoft may be used too, for ONNX Runtime. `visited` records what a rule inspects, where near misses are
    searched for, and `alone` is a value whose other readers are ignored."""

    def __init__(self, model: ir.Model, facts: Facts, contributed: bool = False) -> None:
        self.model = model
        self.graph = model.graph
        self.contributed = contributed
        self.opsets: Mapping[str, int] = model.opset_imports
        self.opset = self.opsets.get("", 0)
        self.changed: dict[ir.Node, None] = {}
        self.added: set[ir.Node] = set()
        self.path: tuple[str, ...] = ()
        self.visited: Visited | None = None
        self.alone: ir.Value | None = None
        self._inferred = facts
        self._facts: ChainMap[str, Fact] = ChainMap({}, dict(facts.values))
        self._names = _Names(model)
        self._answers: dict[tuple[str, tuple[str, ...]], str] = {}

    def bodies(self) -> Iterator[tuple[ir.Node, Scope]]:
        """The bodies of this graph's nodes, with the nodes, each to be rewritten by itself. Facts about values that
        they read from this graph are available in them."""
        for node in self.graph:
            for name, body in bodies_of(node):
                inner = copy.copy(self)
                owner = node.outputs[0].name or ""
                inner.graph, inner.path, inner.changed = body, (*self.path, owner, name), {}
                inner._inferred = self._inferred.bodies.get((owner, name), Facts())
                inner._facts = self._facts.new_child(dict(inner._inferred.values))
                yield node, inner

    # ------------------------------------------------------------------------------------------------- what is known

    def fact(self, value: ir.Value | None) -> Fact | None:
        """The fact of a value, None if not certain."""
        return None if value is None else self._facts.get(value.name or "")

    def shape(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The shape of a value, None if not certain."""
        if value is not None and value.const_value is not None:
            return tuple(as_dim(int(extent)) for extent in value.const_value.shape.numpy())
        fact = self.fact(value)
        return None if fact is None else fact.shape

    def constant(self, value: ir.Value | None) -> Array | None:
        """The data of a stored tensor; None for computed values and inputs."""
        if value is None or value.const_value is None or value.is_graph_input():
            return None
        return value.const_value.numpy()

    def integers(self, node: ir.Node, name: str, position: int) -> list[int] | None:
        """Integers that are an attribute in some opsets and an input in others; None if unknown."""
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
        """The value of a stored tensor whose elements are all equal, else None."""
        known = self.constant(value)
        if known is None or known.size == 0 or known.dtype.kind not in "fiu":
            return None
        first = known.reshape(-1)[0]
        return float(first) if bool(np.all(known == first)) else None

    def traffic(self, value: ir.Value) -> int | None:
        """Bytes moved by writing a value and reading it once; None if its size is not certain."""
        fact = self.fact(value)
        sizes = [None] if fact is None else [dim.constant for dim in fact.shape]
        if fact is None or None in sizes:
            return None
        return 2 * math.prod(size for size in sizes if size is not None) * fact.dtype.bytes

    # ------------------------------------------------------------------------------------------------- who reads what

    def readers(self, value: ir.Value) -> list[ir.Node]:
        """The nodes that read a value, once each; including those of bodies."""
        return list(dict.fromkeys(use.node for use in value.uses()))

    def only_reader(self, value: ir.Value) -> bool:
        """Whether a value has a single use and is not an output of the model."""
        only = value is self.alone or (not value.is_graph_output() and len(value.uses()) == 1)
        if not only and self.visited is not None and value.producer() is not None:
            self.visited.shared[value] = None
        return only

    def producer(self, value: ir.Value | None, *operators: str) -> ir.Node | None:
        """The node of this graph that computes a value, if it is one of these operators, named as in `Rule.operators`,
        or any operator of the default domain if none is named; else None."""
        node = None if value is None else value.producer()
        if node is None or node.graph is not self.graph:
            return None
        named = rule_name(node)
        if not (named in operators if operators else named == node.op_type):
            return None
        if self.visited is not None:
            self.visited.nodes[node] = None
        return node

    def wants(self, number: float | None, wanted: float, tolerance: float = 0) -> bool:
        """Whether a number has the value that the formula requires, up to an absolute or relative tolerance."""
        if number is None:
            return False
        same = math.isclose(number, wanted, rel_tol=tolerance, abs_tol=tolerance)
        if not same and self.visited is not None:
            self.visited.numbers[number, wanted] = None
        return same

    # -------------------------------------------------------------------------------------------------------- decisions

    def decide(self, ledger: Ledger, rule: str, site: Sequence[str], subject: str, **request: Any) -> str:
        """The ledger's decision about this graph, see `Ledger.decide`; repeated requests give the same."""
        key = rule, (*self.path, subject)
        if key not in self._answers:
            self._answers[key] = ledger.decide(rule=rule, site=site, subject=key[1], **request)
        return self._answers[key]

    # ---------------------------------------------------------------------------------------------------- how to change

    def add(
        self, before: ir.Node, op_type: str, inputs: Sequence[ir.Value | None], domain: str = "", **attributes: Any
    ) -> ir.Value:
        """Inserts a node with one output before another, named after it; returns the output."""
        return self.add_several(before, op_type, inputs, (True,), domain, **attributes)[0]

    def add_several(
        self,
        before: ir.Node,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        wanted: Sequence[bool],
        domain: str = "",
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        """Inserts a node before another, named after it; returns its outputs, of which unused ones are
        absent."""
        if domain:
            self.model.opset_imports.setdefault(domain, 1)  # removed at the end if the domain is unused
        kept = {name: value for name, value in attributes.items() if value is not None}
        if not domain and op_type in BROADCAST and self.opset < OPSET_OF_NUMPY:
            kept["broadcast"] = 1
        outputs = [ir.Value(name=self._names.fresh(before) if named else "") for named in wanted]
        node = ir.node(op_type, inputs, kept, domain=domain, outputs=outputs, name=before.name)
        node.metadata_props.update(before.metadata_props)
        self.graph.insert_before(before, node)
        self.changed[node] = None
        self.added.add(node)
        return node.outputs

    def tell(self, value: ir.Value, shape: Sequence[Dim], like: ir.Value) -> ir.Value:
        """Annotates an added value with its shape and the type of another value. Returns the value."""
        fact = self.fact(like)
        if fact is not None and value.name:
            self._facts[value.name] = Fact(fact.dtype, tuple(shape))
        return value

    def store(self, near: ir.Node, array: Array) -> ir.Value:
        """Adds a stored tensor to the model, named after a node; bodies see it too, so that equal tensors can be
        merged."""
        name = self._names.fresh(near)
        tensor = ir.tensor(spilled(np.ascontiguousarray(array).reshape(array.shape)), name=name)
        value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape))
        self.model.graph.register_initializer(value)
        return value

    def adopt_tensors(self) -> None:
        """Moves the stored tensors of bodies to the model, except those that are outputs of a body."""
        for body in self.graph.subgraphs():
            for name, value in list(body.initializers.items()):
                if value.is_graph_output() or value.const_value is None:
                    continue
                del body.initializers[name]
                value.name = name if self._names.count(name) == 1 else self._names.other(name)
                self.graph.register_initializer(value)

    def adopt(self, node: ir.Node, before: ir.Node, inner: Scope) -> None:
        """Moves a node of a body before a node of this graph, with its facts. Names that are not unique are
        changed."""
        for value in node.outputs:
            fact, name = inner.fact(value), value.name
            if name and self._names.count(name) > 1:
                value.name = self._names.other(name)
            if fact is not None and value.name:
                self._facts[value.name] = fact
        self.graph.insert_before(before, node)
        self.changed[node] = None

    def replaceable(self, old: ir.Value, new: ir.Value) -> bool:
        """Whether `new` can replace `old` everywhere: an output of the model needs a node of this graph that takes its
        name."""
        if not old.is_graph_output():
            return True
        producer = new.producer()
        return producer is not None and producer.graph is self.graph and not new.is_graph_output()

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Replaces `old` by `new` in all readers; an output of the model keeps its name. Dead nodes are removed."""
        for node in self.readers(old):
            self.touch(node)
        fact = self.fact(old)
        if fact is not None and new.name:
            self._facts.setdefault(new.name, fact)
        producer = old.producer()
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
        if producer is not None:
            self.drop(producer)

    def drop(self, node: ir.Node) -> None:
        """Removes a dead node, then its operands that become dead; stored tensors likewise."""
        pending = [node]
        while pending:
            dead = pending.pop()
            if dead.graph is not self.graph or any(v.uses() or v.is_graph_output() for v in dead.outputs):
                continue
            inputs = list(dict.fromkeys(values_read(dead)))
            self.remove(dead)
            self.changed.pop(dead, None)
            for value in inputs:
                producer = value.producer()
                if producer is not None:
                    pending.append(producer)
                    self.changed.setdefault(producer)
                elif value.is_initializer() and not value.uses() and not value.is_graph_output():
                    for owner in (self.graph, self.model.graph):
                        if owner.initializers.get(value.name or "") is value:
                            del owner.initializers[value.name or ""]
                for reader in self.readers(value):
                    self.touch(reader)  # with fewer readers, more rules may match

    def remove(self, node: ir.Node) -> None:
        """Removes a node whose results have no readers, with its bodies."""
        for _, body in bodies_of(node):
            for dead in list(ir.traversal.RecursiveGraphIterator(body)):
                for position in range(len(dead.inputs)):
                    dead.replace_input_with(position, None)
        self.graph.remove(node, safe=True)

    def touch(self, node: ir.Node) -> None:
        """Marks a node of this graph to be matched again."""
        if node.graph is self.graph:
            self.changed[node] = None


class _Names:
    """The names of a model's values; new ones are unique in all bodies."""

    def __init__(self, model: ir.Model) -> None:
        self._taken: Counter[str | None] = Counter()
        self._fresh = 0
        for graph in (model.graph, *model.graph.subgraphs()):
            self._taken.update(value.name for value in (*graph.inputs, *graph.initializers.values()))
            self._taken.update(value.name for node in graph for value in node.outputs)

    def count(self, name: str) -> int:
        """How many values have a name; those of different bodies may share one."""
        return self._taken[name]

    def fresh(self, near: ir.Node) -> str:
        """A new name derived from a node's."""
        return self.other(next((value.name for value in near.outputs if value.name), "value"))

    def other(self, stem: str) -> str:
        """A new name derived from another one."""
        while True:
            self._fresh += 1
            name = f"{stem}_opweld{self._fresh}"
            if name not in self._taken:
                self._taken[name] += 1
                return name


def operands(node: ir.Node) -> Iterator[tuple[ir.Value | None, ir.Value | None]]:
    """The two operands of a node, and swapped if it is commutative; nothing if attributes define how they are
    broadcast, as before opset 7."""
    if "axis" in node.attributes or "broadcast" in node.attributes:
        return
    yield operand(node, 0), operand(node, 1)
    if node.op_type in ("Add", "Mul"):
        yield operand(node, 1), operand(node, 0)


def kept(node: ir.Node, *without: str) -> dict[str, Any]:
    """The attributes of a node, without some."""
    return {name: value.value for name, value in node.attributes.items() if name not in without}


def qualified(node: ir.Node) -> str:
    """The operator of a node as rules name it: with its domain where that is not the default one."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def rule_name(node: ir.Node) -> str:
    """The operator of a node for rules: none for one that aligns an operand to an axis, as before opset 7, which has
    other semantics than the operator that rules know."""
    return "" if node.op_type in BINARY and "axis" in node.attributes else qualified(node)


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
