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

    What a run makes use of was measured when its model was loaded (`Batcher.part`): beyond that, further threads bring
    less than another run does. So as many runs are going on as give each of them what it needs, and none makes another
    one slower. Whoever is due first and finds too few processors waits for them, and nobody passes.

    Attributes:
        going: the runs that are going on.
    """

    def __init__(self) -> None:
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
            batcher = busy[0] if len(busy) == 1 else min(busy, key=_due)
            if not self._has_room(batcher):
                break
            found = batcher.next(now)
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

    def _has_room(self, batcher: Batcher) -> bool:
        if not self.going:
            return True
        return sum([going.batcher.part for going in self.going]) + batcher.part <= 1 + 1e-9


def _due(batcher: Batcher) -> float:
    return batcher.due
