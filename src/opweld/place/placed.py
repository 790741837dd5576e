"""Regions with storage: the input of scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opweld.fuse.region import Region
from opweld.place.lanes import Lanes
from opweld.place.storage import Storage
from opweld.tensor.dim import Dim, as_dim
from opweld.tensor.program import Constant, TensorProgram


@dataclass(frozen=True, eq=False)
class Placed:
    """Regions, each value's storage by name, the constants as stored in the weights file, and the lanes of each
    contraction and window by the name of its tensor.

    There may be more regions than after fusion: copies that pad or pack a value for its readers."""

    program: TensorProgram
    regions: tuple[Region, ...]
    storages: Mapping[str, Storage]
    constants: Mapping[str, Constant]
    lanes: Mapping[str, Lanes]

    @property
    def shapes(self) -> dict[str, tuple[Dim, ...]]:
        """The shape of every value that is loaded or stored, including copies and packed constants."""
        found = {name: shape for name, (_, shape) in self.program.signatures.items()}
        for region in self.regions:
            for member in region.members:
                if member.indices is None:
                    found |= {tensor.name: tensor.shape for tensor in member.tensors}
            if region.scan is not None:
                found |= {state.name: state.shape for state in region.scan.states}
        for name, constant in self.constants.items():
            found[name] = tuple(map(as_dim, constant.shape))
        return found
