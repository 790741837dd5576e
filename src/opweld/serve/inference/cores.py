"""The processors, which all models share: which run begins when."""

from __future__ import annotations

import math
from dataclasses import dataclass

from opweld.serve.inference.batcher import Batch, Batcher, Waiting


@dataclass(eq=False, slots=True)
class Going:
    """A run that is going on."""

    batcher: Batcher
    batch: Batch


class Cores:
    """Starts runs of any model while there are processors that those which are going on make no use of, the one first
    whose first call is due first.

    The threads of all runs together are no more than the processors, so that none makes another one slower. The model
    whose run begins next has what is free, but a processor for each call that waits for another model; how many threads
    its run makes of them is the model's matter (`Batcher.next`).

    Attributes:
        going: the runs that are going on.
    """

    def __init__(self, processors: int) -> None:
        self._processors = processors
        self.going: set[Going] = set()
        self._batchers: list[Batcher] = []

    def add(self, batcher: Batcher) -> None:
        """Serves the calls of a model."""
        self._batchers.append(batcher)

    def remove(self, batcher: Batcher) -> None:
        """Serves them no more; there are none."""
        self._batchers.remove(batcher)

    def begin(self, now: float) -> tuple[list[Going], list[tuple[Batcher, Waiting]], float]:
        """The runs that begin now, the calls that will not be in time any more, taken out, and when to ask again if
        nothing happens before."""
        begun: list[Going] = []
        again = math.inf
        busy = [batcher for batcher in self._batchers if len(batcher)]
        if not busy:
            return begun, [], again
        late = [(batcher, one) for batcher in busy for one in batcher.late(now)]
        while busy := [batcher for batcher in busy if len(batcher)]:
            free = self._processors - sum([going.batch.threads for going in self.going])
            if free < 1:
                break
            batcher = busy[0]
            if len(busy) > 1:
                batcher = min(busy, key=_due)
                free = max(1, free - sum([len(other) for other in busy if other is not batcher]))
            found = batcher.next(now, free)
            if isinstance(found, Batch):
                going = Going(batcher, found)
                self.going.add(going)
                begun.append(going)
            else:
                again = min(again, found)
                busy.remove(batcher)
        return begun, late, again

    def end(self, going: Going) -> None:
        """A run has ended."""
        self.going.remove(going)
        going.batcher.ended(going.batch)


def _due(batcher: Batcher) -> float:
    return batcher.due
