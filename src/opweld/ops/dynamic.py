"""Dynamic quantisation to 8 bits: values rounded to 256 levels between their minimum and maximum, found at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import div, larger, number, smaller, sub, where
from opweld.ops.emitted import Body, Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, required, wanted
from opweld.ops.quantize import quantized
from opweld.ops.registry import Inference, Lowering, fresh_axes, infers, lowers
from opweld.tensor.dim import Dim, as_dim, floordiv
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, reduce, unary

Emit: TypeAlias = Callable[[Sequence[Dim], Body, str], Emitted]
"""Adds a tensor of a shape to the program or to each step of a recurrence."""


@dataclass(frozen=True)
class Steps:
    """The scale of the quantisation, and its zero point as uint8."""

    size: Emitted
    zero: Emitted

    def rounded(self, x: Expr) -> Expr:
        """The quantised value, uint8."""
        return quantized(div(x, self.size.at(())), self.zero.at(()), DType.U8)

    def from_zero(self, whole: Expr) -> Expr:
        """A quantised value minus the zero point, in the dtype of the scale."""
        return sub(cast(whole, self.size.dtype), cast(self.zero.at(()), self.size.dtype))


def steps_of(emit: Emit, shape: tuple[Dim, ...], element: Body, lanes: int = 1) -> Steps:
    """Emits scale and zero point for these elements, with zero representable. Where all elements are zero, the scale is
    1.

    If `lanes` is given it must divide the last axis: the extremes of that many interleaved parts are found first, so
    that the reduction to one element, which a recurrence computes serially, is short."""
    parts = floordiv(shape[-1], lanes)
    divided = lanes > 1 and parts * lanes is shape[-1]

    def extreme(kind: str) -> Emitted:
        def whole(_: Indices) -> Expr:
            axes = fresh_axes(shape, "r")
            return reduce(kind, axes, element(tuple(axis.dim for axis in axes)))

        def part(at: Indices) -> Expr:
            axes = fresh_axes((*shape[:-1], parts), "r")
            *outer, last = (axis.dim for axis in axes)
            return reduce(kind, axes, element((*outer, last * lanes + at[0])))

        if not divided:
            return emit((), whole, kind)
        found = emit((as_dim(lanes),), part, f"{kind}_parts")

        def of_parts(_: Indices) -> Expr:
            axes = fresh_axes((as_dim(lanes),), "r")
            return reduce(kind, axes, found.at((axes[0].dim,)))

        return emit((), of_parts, kind)

    least, most = extreme("min"), extreme("max")

    def width(_: Indices) -> Expr:
        whole = sub(larger(most.at(()), 0.0), smaller(least.at(()), 0.0))
        return where(binary("eq", whole, number(0.0, whole)), number(1.0, whole), div(whole, 255.0))

    size = emit((), width, "scale")

    def to_zero(_: Indices) -> Expr:
        return quantized(unary("neg", div(smaller(least.at(()), 0.0), size.at(()))), None, DType.U8)

    return Steps(size, emit((), to_zero, "zero"))


@infers("DynamicQuantizeLinear")
def infer_dynamic_quantize(scope: Inference, node: ir.Node) -> list[Fact]:
    """uint8 of the input's shape, the scale and the zero point."""
    fact = scope.fact(required(node, 0))
    if fact.dtype is not DType.F32:
        raise ModelError(f"{describe(node)}: expected float32, got {fact.dtype!r}")
    return [Fact(DType.U8, fact.shape), Fact(DType.F32, ()), Fact(DType.U8, ())][: len(node.outputs)]


@lowers("DynamicQuantizeLinear")
def lower_dynamic_quantize(scope: Lowering, node: ir.Node) -> None:
    """Scale and zero point from the extremes, and the quantised elements."""
    x = required(node, 0)
    steps = steps_of(partial(emit, scope), scope.fact(x).shape, lambda at: scope.load(x, at))
    elements: list[Body] = [lambda at: steps.rounded(scope.load(x, at)), steps.size.at, steps.zero.at]
    for position, element in enumerate(elements):
        output = wanted(node, position)
        if output is not None:
            define(scope, output, element)
