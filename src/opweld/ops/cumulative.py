"""Cumulative sums and products: a reduction over the preceding elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import accumulator
from opweld.ops.emitted import Body, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.fed_axes import by_fed_axes
from opweld.ops.operands import describe, known_integers, normalize_axis, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim, ceildiv, floordiv, mod
from opweld.tensor.expr import Expr, binary, cast, const, load, reduce
from opweld.tensor.operators import neutral

KINDS = {"CumSum": "sum", "CumProd": "prod"}
"""Operator -> its reduction."""

COMBINED = {"sum": "add", "prod": "mul"}
"""Reduction -> what combines two of its results."""

SHORT = 64
"""The most elements whose running reduction is one of all that are before each."""

BLOCK, OUTER_BLOCK = 16, 8
"""The elements of a block of more than these, along the last axis, where lanes run over a block, and another one."""

LEVELS = 2
"""How often an unknown number is divided into blocks."""


@infers(*KINDS)
def infer_cumulative(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input."""
    fact = scope.fact(required(node, 0))
    fed = by_fed_axes(scope, node, 1, fact.rank)
    if fed is not None:
        return fed
    _axis(scope, node, fact.rank)
    return [Fact(fact.dtype, fact.shape)]


@lowers(*KINDS)
def lower_cumulative(scope: Lowering, node: ir.Node) -> None:
    """The reduction of the elements up to the index (without it if exclusive, from the end if reverse)."""
    x = required(node, 0)
    fact = scope.fact(x)
    kind = KINDS[node.op_type]
    nothing = const(neutral(kind, fact.dtype), fact.dtype)

    def element(at: Indices, guards: Indices) -> Expr:
        return cast(scope.load(x, at, guards, nothing), accumulator(fact.dtype))

    run = _Run(scope, kind, _axis(scope, node, fact.rank), bool(attribute(node, "reverse", 0)))
    define(scope, node.outputs[0], run.of(fact.shape, element, bool(attribute(node, "exclusive", 0))))


Element: TypeAlias = "Callable[[Indices, Indices], Expr]"
"""The element at indices where none of the guards is negative, elsewhere what changes nothing."""


@dataclass(frozen=True, eq=False)
class _Run:
    """Running reductions along an axis.

    Of a long axis, those within blocks are each combined with that of all blocks before it, which is another running
    reduction: each element takes as many steps as are before it in its block, not as many as are before it at all."""

    scope: Lowering
    kind: str
    axis: int
    reverse: bool

    def of(self, shape: Sequence[Dim], element: Element, exclusive: bool, level: int = 0) -> Body:
        """The running reduction of a tensor, at a level of blocks of blocks."""
        length = shape[self.axis]
        if level == LEVELS if length.constant is None else length.constant <= SHORT:
            return lambda at: self._up_to(at, ZERO, length, at[self.axis], element, exclusive, length)
        before, after = tuple(shape[: self.axis]), tuple(shape[self.axis + 1 :])
        block = as_dim(BLOCK if self.axis == len(shape) - 1 else OUTER_BLOCK)
        count = ceildiv(length, block)

        def total(at: Indices) -> Expr:
            k = Axis("k", block)
            place = block * at[self.axis] + k.dim
            return reduce(self.kind, (k,), element(self._at(at, place), (length - 1 - place,)))

        totals = emit(self.scope, (*before, count, *after), total, "totals")

        def of_blocks(at: Indices, guards: Indices) -> Expr:
            return load(totals.name, totals.dtype, at, guards, const(neutral(self.kind, totals.dtype), totals.dtype))

        carried = self.of((*before, count, *after), of_blocks, exclusive=True, level=level + 1)
        carries = emit(self.scope, (*before, count, *after), carried, "carried")

        def within(at: Indices) -> Expr:
            number, position = at[self.axis], at[self.axis + 1]
            outside = (*at[: self.axis], number, *at[self.axis + 2 :])
            own = self._up_to(outside, block * number, block, position, element, exclusive, length)
            return binary(COMBINED[self.kind], carries.at(outside), own)

        blocks = emit(self.scope, (*before, count, block, *after), within, "blocks")

        def found(at: Indices) -> Expr:
            place = at[self.axis]
            return blocks.at((*at[: self.axis], floordiv(place, block), mod(place, block), *at[self.axis + 1 :]))

        return found

    def _up_to(
        self, at: Indices, first: Dim, count: Dim, position: Dim, element: Element, exclusive: bool, length: Dim
    ) -> Expr:
        """The reduction of those of `count` elements, from the first on, that are before a position among them, or
        after it."""
        k = Axis("k", count)
        distance = k.dim - position if self.reverse else position - k.dim
        place = first + k.dim
        return reduce(self.kind, (k,), element(self._at(at, place), (distance - exclusive, length - 1 - place)))

    def _at(self, at: Indices, place: Dim) -> Indices:
        return (*at[: self.axis], place, *at[self.axis + 1 :])


def _axis(scope: Inference | Lowering, node: ir.Node, rank: int) -> int:
    axes = known_integers(scope, node, 1, "the axis")
    if axes is None or len(axes) != 1:
        raise ModelError(f"{describe(node)}: expected one axis")
    return normalize_axis(axes[0], rank, node)
