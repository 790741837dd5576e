"""Calls that wait, and threads that run them: what `Cores` decides, done."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from opweld.serve.after import call_after
from opweld.serve.inference.batcher import Batch, Batcher, Waiting
from opweld.serve.inference.cores import Cores, Going
from opweld.serve.inference.workers import Workers, post

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
        """A batch begins. In a thread or on the event loop, one after the other."""
        ...

    def took(self, outcome: Any) -> float | None:
        """Seconds of what `run` returned; None where they do not tell what a run of such a batch takes."""
        ...

    def ended(self, batch: Batch, outcome: Any) -> None:
        """A batch has ended with what `run` returned. On the event loop."""
        ...

    def late(self, one: Waiting) -> None:
        """A call cannot be in time any more, and was taken out. On the event loop."""
        ...


class _Begun(NamedTuple):
    """A run that begins."""

    runner: Runner
    going: Going


class _Decided(NamedTuple):
    """As `Cores.begin`."""

    begun: list[_Begun]
    late: list[tuple[Runner, Waiting]]
    again: float


class Dispatcher:
    """The runs of all models. Their calls come, and are answered, on one event loop, where all methods are called.

    What begins next is decided where there is a processor for it: on the loop when a call comes, and by a thread whose
    run has ended, which goes on with the next one itself. If that were the loop's, a processor would wait between two
    runs until the loop, which has none of its own, gets to it."""

    def __init__(self, workers: Workers) -> None:
        self._workers, self._cores = workers, Cores(len(workers))
        self._runners: dict[Batcher, Runner] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_change: asyncio.Future[None] | None = None
        self._unanswered: set[Going] = set()
        self._lock = threading.Lock()  # of the cores, the batchers, and what is not answered yet

    @property
    def processors(self) -> int:
        """That the models share."""
        return len(self._workers)

    def submit(self, runner: Runner, one: Waiting) -> None:
        """A call came."""
        with self._lock:
            if runner.batcher not in self._runners:
                self._cores.add(runner.batcher)
                self._runners[runner.batcher] = runner
            runner.batcher.add(one)
        self._begin(one.arrived)

    def leave(self, runner: Runner) -> None:
        """Forgets a model that no calls come for any more, unless one waits or runs."""
        batcher = runner.batcher
        with self._lock:
            if batcher not in self._runners or len(batcher) or any(one.batcher is batcher for one in self._unanswered):
                return
            del self._runners[batcher]
            self._cores.remove(batcher)

    def withdraw(self, runner: Runner, one: Waiting) -> bool:
        """Nobody wants the answer of a call any more; whether it had not begun. Others may have waited for it."""
        with self._lock:
            removed = runner.batcher.remove(one)
        if removed:
            self._begin(time.monotonic())
        return removed

    async def drain(self) -> None:
        """Returns when nothing waits or runs any more; nothing else comes."""
        while self._is_busy():
            if self._next_change is None or self._next_change.done():
                self._next_change = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._next_change)

    # ---- on the event loop ----

    def _is_busy(self) -> bool:
        with self._lock:  # else a thread might just take what waits
            return bool(self._unanswered) or any(len(batcher) for batcher in self._runners)

    def _begin(self, now: float) -> None:
        """Starts what begins now, and what begins behind runs that are over at once."""
        again, are_over = math.inf, True
        while are_over:
            with self._lock:
                begun, late, again = self._decided(now)
            are_over = False
            for one in begun:
                are_over |= self._start(one)
            _refuse(late)
            if are_over:
                now = time.monotonic()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if again < math.inf:
            self._timer = call_after(again - now, self._woken)
        self._changed()

    def _woken(self) -> None:
        self._timer = None
        self._begin(time.monotonic())

    def _start(self, begun: _Begun) -> bool:
        """Starts a run; whether it is over."""
        runner, going = begun
        loop = asyncio.get_running_loop()
        if not 0 < runner.batcher.expected(going.batch) <= _IN_PLACE:
            self._workers.start(partial(self._work, loop, begun))
            return False
        outcome = runner.run(going.batch)
        with self._lock:
            self._cores.end(going)
        self._answer(begun, outcome)
        loop.call_soon(self._learn, begun, outcome)  # after those who wait have their answers
        return True

    def _learn(self, begun: _Begun, outcome: Any) -> None:
        with self._lock:
            _observe(begun, outcome)

    def _answer(self, begun: _Begun, outcome: Any) -> None:
        with self._lock:
            self._unanswered.remove(begun.going)
        begun.runner.ended(begun.going.batch, outcome)
        self._changed()

    def _resume(self, late: list[tuple[Runner, Waiting]]) -> None:
        _refuse(late)
        self._begin(time.monotonic())

    def _changed(self) -> None:
        if self._next_change is not None and not self._next_change.done():
            self._next_change.set_result(None)

    # ---- in a thread ----

    def _work(self, loop: asyncio.AbstractEventLoop, begun: _Begun | None) -> None:
        """A run, and those that begin behind it, unless something else waits for the thread."""
        while begun is not None:
            outcome = begun.runner.run(begun.going.batch)
            post(loop, self._answer, begun, outcome)
            with self._lock:
                self._cores.end(begun.going)
                _observe(begun, outcome)
                following, late, again = self._decided(time.monotonic())
            if late or again < math.inf:
                post(loop, self._resume, late)
            begun = following.pop(0) if following and not self._workers.backlog else None
            for one in following:
                self._workers.start(partial(self._work, loop, one))

    # ---- anywhere, with the lock ----

    def _decided(self, now: float) -> _Decided:
        going, late, again = self._cores.begin(now)
        begun = [_Begun(self._runners[one.batcher], one) for one in going]
        for one in begun:
            one.runner.begun(one.going.batch)
            self._unanswered.add(one.going)
        return _Decided(begun, [(self._runners[batcher], one) for batcher, one in late], again)


def _observe(begun: _Begun, outcome: Any) -> None:
    """Its batcher knows better what runs take."""
    if (took := begun.runner.took(outcome)) is not None:
        begun.runner.batcher.observe(begun.going.batch, took)


def _refuse(late: list[tuple[Runner, Waiting]]) -> None:
    for runner, one in late:
        runner.late(one)
