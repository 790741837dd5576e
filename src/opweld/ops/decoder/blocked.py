"""Matrices of integers with a scale, and perhaps a minimum, for each block of a row: code * scale + minimum.

BlockedMatMul(x [..., in], codes [out, in], scales [out, in / block], minimums?)    x times the transposed matrix
BlockedGather(rows [...], codes, scales, minimums?)                                 rows of the matrix
"""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import add, mul
from opweld.ops.decoder.domain import DOMAIN
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.gather import chosen_index
from opweld.ops.matmul import contraction
from opweld.ops.operands import describe, given, require_rank, required
from opweld.ops.registry import Inference, Lowering, infers, lowers
from opweld.tensor.dim import Axis, Dim, ceildiv, floordiv
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, cast


@infers("BlockedMatMul", domain=DOMAIN)
def infer_product(scope: Inference, node: ir.Node) -> list[Fact]:
    """[..., in] x [out, in] -> [..., out]."""
    x, (out, size) = scope.fact(required(node, 0)), _matrix(scope, node)
    require_rank(x, 1, node)
    scope.same(x.shape[-1], size, node, f"{describe(node)} sums over it")
    return [Fact(DType.F32, (*x.shape[:-1], out))]


@lowers("BlockedMatMul", domain=DOMAIN)
def lower_product(scope: Lowering, node: ir.Node) -> None:
    """A sum of products of x and of what the codes stand for."""
    x = required(node, 0)
    axis = Axis("k", scope.fact(x).shape[-1])

    def body(at: Indices) -> Expr:
        element = cast(scope.load(x, (*at[:-1], axis.dim)), DType.F32)
        return contraction((axis,), element, _element(scope, node, at[-1], axis.dim))

    define(scope, node.outputs[0], body)


@infers("BlockedGather", domain=DOMAIN)
def infer_rows(scope: Inference, node: ir.Node) -> list[Fact]:
    """[...] -> [..., in]."""
    rows, (_, size) = scope.fact(required(node, 0)), _matrix(scope, node)
    if not rows.dtype.is_integer:
        raise ModelError(f"{describe(node)}: rows are integers, not {rows.dtype!r}")
    return [Fact(DType.F32, (*rows.shape, size))]


@lowers("BlockedGather", domain=DOMAIN)
def lower_rows(scope: Lowering, node: ir.Node) -> None:
    """Elements of the rows that are asked for; a row that is not there is an error of the run."""
    out, _ = scope.fact(required(node, 1)).shape

    def body(at: Indices) -> Expr:
        return _element(scope, node, chosen_index(scope, required(node, 0), at[:-1], out), at[-1])

    define(scope, node.outputs[0], body)


def _matrix(scope: Inference, node: ir.Node) -> tuple[Dim, Dim]:
    """(out, in) of the matrix of a node."""
    codes, scales = scope.fact(required(node, 1)), scope.fact(required(node, 2))
    for fact in (codes, scales):
        require_rank(fact, 2, node, 2)
    out, size = codes.shape
    block = _block(size, scales.shape[1], node)
    scope.same(ceildiv(size, block), scales.shape[1], node, "a scale for each block")
    minimums = given(node, 3)
    if minimums is not None and scope.fact(minimums).shape != scales.shape:
        raise ModelError(f"{describe(node)}: minimums have the shape of scales, {list(scales.shape)}")
    return out, size


def _block(size: Dim, blocks: Dim, node: ir.Node) -> int:
    whole, count = size.constant, blocks.constant
    if not whole or not count or whole % count:
        raise ModelError(f"{describe(node)}: {blocks} scales do not divide a row of {size}")
    return whole // count


def _element(scope: Lowering, node: ir.Node, row: Dim, column: Dim) -> Expr:
    codes, scales = required(node, 1), required(node, 2)
    block = _block(scope.fact(codes).shape[1], scope.fact(scales).shape[1], node)
    place = (row, floordiv(column, block))
    value = mul(cast(scope.load(codes, (row, column)), DType.F32), cast(scope.load(scales, place), DType.F32))
    minimums = given(node, 3)
    return value if minimums is None else add(value, cast(scope.load(minimums, place), DType.F32))
