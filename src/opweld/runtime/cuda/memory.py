"""Memory of a GPU, and memory of the host that it copies from and to beside the program."""

from __future__ import annotations

from ctypes import byref, c_uint64, c_void_p
from typing import Any

from opweld.runtime.cuda.device import Device, Owned


class Memory(Owned):
    """Bytes of the GPU's memory, at `address`, aligned to 256."""

    def __init__(self, device: Device, size: int) -> None:
        """Allocates. Raises ShortageError where the GPU has not as much left."""
        found = c_uint64()
        device.call("cuMemAlloc_v2", byref(found), max(size, 1))  # the driver refuses to allocate nothing
        super().__init__(device, found.value, "cuMemFree_v2")
        self.size = size

    @property
    def address(self) -> int:
        """Where it begins, as kernels and copies take it."""
        return self.handle


class Pinned(Owned):
    """Bytes of the host's memory that stay where they are, so that copies run beside the program. NumPy sees them as an
    array of bytes: `np.asarray(pinned)`, which keeps them."""

    def __init__(self, device: Device, size: int) -> None:
        """Allocates. Raises ShortageError or DeviceError where the host cannot."""
        found = c_void_p()
        device.call("cuMemHostAlloc", byref(found), max(size, 1), 0)
        super().__init__(device, found.value or 0, "cuMemFreeHost")
        self.size = size

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.handle, False), "version": 3}
