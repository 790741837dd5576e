"""What happens a fixed time after something began, unless it is over before."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


def call_after(seconds: float, act: Callable[[], object]) -> asyncio.TimerHandle:
    """Has the running loop call it after whole milliseconds. uvloop has no others, and does not wait at all for less
    than half of one: a core would spin."""
    return asyncio.get_running_loop().call_later(max(math.ceil(seconds * 1e3) / 1e3, 0.0), act)


class After(Generic[T]):
    """One timer for all of them, on one event loop: what begins first is due first. Requests that end in time, as most
    do, set none and cancel none."""

    def __init__(self, seconds: float, act: Callable[[T], object]) -> None:
        """act: is called with what is due."""
        self._seconds, self._act = seconds, act
        self._begun: dict[T, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, one: T) -> None:
        """It begins now."""
        self._begun[one] = time.monotonic()
        if self._timer is None:
            self._wait(self._seconds)

    def discard(self, one: T) -> None:
        """It is over, or was before."""
        self._begun.pop(one, None)

    def __iter__(self) -> Iterator[T]:
        """What is neither over nor due."""
        return iter(self._begun)

    def _wait(self, seconds: float) -> None:
        self._timer = call_after(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        due: list[T] = []
        for one, begun in self._begun.items():
            if (left := begun + self._seconds - now) > 0:
                self._wait(left)
                break
            due.append(one)
        for one in due:
            if self._begun.pop(one, None) is not None:  # what was done for one may end others
                self._act(one)
