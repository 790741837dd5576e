"""Merges convolutions of one value with the same geometry into one, with the channels of all: the value is read once.

ONNX Runtime fuses an activation, a sum or a normalisation into the convolution before it, but not across a Split. So
convolutions that such a node follows are not merged, unless the same activation follows all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.linear import Linear, linear
from opweld.rewrite.rules.siblings import split
from opweld.rewrite.scope import Scope, kept, operand, rule_name
from opweld.tensor.dim import as_dim

_ALIKE = ("Relu", "Sigmoid", "Tanh")
"""Activations without attributes, element-wise."""

_WITH = (*_ALIKE, "LeakyRelu", "Clip", "HardSigmoid", "HardSwish", "Add", "Sum", "BatchNormalization", "Mul")
"""Operators that a runtime fuses into the convolution before them."""


@dataclass(frozen=True)
class _Arm:
    """A convolution, and the node that alone reads its result."""

    product: Linear
    after: ir.Node | None

    @property
    def last(self) -> ir.Node:
        """The node whose result is split off."""
        return self.product.node if self.after is None or self.after.op_type not in _ALIKE else self.after


class ParallelConvolutions(Rule):
    """Convolutions of the same value with kernels, strides and padding of the same sizes."""

    name = "rewrite.parallel_convolutions"
    operators = ("Conv",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        data = operand(node, 0)
        own = linear(node, scope, alone=False)
        if data is None or not isinstance(own, Linear) or own.group != 1:
            return None
        readers = [reader for reader in scope.readers(data) if reader.op_type == "Conv" and reader.graph is node.graph]
        alike = [reader for reader in readers if reader.inputs[0] is data and kept(reader) == kept(node)]
        if len(alike) < 2:
            return None
        arms = [arm for arm in (_arm(reader, own, scope) for reader in alike) if arm is not None]
        if len(arms) < 2 or arms[0].product.node is not node:
            return None  # matched at the first of them
        nodes = tuple(arm.product.node for arm in arms[1:])
        following = {None if arm.after is None else arm.after.op_type for arm in arms}
        fused = sorted(name for name in following if name in _WITH)
        if fused and (len(following) > 1 or fused[0] not in _ALIKE):
            return Refusal(f"a runtime computes {fused[0]} with the convolution before it", {"with": fused[0]}, nodes)
        traffic = scope.traffic(data)
        return Proposal(
            f"{len(arms)} convolutions read the same",
            lambda: _merge(arms, data, scope),
            tuple(dict.fromkeys((*nodes, *(arm.last for arm in arms if arm.last is not node)))),
            None if traffic is None else traffic // 2 * (len(arms) - 1),
        )


def _arm(node: ir.Node, like: Linear, scope: Scope) -> _Arm | None:
    found = linear(node, scope, alone=False)
    weights = operand(node, 1)
    if not isinstance(found, Linear) or found.dtype != like.dtype or found.weights.shape[1:] != like.weights.shape[1:]:
        return None
    if weights is None or len(weights.uses()) > 1:
        return None
    output = node.outputs[0]
    readers = scope.readers(output)
    after = readers[0] if scope.only_reader(output) and rule_name(readers[0]) in _WITH else None
    return _Arm(found, after if after is not None and after.graph is node.graph else None)


def _merge(arms: Sequence[_Arm], data: ir.Value, scope: Scope) -> None:
    first, dtype = arms[0].product.node, arms[0].product.dtype
    sizes = [arm.product.outputs for arm in arms]
    weights = scope.store(first, np.concatenate([arm.product.weights for arm in arms]).astype(dtype))
    biases = np.concatenate([arm.product.bias for arm in arms])
    inputs: list[ir.Value | None] = [data, weights]
    inputs += [scope.store(first, biases.astype(dtype))] if np.any(biases) else []
    made = scope.add(first, "Conv", inputs, **kept(first))
    shape = scope.shape(first.outputs[0])
    whole = None if shape is None else (shape[0], as_dim(sum(sizes)), *shape[2:])
    if whole is not None:
        scope.tell(made, whole, data)
    if arms[0].last is not first:
        made = scope.add(first, arms[0].last.op_type, [made])
        if whole is not None:
            scope.tell(made, whole, data)
    for arm, part in zip(arms, split(made, sizes, first, scope, axis=1), strict=True):
        scope.replace(arm.last.outputs[0], part)
