"""Machine code on a GPU, and its kernels, which are launched with arguments of known types."""

from __future__ import annotations

from ctypes import byref, c_int, c_void_p
from typing import Final

from opweld.errors import DeviceError
from opweld.runtime.cuda.arguments import Arguments
from opweld.runtime.cuda.device import Device, Owned
from opweld.runtime.cuda.driver import KernelNode
from opweld.runtime.cuda.stream import Stream

_MAX_DYNAMIC_SHARED: Final = 8
_USUAL_SHARED: Final = 48 << 10
"""A `CUfunction_attribute`, and the bytes of dynamic shared memory that every function may use without it."""


class Module(Owned):
    """Machine code on the GPU, from the bytes of a cubin."""

    def __init__(self, device: Device, cubin: bytes) -> None:
        """Loads it. Raises DeviceError where it was compiled for another GPU."""
        found = c_void_p()
        device.call("cuModuleLoadData", byref(found), cubin)
        super().__init__(device, found.value or 0, "cuModuleUnload")

    def function(self, name: str, *, threads: int, shared: int = 0) -> Function:
        """A kernel of the module by the name of its entry; see `Function`."""
        return Function(self, name, threads, shared)


class Function:
    """A kernel that can be launched. Keeps its module.

    Attributes:
        threads: of a block. shared: bytes of dynamic shared memory of a block.
    """

    def __init__(self, module: Module, name: str, threads: int, shared: int) -> None:
        """Raises DeviceError where the module has no such kernel, or the GPU not as much shared memory."""
        self.module, self.name, self.threads, self.shared = module, name, threads, shared
        found = c_void_p()
        module.device.call("cuModuleGetFunction", byref(found), module.handle, name.encode())
        self.handle = found.value or 0
        most = module.device.properties.shared_per_block
        if shared > most:
            raise DeviceError(
                f"the kernel {name} needs {shared} bytes of shared memory, and a block has at most {most}"
            )
        if shared > _USUAL_SHARED:
            module.device.call("cuFuncSetAttribute", self.handle, _MAX_DYNAMIC_SHARED, shared)

    def attribute(self, number: int) -> int:
        """A `CUfunction_attribute`: 4 is the registers of a thread, 3 its bytes of local memory."""
        found = c_int()
        self.module.device.call("cuFuncGetAttribute", byref(found), number, self.handle)
        return found.value

    def launch(self, grid: tuple[int, int, int], stream: Stream, arguments: Arguments) -> None:
        """Gives a stream the kernel, to run with as many blocks as `grid` has columns, rows and planes; nothing where
        it has none. The arguments are read now."""
        if 0 in grid:  # the driver refuses it
            return
        self.module.device.call(
            "cuLaunchKernel",
            self.handle,
            *grid,
            self.threads,
            1,
            1,
            self.shared,
            stream.handle,
            arguments.pointers,
            None,
        )

    def node(self, grid: tuple[int, int, int], arguments: Arguments) -> KernelNode:
        """The same launch as a node of a graph has it; the arguments must stay as long as it is used."""
        return KernelNode(self.handle, *grid, self.threads, 1, 1, self.shared, arguments.pointers)
