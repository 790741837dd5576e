"""Control flow that inference resolves: If."""

from __future__ import annotations

import onnx_ir as ir

from opweld.errors import ModelError, UnsupportedError
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, elements_of, required
from opweld.ops.registry import Inference, infers, required_attribute
from opweld.tensor.dtype import DType


@infers("If")
def infer_if(scope: Inference, node: ir.Node) -> list[Fact]:
    """The chosen body, inferred in place of the node; the other body is not even looked at.

    The condition hangs on sizes and small integer inputs only, so each variant of the model has one body.
    """
    condition = required(node, 0)
    fact = scope.fact(condition)
    elements = elements_of(fact)
    if fact.dtype is not DType.BOOL:
        raise ModelError(f"{describe(node)}: the condition must be bool, got {fact.dtype!r}")
    if elements is None:
        raise UnsupportedError(
            f"{describe(node)}: the condition {condition.name!r} depends on data, which is not supported yet. "
            "Export the model with the branch resolved, or use Where."
        )
    if elements.size != 1:
        raise ModelError(f"{describe(node)}: the condition must have one element, got shape {list(fact.shape)}")
    body = required_attribute(node, "then_branch" if elements.flat[0] else "else_branch")
    if body.inputs or len(body.outputs) != len(node.outputs):
        raise ModelError(f"{describe(node)}: a branch must have no inputs and {len(node.outputs)} outputs")
    return scope.inline(node, body)
