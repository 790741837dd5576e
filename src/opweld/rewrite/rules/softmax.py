"""Softmax and its logarithm, in any written form.

The operators subtract the maximum of each row. A model that does not, or that takes the logarithm of a result rounded
to 0, gives NaN or -inf where exponentials overflow or underflow; the operator gives the right number there, and differs
by rounding elsewhere."""

from __future__ import annotations

import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule, second_reader
from opweld.rewrite.rules.reduced import Reduced, reduced
from opweld.rewrite.scope import Scope, attribute, operand
from opweld.tensor.dim import ONE

ONE_AXIS = 13
"""The opset since which both operators work along one axis; before, over all axes from it on."""

FROM_END = 11
"""The opset since which an axis may be counted from the end."""


class Softmax(Rule):
    """exp(x) / sum(exp(x)); a number subtracted from each row of x makes no difference."""

    name = "rewrite.softmax"
    operators = ("Div", "Mul")
    formula = True

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        for position in (0,) if node.op_type == "Div" else (0, 1):
            exponential = scope.producer(operand(node, position), "Exp")
            divisor, inner = operand(node, 1 - position), list[ir.Node]()
            if node.op_type == "Mul":
                inverse = scope.producer(divisor, "Reciprocal")
                if inverse is None:
                    continue
                divisor, inner = inverse.inputs[0], [inverse]
            total = reduced(divisor, "ReduceSum", scope)
            if exponential is None or total is None or total.source is not exponential.outputs[0]:
                continue
            inner += [*total.nodes, exponential]
            return _softmax("Softmax", node, total, exponential.inputs[0], inner, scope)
        return None


class LogSoftmax(Rule):
    """log(softmax(x)), x - log(sum(exp(x))), or x - ReduceLogSumExp(x)"""

    name = "rewrite.log_softmax"
    operators = ("Log", "Sub")
    formula = True

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        if node.op_type == "Log":
            return self._of_softmax(node, scope)
        x, subtracted = operand(node, 0), operand(node, 1)
        total = reduced(subtracted, "ReduceLogSumExp", scope)
        if total is not None and total.source is x:
            return _softmax("LogSoftmax", node, total, x, [*total.nodes], scope)
        log = scope.producer(subtracted, "Log")
        total = None if log is None else reduced(log.inputs[0], "ReduceSum", scope)
        exponential = None if total is None else scope.producer(total.source, "Exp")
        if log is None or total is None or exponential is None or exponential.inputs[0] is not x:
            return None
        return _softmax("LogSoftmax", node, total, x, [log, *total.nodes, exponential], scope)

    def _of_softmax(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        softmax = scope.producer(operand(node, 0), "Softmax")
        if softmax is None:
            return None
        refusal = second_reader((node, softmax))
        if refusal is not None:
            return refusal

        def apply() -> None:
            made = scope.add(node, "LogSoftmax", [softmax.inputs[0]], axis=attribute(softmax, "axis"))
            scope.replace(node.outputs[0], made)

        return Proposal("the logarithm of Softmax is LogSoftmax", apply, (softmax,), scope.traffic(node.outputs[0]))


def _softmax(
    operator: str, node: ir.Node, total: Reduced, x: ir.Value | None, inner: list[ir.Node], scope: Scope
) -> Proposal | Refusal | None:
    """`operator` of x along the axis of a sum, which replaces a node and the inner ones."""
    output, shape = node.outputs[0], scope.shape(x)
    fact = scope.fact(output)
    if x is None or shape is None or fact is None or fact.shape != shape or not fact.dtype.is_float:
        return None
    if len(total.axes) != 1:
        failed = {"axes": ", ".join(map(str, total.axes))}
        return Refusal(f"it sums along more than one axis, and {operator} has one", failed, tuple(inner))
    (axis,) = total.axes
    if scope.opset < ONE_AXIS and axis != len(shape) - 1:
        failed = {"axis": axis, "rank": len(shape), "opset": scope.opset}
        reason = f"before opset {ONE_AXIS} {operator} is along all axes from one on"
        return Refusal(reason, failed, tuple(inner))
    source = x
    centre = scope.producer(x, "Sub")
    if centre is not None and centre.inputs[0] is not None:
        before, offset = centre.inputs[0], scope.shape(centre.inputs[1])
        along = None if offset is None else ((ONE,) * (len(shape) - len(offset)) + offset)[axis]
        if scope.shape(before) == shape and along is ONE:
            source, inner = before, [*inner, centre]
            maximum = reduced(centre.inputs[1], "ReduceMax", scope)
            if maximum is not None and maximum.source is before:
                inner += maximum.nodes
    nodes = (node, *inner)
    refusal = second_reader(nodes)
    if refusal is not None:
        return refusal

    def apply() -> None:
        from_end = axis == len(shape) - 1 and scope.opset >= FROM_END
        last = axis - len(shape) if from_end else axis
        scope.replace(output, scope.add(node, operator, [source], axis=last))

    return Proposal(f"{len(nodes)} nodes are {operator}", apply, tuple(inner), scope.traffic(output))
