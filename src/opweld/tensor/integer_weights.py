"""Stored weights as integers: symmetric codes of 8 bits with a scale a channel, of 4 bits with a scale a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LEAST_SCALE = 1e-30
"""Smaller scales are those of values that are 0 for all that matters, and their products would not be float32."""

BLOCKS = (32, 16)
"""Weights of int4 that share a scale, along what is summed over: the first that divides it. Where none does, weights
are int8: OpenVINO takes whole blocks only, and a longer block rounds more coarsely."""


@dataclass(frozen=True)
class Weights:
    """Stored weights as integers.

    Attributes:
        codes: int8, of the weights' shape; of int4, -8 to 7 or -7 to 7 in int8.
        scales: float32; of no axis, one of each channel of `axis`, or of each block along it.
        axis: None for one scale. block: weights of a scale along the axis; 0 where it is one channel.
    """

    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    axis: int | None
    block: int = 0

    def values(self) -> NDArray[np.float32]:
        """What the codes stand for."""
        if self.axis is None:
            return (self.codes * self.scales).astype(np.float32)
        if self.block:
            spread = np.repeat(self.scales, self.block, self.axis)
            within = np.moveaxis(np.moveaxis(spread, self.axis, 0)[: self.codes.shape[self.axis]], 0, self.axis)
            return (self.codes * within).astype(np.float32)
        return (self.codes * _along(self.scales, self.axis, self.codes.ndim)).astype(np.float32)


def quantize_weights(
    weights: Array,
    axis: int | None,
    least: NDArray[np.float64] | float = 0.0,
    largest: int = 127,
    paired: int | None = None,
) -> Weights:
    """Symmetric codes from -`largest` to `largest`, a scale a channel of `axis`, none below `least`.

    A channel of zeros takes the largest scale of the others: its codes are 0, and its bias as fine as theirs. `paired`:
    an axis of which neighbours, 2i and 2i + 1, sum to no more than `largest` + 1 where they have one sign."""
    others = tuple(i for i in range(weights.ndim) if i != axis) if axis is not None else None
    reached = np.abs(weights) if paired is None else _paired(weights, paired)
    reach = reached.max(axis=others) if weights.size else np.zeros(())
    scales = np.asarray(reach, np.float64) / largest
    scales = np.where(scales < LEAST_SCALE, scales.max(initial=0.0), scales)
    scales = np.maximum(np.where(scales < LEAST_SCALE, 1.0, scales), least).astype(np.float32)
    spread = scales if axis is None else _along(scales, axis, weights.ndim)
    codes = np.clip(np.round(weights / spread), -largest, largest).astype(np.int8)
    return Weights(codes, scales, axis)


def _paired(weights: Array, axis: int) -> Array:
    """The magnitudes of weights, or of the sums of neighbours of one sign where they are larger."""
    moved = np.moveaxis(weights, axis, -1)
    even = moved.shape[-1] // 2 * 2
    first, second = moved[..., 0:even:2], moved[..., 1:even:2]
    sums = np.where((first < 0) == (second < 0), np.abs(first + second), 0)
    reached = np.abs(moved)
    reached[..., 0:even:2] = np.maximum(reached[..., 0:even:2], sums)
    return np.moveaxis(reached, -1, axis)


def quantize_blocks(weights: Array, axis: int, block: int) -> Weights:
    """Codes of 4 bits by blocks along an axis, see `block_scales`. The last block may be shorter."""
    moved = np.moveaxis(weights, axis, -1).astype(np.float64)
    length = moved.shape[-1]
    count = -(-length // block)
    padded = np.zeros((*moved.shape[:-1], count * block))
    padded[..., :length] = moved
    blocks = padded.reshape(*moved.shape[:-1], count, block)
    scales = block_scales(blocks)
    codes = np.clip(np.round(blocks / scales[..., None]), -8, 7).astype(np.int8)
    codes = codes.reshape(*moved.shape[:-1], -1)[..., :length]
    return Weights(
        np.ascontiguousarray(np.moveaxis(codes, -1, axis)),
        np.ascontiguousarray(np.moveaxis(scales.astype(np.float32), -1, axis)),
        axis, block,
    )  # fmt: skip


def block_scales(blocks: Array) -> NDArray[np.float64]:
    """The scale of each row of the last axis for codes from -8 to 7, as float32 holds it: of those that leave out up to
    0.3 of its reach, that of the least squared error; 1 where all are 0."""
    rows = blocks.reshape(-1, blocks.shape[-1])
    scales = np.empty(len(rows))
    for first in range(0, len(rows), ROWS):
        scales[first : first + ROWS] = _scales_of(rows[first : first + ROWS])
    return scales.reshape(blocks.shape[:-1])


ROWS = 1024
"""Blocks that are looked at together, so that a dozen passes over them find them in cache."""


def _scales_of(rows: Array) -> NDArray[np.float64]:
    reach = np.abs(rows).max(axis=-1, keepdims=True)
    best, error = np.ones_like(reach), np.full_like(reach, np.inf)
    for part in np.linspace(1.0, 0.7, 13):
        scale = np.where(reach < LEAST_SCALE, 1.0, reach * part / 7).astype(np.float32).astype(np.float64)
        codes = rows / scale
        np.clip(np.rint(codes, out=codes), -8, 7, out=codes)
        wrong = codes * scale - rows
        squares = np.einsum("ij,ij->i", wrong, wrong)[:, None]
        best, error = np.where(squares < error, scale, best), np.minimum(squares, error)
    return best[:, 0]


def block_length(length: int) -> int:
    """How many of so many weights of int4 share a scale; 0 where no block divides them."""
    return next((block for block in BLOCKS if length % block == 0), 0)


def _along(scales: Array, axis: int, rank: int) -> Array:
    return scales.reshape([-1 if i == axis else 1 for i in range(rank)])
