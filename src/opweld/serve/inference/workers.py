"""Threads that run models: as many as there are processors, whatever the number of models."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Job: TypeAlias = Callable[[], object]


class Workers:
    """Runs what it is given, first come, first served.

    A job is handed over through a queue that is a lock of the system, and its end by `post`: some 25 us for both, where
    an executor takes 50."""

    def __init__(self, count: int, name: str = "opweld-run") -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        return len(self._threads)

    @property
    def backlog(self) -> bool:
        """Whether jobs wait for a thread."""
        return not self._jobs.empty()

    def start(self, job: Job) -> None:
        """Has a job done that raises nothing."""
        self._jobs.put(job)

    async def run(self, job: Callable[[], T]) -> T:
        """What a job returns or raises. Cancelled before it has begun, it never does.

        Raises RuntimeError for what a task must not raise: StopIteration, which no future holds, and what is no
        Exception, as SystemExit, which would end the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def guarded() -> None:
            if future.cancelled():
                return
            try:
                post(loop, _settle, future, job(), None)
            except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
                post(loop, _settle, future, None, _as_exception(error))

        self.start(guarded)
        return await future

    def close(self, seconds: float = 0.0) -> None:
        """Has the threads end behind what was given, and waits for that so long. What goes on then ends with the
        process."""
        until = time.monotonic() + seconds
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def post(loop: asyncio.AbstractEventLoop, act: Callable[..., object], *given: object) -> None:
    """Has it called on an event loop, unless nobody is there any more."""
    try:
        loop.call_soon_threadsafe(act, *given)
    except RuntimeError:
        if not loop.is_closed():
            raise


async def apart(job: Callable[[], T], name: str) -> T:
    """What a job returns or raises, done in a thread of its own, which ends with the process; `asyncio.to_thread` would
    have the process wait for it. name: of the thread."""
    workers = Workers(1, name)
    try:
        return await workers.run(job)
    finally:
        workers.close()


def _as_exception(error: BaseException) -> Exception:
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    made = RuntimeError(f"{type(error).__name__}: {error}")
    made.__cause__ = error
    return made


def _settle(future: asyncio.Future[Any], found: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(found)
    else:
        future.set_exception(error)
