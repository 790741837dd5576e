"""Shared memory that clients of this machine register: tensors go through it and not through the socket.

What a client says of it is checked, and what it does to it meanwhile harms nobody but itself: regions are read into
memory of the server's own and written from there, by calls that end early where the memory has been cut off. Mapped
memory would end the process then, and let a client change an index between its check and its use.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opweld.serve.open_inference.parameters import Place
from opweld.serve.refusal import Refusal

FOLDER: Final = Path("/dev/shm")
_KEY: Final = re.compile(r"/?(?!\.{1,2}\Z)[^/\0]{1,255}\Z")
_MOST_BYTES: Final = 0x7FFFF000
"""That Linux reads at once."""

_MOST: Final = 1024
"""Regions at once: each holds a file open."""


@dataclass(frozen=True)
class _Region:
    name: str
    key: str
    offset: int
    size: int
    file: int

    def told(self) -> dict[str, Any]:
        return {"name": self.name, "key": self.key, "offset": self.offset, "byte_size": self.size}


class Regions:
    """Regions by name; none may be registered unless the server allows it: whoever may can read and write the shared
    memory of every program of this user."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self._regions: dict[str, _Region] = {}

    async def register(self, name: str, key: str, offset: int, size: int) -> None:
        """A part of shared memory under a name. Raises Refusal where it is none."""
        self.register_here(name, key, offset, size)

    async def unregister(self, name: str = "") -> None:
        """Forgets a region, or all; one that is not there is forgotten already."""
        self.unregister_here(name)

    def register_here(self, name: str, key: str, offset: int, size: int) -> None:
        """As `register`, in this process."""
        if not self.allowed:
            raise Refusal(
                403, "this server takes no shared memory; start it with --shared-memory, or send tensors in requests"
            )
        if not name or len(name) > 256:
            raise Refusal(400, "a shared memory region has a name of 1 to 256 characters")
        if name in self._regions:
            raise Refusal(409, f"shared memory region {name} is registered already; unregister it first")
        if len(self._regions) >= _MOST:
            raise Refusal(429, f"{_MOST} shared memory regions are registered already; unregister some first")
        if _KEY.match(key) is None:
            raise Refusal(
                400, f"shared memory region {name}: {key!r} is no name of shared memory: /NAME, without others"
            )
        file = _opened(name, key)
        try:
            there = os.fstat(file).st_size
            if offset < 0 or size < 1 or offset + size > there:
                raise Refusal(
                    400,
                    f"shared memory region {name}: {size} bytes from {offset} are not all within the {there} of {key}",
                )
        except BaseException:
            os.close(file)
            raise
        self._regions[name] = _Region(name, key, offset, size, file)

    def unregister_here(self, name: str = "") -> None:
        """As `unregister`, in this process."""
        for one in [name] if name else list(self._regions):
            if (region := self._regions.pop(one, None)) is not None:
                os.close(region.file)

    def status(self, name: str = "") -> list[dict[str, Any]]:
        """One region, or all: name, key, offset and byte_size."""
        if name:
            return [self._get(name).told()]
        return [region.told() for region in self._regions.values()]

    def read(self, what: str, place: Place) -> memoryview:
        """The bytes of a tensor that lies there."""
        region = self._within(what, place)
        if place.size > _MOST_BYTES:
            raise Refusal(400, f"{what}: {place.size} bytes in shared memory, at most {_MOST_BYTES} are read")
        raw = bytearray(place.size)
        done = os.preadv(region.file, [raw], region.offset + place.offset)
        if done != place.size:
            raise Refusal(400, f"{what}: shared memory {region.key} has been cut off: {done} of {place.size} bytes")
        return memoryview(raw)

    def write(self, what: str, place: Place, raw: memoryview | bytes) -> None:
        """Puts the bytes of a tensor there."""
        region = self._within(what, place)
        if len(raw) > place.size:
            raise Refusal(400, f"{what} has {len(raw)} bytes, its place in shared memory {place.size}")
        if os.fstat(region.file).st_size < region.offset + place.offset + len(raw):
            raise Refusal(400, f"{what}: shared memory {region.key} has been cut off")
        try:
            done = os.pwrite(region.file, raw, region.offset + place.offset)
        except OSError as error:
            raise _full(what, region, error.strerror) from None
        if done < len(raw):
            raise _full(what, region, f"it took {done} of {len(raw)} bytes")

    def check(self, what: str, place: Place) -> None:
        """Refuses a place that is none, before anything is computed."""
        self._within(what, place)

    def close(self) -> None:
        """Forgets all, in this process."""
        self.unregister_here()

    def _within(self, what: str, place: Place) -> _Region:
        region = self._get(place.region)
        if place.offset + place.size > region.size:
            raise Refusal(
                400,
                f"{what}: {place.size} bytes from {place.offset} are not all within shared memory region "
                f"{place.region} of {region.size} bytes",
            )
        return region

    def _get(self, name: str) -> _Region:
        if (region := self._regions.get(name)) is None:
            raise Refusal(404, f"there is no shared memory region {name}; register it first")
        return region


def _full(what: str, region: _Region, reason: str | None) -> Refusal:
    # Memory that is shared is taken when it is written to first.
    return Refusal(503, f"{what}: cannot write to shared memory {region.key}: {reason}", code="shortage", retry_after=5)


def _opened(name: str, key: str) -> int:
    # No link out of the folder is followed, and a pipe that nobody writes to does not hold the server up.
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(FOLDER / key.removeprefix("/"), flags)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Refusal(400, f"shared memory region {name}: cannot open {key}: {reason}") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Refusal(400, f"shared memory region {name}: {key} is no shared memory")
    return file
