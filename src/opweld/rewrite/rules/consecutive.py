"""Two consecutive linear operators are combined into one where that costs less: W2 (W1 x + b1) + b2.

One of two convolutions must be pointwise. If the second pads, the first must have no bias, since its padding is zeros
without bias."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.linear import Linear, linear
from opweld.rewrite.rules.rounding import unfit, unfit_bias
from opweld.rewrite.scope import Array, Scope, attribute, kept, operand, rule_name

BIAS_OPTIONAL = 11
"""The opset since which Gemm has an optional addend."""


@dataclass(frozen=True)
class _Joined:
    """One product for two: its weights as its operator stores them, the sum of the magnitudes of the products that they
    are computed from, and multiplications for each position, combined and separate.

    Attributes:
        like: the product whose attributes it keeps.
    """

    weights: Array
    magnitude: Array
    bias: Array
    products: int
    separate: int
    like: ir.Node


class Consecutive(Rule):
    """MatMul, Gemm or a convolution after another of its kind, with biases in between."""

    name = "rewrite.consecutive"
    operators = ("MatMul", "Gemm", "Conv")

    def occurs(self, node: ir.Node) -> bool:
        """See `Rule.occurs`."""
        value = operand(node, 0)
        before = None if value is None else value.producer()
        if before is not None and before.op_type == "Add" and node.op_type == "MatMul":
            producers = [value.producer() for value in before.inputs if value is not None]
            return any(producer is not None and producer.op_type == "MatMul" for producer in producers)
        return before is not None and before.op_type == node.op_type

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        before, added, shift = _before(node, scope)
        if before is None:
            return None
        first, second = linear(before, scope), linear(node, scope, alone=False)
        if isinstance(first, Refusal):
            return first
        if first is None or not isinstance(second, Linear) or first.dtype != second.dtype:
            return None
        if shift is not None and shift.shape != (first.outputs,):
            return None
        with np.errstate(all="ignore"):
            joined = _joined(first, second, first.bias if shift is None else shift.astype(np.float64), scope)
        if not isinstance(joined, _Joined):
            return joined
        nodes = (before,) if added is None else (added, before)
        if joined.products > joined.separate:
            failed = {"products": joined.products, "now": joined.separate}
            return Refusal("one product would cost more than two", failed, nodes)
        last, more = _bias_after(node, second.outputs, scope) if node.op_type == "MatMul" else (node, None)
        bias = joined.bias if more is None else joined.bias + more
        refusal = unfit("weights", joined.weights, first.dtype, None, nodes, magnitude=joined.magnitude)
        refusal = refusal or unfit_bias(bias, first.dtype, nodes)
        if refusal is not None:
            return refusal
        site = nodes if last is node else (*nodes, last)
        return Proposal(
            "two products in a row",
            lambda: _apply(first, second, joined, bias, last, scope),
            site,
            scope.traffic(before.outputs[0]),
        )


def _before(node: ir.Node, scope: Scope) -> tuple[ir.Node | None, ir.Node | None, Array | None]:
    """The product before one, with the bias added in between for MatMul: the node and the numbers."""
    data = operand(node, 0)
    before = scope.producer(data, node.op_type)
    if before is not None or node.op_type != "MatMul" or data is None:
        return before, None, None
    added = scope.producer(data, "Add")
    if added is None or not scope.only_reader(data):
        return None, None, None
    for value, other in (added.inputs, added.inputs[::-1]):
        before, numbers = scope.producer(value, "MatMul"), scope.constant(other)
        if before is not None and numbers is not None:
            return before, added, numbers
    return None, None, None


def _bias_after(node: ir.Node, count: int, scope: Scope) -> tuple[ir.Node, Array | None]:
    """The sum of a bias after a MatMul, and the bias; the MatMul itself if it has other readers."""
    output = node.outputs[0]
    readers = scope.readers(output)
    if not scope.only_reader(output) or rule_name(readers[0]) != "Add" or readers[0].graph is not node.graph:
        return node, None
    others = [value for value in readers[0].inputs if value is not output]
    numbers = scope.constant(others[0]) if len(others) == 1 else None
    return (
        (readers[0], numbers.astype(np.float64)) if numbers is not None and numbers.shape == (count,) else (node, None)
    )


def _joined(first: Linear, second: Linear, shift: Array, scope: Scope) -> _Joined | Refusal | None:
    """Both products as one, with `shift` the bias of the first; a refusal if that is not exact."""
    if second.node.op_type == "Conv":
        return _convolution(first, second)
    a, b = _matrix(first), _matrix(second)
    if a is None or b is None:
        return None
    joined, separate = a.shape[0] * b.shape[1], a.size + b.size
    bias = shift @ b + second.bias
    if joined > separate:  # skips the computation of unused weights
        return _Joined(a, a, bias, joined, separate, second.node)
    return _Joined(a @ b, np.abs(a) @ np.abs(b), bias, joined, separate, second.node)


def _convolution(first: Linear, second: Linear) -> _Joined | Refusal | None:
    a, b = first.weights, second.weights
    if first.group != 1 or second.group != 1:
        return None
    if _is_single(second):
        equation, like, kernel, places = "cj...,oc->oj...", first.node, a, 1
        operands, bias = (a, b.reshape(b.shape[:2])), b.reshape(b.shape[:2]) @ first.bias + second.bias
    elif _is_single(first):
        pads = _pads(second.node)
        if pads is not None and np.any(first.bias):
            return Refusal("the second one pads, and the first has a bias", {"pads": pads}, (first.node,))
        equation, like, kernel = "oc...,cj->oj...", second.node, b
        places = math.prod(int(stride) for stride in attribute(second.node, "strides", ()))
        operands, bias = (b, a.reshape(a.shape[:2])), b.sum(tuple(range(2, b.ndim))) @ first.bias + second.bias
    else:
        kernels: dict[str, int | str] = {"kernel": str(b.shape[2:]), "before": str(a.shape[2:])}
        return Refusal("neither is pointwise", kernels, (first.node,))
    joined, separate = b.shape[0] * a.shape[1] * math.prod(kernel.shape[2:]), a.size * places + b.size
    if joined > separate:  # skips the computation of unused weights
        return _Joined(a, a, bias, joined, separate, like)
    weights, magnitude = (np.einsum(equation, u, v) for u, v in (operands, tuple(map(np.abs, operands))))
    return _Joined(weights, magnitude, bias, joined, separate, like)


def _is_single(found: Linear) -> bool:
    """Whether a convolution is pointwise."""
    node = found.node
    return (
        not set(found.weights.shape[2:]) - {1} and _pads(node) is None and not set(attribute(node, "strides", ())) - {1}
    )


def _pads(node: ir.Node) -> str | None:
    """How a convolution pads, if it does."""
    mode = attribute(node, "auto_pad", "NOTSET")
    if mode not in ("NOTSET", b"NOTSET", "VALID", b"VALID"):
        return str(mode)
    pads = [int(number) for number in attribute(node, "pads", ())]
    return ", ".join(map(str, pads)) if any(pads) else None


def _matrix(found: Linear) -> Array | None:
    """The weights with a row for each input and a column for each result."""
    weights, node = found.weights, found.node
    if attribute(node, "transA", 0):
        return None
    return weights.T if node.op_type == "Gemm" and attribute(node, "transB", 0) else weights


def _apply(first: Linear, second: Linear, joined: _Joined, bias: Array, last: ir.Node, scope: Scope) -> None:
    node, data = second.node, first.node.inputs[0]
    inputs: list[ir.Value | None] = [data, scope.store(node, joined.weights.astype(first.dtype))]
    if node.op_type == "MatMul":
        made = scope.add(last, "MatMul", inputs)
        if np.any(bias):
            shape = scope.shape(node.outputs[0])
            made = made if shape is None else scope.tell(made, shape, node.outputs[0])
            made = scope.add(last, "Add", [made, scope.store(node, bias.astype(first.dtype))])
        scope.replace(last.outputs[0], made)
        return
    if np.any(bias) or (node.op_type == "Gemm" and scope.opset < BIAS_OPTIONAL):
        inputs.append(scope.store(node, bias.astype(first.dtype)))
    attributes = kept(joined.like) if node.op_type == "Conv" else {}
    scope.replace(node.outputs[0], scope.add(node, node.op_type, inputs, **attributes))
