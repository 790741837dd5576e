"""Threads that run models: as many as there are processors, whatever the number of models."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

Job: TypeAlias = "tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]"


class Workers:
    """Runs what it is given, first come, first served."""

    def __init__(self, count: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"opweld-run-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    async def run(self, job: Callable[[], Any]) -> Any:
        """What a job returns or raises. Cancelled before it has begun, it never does."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._jobs.put((loop, future, job))
        return await future

    def close(self) -> None:
        """Ends when all that was given has ended."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (given := self._jobs.get()) is not None:
            loop, future, job = given
            if future.cancelled():
                continue
            try:
                found = job()
            except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
                loop.call_soon_threadsafe(_fail, future, error)
            else:
                loop.call_soon_threadsafe(_finish, future, found)


def _finish(future: asyncio.Future[Any], found: Any) -> None:
    if not future.done():
        future.set_result(found)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
