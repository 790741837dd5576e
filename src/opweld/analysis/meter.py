"""The microbenchmarks of ceilings.c, compiled as kernels are, and called on pinned threads."""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from os import sched_getaffinity
from pathlib import Path
from typing import Final

from opweld.build.cache import Cache
from opweld.build.toolchain import build_shared
from opweld.build.workspace import temporary_folder
from opweld.errors import RunError
from opweld.target import MIB, Target

SOURCE: Final = Path(__file__).with_name("ceilings.c")
_KINDS = ("fp32", "bf16", "int8", "clock", "read", "write", "touch", "chain", "chase", "barrier")
"""The kinds of requests, in the order of ceilings.c."""

_HUGE = 2 * MIB


class _Request(ctypes.Structure):
    """`request` of ceilings.c."""

    _fields_ = (
        ("what", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("fresh", ctypes.c_int32),
        ("processors", ctypes.POINTER(ctypes.c_int32)),
        ("memory", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("set", ctypes.c_int64),
        ("at", ctypes.c_int64),
        ("seconds", ctypes.c_double),
        ("warm", ctypes.c_double),
        ("done", ctypes.c_double),
        ("took", ctypes.c_double),
        ("share", ctypes.c_double),
    )


@dataclass(frozen=True)
class Reading:
    """One measurement.

    Attributes:
        rate: the rate per second of all threads together.
        at: the position of the first thread in its part of memory at the end.
        share: the fraction of the time in which every thread was running: less than 1 if it was preempted.
    """

    rate: float
    at: int
    share: float


@dataclass(frozen=True)
class Meter:
    """The compiled programs, and the processors that they run on."""

    library: ctypes.CDLL
    processors: tuple[int, ...]

    @classmethod
    def open(cls, threads: int, target: Target, cache: Cache | None = None) -> Meter:
        """Compiles the programs, unless the cache has them. Raises ToolchainError."""
        text = SOURCE.read_text(encoding="utf-8")
        with temporary_folder() as folder:
            path = folder / "ceilings.so"
            build_shared({SOURCE.name: text}, path, target=target, cache=cache, keep=True)
            library = ctypes.CDLL(str(path))
        library.opw_ceiling.argtypes = (ctypes.POINTER(_Request),)
        library.opw_ceiling.restype = ctypes.c_int32
        library.opw_memory.argtypes, library.opw_memory.restype = (ctypes.c_int64,), ctypes.c_void_p
        library.opw_memory_free.argtypes, library.opw_memory_free.restype = (ctypes.c_void_p, ctypes.c_int64), None
        return cls(library, tuple(sorted(sched_getaffinity(0)))[:threads])

    def read(
        self,
        kind: str,
        seconds: float,
        *,
        warm: float = 0,
        threads: int = 1,
        memory: Memory | None = None,
        size: int = 0,
        at: int = 0,
        fresh: bool = False,
    ) -> Reading:
        """Takes one measurement.

        Args:
            warm: seconds of the same work before the measurement.
            memory: for kinds that load or store; each thread has a part of it.
            size: bytes of its part that a thread uses. at: the start position in it.
            fresh: whether the thread writes the chain before it follows it; `size` is a power of two.

        Raises RunError if the processor does not support it, or threads cannot be created.
        """
        job = _Request(
            what=_KINDS.index(kind),
            threads=threads,
            fresh=fresh,
            processors=(ctypes.c_int32 * threads)(*self.processors[:threads]),
            memory=memory.address if memory else None,
            stride=memory.part(threads) if memory else 0,
            set=size,
            at=at,
            seconds=seconds,
            warm=warm,
        )
        if self.library.opw_ceiling(job):
            raise RunError(f"measuring {kind} on {threads} threads: cannot create threads, or no such instruction")
        return Reading(job.done / job.took, job.at, job.share)

    @contextmanager
    def memory(self, size: int) -> Generator[Memory]:
        """Memory of the given size, in huge pages if available. Raises RunError if it cannot be allocated."""
        size = -(-size // _HUGE) * _HUGE
        address = self.library.opw_memory(size)
        if not address:
            raise RunError(f"measuring needs {size / MIB:.0f} MiB of memory, which cannot be allocated")
        try:
            yield Memory(address, size)
        finally:
            self.library.opw_memory_free(address, size)


@dataclass(frozen=True)
class Memory:
    """Memory to measure in: its address and its bytes."""

    address: int
    bytes: int

    def part(self, threads: int) -> int:
        """Bytes of one thread's part of it: whole huge pages."""
        return self.bytes // threads // _HUGE * _HUGE
