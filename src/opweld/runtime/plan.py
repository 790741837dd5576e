"""What a run does, as people are told of it: its kernels in order, and the memory between. Imports NumPy only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Step:
    """One kernel of a plan.

    Attributes:
        name: of the kernel.
        origin: names of the graph nodes it computes.
        phase: the steps of one phase run side by side; all threads meet between two phases.
        threads: how many threads its work deserves, 0 where its grid is empty.
        bytes: it must read and write at least. flops: floating-point operations.
        work: nanoseconds that it is predicted to take on one core.
    """

    name: str
    origin: str
    phase: int
    threads: int
    bytes: int
    flops: int
    work: int


@dataclass(frozen=True)
class Visit:
    """A segment as a run comes to it, which may be several times.

    Attributes:
        segment: its number. variant: name of the compiled variant that was taken.
        first, steps: which of the run's steps are its: so many, from the first.
    """

    segment: int
    variant: str
    first: int
    steps: int


@dataclass(frozen=True)
class PlanDescription:
    """What a plan does with one set of input shapes; of a model of several segments, the plans of a run, one after the
    other.

    Attributes:
        outputs: shape and dtype of each output.
        variant: name of the compiled variant it uses; of several segments, their names with commas between.
        arena: bytes of intermediate values at the peak. total: of all together. live: the lower bound of any plan.
            Of several segments, those of the largest, as each gives its memory back.
        scratch: bytes of scratch memory a thread. threads: the most that a phase uses.
        steps: the kernels, in order.
        visits: of a model of several segments, what the steps are made of; see `segments`.
    """

    outputs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    variant: str
    arena: int
    total: int
    live: int
    scratch: int
    threads: int
    steps: tuple[Step, ...]
    visits: tuple[Visit, ...] = ()

    @property
    def segments(self) -> tuple[Visit, ...]:
        """The segments that a run comes to, in order: one, but for a model with dynamic control flow."""
        return self.visits or (Visit(0, self.variant, 0, len(self.steps)),)

    @property
    def kernels(self) -> int:
        """How many kernels there are: those of a segment that a run comes to again once."""
        return sum({(visit.segment, visit.variant): visit.steps for visit in self.segments}.values())


Seen = Callable[[int, "Sequence[int]"], None]
"""Told of a step when all of its phase are done: its number, and where its buffers are, in their order. Later phases
use that memory again."""

Entered = Callable[[str, "Sequence[Array]"], None]
"""Told of a segment before it runs: the variant that was taken, and what the segment reads, in its order."""
