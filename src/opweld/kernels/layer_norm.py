"""LayerNorm over the last dimension, with what is added before it.

    h = x + residual
    y = (h - mean(h)) / sqrt(mean((h - mean(h))^2) + eps) * weight + bias

One pass over memory each way. The kernels, and the formulas of backward, are in `row_norm`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, overload

from torch import Tensor

from opweld.kernels import row_norm
from opweld.kernels.arguments import FLOATS, check_like, check_shape, check_tensor
from opweld.kernels.registration import operator
from opweld.kernels.row_norm import CANDIDATES, CANDIDATES_BACKWARD
from opweld.kernels.variant import Variant

__all__ = ["CANDIDATES", "CANDIDATES_BACKWARD", "layer_norm", "variants"]


@operator("layer_norm")
def _forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return row_norm.forward(x, residual, weight, bias, eps, centred=True)


@operator("layer_norm_backward")
def _backward(
    dy: Tensor, dh: Tensor | None, h: Tensor, weight: Tensor | None, means: Tensor, scales: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return row_norm.backward(dy, dh, h, weight, means, scales, has_bias)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    x, residual, weight, bias, _ = inputs
    _, total, means, scales = output
    ctx.mark_non_differentiable(means, scales)
    ctx.save_for_backward(x if residual is None else total, weight, means, scales)
    ctx.has_residual, ctx.bias_dtype = residual is not None, None if bias is None else bias.dtype


def _differentiate(ctx: Any, dy: Tensor, dh: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    h, weight, means, scales = ctx.saved_tensors
    dx, dw, db = _backward(dy, dh if ctx.has_residual else None, h, weight, means, scales, ctx.bias_dtype is not None)
    return (
        dx,
        dx if ctx.has_residual else None,
        None if weight is None else dw.to(weight.dtype),
        None if ctx.bias_dtype is None else db.to(ctx.bias_dtype),
        None,
    )


_forward.register_autograd(_differentiate, setup_context=_save)


@overload
def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, *, residual: None = None
) -> Tensor: ...


@overload
def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, *, residual: Tensor
) -> tuple[Tensor, Tensor]: ...


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    residual: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """LayerNorm of x, or of x + residual, over the last dimension; differentiable in all tensors.

    Args:
        x: [..., N], float16, bfloat16, float32 or float64; rows may be strided.
        weight: [N], of any of these types; 1 without one.
        bias: [N], as weight; 0 without one.
        eps: added to the variance.
        residual: as x.

    Returns:
        y as x; with a residual y and h, the sum that was normalised.

    Raises:
        InputError: dtypes, shapes or devices do not fit.
    """
    check_tensor("x", x, FLOATS, range(1, 9))
    columns = x.shape[-1]
    if residual is not None:
        check_like("residual", residual, "x", x)
        check_shape("residual", residual, tuple(x.shape), "it is added to x")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None:
            check_tensor(name, parameter, FLOATS)
            check_shape(name, parameter, (columns,), "one element for each column of x")
    weight = None if weight is None else weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    y, total, _, _ = _forward(x, residual, weight, bias, eps)
    return y if residual is None else (y, total)


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90."""
    return row_norm.variants("layer_norm", centred=True)
