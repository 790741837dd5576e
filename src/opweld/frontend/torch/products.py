"""Sums of products: matrices, batches of them, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from opweld.errors import UnsupportedError
from opweld.frontend.torch.arithmetic import pair
from opweld.frontend.torch.builder import Builder, Scalar, Value
from opweld.frontend.torch.rows import aten, operator
from opweld.tensor.dtype import DType


@aten("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default")
def matmul(b: Builder, x: Value, y: Value) -> Value:
    """x y, of NumPy's ranks."""
    if b.dtype is DType.BOOL:
        raise UnsupportedError(f"node {b.name!r}: a product of truth values")
    return b.op("MatMul", x, y)


@aten("linear.default")
def linear(b: Builder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x w^T + bias"""
    turned = b.op("Transpose", weight, perm=[1, 0]) if b.rank(weight) == 2 else weight
    y = b.op("MatMul", x, turned)
    return y if bias is None else b.op("Add", y, bias)


@aten("addmm.default", "baddbmm.default", "addmv.default")
def addmm(b: Builder, bias: Value, x: Value, y: Value, *, beta: Scalar = 1, alpha: Scalar = 1) -> Value:
    """beta bias + alpha x y"""
    product = b.op("MatMul", x, y)
    product = product if alpha == 1 else pair(b, "Mul", product, alpha)
    if beta == 0:
        return product
    return b.op("Add", product, bias if beta == 1 else pair(b, "Mul", bias, beta))


@aten("addbmm.default")
def addbmm(b: Builder, bias: Value, x: Value, y: Value, *, beta: Scalar = 1, alpha: Scalar = 1) -> Value:
    """beta bias + alpha times the sum of a batch's products."""
    product = b.op("ReduceSum", b.op("MatMul", x, y), b.constant([0], DType.I64), keepdims=0)
    product = product if alpha == 1 else pair(b, "Mul", product, alpha)
    if beta == 0:
        return product
    return b.op("Add", product, bias if beta == 1 else pair(b, "Mul", bias, beta))


@operator("transformers", "grouped_mm_fallback.default")
@aten("_grouped_mm.default")
def grouped(
    b: Builder, x: Value, weight: Value, offs: Value | None = None, bias: Value | None = None, *_: Any, **__: Any
) -> Value:
    """Rows times the matrix of their group, x [rows, k] and weight [groups, k, n]: a group ends before the row that
    `offs` tells; what lies behind the last one is 0."""
    if offs is None or bias is not None or b.rank(x) != 2 or b.rank(weight) != 3:
        raise UnsupportedError(f"node {b.name!r}: groups of matrices that are no rows of one")
    zero, one = b.constant(0, DType.I64), b.constant(1, DType.I64)
    row = b.op("Range", zero, b.cast(b.sizes(x)[0], DType.I64), one)
    row = b.op("Unsqueeze", row, b.constant([1], DType.I64))
    ended = b.op("LessOrEqual", b.cast(offs, DType.I64), row, dtype=DType.BOOL)
    group = b.op("ReduceSum", b.cast(ended, DType.I64), b.constant([1], DType.I64), keepdims=0)
    count = b.cast(b.sizes(weight)[0], DType.I64)
    own = b.op("Gather", weight, b.op("Min", group, b.op("Sub", count, one)), axis=0)
    middle = b.constant([1], DType.I64)
    product = b.op("Squeeze", b.op("MatMul", b.op("Unsqueeze", x, middle), own), middle)
    belongs = b.op("Unsqueeze", b.op("Less", group, count, dtype=DType.BOOL), middle)
    return b.op("Where", belongs, product, b.cast(0, b.dtype), dtype=b.dtype)


@aten("einsum.default")
def einsum(b: Builder, equation: str, tensors: Sequence[Value], **_: Any) -> Value:
    """A sum of products of letters' indices."""
    return b.op("Einsum", *tensors, equation=equation.replace(" ", ""))


@aten("scaled_dot_product_attention.default")
def attention(
    b: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """softmax(scale q k^T + mask) v"""
    if dropout_p:
        raise UnsupportedError(f"node {b.name!r}: dropout in training; call module.eval() first")
    dtype, rank = b.dtype, b.rank(query)
    if scale is None:
        width = b.static(b.shape(query)[-1], "the size of a head")
        scale = 1 / math.sqrt(width) if width else 1.0
    if enable_gqa:
        key, value = (_repeated(b, each, query) for each in (key, value))
    order = [*range(rank - 2), rank - 1, rank - 2]
    scores = b.op("MatMul", query, b.op("Transpose", key, perm=order))
    scores = b.op("Mul", scores, b.cast(float(scale), dtype))
    if is_causal:
        ones = b.expanded(b.constant(True), [b.sizes(query)[-2], b.sizes(key)[-2]])
        own = b.op("Trilu", ones, b.constant(0, DType.I64), upper=0)
        scores = b.op("Where", own, scores, b.cast(-math.inf, dtype), dtype=dtype)
    if attn_mask is None:
        return b.op("MatMul", b.op("Softmax", scores, axis=-1), value)
    if b.dtype_of(attn_mask) is DType.BOOL:
        scores = b.op("Where", attn_mask, scores, b.cast(-math.inf, dtype), dtype=dtype)
    else:
        scores = b.op("Add", scores, b.cast(attn_mask, dtype))
    return b.op("MatMul", safe_softmax(b, scores, dtype), value)


def safe_softmax(b: Builder, x: Value, dtype: DType, axis: int = -1) -> Value:
    """A softmax of which rows of -inf alone, where everything is masked, are 0."""
    found = b.op("Softmax", x, axis=axis)
    largest = b.op("ReduceMax", x, b.constant([axis], DType.I64), keepdims=1)
    nothing = b.op("Equal", largest, b.cast(-math.inf, dtype), dtype=DType.BOOL)
    return b.op("Where", nothing, b.cast(0, dtype), found, dtype=dtype)


def _repeated(b: Builder, x: Value, query: Value) -> Value:
    """Heads of keys or values, each as often as queries share it."""
    heads, wanted = b.shape(x)[-3], b.shape(query)[-3]
    count = b.static(wanted, "the number of heads") // b.static(heads, "the number of heads")
    if count == 1:
        return x
    sizes = b.sizes(x)
    wide = b.op("Unsqueeze", x, b.constant([-3], DType.I64))
    wide = b.expanded(wide, [*sizes[:-2], count, *sizes[-2:]])
    made = b.reshape(wide, [*sizes[:-3], wanted, *sizes[-2:]])
    b.known[made] = b.known[x]  # of the rank and the length that are asked for
    return made


@aten("_scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    b: Builder,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, None]:
    """The same as AOTAutograd spells it, where heads of keys are shared without saying so; what only training reads is
    not made."""
    gqa = b.shape(query)[1] != b.shape(key)[1]
    return attention(b, query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=gqa), None
