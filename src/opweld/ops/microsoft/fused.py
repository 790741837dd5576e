"""Products and convolutions with fused transposition of operands, addition and activation."""

from __future__ import annotations

from collections.abc import Callable

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import add, mul, widen
from opweld.ops.conv import check_bias, convolution_operands, convolution_shape, convolved
from opweld.ops.emitted import Emitted, Indices, define
from opweld.ops.fact import Fact
from opweld.ops.matmul import contraction, infer_gemm, product_shape
from opweld.ops.microsoft.activation import fused_activation
from opweld.ops.microsoft.domain import MICROSOFT
from opweld.ops.operands import describe, given, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, fresh_axes, infers, lowers
from opweld.tensor.dim import Axis, Dim
from opweld.tensor.expr import Expr

# ---------------------------------------------------------------------------------------------------------- FusedConv


@infers("FusedConv", domain=MICROSOFT)
def infer_fused_conv(scope: Inference, node: ir.Node) -> list[Fact]:
    """As Conv; the addend has the shape of the result."""
    x, w = convolution_operands(scope, node)
    check_bias(scope, node, w.shape[0])
    shape, addend = convolution_shape(scope, node, x, w), given(node, 3)
    fused_activation(node, attribute(node, "activation_params", None) or ())
    if addend is not None:
        fact = require_rank(scope.fact(addend), len(shape), node, len(shape))
        require_same_dtype((x, fact), node)
        for a, b in zip(fact.shape, shape, strict=True):
            scope.same(a, b, node, "what is added has the shape of the result")
    return [Fact(x.dtype, shape)]


@lowers("FusedConv", domain=MICROSOFT)
def lower_fused_conv(scope: Lowering, node: ir.Node) -> None:
    """activation(convolution + bias + addend)"""
    x, w, bias, addend = required(node, 0), required(node, 1), given(node, 2), given(node, 3)
    out = scope.fact(node.outputs[0])
    axes, total = convolved(
        node,
        out.shape,
        scope.fact(x),
        scope.fact(w),
        lambda at, guards: scope.load(x, at, guards),
        lambda at: scope.load(w, at),
    )
    product = Emitted(scope.emit(axes, total, "product"), total.dtype)
    activation = fused_activation(node, attribute(node, "activation_params", None) or ())

    def body(at: Indices) -> Expr:
        value = widen(product.at(at))
        if bias is not None:
            value = add(value, widen(scope.load(bias, (at[1],))))
        return activation(value if addend is None else add(value, widen(scope.load(addend, at))))

    define(scope, node.outputs[0], body)


# ---------------------------------------------------------------------------------------------------------- FusedGemm


@infers("FusedGemm", domain=MICROSOFT)
def infer_fused_gemm(scope: Inference, node: ir.Node) -> list[Fact]:
    """As Gemm."""
    fused_activation(node, _gemm_parameters(node))
    return infer_gemm(scope, node)


@lowers("FusedGemm", domain=MICROSOFT)
def lower_fused_gemm(scope: Lowering, node: ir.Node) -> None:
    """activation(alpha * a b + beta * c)"""
    a, b, addend = required(node, 0), required(node, 1), given(node, 2)
    across_a, across_b = bool(attribute(node, "transA", 0)), bool(attribute(node, "transB", 0))
    alpha, beta = float(attribute(node, "alpha", 1.0)), float(attribute(node, "beta", 1.0))
    axes = m, n = fresh_axes(scope.fact(node.outputs[0]).shape)
    k = Axis("k", scope.fact(a).shape[0 if across_a else 1])
    left = scope.load(a, (k.dim, m.dim) if across_a else (m.dim, k.dim))
    right = scope.load(b, (n.dim, k.dim) if across_b else (k.dim, n.dim))
    product = Emitted(scope.emit(axes, contraction((k,), left, right), "product"), left.dtype)
    activation = fused_activation(node, _gemm_parameters(node))

    def body(at: Indices) -> Expr:
        value = widen(product.at(at))
        value = value if alpha == 1 else mul(value, alpha)
        if addend is not None and beta != 0:
            c = widen(scope.load(addend, at))
            value = add(value, c if beta == 1 else mul(c, beta))
        return activation(value)

    define(scope, node.outputs[0], body)


def _gemm_parameters(node: ir.Node) -> list[float]:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return [float(attribute(node, name, 0.0)) for name in names if attribute(node, name, None) is not None]


# -------------------------------------------------------------------------------------------------------- FusedMatMul


@infers("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def infer_fused_matmul(scope: Inference, node: ir.Node) -> list[Fact]:
    """As MatMul, of operands whose last two axes, or whose batch axes and rows, are swapped first."""
    sides = [require_rank(scope.fact(required(node, position)), 1, node) for position in (0, 1)]
    a, b = (Fact(x.dtype, _moved(node, "AB"[i], x.rank)(x.shape)) for i, x in enumerate(sides))
    return [Fact(require_same_dtype(sides, node), product_shape(scope, node, a, b))]


@lowers("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def lower_fused_matmul(scope: Lowering, node: ir.Node) -> None:
    """alpha * the product of both operands"""
    a, b = required(node, 0), required(node, 1)
    alpha = float(attribute(node, "alpha", 1.0))
    rank_a, rank_b = scope.fact(a).rank, scope.fact(b).rank
    back_a, back_b = _moved(node, "A", rank_a, back=True), _moved(node, "B", rank_b, back=True)
    shape_a = _moved(node, "A", rank_a)(scope.fact(a).shape)
    axes = fresh_axes(scope.fact(node.outputs[0]).shape)
    rows, columns = int(rank_a > 1), int(rank_b > 1)
    indices = tuple(axis.dim for axis in axes)
    batch, rest = indices[: len(indices) - rows - columns], indices[len(indices) - rows - columns :]
    k = Axis("k", shape_a[-1])

    def side(value: ir.Value, rank: int, back: Callable[[Indices], Indices], inner: Indices) -> Expr:
        own = batch[len(batch) - (rank - len(inner)) :] if rank > len(inner) else ()
        return scope.load(value, back((*own, *inner)))

    left = side(a, rank_a, back_a, (*rest[:rows], k.dim))
    right = side(b, rank_b, back_b, (k.dim, *rest[len(rest) - columns :]))
    product = Emitted(scope.emit(axes, contraction((k,), left, right), "product"), left.dtype)
    define(scope, node.outputs[0], lambda at: product.at(at) if alpha == 1 else mul(widen(product.at(at)), alpha))


def _moved(node: ir.Node, side: str, rank: int, back: bool = False) -> Callable[[tuple[Dim, ...]], tuple[Dim, ...]]:
    """The permutation of an operand's axes; `back` maps indices of the permuted operand to those of the input."""
    swap, batch = bool(attribute(node, f"trans{side}", 0)), bool(attribute(node, f"transBatch{side}", 0))
    order = list(range(rank))
    if batch:
        if rank < 3:
            raise ModelError(f"{describe(node)}: transBatch{side} needs a side of rank 3 or more, not {rank}")
        # [M, batch..., K] -> [batch..., M, K]; with both, [K, batch..., M] -> [batch..., M, K]
        order = [*range(1, rank - 1), 0, rank - 1]
    if swap and rank > 1:
        order[-2:] = order[:-3:-1]
    if back:
        order = [order.index(axis) for axis in range(rank)]
    return lambda items: tuple(items[axis] for axis in order)
