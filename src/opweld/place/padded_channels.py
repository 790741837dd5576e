"""Pictures of few channels are copied for a GPU: channels last, as many as a load is wide.

The first convolution of a network reads three channels, whose neighbours lie a picture apart: each element is a load of
its own. With a fourth channel of zeros and channels last, all of a place is one load, and loads of the next step are on
their way meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from opweld.fuse.region import Kind, Region, Regions, factors, reductions, uncast
from opweld.ledger import Alternative, Ledger
from opweld.tensor.dim import Axis, Dim, axes_of
from opweld.tensor.expr import Binary, Expr, Load, Reduce, load, reduce, transform
from opweld.tensor.program import Constant, Tensor, unused

FEWEST = 8
"""Channels from which on a copy gains nothing: they fill a load."""


def pad_channels(regions: Regions, ledger: Ledger) -> tuple[Regions, frozenset[str]]:
    """The regions with such copies before them, each a decision in the ledger; and the copies, which are row-major."""
    program = regions.program
    shapes = {name: shape for name, (_, shape) in program.signatures.items()}
    taken = {*program.signatures, *(name for region in regions.regions for name in region.outputs)}
    constants, found = {value.name: value for value in program.constants}, list[Region]()
    copies: list[str] = []
    for region in regions.regions:
        sites = _sites(region, constants)
        if sites is not None and sites[0].tensor in shapes:
            choice = ledger.decide(
                rule="place.pack",
                site=region.origin,
                subject=(region.outputs[0], sites[0].tensor),
                alternatives=(Alternative("strided"), Alternative("copied")),
                prefer="copied",
                reason="a load takes all channels of a place",
                failed={},
            )
            if choice == "copied":
                copy, weights, region = _padded(region, *sites, shapes[sites[0].tensor], constants, taken)
                constants[weights.name] = weights
                found.append(copy)
                copies += copy.outputs
        found.append(region)
    read = {name for region in found for name in region.inputs} | {value for _, value in program.outputs}
    kept = tuple(value for value in constants.values() if value.name in read)
    return Regions(replace(program, constants=kept), tuple(found)), frozenset(copies)


def _sites(region: Region, constants: dict[str, Constant]) -> tuple[Load, Load, Axis, int, int] | None:
    """The picture and the weights as a convolution reads them, the axis of the channels, and its place in either."""
    if region.kind is not Kind.CONTRACTION:
        return None
    summed = reductions(region.members[0].tensor.body)[0]
    pair = factors(summed)
    if pair is None or len(summed.axes) < 2 or not isinstance(summed.body, Binary):
        return None
    # Zeros must stay zeros: of weights with a zero point, say, a channel that is not there would count.
    if not all(map(_is_number, (summed.body.x, summed.body.y))):
        return None
    for x, w in (pair, pair[::-1]):
        if x.tensor in constants or w.tensor not in constants:
            continue
        for axis in summed.axes:
            at = [n for n, index in enumerate(x.indices) if axis in axes_of(index)]
            beside = [n for n, index in enumerate(w.indices) if axis in axes_of(index)]
            size = axis.extent.constant
            if len(at) != 1 or len(beside) != 1 or size is None or not 1 < size < FEWEST:
                continue
            plain = x.indices[at[0]] is axis.dim and w.indices[beside[0]] is axis.dim
            if plain and at[0] < len(x.indices) - 1 and not any(axis in axes_of(guard) for guard in x.guards):
                return x, w, axis, at[0], beside[0]
    return None


def _is_number(factor: Expr) -> bool:
    """Whether a factor is what is loaded, at most in another type."""
    return isinstance(uncast(factor), Load)


def _padded(
    region: Region,
    x: Load,
    w: Load,
    axis: Axis,
    at: int,
    beside: int,
    shape: tuple[Dim, ...],
    constants: dict[str, Constant],
    taken: set[str],
) -> tuple[Region, Constant, Region]:
    """The copy, the weights with zeros, and the region that reads them."""
    member = region.members[0]
    tensor, size = member.tensor, int(axis.extent)
    width = 1 << (size - 1).bit_length()
    name = unused(f"{x.tensor}_padded", taken)
    taken.add(name)
    order = [*(n for n in range(len(shape)) if n != at), at]
    axes = tuple(Axis(f"i{n}", width if p == at else shape[p]) for n, p in enumerate(order))
    place = {p: axes[n].dim for n, p in enumerate(order)}
    inside = (size - 1 - place[at],) if width > size else ()
    body = load(x.tensor, x.dtype, tuple(place[p] for p in range(len(shape))), inside)
    copy = Tensor(name, x.dtype, axes, body, tensor.origin)
    old = constants[w.tensor]

    def widened() -> np.ndarray[Any, Any]:
        data = old.read()
        return np.pad(data, [(0, width - size if n == beside else 0) for n in range(data.ndim)])

    sizes = tuple(width if n == beside else extent for n, extent in enumerate(old.shape))
    weights = Constant(unused(f"{w.tensor}_padded", taken), old.dtype, sizes, widened, old.origin)
    taken.add(weights.name)
    channel = Axis(axis.name, width)

    def changed(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.tensor == x.tensor and node.indices[at] is axis.dim:
            indices = tuple(channel.dim if p == at else node.indices[p] for p in order)
            return load(name, node.dtype, indices, node.guards, node.fill)
        if isinstance(node, Load) and node.tensor == w.tensor:
            indices = tuple(channel.dim if n == beside else index for n, index in enumerate(node.indices))
            return load(weights.name, node.dtype, indices, node.guards, node.fill)
        if isinstance(node, Reduce) and axis in node.axes:
            return reduce(node.kind, tuple(channel if a is axis else a for a in node.axes), node.body)
        return None

    made = replace(tensor, body=transform(tensor.body, changed))
    return (
        Region.single(Kind.MAP, (copy,), (name,)),
        weights,
        replace(region, members=(replace(member, tensors=(made,)),)),
    )
