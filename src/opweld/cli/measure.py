"""Latencies that can be compared: all contestants in one process, in alternating blocks, medians.

A runtime's idle workers spin for a while after a run and slow whoever comes next, so every block begins with a pause,
and its first runs do not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PAUSE_S = 0.1
_DROPPED = 3
_FEWEST = 3
_MOST = 2000


@dataclass(frozen=True)
class Timing:
    """Latency of one contestant in seconds: the median and the least of `runs` runs."""

    median_s: float
    best_s: float
    runs: int


def alternate(
    contestants: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 7,
    block_s: float = 0.2,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Timing]:
    """Times all contestants in `rounds` rounds of one block each, the order turning by one from round to round.

    Args:
        contestants: what to run, by name.
        rounds: how many blocks each gets.
        block_s: how long a block should take, in seconds; it holds at least three counted runs.
        progress: called with (blocks done, blocks in all).
    """
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for index in range(rounds):
        turn = index % len(names)
        for position, name in enumerate((*names[turn:], *names[:turn])):
            samples[name] += _block(contestants[name], block_s)
            if progress:
                progress(index * len(names) + position + 1, rounds * len(names))
    return {name: Timing(statistics.median(times), min(times), len(times)) for name, times in samples.items()}


def _block(run: Callable[[], object], seconds: float) -> list[float]:
    time.sleep(PAUSE_S)
    warm = min(_time(run) for _ in range(_DROPPED))
    count = max(_FEWEST, min(_MOST, int(seconds / max(warm, 1e-7))))
    return [_time(run) for _ in range(count)]


def _time(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
