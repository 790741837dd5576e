"""Members of a kernel: what is computed, ready for a schedule. Each kind has one template.

A member asks the ledger how it is computed (`choose`), and makes statements from the answer (`realise`): grid axes
whose iterations are independent, statements of one iteration, scratch that they need. A kernel of one member launches
its grid; where several share a kernel, their grids become loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from opweld.errors import OptionError
from opweld.fuse.region import Kind
from opweld.schedule.choice import Choice
from opweld.schedule.schedule import MapSchedule, MemberSchedule, ReductionSchedule, RowSchedule
from opweld.schedule.verify import verify_map, verify_reduction, verify_rows, verify_winograd
from opweld.target import Target
from opweld.tensor.dim import Axis
from opweld.tile.members.map import axis_names, choose_map, schedule_map
from opweld.tile.members.reduction import choose_reduction, schedule_reduction
from opweld.tile.members.rowwise import RowWork, choose_rows, schedule_rows
from opweld.tile.members.sums import reduction_of
from opweld.tile.members.winograd import Winograd, choose_winograd, schedule_winograd
from opweld.tile.nest import Nest, text_of
from opweld.tile.tile import Loop, Scratch, Statement


@dataclass(frozen=True, eq=False)
class KernelBody:
    """A grid of independent iterations, the statements of one of them, and the scratch memory of a thread."""

    grid: tuple[Axis, ...]
    body: tuple[Statement, ...]
    scratch: tuple[Scratch, ...] = ()

    @property
    def serial(self) -> tuple[Statement, ...]:
        """The statements with the grid as loops."""
        body = self.body
        for axis in reversed(self.grid):
            body = (Loop(axis, body),)
        return body


def sequential(made: Sequence[KernelBody]) -> tuple[Statement, ...]:
    """The statements of all bodies, one after the other, each with its grid as loops."""
    return tuple(statement for item in made for statement in item.serial)


class Member(Protocol):
    """One step of a kernel."""

    def choose(self, choice: Choice) -> MemberSchedule:
        """How it is computed, through the ledger."""
        ...

    def realise(self, schedule: MemberSchedule, target: Target) -> KernelBody:
        """Its statements. Raises OptionError when the schedule is of another kind."""
        ...


@dataclass(frozen=True, eq=False)
class MapMember:
    """Elementwise work; `buffer` is the memory that it writes. `serial`: one thread does all iterations, so that how
    much one of them takes in is nothing to decide. `names`: what decisions about it name, a value and a part of it."""

    nest: Nest
    buffer: str
    names: tuple[str, ...] = ()
    serial: bool = False

    def choose(self, choice: Choice) -> MemberSchedule:
        """See `Member`."""
        return choose_map(self.nest, choice.about(*self.names), self.serial)

    def identity(self) -> tuple[object, tuple[str, ...]]:
        """(a key, names of memory in order of appearance). A schedule does the same to members of equal keys."""
        text, memory = text_of(self.nest, self.buffer)
        return (text, self.serial), memory

    def realise(self, schedule: MemberSchedule, target: Target) -> KernelBody:
        """See `Member`."""
        if not isinstance(schedule, MapSchedule):
            raise OptionError(f"schedule: {schedule} is for another kind of member than map")
        verify_map(schedule, axis_names(self.nest))
        return KernelBody(*schedule_map(self.nest, self.buffer, schedule, target))


@dataclass(frozen=True, eq=False)
class ReductionMember:
    """A contraction or window, whose tile is `vectors` wide; in a recurrence, computed at each step of `time`.
    `paired`: another one shares its kernel. `alone`: its grid is that of the kernel, which cores share."""

    nest: Nest
    buffer: str
    kind: Kind
    vectors: int
    names: tuple[str, ...] = ()
    time: Axis | None = None
    paired: bool = False
    alone: bool = False

    def choose(self, choice: Choice) -> MemberSchedule:
        """See `Member`."""
        about, recurrent = choice.about(*self.names), self.time is not None
        return choose_reduction(self.nest, self.kind, self.vectors, about, recurrent, self.paired, self.alone)

    def identity(self) -> tuple[object, tuple[str, ...]]:
        """(a key, names of memory in order of appearance). A schedule does the same to members of equal keys."""
        text, memory = text_of(self.nest, self.buffer)
        return (text, self.kind, self.vectors), memory

    def realise(self, schedule: MemberSchedule, target: Target) -> KernelBody:
        """See `Member`."""
        if not isinstance(schedule, ReductionSchedule):
            raise OptionError(f"schedule: {schedule} is for another kind of member than {self.kind.value}")
        dtype = reduction_of(self.nest).dtype
        verify_reduction(schedule, axis_names(self.nest), dtype, target, self.time is not None, self.alone)
        return KernelBody(*schedule_reduction(self.nest, self.buffer, schedule, target, self.time))


@dataclass(frozen=True, eq=False)
class WinogradMember:
    """A convolution of 3 x 3 by Winograd's algorithm."""

    work: Winograd

    def choose(self, choice: Choice) -> MemberSchedule:
        """See `Member`."""
        return choose_winograd(self.work, choice)

    def realise(self, schedule: MemberSchedule, target: Target) -> KernelBody:
        """See `Member`."""
        if not isinstance(schedule, ReductionSchedule):
            raise OptionError(f"schedule: {schedule} is for another kind of member than contraction")
        verify_winograd(schedule, self.work.lane.name, self.work.member.tensor.dtype, target)
        return KernelBody(*schedule_winograd(self.work, schedule, target))


@dataclass(frozen=True, eq=False)
class RowMember:
    """Reductions over a row and what is done with it."""

    work: RowWork
    names: tuple[str, ...] = ()
    columns_only: bool = False

    def choose(self, choice: Choice) -> MemberSchedule:
        """See `Member`."""
        return choose_rows(self.work, choice.about(*self.names), self.columns_only)

    def realise(self, schedule: MemberSchedule, target: Target) -> KernelBody:
        """See `Member`."""
        if not isinstance(schedule, RowSchedule):
            raise OptionError(f"schedule: {schedule} is for another kind of member than rows")
        axes = [axis.name for axis in (*self.work.rows.columns, *self.work.rows.rows)]
        verify_rows(schedule, axes, len(self.work.tensors))
        return KernelBody(*schedule_rows(self.work, schedule, target))
