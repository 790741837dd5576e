"""Control flow: an If becomes the body that its condition selects; a Loop is executed by segments of its own."""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, elements_of, required
from opweld.ops.registry import Inference, NeedsSegment, UnknownElementsError, infers, required_attribute
from opweld.tensor.dim import ONE
from opweld.tensor.dtype import DType


@infers("If")
def infer_if(scope: Inference, node: ir.Node) -> list[Fact]:
    """The selected body, inferred in place of the node; the other body is not inferred.

    The body is fixed for each variant: by the value of the condition as sizes or small inputs determine it, or as the
    segment before has computed it.
    """
    condition = required(node, 0)
    fact = scope.fact(condition)
    elements = elements_of(fact)
    if fact.dtype is not DType.BOOL:
        raise ModelError(f"{describe(node)}: the condition must be bool, got {fact.dtype!r}")
    for dim in fact.shape:
        scope.same(dim, ONE, node, "a condition has one element")
    if elements is None:
        raise UnknownElementsError(
            condition, f"{describe(node)}: the condition {condition.name!r} is too large to be read at run time"
        )
    body = required_attribute(node, "then_branch" if elements.flat[0] else "else_branch")
    if body.inputs or len(body.outputs) != len(node.outputs):
        raise ModelError(f"{describe(node)}: a branch must have no inputs and {len(node.outputs)} outputs")
    return scope.inline(node, body)


@infers("Loop")
def infer_loop(scope: Inference, node: ir.Node) -> list[Fact]:
    """Its outputs are known when its body is inferred, see `frontend/loops.py`."""
    raise NeedsSegment
