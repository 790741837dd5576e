"""Matrices of integers with a scale, and perhaps a minimum, for each block of a row: code * scale + minimum.

BlockedMatMul(x [..., in], codes [out, in], scales [out, in / block], minimums?)    x times the transposed matrix
BlockedGather(rows [...], codes, scales, minimums?)                                 rows of the matrix
"""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import add, mul
from opweld.ops.decoder.domain import DOMAIN
from opweld.ops.emitted import Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.gather import chosen_index
from opweld.ops.matmul import contraction
from opweld.ops.operands import describe, given, require_rank, required
from opweld.ops.registry import Inference, Lowering, infers, lowers
from opweld.tensor.dim import Axis, Dim, as_dim, floordiv
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, cast, reduce


@infers("BlockedMatMul", domain=DOMAIN)
def infer_product(scope: Inference, node: ir.Node) -> list[Fact]:
    """[..., in] x [out, in] -> [..., out]."""
    x, (out, size) = scope.fact(required(node, 0)), _matrix(scope, node)
    require_rank(x, 1, node)
    scope.same(x.shape[-1], size, node, f"{describe(node)} sums over it")
    return [Fact(DType.F32, (*x.shape[:-1], out))]


@lowers("BlockedMatMul", domain=DOMAIN)
def lower_product(scope: Lowering, node: ir.Node) -> None:
    """sum<k>(x[k] * (code[k] * scale[b] + least[b])), where the minimums of blocks multiply sums of x:

    sum<k>(x[k] * code[k] * scale[b]) + sum<b>(least[b] * sum<i>(x[b * size + i]))
    """
    x, codes, scales, minimums = required(node, 0), required(node, 1), required(node, 2), given(node, 3)
    shape, count = scope.fact(x).shape, scope.fact(scales).shape[1]
    size = _block(shape[-1], count, node)
    k, b, inner = Axis("k", shape[-1]), Axis("b", count), Axis("i", as_dim(size))

    def product(at: Indices) -> Expr:
        element = cast(scope.load(x, (*at[:-1], k.dim)), DType.F32)
        return contraction((k,), element, _scaled(scope, codes, scales, (at[-1], k.dim), size))

    if minimums is None:
        define(scope, node.outputs[0], product)
        return
    lowest = minimums

    def block_sum(at: Indices) -> Expr:
        return reduce("sum", (inner,), cast(scope.load(x, (*at[:-1], at[-1] * size + inner.dim)), DType.F32))

    blocks = emit(scope, (*shape[:-1], count), block_sum, "blocks")

    def least(at: Indices) -> Expr:
        return contraction((b,), blocks.at((*at[:-1], b.dim)), cast(scope.load(lowest, (at[-1], b.dim)), DType.F32))

    added = emit(scope, scope.fact(node.outputs[0]).shape, least, "least")
    define(scope, node.outputs[0], lambda at: add(product(at), added.at(at)))


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
    codes, scales, minimums = required(node, 1), required(node, 2), given(node, 3)
    out, columns = scope.fact(codes).shape
    size = _block(columns, scope.fact(scales).shape[1], node)

    def body(at: Indices) -> Expr:
        place = (chosen_index(scope, required(node, 0), at[:-1], out), at[-1])
        value = _scaled(scope, codes, scales, place, size)
        if minimums is None:
            return value
        return add(value, cast(scope.load(minimums, (place[0], floordiv(place[1], size))), DType.F32))

    define(scope, node.outputs[0], body)


def _matrix(scope: Inference, node: ir.Node) -> tuple[Dim, Dim]:
    """(out, in) of the matrix of a node."""
    codes, scales = scope.fact(required(node, 1)), scope.fact(required(node, 2))
    for fact in (codes, scales):
        require_rank(fact, 2, node, 2)
    out, size = codes.shape
    _block(size, scales.shape[1], node)
    scope.same(scales.shape[0], out, node, "scales for each row")
    minimums = given(node, 3)
    if minimums is not None and scope.fact(minimums).shape != scales.shape:
        raise ModelError(f"{describe(node)}: minimums have the shape of scales, {list(scales.shape)}")
    return out, size


def _block(size: Dim, blocks: Dim, node: ir.Node) -> int:
    whole, count = size.constant, blocks.constant
    if not whole or not count or whole % count:
        raise ModelError(f"{describe(node)}: {blocks} scales do not divide a row of {size}")
    return whole // count


def _scaled(scope: Lowering, codes: ir.Value, scales: ir.Value, at: tuple[Dim, Dim], block: int) -> Expr:
    scale = cast(scope.load(scales, (at[0], floordiv(at[1], block))), DType.F32)
    return mul(cast(scope.load(codes, at), DType.F32), scale)
