"""The small C programs that measure, ceilings.c: compiled as kernels of models are, and called on pinned threads."""

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
"""What a request may ask for, in the order of ceilings.c."""

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
    """What was measured once.

    Attributes:
        rate: how much all threads together do in a second.
        at: where in its part of memory the first thread ended.
        share: of the time, the part in which every thread had its processor: less than 1 where others ran meanwhile.
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
        """Measures something once.

        Args:
            warm: seconds for which the same is done before, for nothing.
            memory: where, for kinds that load or store; each thread has a part of it.
            size: bytes of its part that a thread uses. at: where in it each begins.
            fresh: whether the thread writes the chain first that it then follows; `size` is a power of two.

        Raises RunError where the processor cannot do it, or threads cannot be had.
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
            raise RunError(f"measuring {kind} on {threads} threads: no thread, or no such instruction")
        return Reading(job.done / job.took, job.at, job.share)

    @contextmanager
    def memory(self, size: int) -> Generator[Memory]:
        """So many bytes, in huge pages as far as the system gives them. Raises RunError where there are none."""
        size = -(-size // _HUGE) * _HUGE
        address = self.library.opw_memory(size)
        if not address:
            raise RunError(f"measuring needs {size / MIB:.0f} MiB of memory, which the system does not give")
        try:
            yield Memory(address, size)
        finally:
            self.library.opw_memory_free(address, size)


@dataclass(frozen=True)
class Memory:
    """Memory to measure in: where it lies, and its bytes."""

    address: int
    bytes: int

    def part(self, threads: int) -> int:
        """Bytes of one thread's part of it: whole huge pages."""
        return self.bytes // threads // _HUGE * _HUGE
