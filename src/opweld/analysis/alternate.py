"""Comparable timings: all candidates run in one process, in alternating blocks.

Idle workers of a runtime spin for a while after a run and slow down whatever runs next, so every block begins with a
pause, and its first runs are not counted: three, or fewer if they are long; they warm caches as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

PAUSE_S = 0.1
_DROPPED = 3
_WARM_S = 0.2
"""Seconds after which warming up a block ends."""
_FEWEST = 3
_PATIENCE = 3.0
"""Times of `Blocks.block_s` after which a block is cut short, since runs take longer than the first ones predicted."""
MOST = 2000
"""The fewest runs of a block."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Blocks:
    """How many blocks each candidate gets, and how many runs of a block are counted.

    Attributes:
        rounds: how many blocks. block_s: how long one should take, in seconds; it holds at least three runs.
        most: runs of a block. runs: a fixed total number; 0 for as many as fit.
    """

    rounds: int = 7
    block_s: float = 0.2
    most: int = MOST
    runs: int = 0

    def count(self, round: int, seconds: float) -> int:
        """The number of counted runs of a block; `seconds` is the time of one."""
        if self.runs:
            return self.runs // self.rounds + (round < self.runs % self.rounds)
        return max(_FEWEST, min(self.most, int(self.block_s / max(seconds, 1e-7))))


@dataclass(frozen=True)
class Run(Generic[Answer]):
    """A counted run: its time, its result, and its round."""

    seconds: float
    answer: Answer
    round: int = 0


def alternate_runs(
    contestants: Mapping[str, Callable[[], Answer]],
    blocks: Blocks,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[Run[Answer]]]:
    """Runs all candidates in rounds of one block each, with the order rotated by one in each round.

    `progress` is called with (blocks done, blocks in all). Results of runs are kept and should be small."""
    made: dict[str, list[Run[Answer]]] = {name: [] for name in contestants}
    names = list(contestants)
    for index in range(blocks.rounds):
        turn = index % len(names)
        for position, name in enumerate((*names[turn:], *names[:turn])):
            made[name] += _block(contestants[name], blocks, index)
            if progress:
                progress(index * len(names) + position + 1, blocks.rounds * len(names))
    return made


def _block(run: Callable[[], Answer], blocks: Blocks, round: int) -> list[Run[Answer]]:
    time.sleep(PAUSE_S)
    warm: list[float] = []
    while len(warm) < _DROPPED and sum(warm) < _WARM_S:
        warm.append(_time(run).seconds)
    made: list[Run[Answer]] = []
    taken = 0.0
    for _ in range(blocks.count(round, min(warm))):
        made.append(_time(run, round))
        taken += made[-1].seconds
        # Other programs use the processors: more such runs add no information.
        if not blocks.runs and len(made) >= _FEWEST and taken > _PATIENCE * blocks.block_s:
            break
    return made


def _time(run: Callable[[], Answer], round: int = 0) -> Run[Answer]:
    start = time.perf_counter()
    answer = run()
    return Run(time.perf_counter() - start, answer, round)
