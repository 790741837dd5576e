"""Avoids cache set conflicts: rows whose lines map to the same sets of the first-level cache.

A register tile of a contraction reads its rows in parallel, one element of each at a time, and needs the lines to
remain cached until all their elements were read. Lines whose addresses differ by a multiple of `SPAN` map to one set:
all of them, for rows of 1024 floats. Their leading dimension is then padded by a line.
"""

from __future__ import annotations

from collections.abc import Iterable

from opweld.fuse.region import axes_in, reductions
from opweld.ledger import Alternative, Ledger
from opweld.place.lanes import Lanes
from opweld.place.storage import Storage
from opweld.schedule.cost import LINE, SPAN, core_of, most_rows, places, traffic
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import ONE, Atom, Dim, FloorDiv, Mod
from opweld.tensor.expr import Load
from opweld.tensor.program import Tensor

Reader = tuple[Tensor, Lanes]
"""A contraction, and its lanes, that reads the value as the broadcast operand."""


def rows_apart(
    dense: Storage,
    spaced: Storage,
    origin: tuple[str, ...],
    readers: Iterable[Reader],
    loads: Iterable[Load],
    expected: Expected,
    target: Target,
    ledger: Ledger,
) -> Storage:
    """Storage of a value, with a padded leading dimension if contractions would have set conflicts; `loads` are all of
    it."""
    seconds = sum(_conflict_seconds(*reader, dense, expected, target) for reader in readers)
    if not seconds:
        return dense
    added = expected(spaced.elements - dense.elements) * dense.dtype.bytes
    failed: dict[str, int | str] = {}
    if any(_divisions(spaced.address(node.indices)) - _divisions(dense.address(node.indices)) for node in loads):
        failed["reader"] = "iterates over rows as one"
    choice = ledger.decide(
        rule="place.rows",
        site=origin,
        subject=(dense.root,),
        alternatives=(
            Alternative("dense", 0, seconds=seconds),
            Alternative("apart", added, seconds=None if failed else traffic(added, target)),
        ),
        prefer="dense" if failed else None,
        reason=f"rows that are read in parallel are a multiple of {SPAN} bytes apart, in the same cache sets",
        failed=failed,
    )
    return spaced if choice == "apart" else dense


def _conflict_seconds(tensor: Tensor, lanes: Lanes, storage: Storage, expected: Expected, target: Target) -> float:
    """Seconds of reloading evicted lines from the second-level cache, one for each element."""
    node = lanes.across
    assert node is not None and lanes.axis is not None
    address = storage.address(node.indices)
    if all(address.coefficient(axis) is not ONE for axis in reductions(tensor.body)[0].axes):
        return 0.0  # each element is in another line in any case
    rows = [axis for axis in tensor.axes if axis is not lanes.axis and axis in axes_in(node)]
    steps = {axis: _number(address.coefficient(axis)) for axis in rows if axis.extent.constant != 1}
    if not all(steps.values()):
        return 0.0
    row = min(steps, key=lambda axis: steps[axis], default=None)
    if row is None:
        return 0.0
    height, count = most_rows(lanes.vectors, tensor.dtype, target), expected.known(row.extent)
    if count is not None:  # else any number may come, and fill a tile
        height = min(height, max(1, count))
    if -(-height // places(steps[row] * storage.dtype.bytes)) * SPAN < target.l1_bytes:  # weights use the cache too
        return 0.0
    core = core_of(target)
    tiles = -(-max(1, expected(lanes.axis.extent)) // (lanes.vectors * target.vector_lanes_f32))
    elements = expected.product(axis.extent for axis in axes_in(node)) * tiles
    return elements * LINE / core.l2_bytes / core.hertz


def _number(step: Dim | None) -> int:
    return 0 if step is None else step.constant or 0


def _divisions(address: Dim) -> frozenset[Atom]:
    return frozenset(atom for atom in address.atoms if isinstance(atom, FloorDiv | Mod))
