"""What the linear layers of numbers of 8 bits share: arguments with scales, and their checks."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels.activations import check_activation
from opweld.kernels.arguments import as_rows, check_like, check_shape, check_tensor

RESULTS = (torch.bfloat16, torch.float16, torch.float32)


def operands(
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str,
    element: torch.dtype,
    dtype: torch.dtype,
) -> tuple[Any, ...]:
    """Rows of x and of weight, along which elements lie side by side; a scale for each of both; bias, and residual as
    rows.

    Raises:
        InputError: dtypes, shapes, devices or the activation do not fit.
    """
    check_tensor("x", x, (element,), range(1, 9))
    check_tensor("weight", weight, (element,), range(2, 3))
    check_like("weight", weight, "x", x)
    n = weight.shape[0]
    check_shape("weight", weight, (n, x.shape[-1]), "what comes out by what goes in, the last dimension of x")
    if dtype not in RESULTS:
        raise InputError(f"dtype is {dtype}, expected one of bfloat16, float16, float32")
    scales = [
        _scales("x_scale", x_scale, tuple(x.shape[:-1]), "row of x"),
        _scales("weight_scale", weight_scale, (n,), "row of weight"),
    ]
    shape = (*x.shape[:-1], n)
    for name, tensor, expected in (("bias", bias, (n,)), ("residual", residual, shape)):
        if tensor is not None:
            check_tensor(name, tensor, (dtype,))
            check_shape(name, tensor, expected, "it is added to what comes out")
    check_activation(activation)
    rows_residual = None if residual is None else as_rows(residual)
    return as_rows(x), as_rows(weight), *scales, None if bias is None else bias.contiguous(), rows_residual


def _scales(name: str, scale: Tensor, shape: tuple[int, ...], of: str) -> Tensor:
    """One scale for each row; one for all is repeated."""
    check_tensor(name, scale, (torch.float32,))
    if scale.numel() != 1:
        check_shape(name, scale, shape, f"one number for all, or one for each {of}")
    return scale.reshape(-1).expand(math.prod(shape)).contiguous()
