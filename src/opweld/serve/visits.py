"""Requests that are being answered, and how all of them come to an end."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opweld.serve.refusal import Refusal, stopping


@dataclass(eq=False)
class Visit:
    """A request, from its first byte to the last one of its answer.

    Attributes:
        client, method, path: as the log shows them.
        begun: in seconds of `time.monotonic`.
        ended: is set where something ends it from outside; None where the client went away.
        model, prompt_tokens, completion_tokens: set by who answers it, for the log.
        status: of the answer; 0 until it begins. streams: whether it is one of events. complete: whether all of it is
            on its way.
    """

    client: str
    method: str
    path: str
    ended: asyncio.Future[Refusal | None]
    id: str = field(default_factory=lambda: f"req_{secrets.token_hex(16)}")
    begun: float = field(default_factory=time.monotonic)
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    status: int = 0
    streams: bool = False
    complete: bool = False

    @property
    def outcome(self) -> int:
        """The status of the answer, or what cut it short: that of the refusal, or 499 where the client went away."""
        if self.complete or not self.ended.done():
            return self.status
        refusal = self.ended.result()
        return 499 if refusal is None else refusal.status

    def end(self, refusal: Refusal | None) -> None:
        """Ends it; the first reason counts."""
        if not self.ended.done():
            self.ended.set_result(refusal)


class Visits:
    """Those that are there, and whether more may come."""

    def __init__(self) -> None:
        self._there: set[Visit] = set()
        self._none = asyncio.Event()
        self._none.set()
        self.open = True

    def __len__(self) -> int:
        return len(self._there)

    @contextmanager
    def counted(self, visit: Visit) -> Generator[None]:
        """It is there while the block runs."""
        self._there.add(visit)
        self._none.clear()
        try:
            yield
        finally:
            self._there.discard(visit)
            if not self._there:
                self._none.set()

    async def drain(self, seconds: float) -> None:
        """Lets no more come; ends those that are there still after a time."""
        self.open = False
        try:
            async with asyncio.timeout(seconds):
                await self._none.wait()
        except TimeoutError:
            for visit in list(self._there):
                visit.end(stopping())
            await self._none.wait()
