"""Many runs of a model, with clocks and without, on the same inputs: the data of a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from opweld.analysis.alternate import Blocks, Run, alternate_runs
from opweld.analysis.disturbance import Disturbance, Watch, spread_of
from opweld.runtime.plan import Array, PlanDescription
from opweld.runtime.profile import Clocked
from opweld.runtime.session import Session

_MOST_BYTES = 256 << 20
"""The limit of bytes of clocks; large models on many cores get fewer runs."""

PLAIN, TIMED = "plain", "timed"


@dataclass(frozen=True, eq=False)
class Samples:
    """The counted runs.

    Attributes:
        plan: what was run. shapes: of the inputs.
        plain, timed: seconds of each run without clocks and with them, as the caller sees them.
        wall: of each timed run, nanoseconds from before its threads are woken to the end of the last one.
        timings: of each timed run opw_timing by thread and step, int64 [runs, threads, steps, TIMING_FIELDS].
        rounds: of each run without clocks, then of each with them, its round of blocks.
        disturbance: interference by other programs.
    """

    plan: PlanDescription
    shapes: Mapping[str, tuple[int, ...]]
    plain: npt.NDArray[np.float64]
    timed: npt.NDArray[np.float64]
    wall: npt.NDArray[np.int64]
    timings: npt.NDArray[np.int64]
    rounds: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    disturbance: Disturbance


def sample(
    session: Session,
    feeds: Mapping[str, Array],
    blocks: Blocks,
    progress: Callable[[int, int], None] | None = None,
) -> Samples:
    """Runs a model in alternating blocks with clocks and without."""
    plan = session.plan(feeds)
    each = max(1, plan.threads * len(plan.steps) * 32)
    blocks = replace(blocks, most=max(3, min(blocks.most, _MOST_BYTES // each // blocks.rounds)))
    contestants: dict[str, Callable[[], Clocked | None]] = {
        PLAIN: partial(_plain, session, feeds),
        TIMED: partial(session.clocked, feeds),
    }
    watch = Watch()
    made = alternate_runs(contestants, blocks, progress)
    plain = np.array([run.seconds for run in made[PLAIN]])
    clocks = [run.answer for run in made[TIMED] if run.answer is not None]
    return Samples(
        plan,
        {name: tuple(np.shape(value)) for name, value in feeds.items()},
        plain,
        np.array([run.seconds for run in made[TIMED]]),
        np.array([clock.wall for clock in clocks], np.int64),
        np.stack([clock.timings for clock in clocks]),
        (_rounds(made[PLAIN]), _rounds(made[TIMED])),
        watch.seen(spread_of(plain)),
    )


def _rounds(runs: Sequence[Run[Any]]) -> npt.NDArray[np.int64]:
    return np.array([run.round for run in runs], np.int64)


def _plain(session: Session, feeds: Mapping[str, Any]) -> None:
    session.run_tensors(feeds)
