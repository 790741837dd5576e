"""Calls that wait, and threads that run them: what `Cores` decides, done on an event loop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from opweld.serve.after import call_after
from opweld.serve.inference.batcher import Batch, Batcher, Waiting
from opweld.serve.inference.cores import Cores, Going
from opweld.serve.inference.workers import Workers

_IN_PLACE: Final = 50e-6
"""Seconds of a run that takes no longer than to hand it to a thread and back: it is done on the event loop."""


class Runner(Protocol):
    """A model to the dispatcher."""

    @property
    def batcher(self) -> Batcher:
        """Of its calls."""
        ...

    def run(self, batch: Batch) -> Any:
        """Runs a batch, in a thread or on the event loop; raises nothing."""
        ...

    def begun(self, batch: Batch) -> None:
        """A batch begins."""
        ...

    def ended(self, batch: Batch, outcome: Any) -> None:
        """A batch has ended with what `run` returned."""
        ...

    def late(self, one: Waiting) -> None:
        """A call cannot be in time any more, and was taken out."""
        ...


class Dispatcher:
    """The runs of all models on one event loop, whose methods are called there."""

    def __init__(self, workers: Workers) -> None:
        self._workers, self._cores = workers, Cores(len(workers))
        self._runners: dict[Batcher, Runner] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_change: asyncio.Future[None] | None = None

    @property
    def processors(self) -> int:
        """That the models share."""
        return len(self._workers)

    def submit(self, runner: Runner, one: Waiting) -> None:
        """A call came."""
        if runner.batcher not in self._runners:
            self._cores.add(runner.batcher)
            self._runners[runner.batcher] = runner
        runner.batcher.add(one)
        self._begin(one.arrived)

    def remove(self, runner: Runner) -> None:
        """Forgets a model, of which nothing waits or runs."""
        if self._runners.pop(runner.batcher, None) is not None:
            self._cores.remove(runner.batcher)

    def withdraw(self, runner: Runner, one: Waiting) -> bool:
        """Nobody wants the answer of a call any more; whether it had not begun. Others may have waited for it."""
        removed = runner.batcher.remove(one)
        if removed:
            self._begin(time.monotonic())
        return removed

    async def drain(self) -> None:
        """Returns when nothing waits or runs any more; nothing else comes."""
        while self._cores.going or any(len(batcher) for batcher in self._runners):
            if self._next_change is None or self._next_change.done():
                self._next_change = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._next_change)

    def _begin(self, now: float) -> None:
        """Starts what begins now, and what begins behind runs that are over at once."""
        again, are_over = math.inf, True
        while are_over:
            begun, late, again = self._cores.begin(now)
            are_over = False
            for going in begun:
                are_over |= self._start(going)
            for batcher, one in late:
                self._runners[batcher].late(one)
            if are_over:
                now = time.monotonic()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if again < math.inf:
            self._timer = call_after(again - now, self._woken)
        if self._next_change is not None and not self._next_change.done():
            self._next_change.set_result(None)

    def _woken(self) -> None:
        self._timer = None
        self._begin(time.monotonic())

    def _start(self, going: Going) -> bool:
        """Starts a run; whether it is over."""
        runner = self._runners[going.batcher]
        runner.begun(going.batch)
        if 0 < runner.batcher.expected(going.batch) <= _IN_PLACE:
            self._end(runner, going, runner.run(going.batch))
            return True
        self._workers.start(_job(runner, going.batch), lambda outcome: self._ended(runner, going, outcome))
        return False

    def _ended(self, runner: Runner, going: Going, outcome: Any) -> None:
        self._end(runner, going, outcome)
        self._begin(time.monotonic())

    def _end(self, runner: Runner, going: Going, outcome: Any) -> None:
        self._cores.end(going)
        runner.ended(going.batch, outcome)


def _job(runner: Runner, batch: Batch) -> Callable[[], Any]:
    return lambda: runner.run(batch)
