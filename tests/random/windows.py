"""Convolution and pooling for the reference evaluator, with windows as NumPy views: its own loop over elements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun

Array = NDArray[Any]


def geometry(attributes: dict[str, Any], kernel: tuple[int, ...], sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """(kernel, stride, dilation, before, after, places) for each spatial axis, as the specification defines them."""
    n = len(sizes)
    strides = attributes.get("strides") or [1] * n
    dilations = attributes.get("dilations") or [1] * n
    pads = attributes.get("pads") or [0] * (2 * n)
    auto = attributes.get("auto_pad") or "NOTSET"
    found: list[tuple[int, ...]] = []
    for axis in range(n):
        k, s, d, size = kernel[axis], strides[axis], dilations[axis], sizes[axis]
        before, after = pads[axis], pads[axis + n]
        reach = (k - 1) * d + 1
        if auto == "VALID":
            before = after = 0
        elif auto != "NOTSET":
            total = max((-(-size // s) - 1) * s + reach - size, 0)
            before, after = (
                (total // 2, total - total // 2) if auto == "SAME_UPPER" else (total - total // 2, total // 2)
            )
        room = size + before + after - reach
        if room < 0:
            raise ValueError(f"a window of {reach} does not fit {size} elements padded by {before} and {after}")
        places = room // s + 1
        if attributes.get("ceil_mode") and auto == "NOTSET":
            places = -(-room // s) + 1
            if (places - 1) * s >= size + before:  # the last window must not start on the padding behind
                places -= 1
        found.append((k, s, d, before, after, places))
    return found


def taps(x: Array, windows: list[tuple[int, ...]], fill: float) -> Array:
    """[batch, channels, places..., kernel...]: what each tap of each window sees."""
    n = len(windows)
    around = [(0, 0), (0, 0)]
    for axis, (k, s, d, before, _, places) in enumerate(windows):
        need = (places - 1) * s + (k - 1) * d + 1
        around.append((before, max(need - x.shape[2 + axis] - before, 0)))
    padded = np.pad(x, around, constant_values=fill)
    shape = (*x.shape[:2], *(w[5] for w in windows), *(w[0] for w in windows))
    result = np.empty(shape, x.dtype)
    for tap in itertools.product(*(range(w[0]) for w in windows)):
        where = tuple(
            slice(t * d, t * d + (places - 1) * s + 1, s)
            for t, (_, s, d, _, _, places) in zip(tap, windows, strict=True)
        )
        result[(slice(None),) * (2 + n) + tap] = padded[(slice(None), slice(None), *where)]
    return result


class Conv(OpRun):
    """Convolution of any rank."""

    op_domain = ""

    def _run(self, x: Array, weights: Array, bias: Array | None = None, **attributes: Any) -> tuple[Array]:
        result = _convolved(x, weights, attributes)
        if bias is not None:
            result = result + bias.reshape(-1, *(1,) * (x.ndim - 2))
        return (np.ascontiguousarray(result),)


def _convolved(x: Array, weights: Array, attributes: dict[str, Any]) -> Array:
    group = attributes.get("group") or 1
    windows = geometry(attributes, weights.shape[2:], x.shape[2:])
    n = len(windows)
    if x.shape[1] != weights.shape[1] * group or weights.shape[0] % group:
        raise ValueError("channels do not fit the groups")
    seen = taps(x, windows, 0)
    seen = seen.reshape(x.shape[0], group, -1, *seen.shape[2:])
    split = weights.reshape(group, -1, *weights.shape[1:])
    kernel = tuple(range(3 + n, 3 + 2 * n))
    parts = [
        np.tensordot(seen[:, g], split[g], axes=((1, *(k - 1 for k in kernel)), (1, *range(2, 2 + n))))
        for g in range(group)
    ]
    return np.moveaxis(np.concatenate(parts, axis=-1), -1, 1)


def _centred(values: Array, zero: Array | None) -> Array:
    """Integers minus their zero point, of all or of each index of the first axis, in float64, which holds them."""
    if zero is None:
        return values.astype(np.float64)
    along = zero.reshape(-1, *(1,) * (values.ndim - 1)) if zero.size > 1 else zero.reshape(())
    return values.astype(np.float64) - along.astype(np.float64)


class ConvInteger(OpRun):
    """Of any rank, with a zero point for each output channel."""

    op_domain = ""

    def _run(
        self, x: Array, weights: Array, x0: Array | None = None, w0: Array | None = None, **attributes: Any
    ) -> tuple[Array]:
        return (_convolved(_centred(x, x0), _centred(weights, w0), attributes).astype(np.int32),)


class QLinearConv(OpRun):
    """Of any rank, with a scale for each output channel; rounded before the zero point is added."""

    op_domain = ""

    def _run(self, x: Array, x1: Array, x0: Array, w: Array, w1: Array, w0: Array, *rest: Any, **given: Any) -> Any:
        y1, y0, bias = rest if len(rest) == 3 else (*rest, None)
        total = _convolved(_centred(x, x0), _centred(w, w0), given)
        along = (-1, *(1,) * (x.ndim - 2))
        total = total if bias is None else total + bias.reshape(along)
        rounded = np.rint(total * (x1.reshape(()) * w1.reshape(along) / y1.reshape(()))) + y0.reshape(())
        limits = np.iinfo(y0.dtype)
        return (np.clip(rounded, limits.min, limits.max).astype(y0.dtype),)


class MaxPool(OpRun):
    """The values; padding is never the largest."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        windows = geometry(attributes, tuple(attributes["kernel_shape"]), x.shape[2:])
        n = len(windows)
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return (taps(x, windows, lowest).max(axis=tuple(range(2 + n, 2 + 2 * n))),)


class AveragePool(OpRun):
    """What hangs over the end with ceil_mode counts as nothing, padding as the attribute says."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        windows = geometry(attributes, tuple(attributes["kernel_shape"]), x.shape[2:])
        n = len(windows)
        last = tuple(range(2 + n, 2 + 2 * n))
        total = taps(x, windows, 0).sum(axis=last)
        ones = np.ones((1, 1, *x.shape[2:]))
        if attributes.get("count_include_pad"):
            ones = np.pad(ones, [(0, 0), (0, 0), *((w[3], w[4]) for w in windows)], constant_values=1)
            windows = [(k, s, d, 0, 0, places) for k, s, d, _, _, places in windows]
        return (total / taps(ones, windows, 0).sum(axis=last),)
