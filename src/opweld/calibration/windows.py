"""What a layer multiplies by its weights, and the second moments of it.

Of a convolution these are elements of its windows, of each group by themselves: neighbours in a picture are alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.calibration.graph import Graph, Layer, attributes_of
from opweld.calibration.moments import LIMIT, SecondMoments

Array = NDArray[Any]

POSITIONS = 64, 4096
"""At least and at most so many windows of a sample are looked at, drawn at random; fewer where there are fewer."""

ELEMENTS, PRODUCTS = 1 << 22, 1 << 30
"""As many windows as have no more elements, and take no more products, together."""


@dataclass(frozen=True)
class Window:
    """Where a convolution reads what it multiplies; each tuple has a number for each axis of the picture.

    Attributes:
        groups: of channels. channels: of a group.
        pads: zeros before and behind, half of the reach each where the operator finds them itself.
    """

    groups: int
    channels: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    @property
    def inputs(self) -> int:
        """Elements of a window of a group."""
        return self.channels * prod(self.kernel)


@dataclass(frozen=True)
class Reads:
    """What a layer reads: of a value rows along an axis, or windows of it."""

    value: str
    axis: int
    window: Window | None = None


class WindowMoments:
    """The sum of x times its transpose, over windows x of a value [batch, channels, ...], of each group.

    Attributes:
        sums: float32 [groups, inputs, inputs].
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self.sums = np.zeros((window.groups, window.inputs, window.inputs), np.float32)
        least, most = POSITIONS
        inputs = window.groups * window.inputs
        self._count = min(max(least, min(ELEMENTS // inputs, PRODUCTS // (inputs * window.inputs))), most)
        self._random = np.random.default_rng(0)

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return int(self.sums.nbytes)

    def add(self, array: Array) -> None:
        """Adds windows of a value. Where squares are no float32, neither are the moments."""
        window = self._window
        padded = np.pad(array, ((0, 0), (0, 0), *window.pads))
        reach = tuple((k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True))
        if any(size < r for size, r in zip(padded.shape[2:], reach, strict=True)):
            return
        axes = tuple(range(2, array.ndim))
        views = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
        steps = (slice(None, None, step) for step in (*window.strides, *window.dilations))
        views = views[(slice(None), slice(None), *steps)]
        places = views.shape[:1] + views.shape[2 : array.ndim]
        total = prod(places)
        chosen = np.arange(total)
        if total > self._count:
            chosen = np.sort(self._random.choice(total, self._count, replace=False))
        image, *position = np.unravel_index(chosen, places)
        found = views[(image, slice(None), *position)]  # [windows, channels, *kernel]: places come first
        rows = found.reshape(len(chosen), window.groups, window.inputs).swapaxes(0, 1).astype(np.float32, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            self.sums += rows.swapaxes(1, 2) @ rows


Moments = SecondMoments | WindowMoments


def reads_of(graph: Graph, layer: Layer) -> Reads | None:
    """What a layer multiplies by weights; None of transposed convolutions, of rows that are gathered, and of stacks of
    matrices."""
    node, dims = graph.nodes[layer.node], graph.stored[layer.weights].dims
    if not layer.data:
        return None
    if layer.sums is not None:
        return Reads(layer.data, layer.channels) if len(dims) == 2 else None
    if node.op_type != "Conv":
        return None
    attributes, kernel = attributes_of(node), tuple(dims[2:])
    ones = (1,) * len(kernel)
    dilations = tuple(attributes.get("dilations", ones))
    ends = attributes.get("pads", (0, 0) * len(kernel))
    pads = tuple(zip(ends[: len(kernel)], ends[len(kernel) :], strict=True))
    if attributes.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        pads = tuple(((k - 1) * d // 2,) * 2 for k, d in zip(kernel, dilations, strict=True))
    strides = tuple(attributes.get("strides", ones))
    return Reads(layer.data, 1, Window(attributes.get("group", 1), dims[1], kernel, strides, dilations, pads))


def moments_read(graph: Graph, layers: Iterable[Layer], limit: int = LIMIT) -> dict[Reads, Moments]:
    """Empty second moments of what layers read, within so many bytes: those of most inputs are left out first."""
    sizes: dict[Reads, tuple[int, int]] = {}
    for layer in layers:
        reads = reads_of(graph, layer)
        if reads is not None and reads.window is not None:
            sizes[reads] = reads.window.groups, reads.window.inputs
        elif reads is not None and layer.sums is not None:
            sizes[reads] = 1, graph.stored[layer.weights].dims[layer.sums]
    found: dict[Reads, Moments] = {}
    for reads, (groups, inputs) in sorted(sizes.items(), key=lambda item: item[1][1]):
        limit -= 4 * groups * inputs * inputs
        if limit >= 0:
            window = reads.window
            found[reads] = SecondMoments(inputs, reads.axis) if window is None else WindowMoments(window)
    return found
