"""Merges two nodes of the same operator in a row: added or removed axes, slices, concatenations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.bounds import BY_INPUT, bounds_of
from opweld.rewrite.scope import Scope, attribute, operand

AXES_BY_INPUT = 13
"""The opset in which the axes of Unsqueeze and Squeeze became an input."""


def _first(node: ir.Node, scope: Scope) -> ir.Node | Refusal | None:
    """The node of the same operator before a node, if its result has no other readers."""
    first = scope.producer(operand(node, 0), node.op_type)
    if first is None or first.inputs[0] is None:
        return None
    if not scope.only_reader(first.outputs[0]):
        return Refusal("the first is read elsewhere too", {"readers": len(scope.readers(first.outputs[0]))}, (first,))
    return first


class Axes(Rule):
    """Unsqueeze(Unsqueeze(x)) adds the axes of both; Squeeze(Squeeze(x)) removes them."""

    name = "rewrite.axes"
    operators = ("Unsqueeze", "Squeeze")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        first = _first(node, scope)
        if not isinstance(first, ir.Node):
            return first
        source, shape = first.inputs[0], scope.shape(first.inputs[0])
        inner, outer = scope.integers(first, "axes", 1), scope.integers(node, "axes", 1)
        if shape is None or inner is None or outer is None or source is None:
            return None
        adds = node.op_type == "Unsqueeze"
        between = len(shape) + len(inner) * (1 if adds else -1)
        last = between + len(outer) * (1 if adds else -1)
        if adds:
            named = {axis % last for axis in outer}
            left = [axis for axis in range(last) if axis not in named]
            both = sorted({*named, *(left[axis % between] for axis in inner)})
        else:
            named = {axis % len(shape) for axis in inner}
            left = [axis for axis in range(len(shape)) if axis not in named]
            both = sorted({*named, *(left[axis % between] for axis in outer)})

        def apply() -> None:
            if scope.opset < AXES_BY_INPUT:
                made = scope.add(node, node.op_type, [source], axes=both)
            else:
                made = scope.add(node, node.op_type, [source, scope.store(node, np.array(both, np.int64))])
            scope.replace(node.outputs[0], made)

        return Proposal("one node has the axes of both", apply, (first,), scope.traffic(node.outputs[0]))


class Slices(Rule):
    """Slices of different axes are one Slice."""

    name = "rewrite.slices"
    operators = ("Slice",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        first = _first(node, scope) if scope.opset >= BY_INPUT else None
        if not isinstance(first, ir.Node):
            return first
        rank = len(scope.shape(first.inputs[0]) or ())
        inner, outer = bounds_of(first, rank, scope), bounds_of(node, rank, scope)
        if inner is None or outer is None:
            return None
        shared = set(inner.axes) & set(outer.axes)
        if shared:
            return Refusal("both cut the same axis", {"axis": min(shared)}, (first,))
        starts, ends = [*inner.starts, *outer.starts], [*inner.ends, *outer.ends]
        whole = (starts, ends, [*inner.axes, *outer.axes], [*inner.steps, *outer.steps])

        def apply() -> None:
            stored = [scope.store(node, np.array(numbers, np.int64)) for numbers in whole]
            scope.replace(node.outputs[0], scope.add(node, "Slice", [first.inputs[0], *stored]))

        return Proposal("one Slice cuts the axes of both", apply, (first,), scope.traffic(first.outputs[0]))


class Concats(Rule):
    """A concatenation of a concatenation along the same axis is one."""

    name = "rewrite.concats"
    operators = ("Concat",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        rank = len(scope.shape(node.outputs[0]) or ())
        inner = [
            made
            for made in (scope.producer(value, "Concat") for value in node.inputs)
            if made is not None and rank and attribute(made, "axis", 1) % rank == attribute(node, "axis", 1) % rank
        ]
        alone = [made for made in inner if scope.only_reader(made.outputs[0])]
        if not alone:
            return Refusal("what is joined first is read elsewhere too", {}, tuple(inner)) if inner else None
        parts: list[ir.Value | None] = []
        for value in node.inputs:
            made = None if value is None else value.producer()
            parts += made.inputs if made is not None and made in alone else [value]

        def apply() -> None:
            scope.replace(node.outputs[0], scope.add(node, "Concat", parts, axis=attribute(node, "axis", 1)))

        return Proposal("all parts are joined at once", apply, tuple(alone), scope.traffic(alone[0].outputs[0]))
