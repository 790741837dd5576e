"""The description of a run: its kernels in order, and the memory between them. Imports NumPy only."""

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
        phase: the steps of one phase run concurrently; there is a barrier between phases.
        threads: how many threads its work justifies, 0 if its grid is empty.
        bytes: least bytes read and written. flops: operations, of floats and summed products of integers,
            a multiply-add two.
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
    """An execution of a segment, of which there may be several.

    Attributes:
        segment: its number. variant: name of the compiled variant that was taken.
        first, steps: its steps of the run: the first, and their number.
    """

    segment: int
    variant: str
    first: int
    steps: int


@dataclass(frozen=True)
class PlanDescription:
    """The description of a plan for one set of input shapes; for a model of several segments, of the plans of a run,
    one after the other.

    Attributes:
        outputs: shape and dtype of each output.
        variant: name of the compiled variant it uses; of several segments, their names with commas between.
        arena: peak bytes of intermediate values. total: their sum. live: the lower bound of any plan. Of several
            segments, those of the largest, as each frees its memory.
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
        """The executed segments, in order: one, except with dynamic control flow."""
        return self.visits or (Visit(0, self.variant, 0, len(self.steps)),)

    @property
    def kernels(self) -> int:
        """The number of kernels; those of a segment that is executed repeatedly count once."""
        return sum({(visit.segment, visit.variant): visit.steps for visit in self.segments}.values())


Seen = Callable[[int, "Sequence[int]"], None]
"""Called for each step when all steps of its phase are done: with its number, and the addresses of its buffers, in
order. Later phases reuse that memory."""

Entered = Callable[[str, "Sequence[Array]"], None]
"""Called for each segment before it runs: with the variant that was taken, and its inputs, in order."""
