"""Facts of a model's values that hold for all inputs: dtypes, shapes, elements of small integer tensors.

Inference is the compiler's own, without its assumptions: a node that would need one is not inferred, nor are its
consumers. Facts are stored by name, so that they hold for the model at its original opset too: conversion keeps the
names of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import onnx_ir

from opweld import ir
from opweld.errors import OpweldError
from opweld.frontend.assume import Assumptions
from opweld.frontend.graph import graph_of
from opweld.frontend.infer import Again, Fork, Trace
from opweld.frontend.interface import interface_of
from opweld.frontend.values import initial_facts, values_read
from opweld.ops.fact import Fact
from opweld.ops.registry import NeedsSegment
from opweld.tensor.dim import ONE, Atom, Dim, FloorDiv, Symbol, nonnegative

DEMANDING = ("Reshape", "MatMul", "Gemm", "Conv", "ConvTranspose", "Concat")
"""Operators for which ONNX requires the equality that `Inference.same` asks for; others are defined where sizes differ,
as Einsum where one is 1, or Split with parts of different sizes."""


CLAMPING = ("Slice", "Range")
"""Operators defined, with fewer or no elements, where the condition of `Inference.at_least` fails; others require
it."""


class _Certain(Trace):
    """Inference without assumptions: a node that would need one is deferred, with its consumers.

    The equality of sizes that an operator requires is not an assumption: any valid run satisfies it."""

    def same(self, a: Dim, b: Dim, node: ir.Node, why: str) -> Dim:
        """One of two sizes that the node requires to be equal."""
        try:
            return super().same(a, b, node, why)
        except Again:
            if node.op_type not in DEMANDING or (node.op_type == "Reshape" and self._may_keep(node)):
                raise
            return min(a, b, key=lambda dim: (dim.constant is None, len(dim.terms)))

    def _may_keep(self, node: ir.Node) -> bool:
        """Whether a size of the new shape may be 0, which would keep the input's size."""
        target = None if node.inputs[1] is None else self.fact(node.inputs[1]).elements
        dims = () if target is None else target.flat
        return not all(isinstance(dim, Dim) and (dim.constant is not None or _is_positive(dim)) for dim in dims)

    def broadcast(self, shapes: Sequence[tuple[Dim, ...]], node: ir.Node) -> tuple[Dim, ...]:
        """The broadcast shape of operands; a size is a new symbol where one of two may be 1."""
        rank = max((len(shape) for shape in shapes), default=0)
        padded = [(ONE,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
        return tuple(self._together(dims, node) for dims in zip(*padded, strict=True))

    def _together(self, dims: Sequence[Dim], node: ir.Node) -> Dim:
        large = [dim for dim in dict.fromkeys(dims) if dim is not ONE] or [ONE]
        # A known size is that of the result: the others are equal to it, or 1.
        known = [dim for dim in large if dim.constant is not None]
        if len(large) > 1 and not known:
            # The same sizes broadcast to the same symbol everywhere.
            return Symbol(f"({' with '.join(sorted(map(str, large)))})", 0).dim
        return super().broadcast([(dim,) for dim in known or large], node)[0]

    def _settle(self, node: ir.Node) -> None:
        if any(self.resolved(value) in self._late for value in values_read(node)):
            return self._defer(node)
        visited, deferred, guards = len(self.nodes), len(self.deferred), len(self.guards)
        try:
            self._visit(node)
        except (Again, Fork, NeedsSegment, OpweldError):
            del self.nodes[visited:], self.deferred[deferred:]
            return self._defer(node)
        if node.op_type in CLAMPING and len(self.guards) > guards:
            # Its assumptions are not facts, for this node or for another with the same ones.
            for margin in list(self.guards)[guards:]:
                del self.guards[margin]
            self._clamped(node)
        return None

    def _clamped(self, node: ir.Node) -> None:
        """Makes the size of each sliced axis unknown, unless it is certain."""
        (value,) = node.outputs
        fact = self.facts[value]
        cut = self.fact(node.inputs[0]).shape if node.op_type == "Slice" and node.inputs[0] is not None else ()

        def size(axis: int, dim: Dim) -> Dim:
            whole = cut[axis] if axis < len(cut) else None
            known = whole is dim or (whole is not None and whole.constant is not None and dim.constant is not None)
            return dim if known else Symbol(f"({value.name} {axis})", 0).dim

        self.facts[value] = Fact(fact.dtype, tuple(size(axis, dim) for axis, dim in enumerate(fact.shape)))

    def enter(self, body: ir.Graph) -> None:
        """Infers a body without its node's facts about inputs, which may hold for one iteration or branch only."""
        for node in body:
            for value in node.outputs:
                self.facts.pop(value, None)
                self.aliases.pop(value, None)
                self._late.discard(value)
        for value in body.inputs:
            self.facts.pop(value, None)
            self._late.add(value)
        self.run(list(body), initial_facts(body))

    def certain(self, value: ir.Value) -> Fact | None:
        """The fact of a value; None where it depends on an uncertain one."""
        found = self.resolved(value)
        return None if value in self._late or found in self._late else self.facts.get(found)


def _is_positive(dim: Dim) -> bool:
    """Whether a size is provably at least 1: as a whole, or as a sum of products of such sizes or quotients."""
    if nonnegative(dim - 1):
        return True
    return all(count > 0 and all(map(_is_positive_factor, factors)) for factors, count in dim.terms)


def _is_positive_factor(factor: Atom) -> bool:
    return nonnegative(factor.dim - 1) or (isinstance(factor, FloorDiv) and nonnegative(factor.left - factor.right))


@dataclass(frozen=True)
class Facts:
    """Facts about the values of a graph, by name, and about those of its bodies, by the first output of the node that
    owns the body and the name of the body's attribute."""

    values: Mapping[str, Fact] = field(default_factory=dict[str, Fact])
    bodies: Mapping[tuple[str, str], Facts] = field(default_factory=dict[tuple[str, str], "Facts"])


def certain_facts(model: onnx_ir.Model) -> Facts:
    """The facts of a loaded model (see `frontend.onnx.load`)."""
    graph = graph_of(model)
    interface = interface_of(graph, {})

    def refuse(assumptions: Assumptions, demand: Again | Fork) -> NoReturn:
        raise AssertionError(f"a node settled with {type(demand).__name__}")

    trace = _Certain(Assumptions(), refuse)
    trace.run(graph, {**initial_facts(graph), **interface.facts})
    return _facts(trace, graph)


def _facts(trace: _Certain, graph: ir.Graph) -> Facts:
    made = (value for node in graph for value in node.outputs)
    known = {value.name: trace.certain(value) for value in (*graph.inputs, *graph.stored, *made)}
    bodies: dict[tuple[str, str], Facts] = {}
    for owner in graph:
        for name, body in owner.attributes.items():
            if isinstance(body, ir.Graph):
                trace.enter(body)
                bodies[owner.outputs[0].name, name] = _facts(trace, body)
    return Facts({name: fact for name, fact in known.items() if name and fact is not None}, bodies)


def bodies_of(node: onnx_ir.Node) -> Iterator[tuple[str, onnx_ir.Graph]]:
    """The bodies of a node, by the names of its attributes."""
    for name, attribute in node.attributes.items():
        if attribute.type == onnx_ir.AttributeType.GRAPH:
            yield name, attribute.as_graph()
