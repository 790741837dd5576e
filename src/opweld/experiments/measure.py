"""Latencies that can be compared: medians of runs in alternating blocks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from opweld.analysis.alternate import Blocks, alternate_runs


@dataclass(frozen=True)
class Timing:
    """Latency of one contestant in seconds: the median, what nine of ten stay below, and the least of `runs` runs."""

    median_s: float
    p90_s: float
    best_s: float
    runs: int

    @property
    def spread(self) -> float:
        """How steady the runs were: what nine of ten stay below, as a multiple of the median."""
        return self.p90_s / self.median_s if self.median_s else 1.0

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        return {**vars(self), "spread": self.spread}


def alternate(
    contestants: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 7,
    block_s: float = 0.2,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Timing]:
    """Times all contestants in `rounds` rounds of one block each; see `alternate_runs`.

    Args:
        contestants: what to run, by name.
        rounds: how many blocks each gets.
        block_s: how long a block should take, in seconds; it holds at least three counted runs.
        progress: called with (blocks done, blocks in all).
    """
    runs = {name: partial(silently, run) for name, run in contestants.items()}
    made = alternate_runs(runs, Blocks(rounds, block_s), progress)
    times = {name: [run.seconds for run in own] for name, own in made.items()}
    return {
        name: Timing(statistics.median(own), float(np.percentile(own, 90)), min(own), len(own))
        for name, own in times.items()
    }


def silently(run: Callable[[], object]) -> None:
    """Runs something whose answer nobody keeps."""
    run()
