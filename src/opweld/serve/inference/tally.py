"""What a model did since it was loaded, counted for its statistics and for Prometheus."""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final

from opweld.serve.inference.batcher import Reason
from opweld.serve.inference.model import Statistics

SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
ROWS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


class Histogram:
    """How often values were how large. bounds: the largest value of each bucket but the last, in order."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Counts a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: how many values were at most each bound, which is a text; the last is `+Inf`."""
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        return list(zip(names, map(float, itertools.accumulate(self._counts)), strict=True))


class Tally:
    """Of one version of a model. All times are in nanoseconds.

    Attributes:
        call_seconds, queue_seconds: of calls, from when they came to the end of their run, and to its begin.
        run_seconds, rows: of runs.
        reasons: why batches were closed.
        begun: calls whose run has begun; alone of all counts, it is not the event loop's.
    """

    def __init__(self) -> None:
        self.calls = self.failures = self.refused = self.runs = self.begun = 0
        self.waited_ns = self.computed_ns = self.last_ns = 0
        self.call_seconds, self.queue_seconds = Histogram(SECONDS), Histogram(SECONDS)
        self.run_seconds, self.rows = Histogram(SECONDS), Histogram(ROWS)
        self.reasons: Counter[Reason] = Counter()

    @property
    def running(self) -> int:
        """Calls that are in a run, or have not been told yet that it has ended."""
        return self.begun - self.calls - self.failures

    def closed(self, reason: Reason) -> None:
        """A batch was closed, and has ended."""
        self.reasons[reason] += 1

    def ran(self, rows: int, took: int) -> None:
        """A run has ended."""
        self.runs += 1
        self.rows.add(rows)
        self.run_seconds.add(took / 1e9)

    def ended(self, waited: int, took: int, *, failed: bool) -> None:
        """A call has its answer, or an error of its run."""
        if failed:
            self.failures += 1
        else:
            self.calls += 1
            self.waited_ns += waited
            self.computed_ns += took
        self.call_seconds.add((waited + took) / 1e9)
        self.queue_seconds.add(waited / 1e9)
        self.last_ns = time.time_ns()

    def statistics(self, waiting: int) -> Statistics:
        """All of it in the contract's words."""
        return Statistics(
            calls=self.calls,
            failures=self.failures,
            refused=self.refused,
            runs=self.runs,
            rows=int(self.rows.sum),
            waited_ns=self.waited_ns,
            computed_ns=self.computed_ns,
            last_ns=self.last_ns,
            waiting=waiting,
            running=self.running,
        )
