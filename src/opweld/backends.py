"""The backends that there are, by the machine they compile for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from opweld.build.toolchain import Objects
from opweld.codegen.backend import Backend
from opweld.codegen.c.module import render_module
from opweld.errors import OptionError
from opweld.fuse.blocks import join_blocks
from opweld.fuse.pairs import join_pairs
from opweld.fuse.partition import partition
from opweld.fuse.region import Regions
from opweld.ledger import Ledger
from opweld.runtime.library import c_headers
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.program import TensorProgram
from opweld.tile.kernels import realise, schedule


def _fuse(program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> Regions:
    regions = join_blocks(partition(program, expected, target, ledger), expected, target, ledger)
    return join_pairs(regions, expected, target, ledger)


class _BuildC:
    """Objects that are compiled from when their C is there, and linked when all is."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.add = objects.add

    def finish(self, sources: Mapping[str, str], out: Path, progress: Callable[[int, int], None]) -> None:
        """See `Build`."""
        self._objects.link(sources, out, progress)


@contextmanager
def _build_c(target: Target) -> Generator[_BuildC]:
    with Objects(target=target, headers=c_headers()) as objects:
        yield _BuildC(objects)


C = Backend("c", ("x86-64-v3", "x86-64-v4", "aarch64"), _fuse, schedule, realise, render_module, _build_c)
"""C for the vector units of processors, compiled by `zig cc` or what OPWELD_CC names."""

BACKENDS = (C,)


def backend_of(target: Target) -> Backend:
    """The backend that compiles for a machine. Raises OptionError where none does."""
    for backend in BACKENDS:
        if target.name in backend.targets:
            return backend
    known = ", ".join(name for backend in BACKENDS for name in backend.targets)
    raise OptionError(f"no backend compiles for {target.name!r}; there are some for {known}")
