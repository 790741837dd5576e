"""Requests that are being answered, and how all of them come to an end."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opweld.serve.refusal import Refusal, busy, out_of_time, stopping


class Cut(Exception):  # noqa: N818 - `Visit.endable` raises it, and who entered it takes it
    """A visit was ended from outside before its answer was complete."""


@dataclass(eq=False)
class Visit:
    """A request, from its first byte to the last one of its answer.

    Attributes:
        client, method, path: as the log shows them.
        begun: in seconds of `time.monotonic`.
        model, prompt_tokens, completion_tokens: set by who answers it, for the log.
        status: of the answer; 0 until it begins. streams: whether it is one of events. complete: whether all of it is
            on its way.
        visits: those that it is one of. held: bytes of their memory that it has.
    """

    client: str
    method: str
    path: str
    id: str = field(default_factory=lambda: f"req_{secrets.token_hex(16)}")
    begun: float = field(default_factory=time.monotonic)
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    status: int = 0
    streams: bool = False
    complete: bool = False
    visits: Visits | None = None
    held: int = 0
    _ended: bool = False
    _why: Refusal | None = None
    _told: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])

    @property
    def why(self) -> Refusal | None:
        """What ended it from outside; None where the client went away, or nothing did."""
        return self._why

    @property
    def outcome(self) -> int:
        """The status of the answer, or what cut it short: that of the refusal, or 499 where the client went away."""
        if self.complete or not self._ended:
            return self.status
        return 499 if self._why is None else self._why.status

    def hold(self, size: int) -> None:
        """Has so many bytes more of its request in memory, until it is over. Raises Refusal where all visits together
        would have too many."""
        if self.visits is not None:
            self.visits.take(size)
            self.held += size

    def end(self, why: Refusal | None) -> None:
        """Ends it, where it is not complete; the first reason counts."""
        if self._ended:
            return
        self._ended, self._why = True, why
        for tell in self._told:
            tell()

    async def wait(self) -> None:
        """Until it is ended from outside."""
        if not self._ended:
            ended = asyncio.get_running_loop().create_future()
            self._told.append(lambda: ended.done() or ended.set_result(None))
            await ended

    @contextmanager
    def endable(self, seconds: float | None) -> Generator[None]:
        """The block is cancelled, and Cut raised in its place, where the visit is ended, or takes more than `seconds`.

        It is the task itself that is cancelled: one more for each request would cost more than a small model's run."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        before = task.cancelling()
        self._told.append(task.cancel)
        timer = None if seconds is None else loop.call_later(seconds, lambda: self.end(out_of_time(seconds)))
        try:
            yield
        except asyncio.CancelledError:
            if self._ended and task.uncancel() <= before:
                raise Cut from None
            self._told.clear()
            self.end(None)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._told.clear()


class Visits:
    """Those that are there, and whether more may come.

    Attributes:
        closed: is set when no more may.
    """

    def __init__(self, most: int = sys.maxsize) -> None:
        """
        Args:
            most: bytes of requests in memory.
        """
        self._most, self._held = most, 0
        self._there: set[Visit] = set()
        self._none = asyncio.Event()
        self._none.set()
        self.closed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._there)

    @property
    def open(self) -> bool:
        """Whether more may come."""
        return not self.closed.is_set()

    @contextmanager
    def counted(self, visit: Visit) -> Generator[None]:
        """It is there while the block runs."""
        self._there.add(visit)
        visit.visits = self
        self._none.clear()
        try:
            yield
        finally:
            self._there.discard(visit)
            self._held -= visit.held
            visit.visits, visit.held = None, 0
            if not self._there:
                self._none.set()

    def take(self, size: int) -> None:
        """As `Visit.hold`, which gives it back."""
        if self._held + size > self._most:
            raise busy()
        self._held += size

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
