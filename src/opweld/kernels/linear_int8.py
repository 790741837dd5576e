"""A linear layer of int8 numbers with a scale for each row of either operand.

    y_mn = activation(x_scale_m weight_scale_n sum over k of x_mk weight_nk + bias_n) + residual_mn

Sums are int32, exact; all after them is float32. The kernels are in `matmul`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from opweld.kernels import product
from opweld.kernels.product import Configuration
from opweld.kernels.registration import operator
from opweld.kernels.scaled_linear import operands
from opweld.kernels.variant import Variant

CANDIDATES = (
    Configuration(128, 256, 128, 8, 4, tma=True),
    Configuration(128, 256, 128, 8, 3, tma=True),
    Configuration(128, 128, 128, 8, 4, tma=True),
    Configuration(128, 256, 128, 8, 3),
)
"""Configurations that a benchmark may try in place of `product.configuration`'s."""


@operator("linear_int8")
def _forward(
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str,
    dtype: torch.dtype,
) -> Tensor:
    epilogue: dict[str, Any] = {"bias": bias, "residual": residual, "activation": activation}
    return product.product(x, weight, dtype, scales=(x_scale, weight_scale), **epilogue)[0]


def linear_int8(
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = "none",
    residual: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """A linear layer of int8; not differentiable.

    Args:
        x: [..., K], int8.
        weight: [N, K], int8.
        x_scale: [...], float32, a number for each row of x; or one for all.
        weight_scale: [N], float32, a number for each row of weight; or one for all.
        bias: [N], of the dtype of the result.
        activation: none, relu, silu, gelu or gelu_tanh.
        residual: [..., N], of the dtype of the result.
        dtype: of the result: bfloat16, float16 or float32.

    Returns:
        [..., N].

    Raises:
        InputError: dtypes, shapes, devices or options do not fit.
    """
    given = operands(x, weight, x_scale, weight_scale, bias, residual, activation, torch.int8, dtype)
    return _forward(*given, activation, dtype).view(*x.shape[:-1], weight.shape[0])


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90: results in bfloat16."""
    epilogue = {"SCALED": True, "HAS_RESIDUAL": True, "ACTIVATION": "gelu"}
    return product.variants("linear_int8", arch, torch.int8, epilogue)
