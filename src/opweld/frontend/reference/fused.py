"""Convolutions and products with fused operators, and those whose channels are last."""

from __future__ import annotations

from typing import Any

import numpy as np

from opweld.frontend.reference.activation import activated
from opweld.frontend.reference.standard import MICROSOFT, Array, standard
from opweld.ops.registry import computes


def channels_first(x: Array) -> Array:
    """[N, spatial..., C] -> [N, C, spatial...]"""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def channels_last(x: Array) -> Array:
    """[N, C, spatial...] -> [N, spatial..., C]"""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


@computes("FusedConv", domain=MICROSOFT)
def fused_conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    addend: Array | None = None,
    activation: str = "",
    activation_params: Any = (),
    **attributes: Any,
) -> Array:
    """activation(convolution + addend)"""
    total = standard("Conv", x, w, bias, **attributes)
    return activated(total if addend is None else total + addend, activation, activation_params or ())


@computes("NhwcConv", domain=MICROSOFT)
def nhwc_conv(x: Array, w: Array, bias: Array | None = None, **attributes: Any) -> Array:
    """Conv, with channels last in data, weights and result."""
    return channels_last(standard("Conv", channels_first(x), channels_first(w), bias, **attributes))


@computes("NhwcFusedConv", domain=MICROSOFT)
def nhwc_fused_conv(
    x: Array, w: Array, bias: Array | None = None, addend: Array | None = None, **attributes: Any
) -> Array:
    """FusedConv, with channels last in data, addend and result."""
    moved = None if addend is None else channels_first(addend)
    return channels_last(fused_conv(channels_first(x), w, bias, moved, **attributes))


@computes("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(x: Array, **attributes: Any) -> Array:
    """MaxPool, with channels last."""
    # As floats: padding is -infinity, where ONNX's evaluator is wrong for other types.
    found = standard("MaxPool", channels_first(x).astype(np.float64), **attributes)
    return channels_last(found.astype(x.dtype))


@computes("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """activation(alpha * a b + beta * c)"""
    total = alpha * ((a.T if transA else a) @ (b.T if transB else b))
    given = (activation_alpha, activation_beta, activation_gamma)
    return activated(total if c is None else total + beta * c, activation, [n for n in given if n is not None])


@computes("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Array,
    b: Array,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Array:
    """alpha * the product of both operands, whose batch axes and rows, and whose last two axes are swapped first."""

    def side(x: Array, swap: int, batch: int) -> Array:
        x = np.moveaxis(x, 0, -2) if batch else x
        return np.swapaxes(x, -1, -2) if swap and x.ndim > 1 else x

    return alpha * np.matmul(side(a, transA, transBatchA), side(b, transB, transBatchB))
