"""Softmax, LogSoftmax and Hardmax along one axis: maximum, exponentials and sum are tensors of their own."""

from __future__ import annotations

from opweld import ir
from opweld.ops.arithmetic import add, div, larger, sub, where
from opweld.ops.emitted import Body, define
from opweld.ops.fact import Fact
from opweld.ops.operands import normalize_axis, require_float, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.ops.rows import Rows, rows_along
from opweld.tensor.expr import binary, const, index, unary


def _axis(node: ir.Node, rank: int) -> int:
    return normalize_axis(int(attribute(node, "axis", -1)), rank, node)


def _rows(scope: Lowering, node: ir.Node) -> Rows:
    value = required(node, 0)
    return rows_along(scope, value, (_axis(node, scope.fact(value).rank),))


@infers("Softmax", "LogSoftmax", "Hardmax")
def infer_softmax(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input."""
    fact = require_float(scope.fact(required(node, 0)), node)
    _axis(node, fact.rank)
    return [Fact(fact.dtype, fact.shape)]


@lowers("Softmax")
def lower_softmax(scope: Lowering, node: ir.Node) -> None:
    """e / sum(e) with e = exp(x - max(x))"""
    define(scope, node.outputs[0], softmax_of(_rows(scope, node)))


def softmax_of(rows: Rows, sink: Body | None = None) -> Body:
    """An element of each row's softmax: e / sum(e) with e = exp(x - max(x)). A sink is one more x of each row that
    takes part in the maximum and the sum only."""
    largest = rows.total("max", rows.element, "max")
    if sink is not None:
        most = largest
        largest = rows.per_row(lambda row: larger(most.at(row), sink(row)), "max_with_sink")
    powers = rows.per_element(lambda i: unary("exp", sub(rows.element(i), largest.at(rows.row(i)))), "exp")
    total = rows.total("sum", powers.at, "total")
    if sink is not None:
        inner = total
        total = rows.per_row(
            lambda row: add(inner.at(row), unary("exp", sub(sink(row), largest.at(row)))), "total_with_sink"
        )
    return lambda i: div(powers.at(i), total.at(rows.row(i)))


@lowers("LogSoftmax")
def lower_log_softmax(scope: Lowering, node: ir.Node) -> None:
    """d - log(sum(exp(d))) with d = x - max(x)"""
    rows = _rows(scope, node)
    largest = rows.total("max", rows.element, "max")
    shifted = rows.per_element(lambda i: sub(rows.element(i), largest.at(rows.row(i))), "shifted")
    total = rows.total("sum", lambda i: unary("exp", shifted.at(i)), "total")
    logarithm = rows.per_row(lambda row: unary("log", total.at(row)), "log")
    define(scope, node.outputs[0], lambda i: sub(shifted.at(i), logarithm.at(rows.row(i))))


@lowers("Hardmax")
def lower_hardmax(scope: Lowering, node: ir.Node) -> None:
    """One at the first maximum, zero elsewhere."""
    rows = _rows(scope, node)
    axis = _axis(node, len(rows.shape))
    position = rows.total("argmax", rows.element, "position")
    dtype = scope.fact(node.outputs[0]).dtype
    define(
        scope,
        node.outputs[0],
        lambda i: where(binary("eq", position.at(rows.row(i)), index(i[axis])), const(1, dtype), 0),
    )
