"""Arrays of the host that are copied at once, by way of memory that stays in place: a copy of its own takes
microseconds, and more from memory that does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opweld.runtime.cuda.device import Device
from opweld.runtime.cuda.memory import Pinned
from opweld.runtime.plan import Array

STAGED = 32 << 20
"""The most bytes that are copied so: larger arrays come as fast from where they are."""


@dataclass(frozen=True, eq=False)
class Staged:
    """Memory of the host, uint8, for what lies in a row on the GPU: `memory` is copied to or from `address`, and
    `parts` of it are the arrays."""

    address: int
    memory: Array
    parts: Sequence[Array]


def staged(device: Device, addresses: Sequence[int], sizes: Sequence[int]) -> Staged | None:
    """Memory for arrays of these bytes at these addresses; None where there are none, or more than is staged."""
    if not any(sizes):
        return None
    first = min(addresses)
    total = max(at + size for at, size in zip(addresses, sizes, strict=True)) - first
    if total > STAGED:
        return None
    memory = np.asarray(Pinned(device, total))
    parts = [memory[at - first :][:size] for at, size in zip(addresses, sizes, strict=True)]
    return Staged(first, memory, parts)
