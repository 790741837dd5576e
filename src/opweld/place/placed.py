"""Regions with storage: what the schedules read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opweld.fuse.region import Region
from opweld.place.storage import Storage
from opweld.tensor.program import Constant, TensorProgram


@dataclass(frozen=True, eq=False)
class Placed:
    """Regions, each value's storage by name, and the constants as they will lie in the weights file.

    Regions may hold more than fusion made: copies that pad or pack a value for those who read it."""

    program: TensorProgram
    regions: tuple[Region, ...]
    storages: Mapping[str, Storage]
    constants: Mapping[str, Constant]
