"""What is known of a model's values, whatever it is fed: dtypes, shapes, elements of small integer tensors.

Inference is the compiler's own, without its assumptions: a node that would need one is not inferred, nor what hangs on
it. Facts are kept by name, so that they hold for the model at its own opset too: conversion keeps the names of values
that it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import onnx_ir as ir

from opweld.errors import OpweldError
from opweld.frontend.assume import Assumptions
from opweld.frontend.infer import Again, Fork, Trace
from opweld.frontend.interface import interface_of
from opweld.frontend.values import initial_facts, values_read
from opweld.ops.fact import Fact
from opweld.ops.registry import NeedsSegment


class _Certain(Trace):
    """Inference that assumes nothing: what would need it is deferred, with all that hangs on it."""

    def _settle(self, node: ir.Node) -> None:
        if any(self.resolved(value) in self._late for value in values_read(node)):
            return self._defer(node)
        visited, deferred = len(self.nodes), len(self.deferred)
        try:
            self._visit(node)
        except (Again, Fork, NeedsSegment, OpweldError):
            del self.nodes[visited:], self.deferred[deferred:]
            self._defer(node)
        return None


def certain_facts(model: ir.Model) -> Mapping[str, Fact]:
    """The facts of the values of a loaded model (see `frontend.onnx.load`) by name."""
    interface = interface_of(model.graph, {})

    def refuse(assumptions: Assumptions, demand: Again | Fork) -> NoReturn:
        raise AssertionError(f"a node settled with {type(demand).__name__}")

    trace = _Certain(Assumptions(), refuse)
    trace.run(list(model.graph), {**initial_facts(model.graph), **interface.facts})
    known = {value.name: trace.facts[trace.resolved(value)] for value in trace.facts}
    for node in model.graph:
        for value in node.outputs:
            if trace.resolved(value) in trace.facts:
                known[value.name] = trace.facts[trace.resolved(value)]
    return {name: fact for name, fact in known.items() if name}
