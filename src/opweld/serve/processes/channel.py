"""Lines of JSON between the supervisor and a worker, as the supervisor sends and reads them: without waiting."""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable
from typing import Any, Final

_AT_ONCE: Final = 1 << 18


class Channel:
    """One end of a pair of sockets. What cannot be sent now is sent when there is room."""

    def __init__(
        self, end: socket.socket, selector: selectors.BaseSelector, said: Callable[[dict[str, Any]], None]
    ) -> None:
        """said: is called with each message that comes."""
        self._end, self._selector, self._said = end, selector, said
        self._read, self._left = bytearray(), bytearray()
        end.setblocking(False)
        selector.register(end, selectors.EVENT_READ, self._ready)

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message, in the order of calls."""
        self._left += json.dumps(message).encode() + b"\n"
        self._write()

    def close(self) -> None:
        """Sends and reads no more."""
        if self._end.fileno() >= 0:
            self._selector.unregister(self._end)
            self._end.close()

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write()
        if events & selectors.EVENT_READ:
            try:
                got = self._end.recv(_AT_ONCE)
            except BlockingIOError:
                return
            except OSError:
                got = b""
            if not got:  # it ends, or has ended: its status says more
                self.close()
                return
            self._read += got
            *lines, rest = self._read.split(b"\n")
            self._read = bytearray(rest)
            for line in lines:
                self._said(json.loads(line))

    def _write(self) -> None:
        if self._end.fileno() < 0:
            return
        try:
            while self._left:
                del self._left[: self._end.send(memoryview(bytes(self._left[:_AT_ONCE])))]
        except BlockingIOError:
            pass
        except OSError:  # nobody is there any more
            self._left.clear()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._left else 0)
        if self._selector.get_key(self._end).events != wanted:
            self._selector.modify(self._end, wanted, self._ready)
