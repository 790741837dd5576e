"""A linear layer of float8 numbers (e4m3) with a scale for each row of either operand, or one for all.

    y_mn = activation(x_scale_m weight_scale_n sum over k of x_mk weight_nk + bias_n) + residual_mn

Tensor cores keep 14 bits of a sum of float8 products: sums of 128 products are added up in float32, unless asked to be
fast. The kernels are in `matmul`; they need sm_90.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import product
from opweld.kernels.devices import architecture
from opweld.kernels.product import Configuration
from opweld.kernels.registration import operator
from opweld.kernels.scaled_linear import operands
from opweld.kernels.variant import Variant

CANDIDATES = (
    Configuration(128, 256, 128, 8, 4, tma=True),
    Configuration(128, 256, 128, 8, 3, tma=True),
    Configuration(128, 128, 128, 8, 4, tma=True),
    Configuration(128, 128, 128, 4, 4, tma=True),
)
"""Configurations that a benchmark may try in place of `product.configuration`'s."""


@operator("linear_fp8")
def _forward(
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str,
    dtype: torch.dtype,
    fast: bool,
) -> Tensor:
    epilogue: dict[str, Any] = {"bias": bias, "residual": residual, "activation": activation}
    scales = (x_scale, weight_scale)
    return product.product(x, weight, dtype, scales=scales, precision="fast" if fast else "ieee", **epilogue)[0]


def linear_fp8(
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = "none",
    residual: Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    fast: bool = False,
) -> Tensor:
    """A linear layer of float8; not differentiable; sm_90 only.

    Args:
        x: [..., K], float8_e4m3fn.
        weight: [N, K], float8_e4m3fn.
        x_scale: [...], float32, a number for each row of x; or one for all.
        weight_scale: [N], float32, a number for each row of weight; or one for all.
        bias: [N], of the dtype of the result.
        activation: none, relu, silu, gelu or gelu_tanh.
        residual: [..., N], of the dtype of the result.
        dtype: of the result: bfloat16, float16 or float32.
        fast: leave whole sums to tensor cores: faster, an error of about 2^-13 of the largest partial sum.

    Returns:
        [..., N].

    Raises:
        InputError: dtypes, shapes, devices or options do not fit, or the GPU has no float8.
    """
    if x.is_cuda and architecture(x.device) < 90:
        raise InputError(f"x is on a GPU of sm_{architecture(x.device)}, and float8 needs sm_90: use linear_int8")
    given = operands(x, weight, x_scale, weight_scale, bias, residual, activation, torch.float8_e4m3fn, dtype)
    return _forward(*given, activation, dtype, fast).view(*x.shape[:-1], weight.shape[0])


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90: results in bfloat16; none before sm_90."""
    if arch < 90:
        return
    epilogue = {"SCALED": True, "HAS_RESIDUAL": True, "ACTIVATION": "gelu"}
    yield from product.variants("linear_fp8", arch, torch.float8_e4m3fn, epilogue)
    yield from product.variants("linear_fp8", arch, torch.float8_e4m3fn, epilogue, precision="fast")
