"""Externs that have a kernel of their own; all others are computed by the processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opweld.codegen.triton.kernel import Kernel
from opweld.codegen.triton.paged import attend, join_parts
from opweld.codegen.triton.scatter import scatter
from opweld.place.storage import Storage
from opweld.tensor.paged import POOLS
from opweld.tensor.program import Extern
from opweld.tile.nest import Nest


@dataclass(frozen=True)
class Call:
    """An extern and where its values lie.

    Attributes:
        wide: whether indices take 64 bits. updates: what computes the last operand, where that is done on the way.
        result: the name of what the first result is stored as: its own, or what it is rounded to.
    """

    extern: Extern
    storages: Mapping[str, Storage]
    wide: bool
    updates: Nest | None
    result: str


KERNELS: Mapping[str, Callable[[Call], Kernel]] = {
    "scatter": lambda call: scatter(call.extern, call.storages, call.wide, call.updates),
    **dict.fromkeys(POOLS.values(), lambda call: attend(call.extern, call.storages, call.wide)),
    "join_parts": lambda call: join_parts(call.extern, call.storages, call.wide, call.result),
}
"""By the name of the function."""
