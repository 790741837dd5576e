"""Replaces computed sizes in the target of a Reshape by 0 and -1, so that no node computes them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opweld.ops.fact import Fact
from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.scope import Scope, operand
from opweld.tensor.dim import Dim, product

SINCE = 5
"""The opset in which the target of Reshape became an input."""


class Target(Rule):
    """Where all sizes but one are known, or equal the input's at the same position, 0 and -1 express the shape."""

    name = "rewrite.target"
    operators = ("Reshape",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        target, output = operand(node, 1), node.outputs[0]
        if scope.opset < SINCE or target is None or scope.constant(target) is not None:
            return None
        before, after = scope.shape(node.inputs[0]), scope.shape(output)
        if before is None or after is None:
            return None
        wanted: list[int] = []
        for axis, dim in enumerate(after):
            same = axis < len(before) and before[axis] == dim
            wanted.append(dim.constant if dim.constant is not None else 0 if same else -1)
        text = "x".join(map(str, after))
        if wanted.count(-1) > 1:
            return Refusal("more than one size is not known", {"shape": text})
        if -1 in wanted and product(before) != product(after) and not _is_open(wanted.index(-1), scope.fact(target)):
            return Refusal("the input may have another number of elements, which -1 would hide", {"shape": text})
        # For an empty tensor, -1 is ambiguous.
        if any(dim.constant == 0 for dim in (*before, *after)):
            return Refusal("it has no elements", {"shape": text})

        def apply() -> None:
            stored = scope.store(node, np.array(wanted, np.int64))
            scope.replace(output, scope.add(node, "Reshape", [node.inputs[0], stored]))

        return Proposal("0 and -1 express it", apply)


def _is_open(position: int, target: Fact | None) -> bool:
    """Whether a target contains -1 at a position."""
    if target is None or target.elements is None:
        return False
    dim = target.elements.flat[position]
    return isinstance(dim, Dim) and dim.constant == -1
