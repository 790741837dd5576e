"""A linear layer with what follows it, in one kernel.

    z = x weight^T + bias
    y = activation(z) + residual

Backward saves z where there is an activation:

    dz = dy activation'(z),  dx = dz weight,  dweight = dz^T x,  dbias = sum over rows of dz,  dresidual = dy

The kernels are in `matmul`, the choice among them in `product`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import activation_gradient, product
from opweld.kernels.activations import check_activation
from opweld.kernels.arguments import as_rows, check_like, check_shape, check_tensor
from opweld.kernels.product import CANDIDATES
from opweld.kernels.registration import operator
from opweld.kernels.variant import Variant

__all__ = ["CANDIDATES", "linear", "variants"]

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@operator("linear")
def _forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str, precision: str, save: bool
) -> tuple[Tensor, Tensor]:
    epilogue: dict[str, Any] = {"bias": bias, "residual": residual, "activation": activation, "save": save}
    return product.product(x, weight, x.dtype, precision=_precision(precision), **epilogue)


@operator("linear_backward")
def _backward(
    dy: Tensor, z: Tensor, x: Tensor, weight: Tensor, activation: str, precision: str, wants: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    dz = activation_gradient.activation_gradient(dy, z, activation) if activation != "none" else dy
    how = _precision(precision)
    dx = product.product(dz, weight.t(), x.dtype, precision=how)[0] if wants[0] else dz.new_empty(0)
    dweight = product.product(dz.t(), x.t(), weight.dtype, precision=how)[0] if wants[1] else dz.new_empty(0)
    dbias = dz.sum(0, dtype=torch.float32) if wants[2] else dz.new_empty(0, dtype=torch.float32)
    return dx, dweight, dbias


def _precision(precision: str) -> Literal["ieee", "tf32"]:
    return "tf32" if precision == "tf32" else "ieee"


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, bias, residual, ctx.activation, ctx.precision, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1], x, weight)
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.has_residual = residual is not None


def _differentiate(ctx: Any, dy: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    z, x, weight = ctx.saved_tensors
    wants = [*ctx.needs_input_grad[:2], ctx.bias_dtype is not None and ctx.needs_input_grad[2]]
    dx, dweight, dbias = _backward(dy, z, x, weight, ctx.activation, ctx.precision, wants)
    return (
        dx if wants[0] else None,
        dweight if wants[1] else None,
        dbias.to(ctx.bias_dtype) if wants[2] else None,
        dy if ctx.has_residual else None,
        *[None] * 3,
    )


_forward.register_autograd(_differentiate, setup_context=_save)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = "none",
    residual: Tensor | None = None,
    precision: Literal["ieee", "tf32"] = "ieee",
) -> Tensor:
    """activation(x weight^T + bias) + residual; differentiable in all tensors.

    Args:
        x: [..., K], float16, bfloat16 or float32; of any strides.
        weight: [N, K], as x; of any strides.
        bias: [N], as x.
        activation: none, relu, silu, gelu or gelu_tanh.
        residual: [..., N], as x.
        precision: how float32 is multiplied: ieee, or tf32, whose factors have 10 bits, on tensor cores. Sums are
            float32, whatever x is.

    Returns:
        [..., N], as x.

    Raises:
        InputError: dtypes, shapes or options do not fit.
    """
    check_tensor("x", x, DTYPES, range(1, 9))
    check_tensor("weight", weight, DTYPES, range(2, 3))
    check_like("weight", weight, "x", x)
    n = weight.shape[0]
    check_shape("weight", weight, (n, x.shape[-1]), "what comes out by what goes in, the last dimension of x")
    check_activation(activation)
    if precision not in ("ieee", "tf32"):
        raise InputError(f"precision is {precision!r}, expected ieee or tf32")
    shape = (*x.shape[:-1], n)
    for name, tensor, expected in (("bias", bias, (n,)), ("residual", residual, shape)):
        if tensor is not None:
            check_like(name, tensor, "x", x)
            check_shape(name, tensor, expected, "it is added to what comes out")
    rows = x.reshape(math.prod(shape[:-1]), x.shape[-1])
    save = activation != "none" and torch.is_grad_enabled()
    bias = None if bias is None else bias.contiguous()
    rows_residual = None if residual is None else as_rows(residual)
    y, _ = _forward(rows, weight, bias, rows_residual, activation, precision, save)
    return y.view(shape)


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90: forward in bfloat16, with bias, residual and
    activation; its backward; float32 both ways."""
    epilogue = {"ACTIVATION": "gelu", "HAS_RESIDUAL": True}
    yield from product.variants("linear", arch, torch.bfloat16, epilogue)
    yield from product.variants("linear", arch, torch.float32, epilogue, precision="tf32")
    yield from product.variants("linear", arch, torch.float32, epilogue)
    backward = {"HAS_BIAS": False}
    yield from product.variants("linear backward", arch, torch.bfloat16, backward, turned=(False, True))
    yield from product.variants("linear backward", arch, torch.bfloat16, backward, turned=(True, True))
    yield from product.variants("linear saving", arch, torch.bfloat16, epilogue | {"SAVE": True})
    yield from activation_gradient.variants(arch)
