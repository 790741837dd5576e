"""Rotary position embedding as one node: x * cos + rotated(x) * sin, where rotated(x) is the second half of a head's
features, negated, followed by the first half.

It is RotaryEmbedding from opset 23 on, before that one of com.microsoft for ONNX Runtime. Both read the cosines and
sines of half of the features: those of the other half must be the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.frontend.contributed import MICROSOFT
from opweld.rewrite.rule import Proposal, Refusal, Rule, second_reader
from opweld.rewrite.rules.heads import Heads, as_rows, from_rows, heads_of
from opweld.rewrite.rules.product import is_scalar
from opweld.rewrite.scope import Scope, attribute, operand
from opweld.tensor.dim import ONE, Dim, as_dim

SINCE = 23
"""The opset that introduced RotaryEmbedding."""

_KEEPS = ("Cos", "Sin", "Cast", "Neg", "Unsqueeze", "Reshape", "Expand", "Slice", "Mul", "Div", "Transpose", "Squeeze")
"""Operators whose results have equal halves if their operands do."""


@dataclass(frozen=True)
class _Found:
    """x * cosines + rotated(x) * sines; `nodes` compute it, the last one first."""

    x: ir.Value
    cosines: ir.Value
    sines: ir.Value
    nodes: tuple[ir.Node, ...]


class RotaryEmbedding(Rule):
    """x * cos + concat(-x[half:], x[:half]) * sin"""

    name = "rewrite.rotary_embedding"
    operators = ("Add",)
    formula = True

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        found = _rotated(node, scope)
        if found is None:
            return None
        heads = heads_of(found.x, scope, factors=False)
        refusal = second_reader(found.nodes) or _unclear(found, heads, scope)
        if refusal is not None or heads is None:
            return refusal
        inner = found.nodes[1:]
        if not scope.contributed and scope.opset < SINCE:
            failed = {"opset": scope.opset, "needed": SINCE}
            return Refusal(f"RotaryEmbedding exists since opset {SINCE}", failed, inner)

        def apply() -> None:
            output = node.outputs[0]
            data = as_rows(heads, node, scope) if heads.is_rows else found.x
            caches = [_half(angles, found, scope) for angles in (found.cosines, found.sines)]
            if _contributed(scope):
                operands, domain = [scope.store(node, np.zeros(1, np.int64)), *caches], MICROSOFT
            else:
                operands, domain = for_rows(caches, data, heads.shape[0], node, scope), ""
            if heads.is_rows:
                count = heads.shape[1].constant
                made = scope.add(node, "RotaryEmbedding", [data, *operands], domain, num_heads=count)
                scope.replace(output, from_rows(made, heads.shape, output, node, scope))
            else:
                scope.replace(output, scope.add(node, "RotaryEmbedding", [data, *operands], domain))

        return Proposal(f"{len(found.nodes)} nodes rotate halves", apply, inner, scope.traffic(node.outputs[0]))


def _contributed(scope: Scope) -> bool:
    """Whether ONNX Runtime's operator is written, which reads one row of angles for all rows of the batch."""
    return scope.opset < SINCE


def _rotated(node: ir.Node, scope: Scope) -> _Found | None:
    for direct, crossed in ((0, 1), (1, 0)):
        plain, turned = scope.producer(operand(node, direct), "Mul"), scope.producer(operand(node, crossed), "Mul")
        if plain is None or turned is None:
            continue
        for half, sines in ((0, 1), (1, 0)):
            joined = scope.producer(operand(turned, half), "Concat")
            negated = None if joined is None else scope.producer(operand(joined, 0), "Neg")
            if joined is None or negated is None or len(joined.inputs) != 2:
                continue
            second, first = part_of(negated.inputs[0], scope), part_of(joined.inputs[1], scope)
            shape = scope.shape(joined.outputs[0])
            if first is None or second is None or not shape or first.source is not second.source:
                continue
            size, axis = shape[-1].constant, int(attribute(joined, "axis")) % len(shape)
            if size is None or axis != len(shape) - 1:
                continue
            if (first.start, first.end, second.start, second.end) != (0, size // 2, size // 2, size):
                continue
            x, angles = first.source, operand(turned, sines)
            for position in (0, 1):
                cosines = operand(plain, 1 - position)
                if plain.inputs[position] is x and cosines is not None and angles is not None:
                    nodes = dict.fromkeys((node, plain, turned, joined, negated, first.node, second.node))
                    return _Found(x, cosines, angles, tuple(nodes))
    return None


@dataclass(frozen=True)
class _Part:
    """The elements from start to end of the last axis of a value."""

    node: ir.Node
    source: ir.Value
    start: int
    end: int


def part_of(value: ir.Value | None, scope: Scope) -> _Part | None:
    """The range of features that a value is; None if it is none, or if a size is not known."""
    node = scope.producer(value, "Slice", "Split")
    source = None if node is None else operand(node, 0)
    shape = scope.shape(source)
    size = shape[-1].constant if shape else None
    if node is None or source is None or shape is None or size is None:
        return None
    if node.op_type == "Split":
        sizes = [scope.shape(part) for part in node.outputs]
        lengths = [None if part is None else part[-1].constant for part in sizes]
        if int(attribute(node, "axis", 0)) % len(shape) != len(shape) - 1 or None in lengths:
            return None
        before = [length or 0 for length in lengths[: node.outputs.index(value)]] if value is not None else []
        return _Part(node, source, sum(before), sum(before) + (lengths[len(before)] or 0))
    starts, ends = scope.integers(node, "starts", 1), scope.integers(node, "ends", 2)
    named = "axes" in node.attributes or operand(node, 3) is not None
    axes = scope.integers(node, "axes", 3) if named else [0]
    steps = scope.integers(node, "steps", 4) if operand(node, 4) is not None else [1]
    if starts is None or ends is None or axes is None or steps != [1] or len(starts) != 1:
        return None
    if axes[0] % len(shape) != len(shape) - 1:
        return None
    start, end = (min(max(at + size if at < 0 else at, 0), size) for at in (starts[0], ends[0]))
    return _Part(node, source, start, end)


def _unclear(found: _Found, heads: Heads | None, scope: Scope) -> Refusal | None:
    """Why no operator can express it."""
    inner, fact = found.nodes[1:], scope.fact(found.nodes[0].outputs[0])
    if heads is None or fact is None or fact.shape != heads.shape:
        rank = len(scope.shape(found.x) or ())
        return Refusal("its heads are no axis of their own", {"rank": rank}, inner)
    batch, count, length, size = heads.shape
    if count.constant is None or size.constant is None:
        return Refusal("the number of heads or their size is not known", {"x": _text(heads.shape)}, inner)
    for angles, title in ((found.cosines, "cosines"), (found.sines, "sines")):
        shape = scope.shape(angles)
        whole = ((ONE,) * (4 - len(shape)) + shape) if shape is not None and len(shape) <= 4 else None
        rows = (ONE,) if _contributed(scope) else (ONE, batch)
        if whole not in [(row, ONE, length, size) for row in rows]:
            failed = {title: "not known" if shape is None else _text(shape), "x": _text(heads.shape)}
            return Refusal(f"the {title} differ from row to row of the batch, or from head to head", failed, inner)
        if not _is_doubled(angles, scope):
            return Refusal(f"the {title} of the halves may differ", {title: angles.name or ""}, inner)
    return None


def _text(shape: tuple[Dim, ...]) -> str:
    return "x".join(map(str, shape))


def _is_doubled(value: ir.Value | None, scope: Scope) -> bool:
    """Whether the halves of the last axis of a value are certainly equal."""
    known, shape = scope.constant(value), scope.shape(value)
    if known is not None:
        half = known.shape[-1] // 2 if known.ndim else 0
        return half > 0 and np.array_equal(known[..., :half], known[..., half:])
    node = scope.producer(value, "Concat", "Gather", *_KEEPS)
    if node is None or not shape:
        return False
    if node.op_type == "Concat":
        last = int(attribute(node, "axis")) % len(shape) == len(shape) - 1
        return last and len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
    if node.op_type == "Gather":
        table = scope.shape(node.inputs[0])
        return table is not None and len(table) > 1 and int(attribute(node, "axis", 0)) == 0 and (
            _is_doubled(node.inputs[0], scope)
        )  # fmt: skip
    if node.op_type == "Transpose" and list(attribute(node, "perm", ()))[-1:] != [len(shape) - 1]:
        return False
    sources = node.inputs[:1]
    if node.op_type in ("Mul", "Div"):
        sources = [side for side in node.inputs if not is_scalar(side)]
    befores = [scope.shape(source) for source in sources]
    same = all(before is not None and before[-1:] == shape[-1:] for before in befores)
    return same and len(sources) == 1 and _is_doubled(sources[0], scope)


def _half(angles: ir.Value, found: _Found, scope: Scope) -> ir.Value:
    """The first half of cosines or sines: [length, features] for ONNX Runtime, [batch, length, features] for ONNX.
    Nodes that another embedding created for the same angles are reused."""
    near, known = found.nodes[0], scope.constant(angles)
    *_, batch, _, length, size = (ONE, ONE, ONE, ONE, *(scope.shape(angles) or ()))
    half = (size.constant or 0) // 2
    outer = () if _contributed(scope) else (batch,)
    if known is not None:
        wanted = [-1, half] if _contributed(scope) else [batch.constant or 0, -1, half]
        return scope.store(near, np.ascontiguousarray(known[..., :half]).reshape(wanted))
    whole, wanted = scope.shape(angles) or (), (*outer, length, as_dim(half))
    for reader in scope.readers(angles):
        part = part_of(reader.outputs[0], scope) if reader.op_type == "Slice" else None
        if part is None or (part.source, part.start, part.end) != (angles, 0, half):
            continue
        for other in scope.readers(reader.outputs[0]):
            if other.op_type == "Reshape" and scope.shape(other.outputs[0]) == wanted:
                return other.outputs[0]
    first, last, axis = (scope.store(near, np.array([at], np.int64)) for at in (0, half, len(whole) - 1))
    taken = scope.add(near, "Slice", [angles, first, last, axis])
    scope.tell(taken, (*whole[:-1], as_dim(half)), angles)
    # A batch of unknown size is the first axis of tables of rank 4; lower ranks have no batch axis.
    rows = [] if _contributed(scope) else [batch.constant or 0]
    flat = scope.add(near, "Reshape", [taken, scope.store(near, np.array([*rows, -1, half], np.int64))])
    return scope.tell(flat, wanted, angles)


def for_rows(caches: Sequence[ir.Value], data: ir.Value, batch: Dim, near: ir.Node, scope: Scope) -> Sequence[ir.Value]:
    """Angles [1 or batch, length, features] for each row of the batch, which is the first axis of the data."""
    made, target = list[ir.Value](), None
    for cache in caches:
        shape = scope.shape(cache) or ()
        wanted = (batch, *shape[1:])
        found = cache if shape == wanted else _expanded(cache, wanted, scope)
        if found is None:
            target = _target(data, batch, near, scope) if target is None else target
            found = scope.tell(scope.add(near, "Expand", [cache, target]), wanted, data)
        made.append(found)
    return made


def _expanded(cache: ir.Value, wanted: Sequence[Dim], scope: Scope) -> ir.Value | None:
    """The expanded angles of another embedding."""
    for reader in scope.readers(cache):
        if reader in scope.added and reader.op_type == "Expand" and scope.shape(reader.outputs[0]) == wanted:
            return reader.outputs[0]
    return None


def _target(data: ir.Value, batch: Dim, near: ir.Node, scope: Scope) -> ir.Value:
    """[batch, 1, 1]"""
    if batch.constant is not None:
        return scope.store(near, np.array([batch.constant, 1, 1], np.int64))
    first, last, ones = (scope.store(near, np.array(at, np.int64)) for at in ([0], [1], [1, 1]))
    rows = scope.add(near, "Slice", [scope.add(near, "Shape", [data]), first, last])
    return scope.add(near, "Concat", [rows, ones], axis=0)
