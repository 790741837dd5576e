"""Externs that have a kernel of their own; all others are computed by the processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opweld.codegen.triton.kernel import Kernel
from opweld.codegen.triton.paged import attend, join_parts
from opweld.codegen.triton.scatter import scatter
from opweld.place.storage import Storage
from opweld.tensor.paged import POOLS
from opweld.tensor.program import Extern

KERNELS: Mapping[str, Callable[[Extern, Mapping[str, Storage], bool], Kernel]] = {
    "scatter": scatter,
    **dict.fromkeys(POOLS.values(), attend),
    "join_parts": join_parts,
}
"""By the name of the function: takes the extern, where its values lie, and whether indices take 64 bits."""
