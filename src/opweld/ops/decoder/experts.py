"""Products of a mixture of experts, see `tensor/experts.py`.

    GroupPairs(chosen [tokens, k]; experts)         order [tokens * k], starts [experts + 1]
    ExpertMatMul(x [rows, in], items [calls, 3], order [pairs], starts,
                 codes [experts, out, in], scales?, minimums? [experts, out, in / block]; bits)       [pairs, out]

Codes of four bits are [experts, out, in / 2], two in a byte. Pairs are a whole multiple of the rows of x, each of which
is that of as many pairs, one behind the other.
"""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.decoder.domain import DOMAIN
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, given, require_rank, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import ONE, Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.experts import GROUP, ITEM, KINDS

_CODES = {DType.F32: "f32", DType.U8: "u8", DType.I8: "i8"}


@infers("GroupPairs", domain=DOMAIN)
def infer_group(scope: Inference, node: ir.Node) -> list[Fact]:
    """Pairs in order, and where those of each expert begin."""
    chosen = require_rank(scope.fact(required(node, 0)), 2, node, 2)
    experts = int(required_attribute(node, "experts"))
    return [
        Fact(DType.I64, (chosen.shape[0] * chosen.shape[1],)),
        Fact(DType.I64, (as_dim(experts + 1),)),
    ]


@lowers("GroupPairs", domain=DOMAIN)
def lower_group(scope: Lowering, node: ir.Node) -> None:
    """One call."""
    chosen, experts = required(node, 0), int(required_attribute(node, "experts"))
    rows, k = scope.fact(chosen).shape
    pairs = rows * k
    results = [(DType.I64, (pairs,)), (DType.I64, (as_dim(experts + 1),))]
    made = scope.extern("group_pairs", [scope.tensor(chosen)], results, (pairs, as_dim(experts)))
    for output, name in zip(node.outputs, made, strict=True):
        scope.alias(output, name)


@infers("ExpertMatMul", domain=DOMAIN)
def infer_product(scope: Inference, node: ir.Node) -> list[Fact]:
    """A row for each pair."""
    x, items, order, starts, codes = (scope.fact(required(node, n)) for n in range(5))
    for fact, rank in ((x, 2), (items, 2), (order, 1), (starts, 1), (codes, 3)):
        require_rank(fact, rank, node, rank)
    experts, out, size = _matrices(scope, node)
    scope.same(x.shape[1], size, node, f"{describe(node)} sums over it")
    scope.same(starts.shape[0], experts + 1, node, "the begin of each expert's pairs")
    scope.same(items.shape[1], as_dim(ITEM), node, "numbers of a call")
    return [Fact(DType.F32, (order.shape[0], out))]


def _matrices(scope: Inference | Lowering, node: ir.Node) -> tuple[Dim, Dim, Dim]:
    """(experts, out, in)."""
    codes, scales = scope.fact(required(node, 4)), given(node, 5)
    experts, out, size = codes.shape
    if codes.dtype not in _CODES or (scales is None) != (codes.dtype is DType.F32):
        raise ModelError(f"{describe(node)}: codes are {codes.dtype!r}, expected integers with scales, or float32")
    size = size * 2 if int(attribute(node, "bits", 8)) == 4 else size
    if scales is not None:
        blocks = scope.fact(scales).shape[2]
        if size.constant is None or blocks.constant is None or size.constant % (blocks.constant * GROUP // 2):
            raise ModelError(f"{describe(node)}: {blocks} scales do not divide a row of {size}")
    return experts, out, size


@lowers("ExpertMatMul", domain=DOMAIN)
def lower_product(scope: Lowering, node: ir.Node) -> None:
    """A call for each item."""
    x, items, order, starts, codes = (required(node, n) for n in range(5))
    scales, minimums = given(node, 5), given(node, 6)
    experts, out, size = _matrices(scope, node)
    kind = "u4" if int(attribute(node, "bits", 8)) == 4 else _CODES[scope.fact(codes).dtype]
    numbers = DType.F32 if scales is None else scope.fact(scales).dtype
    # Where there are none, a tensor that is not read stands for them.
    others = [codes if scales is None else scales] * 2 if minimums is None else [scales or codes, minimums]
    block = size if scales is None else as_dim(int(size) // int(scope.fact(scales).shape[2]))
    pairs = scope.fact(order).shape[0]
    sizes = (pairs, scope.fact(x).shape[0], experts, out, size, block, ONE if minimums is not None else as_dim(0))
    operands = [scope.tensor(value) for value in (items, x, order, starts, codes, *others)]
    calls = scope.fact(items).shape[0]
    (name,) = scope.extern(KINDS[kind, numbers], operands, [(DType.F32, (pairs, out))], sizes, calls)
    scope.alias(node.outputs[0], name)
