"""A cache of values that are computed once for each key."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """Values by key, at most `most`: the least recently used one is dropped first.

    Thread-safe. A thread that requests a value under construction waits for it; others do not."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[Key, Future[Value]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key, made if missing. An error of `make` is raised in all threads that wait for it, and it is
        called again for the next request."""
        while True:
            with self._lock:
                found = self._made.get(key)
                future = self._made[key] = Future() if found is None else found
                self._made.move_to_end(key)
                if len(self._made) > self._most:
                    self._made.popitem(last=False)
            if found is None:
                return self._filled(key, future, make)
            try:
                return future.result()
            except CancelledError:  # the thread that made it was interrupted
                continue

    def _filled(self, key: Key, future: Future[Value], make: Callable[[], Value]) -> Value:
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                if self._made.get(key) is future:
                    del self._made[key]
            if isinstance(error, Exception):
                future.set_exception(error)
            else:
                future.cancel()
            raise
        future.set_result(value)
        return value
