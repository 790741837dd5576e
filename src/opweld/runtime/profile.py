"""A timed run: the work of every thread on every step, distinguished from waiting. Imports numpy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from opweld.runtime.plan import Array, PlanDescription, Step

TIMING_FIELDS: Final = 4
"""Fields of opw_timing, each an int64: begin, end, busy, pieces."""


@dataclass(eq=False, slots=True)
class Clocked:
    """The clocks of a timed run: `wall` nanoseconds in all, and `timings`, an opw_timing by thread and step, int64
    [threads, steps, TIMING_FIELDS]."""

    wall: int
    timings: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """The work of one thread on one step, in nanoseconds since the run began.

    Attributes:
        thread, step: their numbers; thread 0 is the caller.
        begin, end: of its first piece, of its last one. busy: computing this step in between.
        pieces: parts of the grid that it took.
    """

    thread: int
    step: int
    begin: int
    end: int
    busy: int
    pieces: int


@dataclass(frozen=True)
class StepTime:
    """The times of a step, in nanoseconds since the run began. All zero if its grid is empty.

    Attributes:
        begin, end: of the first piece that any thread took, of the last one.
        busy: computing, the sum of its threads. threads: how many computed it.
    """

    begin: int = 0
    end: int = 0
    busy: int = 0
    threads: int = 0

    @property
    def wall(self) -> int:
        """Nanoseconds from its first piece to the end of its last: rates based on it never exceed those of the
        machine."""
        return self.end - self.begin

    @property
    def waiting(self) -> int:
        """Nanoseconds of all its threads not spent on it: on other steps of its phase, or idle."""
        return self.threads * self.wall - self.busy


@dataclass(frozen=True)
class Profile:
    """One timed run.

    Attributes:
        outputs: as `Session.run` returns them. plan: of the run.
        wall: nanoseconds of the run, from before its threads were woken to the end of the last one.
        times: one for each step. parts: the times by thread, each thread's in order of step.
    """

    outputs: list[Array]
    plan: PlanDescription
    wall: int
    times: tuple[StepTime, ...]
    parts: tuple[Part, ...]

    @property
    def nanoseconds(self) -> tuple[int, ...]:
        """The wall time of each step. Steps of one phase overlap, so that the sum may exceed that of the run."""
        return tuple(time.wall for time in self.times)

    @property
    def busy(self) -> tuple[int, ...]:
        """For each thread of the plan, the nanoseconds it spent computing; the rest of `wall` it waited."""
        spent = [0] * self.plan.threads
        for part in self.parts:
            spent[part.thread] += part.busy
        return tuple(spent)

    def steps(self) -> list[tuple[Step, int]]:
        """Each step with its wall time in nanoseconds."""
        return list(zip(self.plan.steps, self.nanoseconds, strict=True))


def profile_of(outputs: list[Array], plan: PlanDescription, wall: int, timings: npt.NDArray[Any]) -> Profile:
    """The profile of a run that lasted `wall` ns; `timings`: opw_timing by thread and step, [threads, steps, 4]."""
    parts = tuple(
        Part(thread, step, *map(int, timings[thread, step])) for thread, step in np.argwhere(timings[:, :, 3]).tolist()
    )
    by_step: list[list[Part]] = [[] for _ in plan.steps]
    for part in parts:
        by_step[part.step].append(part)
    return Profile(outputs, plan, wall, tuple(_step_time(own) for own in by_step), parts)


def _step_time(parts: list[Part]) -> StepTime:
    if not parts:
        return StepTime()
    begin, end = min(part.begin for part in parts), max(part.end for part in parts)
    return StepTime(begin, end, sum(part.busy for part in parts), len(parts))
