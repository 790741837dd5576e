"""Of states that grow, only what is appended is computed: what was there stays where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opweld.fuse.concatenation import ranges_of
from opweld.fuse.region import Kind, Region, Regions
from opweld.tensor.dim import Atom, Axis, Dim
from opweld.tensor.expr import at_least_zero, select, substitute
from opweld.tensor.program import Persistent


def only_appended(regions: Regions) -> Regions:
    """The regions, each that makes a growing state (`fuse.outputs`) cut down to what lies behind its length."""
    program = regions.program
    values = dict(program.outputs)
    growing = {values[state.output]: state for state in program.states if state.axis is not None}
    found: list[Region] = []
    for region in regions.regions:
        state = growing.get(region.outputs[0]) if len(region.outputs) == 1 and region.kind is Kind.MAP else None
        found.append(region if state is None else _behind(region, state))
    return replace(regions, regions=tuple(found))


def _behind(region: Region, state: Persistent) -> Region:
    """A region whose axes run over the elements from the length of the state on."""
    tensor, position, length = region.members[0].tensor, state.axis, state.length
    ranges = ranges_of(tensor)
    assert position is not None and length is not None
    if ranges is None or ranges[0] != position or ranges[1][0].end is not length or len(ranges[1]) < 2:
        return region
    axis, (*parts, last) = tensor.axes[position], ranges[1][1:]
    body = last.body
    for part in reversed(parts):
        body = select(at_least_zero(axis.dim - part.end), body, part.body)
    new = Axis(axis.name, axis.extent - length)
    moved: Mapping[Atom, Dim] = {axis: new.dim + length}
    axes = tuple(new if one is axis else one for one in tensor.axes)
    indices = tuple(one.dim + length if one is new else one.dim for one in axes)
    made = replace(tensor, axes=axes, body=substitute(body, dict(moved)))
    return Region.single(Kind.MAP, (made,), region.outputs, indices)
