# pyright: basic, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""Batch normalisation at inference with what follows it, in one pass over memory.

    y = activation((x - mean_c) weight_c / sqrt(variance_c + eps) + bias_c + residual)

which is x scale_c + shift_c of two numbers a channel. The tensor is a matrix to the kernel: channels-last its columns
are the channels, channels-first each row is a channel of an image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from opweld.kernels.activations import activate, check_activation
from opweld.kernels.arguments import FLOATS, check_like, check_shape, check_tensor
from opweld.kernels.precision import wide
from opweld.kernels.registration import launch, operator
from opweld.kernels.sizes import ceil_div, power_of_2
from opweld.kernels.variant import Variant, variant

TILE = 2048
"""Elements of a program, 16 a thread."""

WARPS = 4

CANDIDATES = tuple({"tile": tile, "warps": warps} for tile, warps in ((1024, 4), (2048, 4), (4096, 4), (4096, 8)))
"""Configurations that a benchmark may try in place of `TILE` and `WARPS`."""


def tile(columns: int) -> tuple[int, int]:
    """Rows and columns of a program."""
    width = min(power_of_2(columns), TILE // 4)
    return TILE // width, width


@triton.jit
def normalise(
    x, mean, variance, weight, bias, residual, y, rows, columns, channels, eps,
    LAST: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A tile of rows and columns; the channel is the column where LAST, else it follows from the row."""
    blocks = tl.cdiv(columns, COLUMNS)
    row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    place = row.to(tl.int64)[:, None] * columns + column[None, :]
    if LAST:
        channel, known = column, column < columns
    else:
        channel, known = row % channels, row < rows
    scale = 1.0 / tl.sqrt(wide(tl.load(variance + channel, mask=known, other=1.0)) + eps)
    if HAS_WEIGHT:
        scale *= wide(tl.load(weight + channel, mask=known, other=0.0))
    shift = -wide(tl.load(mean + channel, mask=known, other=0.0)) * scale
    if HAS_BIAS:
        shift += wide(tl.load(bias + channel, mask=known, other=0.0))
    if LAST:
        scale, shift = scale[None, :], shift[None, :]
    else:
        scale, shift = scale[:, None], shift[:, None]
    z = wide(tl.load(x + place, mask=inside, other=0.0)) * scale + shift
    if HAS_RESIDUAL:
        z += wide(tl.load(residual + place, mask=inside, other=0.0))
    tl.store(y + place, activate(z, ACTIVATION).to(y.dtype.element_ty), mask=inside)


def _is_channels_last(x: Tensor) -> bool:
    """Channels lie side by side, all else dense; of x [N, C] they always do."""
    return x.ndim == 2 or (x.movedim(1, -1).is_contiguous() and not x.is_contiguous())


@operator("batch_norm_act")
def _forward(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    eps: float,
    activation: str,
) -> Tensor:
    last = _is_channels_last(x)
    channels = x.shape[1]
    x = x if last and x.ndim > 2 else x.contiguous()
    y = torch.empty_like(x)
    if x.numel() == 0:
        return y
    if residual is not None:
        residual = residual if residual.stride() == x.stride() else torch.empty_like(x).copy_(residual)
    inner = math.prod(x.shape[2:])
    rows, columns = (x.shape[0] * inner, channels) if last else (x.shape[0] * channels, inner)
    parameters = [x if one is None else one.contiguous() for one in (mean, variance, weight, bias)]
    height, width = tile(columns)
    launch(
        normalise, (ceil_div(rows, height) * ceil_div(columns, width),), x, *parameters,
        x if residual is None else residual, y, rows, columns, channels, eps, LAST=last, HAS_WEIGHT=weight is not None,
        HAS_BIAS=bias is not None, HAS_RESIDUAL=residual is not None, ACTIVATION=activation, ROWS=height,
        COLUMNS=width, num_warps=WARPS,
    )  # fmt: skip
    return y


def batch_norm_act(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    eps: float = 1e-5,
    activation: str = "none",
) -> Tensor:
    """Batch normalisation by running statistics, a residual and an activation; not differentiable.

    Args:
        x: [N, C, ...], float16, bfloat16, float32 or float64; dense, channels-last or channels-first (else copied).
        mean: [C], of any of these types; and so are
        variance: [C],
        weight: [C], 1 without one,
        bias: [C], 0 without one.
        residual: as x, added before the activation.
        eps: added to the variance.
        activation: none, relu, silu, gelu or gelu_tanh.

    Returns:
        y as x, its channels where those of x are.

    Raises:
        InputError: dtypes, shapes, devices or the activation do not fit.
    """
    check_tensor("x", x, FLOATS, range(2, 9))
    for name, parameter in (("mean", mean), ("variance", variance), ("weight", weight), ("bias", bias)):
        if parameter is not None:
            check_tensor(name, parameter, FLOATS)
            check_shape(name, parameter, (x.shape[1],), "one element for each channel of x")
    if residual is not None:
        check_like("residual", residual, "x", x)
        check_shape("residual", residual, tuple(x.shape), "it is added to x")
    check_activation(activation)
    return _forward(x, mean, variance, weight, bias, residual, eps, activation)


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90: bfloat16, parameters in float32."""
    types = dict.fromkeys(("x", "residual", "y"), "*bf16:16") | {"eps": "fp32", "rows": "i32", "channels": "i32:16"}
    types |= dict.fromkeys(("mean", "variance", "weight", "bias"), "*fp32:16") | {"columns": "i32:16"}
    flags: dict[str, Any] = {"HAS_WEIGHT": True, "HAS_BIAS": True, "HAS_RESIDUAL": True, "ACTIVATION": "relu"}
    for columns in (64, 2048):
        height, width = tile(columns)
        for last in (True, False):
            name = f"batch_norm_act channels-{'last' if last else 'first'} bf16 {columns}"
            constants = flags | {"LAST": last, "ROWS": height, "COLUMNS": width}
            yield variant(name, normalise, types, constants, WARPS)
