"""Parts of a dataset, found while others are computed."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from queue import Empty, Full, Queue
from typing import Final

from opweld.ray.parts import Part, Sized, parts_of

_PARTS: Final = 2
"""That are there before anybody asks: their blocks stay in the object store meanwhile."""
_LOOK_S: Final = 0.1
_PATIENCE_S: Final = 10.0
"""How long closing waits for a block that is being made."""


class Ahead:
    """Parts of `rows` rows each, of blocks that somebody waits for on a thread of its own.

    Attributes:
        ended: whether all have been taken.
    """

    def __init__(self, blocks: Generator[Sized], rows: int) -> None:
        """The blocks are closed at the end: Ray makes more of them until then, whoever holds them."""
        self.ended = False
        self._blocks, self._rows = blocks, rows
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
        """Looks for no more, and waits a while for the thread, which ends when it has the block that it waits for."""
        self._closed.set()
        self._thread.join(_PATIENCE_S)

    def _find(self) -> None:
        try:
            for part in parts_of(self._until_closed(), self._rows):
                self._put(part)
        except BaseException as error:  # noqa: BLE001 - whoever takes parts raises it
            self._put(error)
        else:
            self._put(None)
        finally:
            self._blocks.close()

    def _until_closed(self) -> Iterator[Sized]:
        for sized in self._blocks:
            yield sized
            if self._closed.is_set():
                return

    def _put(self, found: Part | BaseException | None) -> None:
        while not self._closed.is_set():
            try:
                self._found.put(found, timeout=_LOOK_S)
            except Full:
                continue
            return
