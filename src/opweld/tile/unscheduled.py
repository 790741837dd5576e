"""Kernels before they have a schedule: members, and how their statements become one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opweld.schedule.schedule import MemberSchedule
from opweld.target import Target
from opweld.tensor.cost import Count
from opweld.tensor.dim import Dim, symbols_of
from opweld.tensor.dtype import DType
from opweld.tile.member import Member
from opweld.tile.members.recurrence import Compose
from opweld.tile.tile import Buffer, Kernel, dims_of_kernel, memory_of


@dataclass(frozen=True, eq=False)
class UnscheduledKernel:
    """A kernel without a schedule: its members in order, how their statements become one kernel (`compose`), its
    operations (`count`), and the bytes that it must move, of which it writes `written`.

    `subject` names it in decisions: a value that it is about, and what tells it from other kernels of its region.
    `first`: it is launched before the others, although its members come last in the schedule."""

    kind: str
    subject: tuple[str, ...]
    members: tuple[Member, ...]
    compose: Compose
    count: Count
    bytes: Dim
    written: Dim
    serial: bool = False
    first: bool = False

    def realise(
        self,
        name: str,
        schedules: Sequence[MemberSchedule],
        target: Target,
        dtypes: Mapping[str, DType],
        origin: tuple[str, ...] = (),
    ) -> Kernel:
        """The kernel in which every member is computed by its schedule; its loops are not tuned yet (`tile.loops`).

        dtypes: by name of buffer. Raises OptionError for schedules of other members."""
        made = self.compose([m.realise(s, target) for m, s in zip(self.members, schedules, strict=True)])
        local = {block.name for block in made.scratch}
        read, written = memory_of(made.body)
        names = [n for n in dict.fromkeys((*read, *written)) if n not in local]
        buffers = tuple(
            Buffer(n, dtypes[n], "update" if n in read and n in written else "write" if n in written else "read")
            for n in names
        )
        found = {symbol for dim in dims_of_kernel(made.grid, made.scratch, made.body) for symbol in symbols_of(dim)}
        sizes = tuple(sorted(found, key=lambda symbol: symbol.name))
        return Kernel(name, buffers, sizes, made.grid, made.body, made.scratch, origin)
