"""Reductions over axes: sums, norms, extremes, and positions of extremes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce as fold
from typing import TypeAlias

import numpy as np

from opweld import ir
from opweld.ops.arithmetic import add, count, div, root, square, sub, where
from opweld.ops.emitted import Body, Indices, define
from opweld.ops.fact import Elements, Fact
from opweld.ops.fed_axes import by_fed_axes
from opweld.ops.operands import (
    elements_of,
    known_integers,
    make_elements,
    normalize_axes,
    normalize_axis,
    required,
)
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.ops.rows import Rows, rows_along
from opweld.tensor.dim import ONE, ZERO, Dim, maximum, minimum, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, unary

Finish: TypeAlias = "Callable[[Expr, Dim], Expr]"


def _plain(x: Expr) -> Expr:
    return x


def _as_is(total: Expr, _: Dim) -> Expr:
    return total


def _mean(total: Expr, extent: Dim) -> Expr:
    return div(total, count(extent, total.dtype))


SUMS: Mapping[str, tuple[str, Callable[[Expr], Expr], Finish]] = {
    "ReduceL1": ("sum", lambda x: unary("abs", x), _as_is),
    "ReduceL2": ("sum", square, lambda total, _: root(total)),
    "ReduceLogSum": ("sum", _plain, lambda total, _: unary("log", total)),
    "ReduceMean": ("sum", _plain, _mean),
    "ReduceProd": ("prod", _plain, _as_is),
    "ReduceSum": ("sum", _plain, _as_is),
    "ReduceSumSquare": ("sum", square, _as_is),
}
"""Operator -> (reduction, function of each element, function of the total and the number of elements)."""

EXTREMES: Mapping[str, tuple[str, str]] = {"ReduceMax": ("max", "any"), "ReduceMin": ("min", "all")}
"""Operator -> (reduction of numbers, reduction of truth values)."""

ELEMENT_FOLDS: Mapping[str, Callable[[Sequence[Dim]], Dim]] = {
    "ReduceMax": lambda x: fold(maximum, x),
    "ReduceMin": lambda x: fold(minimum, x),
    "ReduceProd": product,
    "ReduceSum": lambda x: fold(lambda a, b: a + b, x, ZERO),
}
"""Operator -> the function of tracked integers."""

REDUCTIONS = (*SUMS, *EXTREMES, "ReduceLogSumExp")


def reduced_axes(scope: Inference | Lowering, node: ir.Node, rank: int) -> tuple[int, ...]:
    """The axes that a node reduces: the second input or the attribute; if both are absent, all axes, or none with
    `noop_with_empty_axes`."""
    axes: Sequence[int] | None = known_integers(scope, node, 1, "the axes of the reduction")
    if axes is None:
        axes = attribute(node, "axes", None)
    if not axes:
        return () if attribute(node, "noop_with_empty_axes", 0) else tuple(range(rank))
    return normalize_axes(axes, rank, node)


def _keeps(node: ir.Node) -> bool:
    return bool(attribute(node, "keepdims", 1))


def _reduced_shape(shape: Sequence[Dim], axes: Sequence[int], keep: bool) -> tuple[Dim, ...]:
    return tuple(ONE if i in axes else dim for i, dim in enumerate(shape) if keep or i not in axes)


@infers(*REDUCTIONS)
def infer_reduction(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape without the reduced axes, or with size 1 in their places."""
    fact = scope.fact(required(node, 0))
    fed = by_fed_axes(scope, node, 1, fact.rank)
    if fed is not None:
        return fed
    axes = reduced_axes(scope, node, fact.rank)
    shape = _reduced_shape(fact.shape, axes, _keeps(node))
    return [Fact(fact.dtype, shape, _reduced_elements(node, fact, axes))]


def _reduced_elements(node: ir.Node, fact: Fact, axes: tuple[int, ...]) -> Elements | None:
    """The tracked elements of a reduced shape tensor."""
    elements = elements_of(fact)
    if elements is None or elements.size == 0 or not fact.dtype.is_integer or node.op_type not in ELEMENT_FOLDS:
        return None
    order = [i for i in range(fact.rank) if i not in axes] + list(axes)
    rows = elements.transpose(order).reshape(-1, int(np.prod([elements.shape[i] for i in axes], dtype=int)))
    shape = tuple(1 if i in axes else n for i, n in enumerate(elements.shape) if _keeps(node) or i not in axes)
    return make_elements(shape, (ELEMENT_FOLDS[node.op_type](list(row)) for row in rows))


@lowers(*SUMS)
def lower_sum(scope: Lowering, node: ir.Node) -> None:
    """finish(reduce(term(x))): the reduction is a tensor of its own."""
    kind, term, finish = SUMS[node.op_type]
    rows, axes = _rows(scope, node)
    total = rows.total(kind, lambda i: term(rows.element(i)), "total")
    _define_rows(scope, node, axes, lambda row: finish(total.at(row), rows.extent))


@lowers(*EXTREMES)
def lower_extreme(scope: Lowering, node: ir.Node) -> None:
    """The largest or smallest element; for bool, any or all."""
    of_numbers, of_truths = EXTREMES[node.op_type]
    rows, axes = _rows(scope, node)
    kind = of_truths if scope.fact(node.inputs[0]).dtype is DType.BOOL else of_numbers
    _define_rows(scope, node, axes, rows.total(kind, rows.element, "extreme").at)


@lowers("ReduceLogSumExp")
def lower_log_sum_exp(scope: Lowering, node: ir.Node) -> None:
    """m + log(sum(exp(x - m))) with m the maximum, or zero where the maximum is infinite."""
    rows, axes = _rows(scope, node)
    largest = rows.total("max", rows.element, "max")
    shift = rows.per_row(lambda row: where(unary("isinf", largest.at(row)), 0, largest.at(row)), "shift")
    total = rows.total("sum", lambda i: unary("exp", sub(rows.element(i), shift.at(rows.row(i)))), "total")
    _define_rows(scope, node, axes, lambda row: add(unary("log", total.at(row)), shift.at(row)))


def _rows(scope: Lowering, node: ir.Node) -> tuple[Rows, tuple[int, ...]]:
    value = required(node, 0)
    axes = reduced_axes(scope, node, scope.fact(value).rank)
    return rows_along(scope, value, axes), axes


def _define_rows(scope: Lowering, node: ir.Node, axes: tuple[int, ...], body: Body) -> None:
    """Defines the output, from indices without the kept axes of extent one."""

    def of_output(indices: Indices) -> Expr:
        return body(tuple(i for n, i in enumerate(indices) if n not in axes) if _keeps(node) else indices)

    define(scope, node.outputs[0], of_output)


@infers("ArgMax", "ArgMin")
def infer_arg(scope: Inference, node: ir.Node) -> list[Fact]:
    """int64 positions along one axis."""
    fact = scope.fact(required(node, 0))
    axis = normalize_axis(int(attribute(node, "axis", 0)), fact.rank, node)
    return [Fact(DType.I64, _reduced_shape(fact.shape, (axis,), _keeps(node)))]


@lowers("ArgMax", "ArgMin")
def lower_arg(scope: Lowering, node: ir.Node) -> None:
    """The position of the first, or with select_last_index of the last, extreme element."""
    value = required(node, 0)
    axis = normalize_axis(int(attribute(node, "axis", 0)), scope.fact(value).rank, node)
    kind = node.op_type.lower() + ("_last" if attribute(node, "select_last_index", 0) else "")
    rows = rows_along(scope, value, (axis,))
    _define_rows(scope, node, (axis,), rows.total(kind, rows.element, "position").at)
