"""Operators of ONNX that its reference evaluator computes wrong, corrected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun

from opweld.errors import UnsupportedError
from opweld.frontend.corrected_older import OLDER

Array = NDArray[Any]


class BatchNormalization(OpRun):
    """Inference. ONNX's evaluator trains if a model before opset 14 has the attribute `momentum`."""

    op_domain = ""

    def _run(self, x: Array, scale: Array, bias: Array, mean: Array, var: Array, **attributes: Any) -> tuple[Array]:
        if attributes.get("training_mode") or attributes.get("is_test") == 0:
            raise UnsupportedError("BatchNormalization in training mode has no reference")
        scale, bias, mean, var = (v.reshape(-1, *(1,) * (x.ndim - 2)) for v in (scale, bias, mean, var))
        epsilon = attributes.get("epsilon")
        return (scale * (x - mean) / np.sqrt(var + (1e-5 if epsilon is None else epsilon)) + bias,)


class GlobalMaxPool(OpRun):
    """ONNX's evaluator is wrong for every rank but 4."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class Erf(OpRun):
    """In the precision of its input, where ONNX's evaluator always computes float32."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype),)


class LRN(OpRun):
    """Over all channels, where ONNX's evaluator skips those beyond the number of images."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        size = int(attributes["size"])
        alpha, beta, bias = (float(attributes[name]) for name in ("alpha", "beta", "bias"))
        squares = np.zeros_like(x)
        for channel in range(x.shape[1]):
            first, last = max(0, channel - (size - 1) // 2), channel + size // 2 + 1
            squares[:, channel] = np.sum(np.square(x[:, first:last]), axis=1)
        return ((x / (bias + alpha / size * squares) ** beta).astype(x.dtype),)


class Pad(OpRun):
    """Negative pads crop, where ONNX's evaluator fails.

    A constant fills whatever lies outside of x: the size of an axis is always size + before + after, also where more is
    cropped at one end than there is. Other modes repeat what is left after cropping."""

    op_domain = ""

    def _run(
        self, x: Array, pads: Any = None, filling: Any = None, axes: Any = None, **attributes: Any
    ) -> tuple[Array]:
        named = range(x.ndim) if axes is None else [int(axis) % x.ndim for axis in axes]
        widths = {axis: (int(pads[i]), int(pads[len(named) + i])) for i, axis in enumerate(named)}
        around = [widths.get(axis, (0, 0)) for axis in range(x.ndim)]
        starts = [max(-before, 0) for before, _ in around]
        ends = [
            max(start, size + min(after, 0)) for start, size, (_, after) in zip(starts, x.shape, around, strict=True)
        ]
        inner = x[tuple(map(slice, starts, ends))]
        mode: Any = attributes.get("mode") or "constant"
        if mode != "constant":
            outside = [(max(before, 0), max(after, 0)) for before, after in around]
            repeated: Array = np.pad(inner, outside, mode) if x.ndim else x
            return (repeated,)
        value = attributes.get("value") if filling is None else np.asarray(filling).item()
        fill = 0 if value is None else value
        padded = np.full([size + sum(pair) for size, pair in zip(x.shape, around, strict=True)], fill, x.dtype)
        padded[tuple(slice(start + b, end + b) for start, end, (b, _) in zip(starts, ends, around, strict=True))] = (
            inner
        )
        return (padded,)


class ConvTranspose(OpRun):
    """Every group with its own bias and all its channels, where ONNX's evaluator uses the first group's bias and one
    channel.

    X [N, C, spatial...], W [C, O / group, kernel...], B [O]: each element of X adds a kernel to the result."""

    op_domain = ""

    def _run(self, x: Array, weights: Array, bias: Array | None = None, **attributes: Any) -> tuple[Array]:
        spatial, kernel = x.shape[2:], weights.shape[2:]
        n, group = len(spatial), attributes.get("group") or 1
        strides = attributes.get("strides") or [1] * n
        dilations = attributes.get("dilations") or [1] * n
        extra = attributes.get("output_padding") or [0] * n
        whole = [
            s * (size - 1) + d * (k - 1) + 1 for s, size, d, k in zip(strides, spatial, dilations, kernel, strict=True)
        ]
        before, sizes = _cropped([a + b for a, b in zip(whole, extra, strict=True)], spatial, strides, attributes)
        split = x.reshape(x.shape[0], group, -1, *spatial)
        taken = weights.reshape(group, -1, *weights.shape[1:])
        room = [max(a, b + c) for a, b, c in zip(whole, before, sizes, strict=True)]
        result = np.zeros((x.shape[0], group, weights.shape[1], *room), x.dtype)
        for tap in np.ndindex(*kernel):
            part = np.einsum("ngc...,gco->ngo...", split, taken[(..., *tap)])
            where = tuple(
                slice(t * d, t * d + s * (size - 1) + 1, s)
                for t, d, s, size in zip(tap, dilations, strides, spatial, strict=True)
            )
            result[(..., *where)] += part
        kept = tuple(slice(start, start + size) for start, size in zip(before, sizes, strict=True))
        result = result.reshape(x.shape[0], -1, *room)[(slice(None), slice(None), *kept)]
        return (result if bias is None else result + bias.reshape(-1, *(1,) * n),)


def _cropped(
    whole: Sequence[int], spatial: Sequence[int], strides: Sequence[int], attributes: Mapping[str, Any]
) -> tuple[list[int], list[int]]:
    """(elements cropped at the start, elements kept) of each spatial axis of a ConvTranspose."""
    n = len(whole)
    pads, auto = attributes.get("pads"), attributes.get("auto_pad") or "NOTSET"
    sizes = attributes.get("output_shape")
    if sizes is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [size * stride for size, stride in zip(spatial, strides, strict=True)]
    if sizes is None:
        pads = pads or [0] * (2 * n)
        return list(pads[:n]), [whole[i] - pads[i] - pads[n + i] for i in range(n)]
    cut = [whole[i] - sizes[i] for i in range(n)]
    # An odd element is at the end for SAME_UPPER, else at the start.
    return [max(0, c // 2 if auto == "SAME_UPPER" else c - c // 2) for c in cut], list(sizes)


class DequantizeLinear(OpRun):
    """For opsets before 19, which ONNX's evaluator lacks."""

    op_domain = ""

    def _run(self, x: Array, scale: Array, zero: Array | None = None, **attributes: Any) -> tuple[Array]:
        shape, axis = [1] * x.ndim, attributes.get("axis")
        if scale.size > 1:
            shape[1 if axis is None else axis] = -1
        along = shape if scale.ndim and scale.size > 1 else ()
        whole = x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64).reshape(along))
        return (whole.astype(scale.dtype) * scale.reshape(along),)


OWN_OPERATORS: tuple[type[OpRun], ...] = (BatchNormalization, GlobalMaxPool, Erf, LRN, Pad, ConvTranspose, *OLDER)
"""Corrected operators."""


def own_operators(opset: int) -> tuple[type[OpRun], ...]:
    """The operators that replace those of ONNX's evaluator in models of an opset."""
    return OWN_OPERATORS if opset >= 19 else (*OWN_OPERATORS, DequantizeLinear)
