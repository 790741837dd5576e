"""Jobs spread over workers, one thread for each; an error of any of them is raised where the results are read."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class _Done:
    """A worker has no more jobs."""


def spread(
    jobs: Iterable[Job], workers: int, opened: Callable[[], AbstractContextManager[Callable[[Job], Result]]]
) -> Iterator[Result]:
    """The results of the jobs, as they come in. Jobs are asked for one at a time; each worker enters what `opened`
    makes, and calls what that gives with one job after the other."""
    left, turn = iter(jobs), threading.Lock()
    found: queue.SimpleQueue[Result | _Done | BaseException] = queue.SimpleQueue()

    def following() -> Iterator[Job]:
        while True:
            with turn:
                try:
                    job = next(left)
                except StopIteration:
                    return
            yield job

    def work() -> None:
        try:
            with opened() as run:
                for job in following():
                    found.put(run(job))
        except BaseException as error:  # noqa: BLE001 - raised again where the results are read
            found.put(error)
        else:
            found.put(_Done())

    for _ in range(workers):
        threading.Thread(target=work, daemon=True).start()
    running = workers
    while running:
        result = found.get()
        if isinstance(result, BaseException):
            raise result
        if isinstance(result, _Done):
            running -= 1
        else:
            yield result
