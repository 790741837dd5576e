"""The heads of an attention: their layout, before transpositions, scales and repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rules.product import scaled
from opweld.rewrite.scope import Scope, attribute, operand
from opweld.tensor.dim import ONE, Dim

ROWS = (0, 2, 1, 3)
"""The permutation between heads [batch, heads, length, size] and rows [batch, length, heads, size]: its own inverse."""

_LAID_OUT = ("Reshape", "Unsqueeze", "Squeeze", "Flatten")


@dataclass(frozen=True)
class Heads:
    """number * base, with its axes in this order: [batch, heads, length, size]. `nodes` scale it."""

    base: ir.Value
    order: tuple[int, ...]
    shape: tuple[Dim, ...]
    number: float
    nodes: tuple[ir.Node, ...]

    @property
    def is_rows(self) -> bool:
        """Whether the heads of a position are adjacent."""
        return self.order == ROWS

    @property
    def width(self) -> int:
        """Elements of all heads of a position."""
        return (self.shape[1].constant or 0) * (self.shape[3].constant or 0)

    def swapped(self) -> Heads:
        """The last two axes swapped."""
        order, shape = self.order, self.shape
        return replace(self, order=(*order[:2], order[3], order[2]), shape=(*shape[:2], shape[3], shape[2]))


def heads_of(value: ir.Value | None, scope: Scope, factors: bool = True) -> Heads | None:
    """A value of four axes as the transposition and, with `factors`, the multiple of another."""
    shape = scope.shape(value)
    if value is None or shape is None or len(shape) != 4:
        return None
    order, number, nodes = (0, 1, 2, 3), 1.0, list[ir.Node]()
    while True:
        base, by = scaled(value, scope) if factors else (value, 1.0)
        producer = value.producer()
        if base is not value and producer is not None and scope.shape(base) == scope.shape(value):
            nodes.append(producer)
            value, number = base, number * by
            continue
        transpose = scope.producer(value, "Transpose")
        before = None if transpose is None else transpose.inputs[0]
        perm: Sequence[int] = () if transpose is None else attribute(transpose, "perm", ())
        if before is None or len(perm) != 4 or scope.shape(before) is None:
            return Heads(value, order, shape, number, tuple(nodes))
        value, order = before, tuple(int(perm[axis]) for axis in order)


def unrepeated(heads: Heads, scope: Scope, factors: bool = True) -> Heads:
    """The heads before each is repeated several times in a row; unchanged if they are not repeated."""
    flat = scope.producer(heads.base, *_LAID_OUT)
    expand = None if flat is None else scope.producer(operand(flat, 0), "Expand")
    single = None if expand is None else scope.producer(operand(expand, 0), *_LAID_OUT)
    if flat is None or expand is None or single is None or heads.order != (0, 1, 2, 3):
        return heads
    source, apart, wide = operand(single, 0), scope.shape(operand(expand, 0)), scope.shape(expand.outputs[0])
    before = scope.shape(source)
    if source is None or before is None or apart is None or wide is None or len(wide) != 5 or len(before) != 4:
        return heads
    if apart != (*before[:2], ONE, *before[2:]) or wide[:2] != before[:2] or wide[3:] != before[2:]:
        return heads
    if heads.shape != (before[0], before[1] * wide[2], *before[2:]):
        return heads
    inner = heads_of(source, scope, factors)
    if inner is None:
        return heads
    return replace(inner, number=inner.number * heads.number, nodes=(*heads.nodes, *inner.nodes))


def laid_out(heads: Heads, near: ir.Node, scope: Scope) -> ir.Value:
    """Heads as [batch, heads, length, size], without the factor."""
    if heads.order == (0, 1, 2, 3):
        return heads.base
    return scope.tell(scope.add(near, "Transpose", [heads.base], perm=heads.order), heads.shape, heads.base)


def as_rows(heads: Heads, near: ir.Node, scope: Scope) -> ir.Value:
    """Heads as [batch, length, heads * size], without the factor."""
    batch, count, length, size = heads.shape
    apart = heads.base
    if not heads.is_rows:
        order = tuple(heads.order[axis] for axis in ROWS)
        if order != (0, 1, 2, 3):
            apart = scope.add(near, "Transpose", [apart], perm=order)
            scope.tell(apart, (batch, length, count, size), heads.base)
    flat = scope.add(near, "Reshape", [apart, scope.store(near, np.array([0, 0, heads.width], np.int64))])
    return scope.tell(flat, (batch, length, count * size), heads.base)


def from_rows(rows: ir.Value, shape: tuple[Dim, ...], like: ir.Value, near: ir.Node, scope: Scope) -> ir.Value:
    """Rows [batch, length, heads * size] as heads of the given shape."""
    batch, count, length, size = shape
    scope.tell(rows, (batch, length, count * size), like)
    wanted = scope.store(near, np.array([0, 0, count.constant or 0, size.constant or 0], np.int64))
    apart = scope.tell(scope.add(near, "Reshape", [rows, wanted]), (batch, length, count, size), like)
    return scope.tell(scope.add(near, "Transpose", [apart], perm=ROWS), shape, like)
