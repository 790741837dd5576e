"""Removes nodes whose output equals their input."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from opweld.rewrite.dtypes import cast_type, dtype_of
from opweld.rewrite.rule import Proposal, Refusal, Rule, handed_on
from opweld.rewrite.scope import Scope, attribute, operand

_PLAIN = ("MatMul", "Gemm", "Conv", "ConvTranspose", "ReduceSum", "ReduceMean", "GlobalAveragePool", "Softmax", "Exp",
          "Sigmoid", "Abs")  # fmt: skip
"""Operators that never give -0, or whose sign of zero ONNX leaves open: sums, and results of at least 0."""

_MOVED = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Gather", "Expand")
"""Operators whose results are elements of their input."""

Check = Callable[[ir.Node, Scope], bool | Refusal]
"""Whether the first output of a node equals its first input."""


class Redundant(Rule):
    """A node whose output is its input."""

    name = "rewrite.redundant"

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        for position, check in CHECKS[node.op_type]:
            source = operand(node, position)
            if source is None:
                continue
            answer = check(node, scope)
            if isinstance(answer, Refusal):
                return answer
            if answer:
                if any(other.uses() or other.is_graph_output() for other in node.outputs[1:]):
                    return Refusal("another output of the node is read", {"output": node.outputs[1].name or ""})
                return handed_on(node, source, scope, f"{node.op_type} returns its input")
        return None


def _always(node: ir.Node, scope: Scope) -> bool:
    return True


def _one_input(node: ir.Node, scope: Scope) -> bool:
    return len([value for value in node.inputs if value is not None]) == 1


def _same_shape(node: ir.Node, scope: Scope) -> bool:
    """For reshape-like operators."""
    before, after = scope.shape(node.inputs[0]), scope.shape(node.outputs[0])
    return before is not None and before == after


def _whole_slice(node: ir.Node, scope: Scope) -> bool:
    steps = scope.integers(node, "steps", 4) if operand(node, 4) is not None else [1]
    return steps is not None and all(step == 1 for step in steps) and _same_shape(node, scope)


def _no_pads(node: ir.Node, scope: Scope) -> bool:
    pads = scope.integers(node, "pads", 1)
    return pads is not None and not any(pads)


def _same_order(node: ir.Node, scope: Scope) -> bool:
    order = attribute(node, "perm")
    if order is not None:
        return list(order) == list(range(len(order)))
    shape = scope.shape(node.inputs[0])
    return shape is not None and len(shape) <= 1


def _same_type(node: ir.Node, scope: Scope) -> bool:
    return dtype_of(node.inputs[0], scope) == cast_type(node)


def _inference(node: ir.Node, scope: Scope) -> bool | Refusal:
    if operand(node, 2) is not None and scope.single(operand(node, 2)) != 0:
        flag = scope.constant(operand(node, 2))
        if flag is None or bool(flag.any()):
            return Refusal("it trains", {"training_mode": "fed" if flag is None else 1})
    if scope.opset < 7 and not attribute(node, "is_test", 0):
        return Refusal("it trains", {"is_test": 0})
    return True


def _unbounded(node: ir.Node, scope: Scope) -> bool:
    """Before opset 11 there are always finite bounds, which infinity exceeds."""
    return scope.opset >= 11 and operand(node, 1) is None and operand(node, 2) is None


def _has_plain_zeros(value: ir.Value | None, scope: Scope) -> bool:
    """Whether zeros of a value are 0, never -0; or of a sign that ONNX leaves to the implementation, as for a sum of
    products: a sum that begins with 0 is not -0."""
    producer = scope.producer(value, *_PLAIN, *_MOVED)
    while producer is not None and producer.op_type in _MOVED:
        producer = scope.producer(operand(producer, 0), *_PLAIN, *_MOVED)
    return producer is not None


def _neutral(position: int, number: float) -> Check:
    """Arithmetic with a number that changes nothing, not even the sign of a zero, and that does not broadcast."""

    def check(node: ir.Node, scope: Scope) -> bool | Refusal:
        found = scope.single(operand(node, position))
        if found is None or found != number:
            return False
        before, after = scope.shape(operand(node, 1 - position)), scope.shape(node.outputs[0])
        if before is None or before != after:
            return False
        fact = scope.fact(node.outputs[0])
        kept = {"Add": -1.0, "Sub": 1.0}.get(node.op_type)
        signed = kept is not None and fact is not None and fact.dtype.is_float
        if signed and math.copysign(1, found) != kept and not _has_plain_zeros(operand(node, 1 - position), scope):
            words = "adding 0" if node.op_type == "Add" else "subtracting -0"
            return Refusal(f"{words} turns -0 into 0", {"addend": str(found)})
        return True

    return check


CHECKS: dict[str, tuple[tuple[int, Check], ...]] = {
    "Identity": ((0, _always),),
    "Dropout": ((0, _inference),),
    "Cast": ((0, _same_type),),
    "Transpose": ((0, _same_order),),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"), ((0, _same_shape),)),
    "Slice": ((0, _whole_slice),),
    "Pad": ((0, _no_pads),),
    "Clip": ((0, _unbounded),),
    **dict.fromkeys(("Concat", "Sum", "Max", "Min", "Mean"), ((0, _one_input),)),
    "Add": ((0, _neutral(1, 0)), (1, _neutral(0, 0))),
    "Sub": ((0, _neutral(1, 0)),),
    "Mul": ((0, _neutral(1, 1)), (1, _neutral(0, 1))),
    "Div": ((0, _neutral(1, 1)),),
    "Pow": ((0, _neutral(1, 1)),),
}
"""By operator: which input may equal the output, and when it does."""

Redundant.operators = tuple(CHECKS)
