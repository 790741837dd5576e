"""The geometry of convolution and pooling windows along one spatial axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.operands import describe
from opweld.ops.registry import Inference, attribute
from opweld.tensor.dim import ZERO, Dim, as_dim, ceildiv, floordiv, maximum, minimum


@dataclass(frozen=True)
class Window:
    """A window of `kernel` taps, `dilation` apart, sliding by `stride` over `size` elements padded at both ends."""

    size: Dim
    kernel: Dim
    stride: int = 1
    dilation: int = 1
    before: Dim = ZERO
    after: Dim = ZERO
    ceil: bool = False

    @property
    def reach(self) -> Dim:
        """Elements from the first tap to the last, both included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def room(self) -> Dim:
        """How far the window can move; negative where it does not fit its padded input."""
        return self.size + self.before + self.after - self.reach

    @property
    def overhangs(self) -> bool:
        """Whether the last position may extend beyond the end: with `ceil`, or as the only one of a window that is
        known not to fit."""
        return self.ceil or self._lacking > 0

    @property
    def _lacking(self) -> int:
        return max(-(self.room.constant or 0), 0)

    @property
    def out(self) -> Dim:
        """The number of positions of the window. With `ceil`, the last may extend beyond the end, but must start on an
        element or on the padding before it. Where the window is known not to fit, ONNX rounds its negative room towards
        zero: if less than a stride is missing, there is one position."""
        room = self.room
        if self._lacking:
            return as_dim(1 - self._lacking // self.stride)
        if not self.ceil:
            return floordiv(room, self.stride) + 1
        return minimum(ceildiv(room, self.stride) + 1, floordiv(self.size + self.before - 1, self.stride) + 1)

    def tap(self, place: Dim, k: Dim) -> Dim:
        """The index of tap k of the window at an output position; out of range on padding."""
        return place * self.stride + k * self.dilation - self.before

    def guards(self, place: Dim, k: Dim) -> tuple[Dim, ...]:
        """What must be >= 0 for the tap to be on an element; only bounds that a window can cross."""
        at = self.tap(place, k)
        low = () if self.before is ZERO else (at,)
        return low if self.after is ZERO and not self.overhangs else (*low, self.size - 1 - at)

    def reached(self, extent: Dim) -> tuple[int, Dim]:
        """(first, count) of the taps that are on an element at any of `extent` positions, as far as sizes are known."""
        known = [dim.constant for dim in (self.size, self.kernel, self.before, extent)]
        if any(number is None for number in known):
            return 0, self.kernel
        size, kernel, before, places = (number or 0 for number in known)
        first = max(0, -((places - 1) * self.stride - before) // self.dilation)
        count = min(kernel, (size - 1 + before) // self.dilation + 1) - first
        return (first, as_dim(count)) if count > 0 else (0, self.kernel)

    def taps(self, place: Dim, with_padding: bool) -> Dim:
        """How many taps of the window at a position are on elements, or on elements and padding."""
        if not self.overhangs and (with_padding or (self.before is ZERO and self.after is ZERO)):
            return self.kernel
        start = place * self.stride - self.before
        end = self.size + self.after if with_padding else self.size
        low = ZERO if with_padding else maximum(ceildiv(-start, self.dilation), 0)
        return minimum(self.kernel, ceildiv(end - start, self.dilation)) - low


def spatial_numbers(node: ir.Node, name: str, rank: int, default: int) -> tuple[int, ...]:
    """An attribute with one integer for each spatial axis; ModelError when there are not `rank` of them, or one is too
    small.

    Negative pads are refused as in ONNX: only Pad crops."""
    values = tuple(int(v) for v in attribute(node, name, None) or (default,) * rank)
    least = 0 if name in ("pads", "output_padding") else 1
    if len(values) != rank or min(values, default=least) < least:
        raise ModelError(f"{describe(node)}: {name} {list(values)} must be {rank} integers of at least {least}")
    return values


def windows_of(node: ir.Node, sizes: Sequence[Dim], kernel: Sequence[Dim]) -> list[Window]:
    """The window along each spatial axis, from the attributes of Conv or a pooling operator."""
    rank = len(sizes)
    strides = spatial_numbers(node, "strides", rank, 1)
    dilations = spatial_numbers(node, "dilations", rank, 1)
    pads = spatial_numbers(node, "pads", 2 * rank, 0)
    auto = attribute(node, "auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ModelError(f"{describe(node)}: auto_pad {auto!r} is none of NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    ceil = bool(attribute(node, "ceil_mode", 0)) and auto == "NOTSET"
    windows: list[Window] = []
    for axis, (size, taps, stride, dilation) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        before, after = as_dim(pads[axis]), as_dim(pads[rank + axis])
        if auto == "VALID":
            before = after = ZERO
        elif auto != "NOTSET":
            reach = (taps - 1) * dilation + 1
            total = maximum((ceildiv(size, stride) - 1) * stride + reach - size, 0)
            small = floordiv(total, 2)
            before, after = (small, total - small) if auto == "SAME_UPPER" else (total - small, small)
        windows.append(Window(size, taps, stride, dilation, before, after, ceil))
    return windows


def require_room(scope: Inference, node: ir.Node, windows: Sequence[Window]) -> tuple[Dim, ...]:
    """The output dims, under the assumption that every window fits its padded input."""
    for window in windows:
        # A last window that may extend beyond the end may be the only one.
        room = window.room + (window.stride - 1 if window.ceil else 0)
        scope.at_least(room, 0, node, f"the window of {describe(node)} must fit its padded input")
    return tuple(window.out for window in windows)


def kernel_shape(node: ir.Node, rank: int) -> list[Dim]:
    """The attribute kernel_shape; ModelError when it is missing or does not fit."""
    values = attribute(node, "kernel_shape", None)
    if values is None:
        raise ModelError(f"{describe(node)}: attribute 'kernel_shape' is missing")
    return [as_dim(v) for v in spatial_numbers(node, "kernel_shape", rank, 1)]
