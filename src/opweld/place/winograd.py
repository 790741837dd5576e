"""Convolutions of 3 x 3 by Winograd's F(2 x 2, 3 x 3): 16 products for four results instead of 36.

A tile is 2 x 2 results and the 4 x 4 elements d that they read. With the matrices below, the results of one pair of
channels are A [(G g G') * (B d B')] A', where * multiplies element by element; sums over input channels move inside, so
that a convolution is 16 products of matrices, tiles by channels. G g G' is computed from the weights when the model is
compiled (in float64, rounded once); B and A are additions. Shmuel Winograd, "Arithmetic Complexity of Computations"
(1980); Andrew Lavin and Scott Gray, "Fast Algorithms for Convolutional Neural Networks" (2016).

Differences of adjacent elements are taken before the products. So an infinity gives NaN in results that would be
infinite, elements above a quarter of the largest float32 overflow, and an element 10^7 times its neighbours cancels
their digits, even with a weight of zero. To keep these cases exact, disable `schedule.algorithm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from opweld.fuse.region import axes_in, reductions
from opweld.place.storage import Storage
from opweld.schedule.cost import POINTS, Tiled, winograd
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import ONE, Axis, Dim, ceildiv
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Load, dims_of, walk
from opweld.tensor.program import Constant, Tensor

COUNTS = (8, 14, 16, 20, 25, 28, 32, 36, 42, 49, 56, 64, 84, 98, 112, 128)
"""Candidate numbers of tiles of a grid iteration."""
GROUPS = (1, 2, 4, 8)
"""Candidate numbers of groups of lanes."""

_RESULTS = (DType.F32, DType.F16, DType.BF16)
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


@dataclass(frozen=True, eq=False)
class Taps:
    """The axes of a convolution: the spatial axes of the result, the taps, and the input channels."""

    y: Axis
    x: Axis
    ky: Axis
    kx: Axis
    channel: Axis


def taps_of(tensor: Tensor, lane: Axis, along: Load, across: Load) -> Taps | None:
    """The axes of a contraction that is a convolution of 3 x 3 at stride 1, without groups, whose operands are float32
    in memory; None otherwise, as when a factor is computed from several elements.

    along, across: the operand that vectors are loaded of along the lane axis, and the one that is broadcast."""
    found = reductions(tensor.body)
    if len(found) != 1 or along.guards:
        return None
    product = found[0].body
    bare = isinstance(product, Binary) and isinstance(product.x, Load) and isinstance(product.y, Load)
    if tensor.dtype not in _RESULTS or found[0].dtype is not DType.F32 or not bare:
        return None
    pairs = [_slide(dim, tensor) for dim in across.indices]
    others = [dim for dim, pair in zip(across.indices, pairs, strict=True) if pair is None]
    slides = [pair for pair in pairs if pair is not None]
    if len(slides) != 2 or any(reduced.extent.constant != 3 for _, reduced in slides):
        return None
    (y, ky), (x, kx) = slides
    if y is x or ky is kx:
        return None
    rest = [axis for axis in found[0].axes if axis not in (ky, kx) and axis.extent.constant != 1]
    if len(rest) != 1 or not any(dim.coefficient(rest[0]) is ONE for dim in others):
        return None
    taps = Taps(y, x, ky, kx, rest[0])
    if any(dim.depends_on(moving) for dim in others for moving in (y, x, ky, kx)):
        return None
    if axes_in(along) - {lane, taps.channel, ky, kx}:
        return None
    return taps if all(_of_the_place(guard, taps, lane) for guard in across.guards) else None


def _of_the_place(guard: Dim, taps: Taps, lane: Axis) -> bool:
    """Whether a guard depends only on the input position, not on the tap or the result."""
    pairs = ((taps.y, taps.ky), (taps.x, taps.kx))
    steps = [(guard.coefficient(own), guard.coefficient(reduced)) for own, reduced in pairs]
    same = all(first is not None and first is second for first, second in steps)
    return same and not guard.depends_on(taps.channel) and not guard.depends_on(lane)


def _slide(dim: Dim, tensor: Tensor) -> tuple[Axis, Axis] | None:
    """(free axis, reduced axis) of an index that is their sum, and a constant."""
    axes = [axis for axis in dim.atoms if isinstance(axis, Axis)]
    own, reduced = [a for a in axes if a in tensor.axes], [a for a in axes if a not in tensor.axes]
    if len(own) != 1 or len(reduced) != 1 or (dim - own[0].dim - reduced[0].dim).constant is None:
        return None
    return own[0], reduced[0]


def straight(
    tensor: Tensor, place: tuple[Dim, ...], taps: Taps, lane: Axis, across: Load, storages: Mapping[str, Storage]
) -> bool:
    """Whether vectors of channels are contiguous in data and result, and addresses are affine along the axes that tiles
    divide."""
    store = storages[tensor.name].address(place)
    read = storages[across.tensor].address(across.indices)
    cut = (taps.y, taps.x)
    dims = [dim for node in walk(tensor.body) for dim in dims_of(node)]
    linear = all(dim.coefficient(axis) is not None for dim in (store, read, *dims) for axis in cut)
    return linear and store.coefficient(lane) is ONE and read.coefficient(taps.channel) is ONE


def transformed(name: str, weights: Constant, along: Load, taps: Taps, lane: Axis) -> Constant | None:
    """The weights as [16][lane][channel] constants; None if they are not read as a whole."""
    order: list[int] = []
    for axis in (lane, taps.channel, taps.ky, taps.kx):
        positions = [p for p, dim in enumerate(along.indices) if dim.atom is axis]
        if len(positions) != 1 or weights.shape[positions[0]] != axis.extent.constant:
            return None
        order += positions
    if any(size != 1 for position, size in enumerate(weights.shape) if position not in order):
        return None
    lanes, channels = weights.shape[order[0]], weights.shape[order[1]]

    def read() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        single = tuple(p for p in range(len(weights.shape)) if p not in order)
        taps_last = np.transpose(weights.read(), (*single, *order)).reshape(lanes, channels, 3, 3)
        points = np.einsum("pi,lcij,qj->pqlc", _G, taps_last.astype(np.float64), _G, optimize=True)
        return points.reshape(POINTS, lanes, channels).astype(np.float32)

    return Constant(name, weights.dtype, (POINTS, lanes, channels), read, weights.origin)


def tiles_along(axis: Axis) -> Dim:
    """The number of tiles of 2 results along an axis of the result."""
    return ceildiv(axis.extent, 2)


def tiled(
    tensor: Tensor, lane: Axis, vectors: int, taps: Taps, constant_bytes: int, expected: Expected, target: Target
) -> Tiled:
    """The figures of a convolution at the expected sizes. constant_bytes: of all constants of the program."""
    pictures = [axis.extent for axis in tensor.axes if axis not in (taps.y, taps.x, lane)]
    return Tiled(
        expected(taps.channel.extent),
        expected(lane.extent),
        expected(tiles_along(taps.y)) * expected(tiles_along(taps.x)),
        expected.product(pictures),
        (tiles_along(taps.y) * tiles_along(taps.x)).constant is None,
        vectors,
        reductions(tensor.body)[0].dtype,
        target,
        constant_bytes,
    )


@cache
def seconds_by_winograd(work: Tiled) -> float:
    """Of a convolution by Winograd's algorithm, with the best number of tiles and of groups."""
    return min(winograd(work, count, groups).seconds for count in COUNTS for groups in GROUPS)
