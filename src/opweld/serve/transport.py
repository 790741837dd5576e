"""A connection on which the head and the body of an answer go out together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

_MOST: Final = 64 << 10
"""Bytes that are gathered; with more of them whoever writes has to learn that the client takes no more."""


class Gathering(asyncio.Transport):
    """A transport that sends what is written in one turn of the loop at once. uvicorn writes an answer's head and its
    body one after the other: to send each by itself takes longer than all that is computed for a small one, and wakes
    its client twice."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._written: list[bytes | bytearray | memoryview] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends it in this turn."""
        if not self._written:
            self._loop.call_soon(self.flush)
        self._written.append(data)
        self._size += len(data)
        if self._size > _MOST:
            self.flush()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Sends all of them in this turn."""
        for data in list_of_data:
            self.write(data)

    def flush(self) -> None:
        """Sends what was written, unless the connection is gone."""
        if self._written:
            written, self._written, self._size = self._written, [], 0
            if not self._transport.is_closing():
                self._transport.writelines(written)

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not taken yet."""
        self.flush()
        return self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Ends the connection, once what was written has been sent."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Ends the connection at once."""
        self._written, self._size = [], 0
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it ends, or has ended."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Takes nothing from the client."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Takes from the client again."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the connection knows of itself."""
        return self._transport.get_extra_info(name, default)
