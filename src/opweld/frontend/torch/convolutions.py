"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import Builder, Value
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType


@aten("convolution.default")
def convolution(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """Any number of spatial axes; transposed or not. An input without a batch has one of 1."""
    spatial = b.rank(weight) - 2
    batched = b.rank(x) == spatial + 2

    def each(given: Sequence[int]) -> list[int]:
        return b.each(given, spatial, "a size of a window")

    if not b.dtype.is_float:
        raise UnsupportedError(f"node {b.name!r}: a convolution of {b.dtype!r}")
    pads = each(padding)
    front = b.constant([0], DType.I64)
    data = x if batched else b.op("Unsqueeze", x, front)
    attributes: dict[str, Any] = {
        "strides": each(stride),
        "pads": pads + pads,
        "dilations": each(dilation),
        "group": groups,
    }
    kernel = [b.static(size, "a size of a window") for size in b.shape(weight)[2:]]
    if transposed:
        y = b.op(
            "ConvTranspose",
            data,
            weight,
            bias,
            kernel_shape=kernel,
            output_padding=each(output_padding),
            **attributes,
        )
    else:
        y = b.op("Conv", data, weight, bias, kernel_shape=kernel, **attributes)
    return y if batched else b.op("Squeeze", y, front)
