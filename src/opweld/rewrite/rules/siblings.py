"""Merges products of the same value by stored weights into one with the columns of all: Q, K and V of an attention,
gate and up of a gated layer. The value is read once, and one product is run instead of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.scope import Array, Scope, attribute, operand, rule_name
from opweld.tensor.dim import as_dim

SPLIT_BY_INPUT = 13
"""The opset in which the sizes of Split became an input."""


@dataclass(frozen=True)
class Arm:
    """One of the products: its weights with a column for each result, its bias, its last node."""

    node: ir.Node
    weights: Array
    bias: Array | None
    last: ir.Node

    @property
    def columns(self) -> int:
        """The number of results for each row."""
        return self.weights.shape[1]


class Siblings(Rule):
    """Products that share their data operand."""

    name = "rewrite.siblings"
    operators = ("MatMul", "Gemm")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        data = operand(node, 0)
        own = _arm(node, scope)
        if data is None or not isinstance(own, Arm):
            return None
        others = [other for other in scope.readers(data) if other.op_type == node.op_type and other.inputs[0] is data]
        if len(others) < 2:
            return None
        found = [_arm(other, scope) for other in others]
        refused = next((arm for arm in found if isinstance(arm, Refusal)), None)
        arms = [arm for arm in found if isinstance(arm, Arm) and _alike(arm, own)]
        if arms and arms[0].node is not node:
            return None  # matched at the first of them
        nodes = tuple(other for other in others if other is not node)
        if len(arms) < 2:
            return refused and Refusal(refused.reason, refused.failed, nodes)
        return Proposal(
            f"{len(arms)} products read the same",
            lambda: _merge(arms, data, scope),
            tuple(dict.fromkeys(part for arm in arms for part in (arm.node, arm.last) if part is not node)),
            _traffic(data, len(arms), scope),
        )


def _traffic(data: ir.Value, count: int, scope: Scope) -> int | None:
    """Bytes that are read once instead of by each product."""
    both = scope.traffic(data)
    return None if both is None else both // 2 * (count - 1)


def _alike(a: Arm, b: Arm) -> bool:
    return a.weights.dtype == b.weights.dtype and (a.bias is None) == (b.bias is None)


def _arm(node: ir.Node, scope: Scope) -> Arm | Refusal | None:
    """A product by stored weights that may be merged with others."""
    weights = scope.constant(operand(node, 1))
    if weights is None:
        name = (operand(node, 1) or node.outputs[0]).name or ""
        return Refusal("the weights of one are computed", {"weights": name}, (node,))
    if weights.ndim != 2 or weights.dtype.kind != "f":
        return None
    read = node.inputs[1]
    if read is not None and len(read.uses()) > 1:
        return Refusal("the weights of one are read elsewhere too", {"readers": len(read.uses())}, (node,))
    return _gemm(node, weights, scope) if node.op_type == "Gemm" else _product(node, weights, scope)


def _gemm(node: ir.Node, weights: Array, scope: Scope) -> Arm | Refusal | None:
    if any(
        attribute(node, name, default) != default for name, default in (("transA", 0), ("alpha", 1.0), ("beta", 1.0))
    ):
        return Refusal("one is scaled, or has a transposed operand", {"node": node.name or ""}, (node,))
    weights = weights.T if attribute(node, "transB", 0) else weights
    added = operand(node, 2)
    if added is None:
        return Arm(node, weights, None, node)
    bias = scope.constant(added)
    if bias is None or bias.ndim > 1:
        return Refusal("the bias of one is computed, or has rows", {"bias": added.name or ""}, (node,))
    return Arm(node, weights, np.broadcast_to(bias, weights.shape[1]), node)


def _product(node: ir.Node, weights: Array, scope: Scope) -> Arm:
    """A MatMul with the sum of a bias after it, if its result has no other readers."""
    output = node.outputs[0]
    if scope.only_reader(output):
        (add,) = scope.readers(output)
        added = [value for value in add.inputs if value is not output]
        bias = scope.constant(added[0]) if len(added) == 1 else None
        if rule_name(add) == "Add" and add.graph is node.graph and bias is not None and bias.shape == weights.shape[1:]:
            return Arm(node, weights, bias, add)
    return Arm(node, weights, None, node)


def _merge(arms: Sequence[Arm], data: ir.Value, scope: Scope) -> None:
    first = arms[0].node
    sizes = [arm.columns for arm in arms]
    known = scope.shape(data)
    shape = (*(known or ())[:-1], as_dim(sum(sizes)))
    weights = scope.store(first, np.concatenate([arm.weights for arm in arms], axis=1))
    biases = [arm.bias for arm in arms if arm.bias is not None]
    bias = [scope.store(first, np.concatenate(biases))] if biases else []
    if first.op_type == "Gemm":
        made = [scope.add(first, "Gemm", [data, weights, *bias])]
    else:
        made = [scope.add(first, "MatMul", [data, weights])]
        made += [scope.add(first, "Add", [*made, *bias])] if bias else []
    for value in made if known else ():
        scope.tell(value, shape, data)
    for arm, part in zip(arms, split(made[-1], sizes, first, scope), strict=True):
        scope.replace(arm.last.outputs[0], part)


def split(value: ir.Value, sizes: Sequence[int], near: ir.Node, scope: Scope, axis: int = -1) -> Sequence[ir.Value]:
    """Parts of a value along an axis."""
    wanted = (True,) * len(sizes)
    if scope.opset < SPLIT_BY_INPUT:
        return scope.add_several(near, "Split", [value], wanted, axis=axis, split=list(sizes))
    stored = scope.store(near, np.array(sizes, np.int64))
    return scope.add_several(near, "Split", [value, stored], wanted, axis=axis)
