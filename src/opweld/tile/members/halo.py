"""Members that fill the padding of a value: a map for each side of each axis.

before axis 2    all of the first two axes, the rows above the value, all columns with their padding
before axis 3    all of the first three axes, the columns to its left
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opweld.place.storage import Storage
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim
from opweld.tile.member import MapMember, Member
from opweld.tile.nest import nest_of


def sides_of(
    storage: Storage, shape: tuple[Dim, ...], storages: Mapping[str, Storage], shapes: Mapping[str, Sequence[Dim]]
) -> tuple[Member, ...]:
    """Each side of each axis in turn; axes after it run over their padding too, so that corners are covered once."""
    assert storage.fill is not None, "of padding"
    members: list[Member] = []
    for position, (low, high) in enumerate(storage.halo):
        for name, start, extent in (("before", as_dim(-low), low), ("after", shape[position], high)):
            if not extent:
                continue
            axes: list[Axis] = []
            indices: list[Dim] = [ZERO] * len(shape)
            for axis in sorted(term.axis for term in storage.terms):
                before, after = storage.halo[axis]
                if axis == position:
                    first, length = start, as_dim(extent)
                elif axis > position:
                    first, length = as_dim(-before), shape[axis] + before + after
                else:
                    first, length = ZERO, shape[axis]
                axes.append(Axis(f"i{axis}", length))
                indices[axis] = axes[-1].dim + first
            nest = nest_of(axes, indices, storage.fill, storage, storages, shapes)
            members.append(MapMember(nest, storage.root, (f"{name} axis {position}",), serial=True))
    return tuple(members)
