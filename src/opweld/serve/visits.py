"""Requests that are being answered, and how all of them come to an end."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass, field
from types import TracebackType

from opweld.serve.after import After
from opweld.serve.refusal import Refusal, busy, out_of_time, stopping


class Cut(Exception):  # noqa: N818 - `Visits.endable` raises it, and who entered it takes it
    """A visit was ended from outside before its answer was complete."""


def _new_id() -> str:
    return f"req_{os.urandom(16).hex()}"


@dataclass(eq=False, slots=True)
class Visit:
    """A request, from its first byte to the last one of its answer.

    Attributes:
        client, method, path: as the log shows them.
        begun: in seconds of `time.monotonic`.
        route: the template of its path, under which it is counted; empty where it has none.
        model, prompt_tokens, completion_tokens: set by who answers it, for the log.
        status: of the answer; 0 until it begins. streams: whether it is one of events. complete: whether all of it is
            on its way.
        visits: those that it is one of. held: bytes of their memory that it has.
        task: is cancelled when it is ended from outside. ended: whether it was.
    """

    client: str
    method: str
    path: str
    id: str = field(default_factory=_new_id)
    begun: float = field(default_factory=time.monotonic)
    route: str = ""
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    status: int = 0
    streams: bool = False
    complete: bool = False
    visits: Visits | None = None
    held: int = 0
    task: asyncio.Task[object] | None = None
    ended: bool = False
    _why: Refusal | None = None
    _end: asyncio.Event | None = None
    """Where somebody waits for it to be ended."""

    @property
    def why(self) -> Refusal | None:
        """What ended it from outside; None where the client went away, or nothing did."""
        return self._why

    @property
    def outcome(self) -> int:
        """The status of the answer, or what cut it short: that of the refusal, or 499 where the client went away."""
        if self.complete or not self.ended:
            return self.status
        return 499 if self._why is None else self._why.status

    def hold(self, size: int) -> None:
        """Has so many bytes more in memory, until it is over. Raises Refusal where all visits together
        would have too many."""
        if self.visits is not None:
            self.visits.take(size)
            self.held += size

    def drop(self, size: int) -> None:
        """Has so many bytes less in memory."""
        if self.visits is not None:
            self.visits.take(-size)
            self.held -= size

    def end(self, why: Refusal | None) -> None:
        """Ends it, where it is not complete; the first reason counts."""
        if self.ended:
            return
        self.ended, self._why = True, why
        if self.task is not None:
            self.task.cancel()
        if self._end is not None:
            self._end.set()

    async def wait(self) -> None:
        """Until it is ended from outside."""
        if self.ended:
            return
        if self._end is None:
            self._end = asyncio.Event()
        await self._end.wait()


class Visits:
    """Those that are there, and whether more may come.

    Attributes:
        closed: is set when no more may.
    """

    def __init__(self, most: int = sys.maxsize, seconds: float = 600.0) -> None:
        """
        Args:
            most: bytes of requests in memory.
            seconds: of one request.
        """
        self._most, self._held = most, 0
        self._there: set[Visit] = set()
        self._late = After[Visit](seconds, lambda visit: visit.end(out_of_time(seconds)))
        self._none = asyncio.Event()
        self._none.set()
        self.closed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._there)

    @property
    def open(self) -> bool:
        """Whether more may come."""
        return not self.closed.is_set()

    def counted(self, visit: Visit) -> _Counted:
        """It is there while the block runs."""
        return _Counted(self, visit)

    def endable(self, visit: Visit, *, timed: bool = True) -> _Endable:
        """The block is cancelled, and Cut raised in its place, where the visit is ended, or takes too long if `timed`.

        It is the task itself that is cancelled: one more for each request would cost more than a small model's run."""
        return _Endable(visit, self._late if timed else None)

    def take(self, size: int) -> None:
        """As `Visit.hold`, which gives it back."""
        if self._held + size > self._most:
            raise busy()
        self._held += size

    def keep(self, size: int) -> None:
        """So many bytes more are in memory, however much there is: of answers that are given; negative: less."""
        self._held += size

    def enter(self, visit: Visit) -> None:
        """It is there."""
        self._there.add(visit)
        visit.visits = self
        self._none.clear()

    def leave(self, visit: Visit) -> None:
        """It is not any more."""
        self._there.discard(visit)
        self._held -= visit.held
        visit.visits, visit.held = None, 0
        if not self._there:
            self._none.set()

    async def drain(self, seconds: float) -> None:
        """Lets no more come; ends those that are there still after a time."""
        self.closed.set()
        try:
            async with asyncio.timeout(seconds):
                await self._none.wait()
        except TimeoutError:
            for visit in list(self._there):
                visit.end(stopping())
            await self._none.wait()


class _Counted:
    """See `Visits.counted`."""

    __slots__ = ("_visit", "_visits")

    def __init__(self, visits: Visits, visit: Visit) -> None:
        self._visits, self._visit = visits, visit

    def __enter__(self) -> None:
        self._visits.enter(self._visit)

    def __exit__(self, *_: object) -> None:
        self._visits.leave(self._visit)


class _Endable:
    """See `Visits.endable`."""

    __slots__ = ("_before", "_late", "_task", "_visit")

    def __init__(self, visit: Visit, late: After[Visit] | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._visit, self._late, self._task, self._before = visit, late, task, task.cancelling()

    def __enter__(self) -> None:
        self._visit.task = self._task
        if self._late is not None:
            self._late.add(self._visit)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._late is not None:
            self._late.discard(self._visit)
        self._visit.task = None
        if not isinstance(error, asyncio.CancelledError):
            return
        if self._visit.ended and self._task.uncancel() <= self._before:
            raise Cut from None
        self._visit.end(None)
