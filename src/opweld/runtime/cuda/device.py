"""A GPU through its driver alone, and what is held there.

A `Device` has the primary context, the one that PyTorch and CUDA's runtime use: what they allocate can be passed to
kernels here, and the other way round. Every call makes it current in its thread while it runs, and leaves the thread as
it was. Objects may be used by several threads; streams and events are what orders their work.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache as remember
from typing import Any, Final

from opweld.errors import DeviceError
from opweld.runtime.cuda.driver import LIBRARY, Driver

_ATTRIBUTES: Final = {
    "clock_khz": 13,
    "multiprocessors": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "threads_per_multiprocessor": 39,
    "major": 75,
    "minor": 76,
    "shared_per_multiprocessor": 81,
    "registers_per_multiprocessor": 82,
    "shared_per_block": 97,
    "reserved_shared": 111,
}
"""`CUdevice_attribute` by what they are called here; shared_per_block is the one that a function may be allowed."""


@dataclass(frozen=True)
class Properties:
    """What a GPU is.

    Attributes:
        name: as "NVIDIA H100 80GB HBM3".
        capability: as (9, 0).
        multiprocessors: streaming multiprocessors.
        memory: bytes.
        l2: bytes of the last cache.
        shared_per_block: bytes that one block may have at most.
        shared_per_multiprocessor, registers_per_multiprocessor, threads_per_multiprocessor: what blocks share.
        reserved_shared: bytes of shared memory that the driver takes of each block.
        clock: of the multiprocessors, in Hz. memory_clock: in Hz. memory_bus: bits.
        cuda: the version of CUDA that the driver has.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory: int
    l2: int
    shared_per_block: int
    shared_per_multiprocessor: int
    registers_per_multiprocessor: int
    threads_per_multiprocessor: int
    reserved_shared: int
    clock: float
    memory_clock: float
    memory_bus: int
    cuda: tuple[int, int]

    @property
    def arch(self) -> int:
        """The compute capability times ten, by which kernels are compiled: 90."""
        return 10 * self.capability[0] + self.capability[1]


class Device:
    """A GPU and its primary context. `Device.open` gives it, one of each number a process.

    The context is never given back: others of the process may use it, and the process's end does so."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver, self.ordinal = driver, ordinal
        count = driver.devices()
        if not 0 <= ordinal < count:
            raise DeviceError(f"there is no GPU {ordinal}: this process sees {count}, numbered from 0")
        device, context = c_int(), c_void_p()
        driver.call("cuDeviceGet", byref(device), ordinal)
        self._number = device.value
        self.properties = self._read()
        driver.call("cuDevicePrimaryCtxRetain", byref(context), self._number)
        self._context = context.value

    @classmethod
    def open(cls, ordinal: int = 0, path: str = LIBRARY) -> Device:
        """The GPU of this number, of those that the process sees.

        Raises DeviceError where there is no driver or no such GPU."""
        return _opened(path, ordinal)

    @contextmanager
    def current(self) -> Generator[None]:
        """Makes the context the thread's own during the block. All calls here do so themselves; around many of them it
        spares each the change."""
        found = c_void_p()
        self.driver.call("cuCtxGetCurrent", byref(found))
        if found.value == self._context:
            yield
            return
        self.driver.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self.driver.call("cuCtxPopCurrent_v2", byref(found))

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver with the context current. Raises as `Driver.call` does."""
        with self.current():
            self.driver.call(name, *arguments)

    def synchronize(self) -> None:
        """Waits for all work of the context, PyTorch's too. Raises DeviceError where a kernel failed."""
        self.call("cuCtxSynchronize")

    def free_memory(self) -> int:
        """Bytes that nobody has allocated."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def _read(self) -> Properties:
        driver, name, memory = self.driver, ctypes.create_string_buffer(256), c_size_t()
        driver.call("cuDeviceGetName", name, len(name), self._number)
        driver.call("cuDeviceTotalMem_v2", byref(memory), self._number)
        found: dict[str, int] = {}
        for attribute, number in _ATTRIBUTES.items():
            value = c_int()
            driver.call("cuDeviceGetAttribute", byref(value), number, self._number)
            found[attribute] = value.value
        return Properties(
            name=name.value.decode(errors="replace"),
            capability=(found["major"], found["minor"]),
            multiprocessors=found["multiprocessors"],
            memory=memory.value,
            l2=found["l2_bytes"],
            shared_per_block=found["shared_per_block"],
            shared_per_multiprocessor=found["shared_per_multiprocessor"],
            registers_per_multiprocessor=found["registers_per_multiprocessor"],
            threads_per_multiprocessor=found["threads_per_multiprocessor"],
            reserved_shared=found["reserved_shared"],
            clock=found["clock_khz"] * 1e3,
            memory_clock=found["memory_clock_khz"] * 1e3,
            memory_bus=found["memory_bus_bits"],
            cuda=driver.version(),
        )


def devices(path: str = LIBRARY) -> int:
    """How many GPUs can be used here: 0 where there is no driver or none that works."""
    try:
        return Driver.open(path).devices()
    except DeviceError:
        return 0


def is_interpreted() -> bool:
    """Whether Triton's interpreter, on this processor, stands for GPUs."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def capability(path: str = LIBRARY) -> tuple[int, int] | None:
    """The compute capability of the first GPU, as (9, 0), without a context on it; None where there is none."""
    if not devices(path):
        return None
    driver, device, major, minor = Driver.open(path), c_int(), c_int(), c_int()
    driver.call("cuDeviceGet", byref(device), 0)
    driver.call("cuDeviceGetAttribute", byref(major), _ATTRIBUTES["major"], device.value)
    driver.call("cuDeviceGetAttribute", byref(minor), _ATTRIBUTES["minor"], device.value)
    return major.value, minor.value


@remember
def _opened(path: str, ordinal: int) -> Device:
    return Device(Driver.open(path), ordinal)


class Owned:
    """Something of the driver's that is given back when nobody refers to it, or when it is closed."""

    def __init__(self, device: Device, handle: int, give_back: str | None) -> None:
        self.device, self.handle = device, handle
        self._finalizer = weakref.finalize(self, _give_back, device, give_back, handle) if give_back else None
        if self._finalizer is not None:
            self._finalizer.atexit = False  # the end of the process does so

    def close(self) -> None:
        """Gives it back now; more than once does nothing. What runs with it must be done."""
        if self._finalizer is not None:
            self._finalizer()


def _give_back(device: Device, name: str, handle: int) -> None:
    try:
        with device.current():
            device.driver.destroy(name, handle)
    except DeviceError:  # the driver is at its end, and with it what it gave
        return
