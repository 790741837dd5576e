"""RMSNorm over the last dimension, with what is added before it.

    h = x + residual
    y = h / sqrt(mean(h^2) + eps) * weight

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

__all__ = ["CANDIDATES", "CANDIDATES_BACKWARD", "rms_norm", "variants"]


@operator("rms_norm")
def _forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return row_norm.forward(x, residual, weight, None, eps, centred=False)


@operator("rms_norm_backward")
def _backward(
    dy: Tensor, dh: Tensor | None, h: Tensor, weight: Tensor | None, means: Tensor, scales: Tensor
) -> tuple[Tensor, Tensor]:
    return row_norm.backward(dy, dh, h, weight, means, scales, has_bias=False)[:2]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    x, residual, weight, _ = inputs
    _, total, means, scales = output
    ctx.mark_non_differentiable(means, scales)
    ctx.save_for_backward(x if residual is None else total, weight, means, scales)
    ctx.has_residual = residual is not None


def _differentiate(ctx: Any, dy: Tensor, dh: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    h, weight, means, scales = ctx.saved_tensors
    dx, dw = _backward(dy, dh if ctx.has_residual else None, h, weight, means, scales)
    return dx, dx if ctx.has_residual else None, None if weight is None else dw.to(weight.dtype), None


_forward.register_autograd(_differentiate, setup_context=_save)


@overload
def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6, *, residual: None = None) -> Tensor: ...


@overload
def rms_norm(
    x: Tensor, weight: Tensor | None = None, eps: float = 1e-6, *, residual: Tensor
) -> tuple[Tensor, Tensor]: ...


def rms_norm(
    x: Tensor, weight: Tensor | None = None, eps: float = 1e-6, *, residual: Tensor | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """RMSNorm of x, or of x + residual, over the last dimension; differentiable in all tensors.

    Args:
        x: [..., N], float16, bfloat16, float32 or float64; rows may be strided.
        weight: [N], of any of these types; 1 without one.
        eps: added to the mean of squares.
        residual: as x.

    Returns:
        y as x; with a residual y and h, the sum that was normalised.

    Raises:
        InputError: dtypes, shapes or devices do not fit.
    """
    check_tensor("x", x, FLOATS, range(1, 9))
    if residual is not None:
        check_like("residual", residual, "x", x)
        check_shape("residual", residual, tuple(x.shape), "it is added to x")
    if weight is not None:
        check_tensor("weight", weight, FLOATS)
        check_shape("weight", weight, (x.shape[-1],), "one element for each column of x")
        weight = weight.contiguous()
    y, total, _, _ = _forward(x, residual, weight, eps)
    return y if residual is None else (y, total)


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90."""
    return row_norm.variants("rms_norm", centred=False)
