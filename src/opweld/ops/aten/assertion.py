"""Values that are only there where a condition holds: of data, or of sizes."""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.aten.elementwise import DOMAIN
from opweld.ops.emitted import emit
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, elements_of, required
from opweld.ops.registry import Inference, Lowering, infers, lowers
from opweld.tensor.dim import product
from opweld.tensor.dtype import DType


@infers("Asserted", domain=DOMAIN)
def infer_asserted(scope: Inference, node: ir.Node) -> list[Fact]:
    """The dtype and shape of the first input; the second is one boolean."""
    x, condition = scope.fact(required(node, 0)), scope.fact(required(node, 1))
    if condition.dtype is not DType.BOOL or product(condition.shape).constant != 1:
        raise ModelError(f"{describe(node)}: the condition must be one boolean, got {list(condition.shape)}")
    return [Fact(x.dtype, x.shape)]


@lowers("Asserted", domain=DOMAIN)
def lower_asserted(scope: Lowering, node: ir.Node) -> None:
    """The first input, as it is; where the second is false, the run fails, and names the node."""
    x, condition = required(node, 0), required(node, 1)
    fact, known = scope.fact(x), elements_of(scope.fact(condition))
    if known is not None and all(own is True for own in known.flat):
        scope.alias(node.outputs[0], scope.tensor(x))
        return
    shape = scope.fact(condition).shape
    data = emit(scope, fact.shape, lambda at: scope.load(x, at), "asserted")
    holds = emit(scope, shape, lambda at: scope.load(condition, at), "condition")
    (made,) = scope.extern("asserted", [data.name, holds.name], [(fact.dtype, fact.shape)], (product(fact.shape),))
    scope.alias(node.outputs[0], made)


@infers("Sized", domain=DOMAIN)
def infer_sized(scope: Inference, node: ir.Node) -> list[Fact]:
    """The dtype and shape of the first input; the second, a number made of sizes, is not less than the third. Numbers
    that sizes do not tell are not compared."""
    x = scope.fact(required(node, 0))
    left, right = (elements_of(scope.fact(required(node, position))) for position in (1, 2))
    if left is not None and right is not None:
        scope.at_least(left.flat[0] - right.flat[0], 0, node, "the program is of such sizes alone")
    return [Fact(x.dtype, x.shape)]


@lowers("Sized", domain=DOMAIN)
def lower_sized(scope: Lowering, node: ir.Node) -> None:
    """The first input, as it is."""
    scope.alias(node.outputs[0], scope.tensor(required(node, 0)))
