"""What a backend brings: how programs are fused and scheduled for its machines, how kernels are written, and built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from opweld.fuse.region import Regions
from opweld.ledger import Ledger
from opweld.place.placed import Placed
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.program import TensorProgram
from opweld.tile.kernels import Plan, Scheduled
from opweld.tile.module import Module

Finished: TypeAlias = Callable[[str, str], object]
"""Takes the name and the text of a source that is complete, while others are not."""


def unheeded(name: str, text: str) -> None:
    """A `Finished` of who waits for all sources."""


class Build(Protocol):
    """Makes one file that the runtime opens, of a module's sources."""

    def add(self, name: str, text: str) -> object:
        """Begins with a source while others are still written. Raises ToolchainError without a compiler."""
        ...

    def finish(self, sources: Mapping[str, str], out: Path, progress: Callable[[int, int], None]) -> None:
        """Writes `out`, whole or not at all; `progress` takes (files done, files in all).

        Raises ToolchainError when the compiler rejects something."""
        ...


@dataclass(frozen=True)
class Backend:
    """One way from tensor programs to machine code.

    Attributes:
        name: as users and the manifest call it.
        targets: names of the machines it compiles for; facts of one are a `Target`.
        fuse: its policy of fusion: the regions of a program. Each step is put to the ledger.
        schedule: a schedule for every region of a placed program, through the ledger: its schedule space.
        realise: the kernels that the schedules say, in order, as tile programs, and the schedules with their loops.
        render: sources by file name, of the kernels and the tables that describe them. Decides nothing.
        build: compiles and links the sources; what was begun and not finished is given up at the end of its block.
    """

    name: str
    targets: tuple[str, ...]
    fuse: Callable[[TensorProgram, Expected, Target, Ledger], Regions]
    schedule: Callable[[Placed, Expected, Target, Ledger], list[Plan]]
    realise: Callable[[Placed, Sequence[Plan], Expected, Target, Ledger], tuple[list[Plan], list[Scheduled]]]
    render: Callable[[Module, Target, Finished], Mapping[str, str]]
    build: Callable[[Target], AbstractContextManager[Build]]
