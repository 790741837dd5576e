"""Rotary position embedding whose two parts, halves or every second feature, are rotated separately and concatenated.

    (a, b) -> (a cos - b sin, b cos + a sin)

Cosines and sines are those of one part, which both operators take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.frontend.contributed import MICROSOFT
from opweld.rewrite.rule import Proposal, Refusal, Rule, second_reader
from opweld.rewrite.rules.bounds import bounds_of
from opweld.rewrite.rules.heads import Heads, as_rows, from_rows, heads_of
from opweld.rewrite.rules.rotary import SINCE, for_rows, part_of
from opweld.rewrite.scope import Scope, attribute, operand
from opweld.tensor.dim import ONE, Dim, as_dim


@dataclass(frozen=True)
class _Turned:
    """The parts of x rotated by angles; `nodes` compute it, the last one first."""

    x: ir.Value
    cosines: ir.Value
    sines: ir.Value
    interleaved: bool
    nodes: tuple[ir.Node, ...]


class RotaryParts(Rule):
    """concat(a cos - b sin, b cos + a sin) of the halves a and b, or of every second feature, interleaved again"""

    name = "rewrite.rotary_parts"
    operators = ("Concat", "Reshape")
    formula = True

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        found = _halves(node, scope) if node.op_type == "Concat" else _seconds(node, scope)
        if found is None:
            return None
        inner = found.nodes[1:]
        heads = heads_of(found.x, scope, factors=False)
        refusal = second_reader(found.nodes)
        if refusal is not None:
            return refusal
        fact = scope.fact(node.outputs[0])
        if heads is None or fact is None or fact.shape != heads.shape:
            return Refusal("its heads are no axis of their own", {"rank": len(scope.shape(found.x) or ())}, inner)
        count, size = heads.shape[1].constant, heads.shape[3].constant
        if count is None or size is None:
            return Refusal("the number of heads or their size is not known", {"x": _text(heads.shape)}, inner)
        for angles, title in ((found.cosines, "cosines"), (found.sines, "sines")):
            if not _fits(scope.shape(angles), heads, size // 2, scope):
                failed = {title: _text(scope.shape(angles) or ()), "x": _text(heads.shape)}
                return Refusal(f"the {title} differ from row to row of the batch, or from head to head", failed, inner)
        if not scope.contributed and scope.opset < SINCE:
            failed = {"opset": scope.opset, "needed": SINCE}
            return Refusal(f"RotaryEmbedding exists since opset {SINCE}", failed, inner)
        reason = f"{len(found.nodes)} nodes rotate {'every second feature' if found.interleaved else 'halves'}"
        return Proposal(reason, lambda: _write(node, found, heads, scope), inner, scope.traffic(node.outputs[0]))


def _halves(node: ir.Node, scope: Scope) -> _Turned | None:
    """The parts as halves of the last axis."""
    shape = scope.shape(node.outputs[0])
    if len(node.inputs) != 2 or not shape or int(attribute(node, "axis", 1)) % len(shape) != len(shape) - 1:
        return None
    turned, size = _rotation(node.inputs[0], node.inputs[1], scope), shape[-1].constant
    if turned is None or size is None:
        return None
    a, b, cosines, sines, nodes = turned
    first, second = part_of(a, scope), part_of(b, scope)
    if first is None or second is None or first.source is not second.source:
        return None
    if (first.start, first.end, second.start, second.end) != (0, size // 2, size // 2, size):
        return None
    whole = tuple(dict.fromkeys((node, *nodes, first.node, second.node)))
    return _Turned(first.source, cosines, sines, False, whole)


def _seconds(node: ir.Node, scope: Scope) -> _Turned | None:
    """The parts as every second feature: stacked in pairs, then reshaped."""
    joined = scope.producer(operand(node, 0), "Concat")
    shape, pairs = scope.shape(node.outputs[0]), None if joined is None else scope.shape(joined.outputs[0])
    if joined is None or not shape or not pairs or len(joined.inputs) != 2 or pairs[:-2] != shape[:-1]:
        return None
    if int(attribute(joined, "axis", 1)) % len(pairs) != len(pairs) - 1 or pairs[-1] is not as_dim(2):
        return None
    single = [scope.producer(value, "Unsqueeze", "Reshape") for value in joined.inputs]
    if single[0] is None or single[1] is None:
        return None
    sides = [operand(made, 0) for made in single if made is not None]
    if any(scope.shape(side) != pairs[:-1] for side in sides):
        return None
    turned = _rotation(sides[0], sides[1], scope)
    if turned is None:
        return None
    a, b, cosines, sines, nodes = turned
    first, second = _every_second(a, 0, scope), _every_second(b, 1, scope)
    if first is None or second is None or first.inputs[0] is not second.inputs[0] or first.inputs[0] is None:
        return None
    whole = tuple(dict.fromkeys((node, joined, single[0], single[1], *nodes, first, second)))
    return _Turned(first.inputs[0], cosines, sines, True, whole)


def _every_second(value: ir.Value, start: int, scope: Scope) -> ir.Node | None:
    """The Slice that takes every second feature from a start on."""
    node = scope.producer(value, "Slice")
    shape = None if node is None else scope.shape(operand(node, 0))
    bounds = None if node is None or not shape else bounds_of(node, len(shape), scope)
    size = shape[-1].constant if shape else None
    if node is None or bounds is None or not shape or size is None or size % 2:
        return None
    if bounds.axes != [len(shape) - 1] or bounds.steps != [2] or bounds.starts != [start] or bounds.ends[0] < size - 1:
        return None
    return node


def _rotation(
    first: ir.Value | None, second: ir.Value | None, scope: Scope
) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value, tuple[ir.Node, ...]] | None:
    """a, b, cosines, sines and the nodes of two values that are a cos - b sin and b cos + a sin."""
    less, more = scope.producer(first, "Sub"), scope.producer(second, "Add")
    if less is None or more is None:
        return None
    plain, crossed = (scope.producer(value, "Mul") for value in less.inputs)
    others = [scope.producer(value, "Mul") for value in more.inputs]
    if plain is None or crossed is None or others[0] is None or others[1] is None:
        return None
    for a, cosines in _orders(plain):
        for b, sines in _orders(crossed):
            for direct, other in ((others[0], others[1]), (others[1], others[0])):
                if {b, cosines} == set(direct.inputs) and {a, sines} == set(other.inputs):
                    return a, b, cosines, sines, (less, more, plain, crossed, direct, other)
    return None


def _orders(node: ir.Node) -> Sequence[tuple[ir.Value, ir.Value]]:
    left, right = node.inputs
    return () if left is None or right is None else ((left, right), (right, left))


def _fits(shape: tuple[Dim, ...] | None, heads: Heads, half: int, scope: Scope) -> bool:
    """Whether there is an angle for each position and feature of a part, the same for all heads."""
    if shape is None or len(shape) > 4:
        return False
    batch, _, length, _ = heads.shape
    rows = (ONE,) if scope.opset < SINCE else (ONE, batch)
    whole = (*(ONE,) * (4 - len(shape)), *shape)
    return whole in [(row, ONE, length, as_dim(half)) for row in rows]


def _write(node: ir.Node, found: _Turned, heads: Heads, scope: Scope) -> None:
    output, count, length = node.outputs[0], heads.shape[1].constant, heads.shape[2]
    data = as_rows(heads, node, scope) if heads.is_rows else found.x
    contributed, caches = scope.opset < SINCE, list[ir.Value]()
    for angles in (found.cosines, found.sines):
        shape = scope.shape(angles) or (ONE,)
        rows = shape[0] if len(shape) == 4 else ONE
        target = [-1] if contributed else [0 if len(shape) == 4 else 1, -1]
        target.append(shape[-1].constant or 0)
        made = scope.add(node, "Reshape", [angles, scope.store(node, np.array(target, np.int64))])
        caches.append(scope.tell(made, (*(() if contributed else (rows,)), length, shape[-1]), angles))
    if contributed:
        operands, domain = [scope.store(node, np.zeros(1, np.int64)), *caches], MICROSOFT
    else:
        operands, domain = [*for_rows(caches, data, heads.shape[0], node, scope)], ""
    attributes = {"interleaved": 1 if found.interleaved else None, "num_heads": count if heads.is_rows else None}
    made = scope.add(node, "RotaryEmbedding", [data, *operands], domain, **attributes)
    scope.replace(output, from_rows(made, heads.shape, output, node, scope) if heads.is_rows else made)


def _text(shape: tuple[Dim, ...]) -> str:
    return "x".join(map(str, shape))
