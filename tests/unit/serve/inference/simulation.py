"""A machine, a model and its clients as events of a virtual clock: what a policy of batching gives, without waiting.

`python -m tests.unit.serve.inference.simulation` prints tables of loads."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from opweld.serve.inference.batcher import Batch, Batcher, Waiting
from opweld.serve.inference.cores import Cores, Going

SEED = 7


@dataclass(frozen=True)
class Model:
    """Seconds that a run takes: fixed + each * rows, times up to 1 + noise."""

    fixed: float
    each: float
    noise: float = 0.05

    def capacity(self, rows: int) -> float:
        """Calls a second in runs of so many rows."""
        return rows / (self.fixed + self.each * rows)


class NeverWaits(Batcher):
    """Begins a run as soon as a worker is free, with all that waits."""

    def _closed(self, kind, now, free):
        calls = kind.waiting[: self.max_rows]
        return Batch(calls, "worker", len(calls), len(calls))


class Waits(Batcher):
    """Waits for a full batch, for a fixed time at most."""

    delay = 0.005

    def _closed(self, kind, now, free):
        calls = kind.waiting[: self.max_rows]
        until = min(one.arrived for one in calls) + self.delay
        if len(calls) < self.max_rows and now < until:
            return until
        return Batch(calls, "worker", len(calls), len(calls))


@dataclass
class Outcome:
    """Latencies in seconds in order of arrival, and batches."""

    latencies: list[float]
    seconds: float
    work: float
    sizes: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def p99(self) -> float:
        return float(np.percentile(self.latencies, 99))

    @property
    def mean(self) -> float:
        return float(np.mean(self.latencies))

    @property
    def rate(self) -> float:
        """Calls a second."""
        return len(self.latencies) / self.seconds


Arrive = Callable[[Random, float], float]
"""The time of the next arrival after this one."""


def poisson(rate: float) -> Arrive:
    return lambda random, now: now + random.expovariate(rate)


def simulated(batcher: Batcher, model: Model, arrive: Arrive, calls: int, processors: int) -> Outcome:
    """All calls, one row each, as they come."""
    random = Random(SEED)
    cores = Cores(processors)
    cores.add(batcher)
    for rows in (1, 2, 4, 8):
        batcher.cost("kind").observe(rows, model.fixed + model.each * rows)
    ending: dict[Going, float] = {}
    took: dict[Going, float] = {}
    outcome = Outcome([], 0.0, 0.0)
    now, came, again, coming = 0.0, 0, math.inf, arrive(random, 0.0)
    while came < calls or ending or len(batcher):
        first = min(ending, key=ending.__getitem__) if ending else None
        end = math.inf if first is None else ending[first]
        now = min(coming if came < calls else math.inf, end, again)
        if first is not None and now == end:
            cores.end(first)
            batcher.observe(first.batch, took.pop(first))
            del ending[first]
            outcome.latencies += [now - one.arrived for one in first.batch.calls]
        elif came < calls and now == coming:
            batcher.add(Waiting("kind", 1, 1, now, now + batcher.target))
            came, coming = came + 1, arrive(random, now)
        begun, _, again = cores.begin(now)
        for going in begun:
            work = (model.fixed + model.each * going.batch.rows) * (1 + model.noise * random.random())
            took[going], ending[going] = work, now + work
            outcome.work += work
            outcome.sizes[going.batch.rows] += 1
            outcome.reasons[going.batch.reason] += 1
    outcome.seconds = now
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", type=float, default=4.0, help="ms")
    parser.add_argument("--each", type=float, default=1.0, help="ms")
    parser.add_argument("--target", type=float, default=50.0, help="ms")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--at-once", type=int, default=1, help="runs that there are processors for")
    parser.add_argument("--calls", type=int, default=20000)
    given = parser.parse_args()
    model, target = Model(given.fixed / 1e3, given.each / 1e3), given.target / 1e3
    print("load  policy      calls/s   mean ms   p99 ms  rows   work   reasons")
    for load in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2):
        for policy in (Batcher, NeverWaits, Waits):
            arrive = poisson(load * given.at_once * model.capacity(given.rows))
            batcher = policy(given.rows, target, processors=given.at_once)
            found = simulated(batcher, model, arrive, given.calls, given.at_once)
            rows = len(found.latencies) / sum(found.sizes.values())
            print(
                f"{load:4.0%}  {policy.__name__:10}{found.rate:9.1f}{found.mean * 1e3:10.2f}{found.p99 * 1e3:9.2f}"
                f"{rows:6.1f}{found.work / found.seconds / given.at_once:7.2f}   {dict(found.reasons)}"
            )


if __name__ == "__main__":
    main()
