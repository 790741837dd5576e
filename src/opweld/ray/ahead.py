"""Parts of a dataset, found while others are computed."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from queue import Empty, Full, Queue
from typing import Final

from opweld.ray.parts import Part

_PARTS: Final = 2
"""That are there before anybody asks: their blocks stay in the object store meanwhile."""
_LOOK_S: Final = 0.1


class Ahead:
    """An iterator of parts that somebody waits for on a thread of its own.

    Attributes:
        ended: whether all have been taken.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self.ended = False
        self._parts = parts
        self._found: Queue[Part | BaseException | None] = Queue(_PARTS)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._find, name="opweld-parts", daemon=True)
        self._thread.start()

    def take(self, seconds: float) -> Part | None:
        """The next part; None where there is none within so many seconds, or none any more. Raises what finding it
        raised."""
        if self.ended:
            return None
        try:
            found = self._found.get(timeout=seconds) if seconds else self._found.get_nowait()
        except Empty:
            return None
        self.ended = not isinstance(found, Part)
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """Looks for no more. The thread ends when it has what it waits for."""
        self._closed.set()

    def _find(self) -> None:
        try:
            for part in self._parts:
                self._put(part)
                if self._closed.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - whoever takes parts raises it
            self._put(error)
        else:
            self._put(None)

    def _put(self, found: Part | BaseException | None) -> None:
        while not self._closed.is_set():
            try:
                self._found.put(found, timeout=_LOOK_S)
            except Full:
                continue
            return
