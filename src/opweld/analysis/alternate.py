"""Runs that can be compared: all contestants in one process, in alternating blocks.

A runtime's idle workers spin for a while after a run and slow whoever comes next, so every block begins with a pause,
and its first runs do not count: three, of long ones fewer, which warm caches as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

PAUSE_S = 0.1
_DROPPED = 3
_WARM_S = 0.2
"""Seconds after which a block is warm, whatever it has run."""
_FEWEST = 3
_PATIENCE = 3.0
"""Times of `Blocks.block_s` after which a block ends: its first runs foretold fewer."""
MOST = 2000
"""Runs of a block."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Blocks:
    """How many blocks each contestant gets, and how many runs of a block count.

    Attributes:
        rounds: how many blocks. block_s: how long one should take, in seconds; it holds at least three runs.
        most: runs of a block. runs: so many in all, whatever they take; 0 for what fits.
    """

    rounds: int = 7
    block_s: float = 0.2
    most: int = MOST
    runs: int = 0

    def count(self, round: int, seconds: float) -> int:
        """How many runs count of a block; `seconds` is what one takes."""
        if self.runs:
            return self.runs // self.rounds + (round < self.runs % self.rounds)
        return max(_FEWEST, min(self.most, int(self.block_s / max(seconds, 1e-7))))


@dataclass(frozen=True)
class Run(Generic[Answer]):
    """A run that counts: how long it took, what it answered, and in which round."""

    seconds: float
    answer: Answer
    round: int = 0


def alternate_runs(
    contestants: Mapping[str, Callable[[], Answer]],
    blocks: Blocks,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[Run[Answer]]]:
    """Runs all contestants in rounds of one block each, the order turning by one from round to round.

    `progress` is called with (blocks done, blocks in all). What runs answer is kept: it should be small."""
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
        # Something else has taken the processors since: more of such runs tell nothing more.
        if not blocks.runs and len(made) >= _FEWEST and taken > _PATIENCE * blocks.block_s:
            break
    return made


def _time(run: Callable[[], Answer], round: int = 0) -> Run[Answer]:
    start = time.perf_counter()
    answer = run()
    return Run(time.perf_counter() - start, answer, round)
