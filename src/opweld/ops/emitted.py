"""Tensors that a lowering adds to the program, written as functions of their indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opweld import ir
from opweld.ops.registry import Lowering, fresh_axes
from opweld.tensor.dim import ZERO, Dim, DimLike, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index, load, select

Indices: TypeAlias = "tuple[Dim, ...]"
Body: TypeAlias = "Callable[[Indices], Expr]"


@dataclass(frozen=True)
class Emitted:
    """A tensor of the program under construction."""

    name: str
    dtype: DType

    def at(self, indices: Sequence[DimLike]) -> Expr:
        """The element at indices, as many as the tensor has axes."""
        return load(self.name, self.dtype, tuple(as_dim(i) for i in indices))


def emit(scope: Lowering, shape: Sequence[Dim], body: Body, hint: str) -> Emitted:
    """Adds a tensor of the shape whose element at given indices is `body(indices)`."""
    axes = fresh_axes(shape)
    element = body(tuple(axis.dim for axis in axes))
    return Emitted(scope.emit(axes, element, hint), element.dtype)


def define(scope: Lowering, value: ir.Value, body: Body) -> None:
    """Defines an output of the node by a function of its indices, rounded to the dtype of the output.

    The body is not called where an axis is empty: it might divide an index by zero."""
    fact = scope.fact(value)
    axes = fresh_axes(fact.shape)
    empty = ZERO in fact.shape
    element = const(0, fact.dtype) if empty else cast(body(tuple(axis.dim for axis in axes)), fact.dtype)
    scope.result(value, axes, element)


def define_each(scope: Lowering, value: ir.Value, elements: Sequence[Expr]) -> None:
    """Defines an output of one axis by its elements, one by one."""

    def body(at: Indices) -> Expr:
        chosen = elements[-1]
        for place in range(len(elements) - 2, -1, -1):
            chosen = select(binary("eq", index(at[0]), const(place, DType.I64)), elements[place], chosen)
        return chosen

    define(scope, value, body)
