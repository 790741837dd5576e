"""NVIDIA's driver, libcuda.so.1, as a table of its functions and their types. Every code that they return is checked.

The types are those of cuda.h, which a test compares; where a function has a second version, as `cuMemAlloc_v2`, the
header means that one by the plain name.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_float,
    c_int,
    c_size_t,
    c_ubyte,
    c_uint,
    c_uint64,
    c_ulonglong,
    c_void_p,
)
from functools import cache as remember
from types import MappingProxyType
from typing import Any, ClassVar, Final

from opweld.errors import DeviceError, OpweldError, ShortageError

LIBRARY: Final = "libcuda.so.1"

NO_MEMORY: Final = 2
NOT_INITIALIZED: Final = 3
DEINITIALIZED: Final = 4
STUB_LIBRARY: Final = 34
NO_DEVICE: Final = 100
NO_BINARY_FOR_GPU: Final = 209
"""Codes of `CUresult` for which more is told than their names."""

_REMEDIES: Final = {
    NOT_INITIALIZED: "a process that was forked cannot use the GPU of its parent: start it with spawn",
    STUB_LIBRARY: "this libcuda.so.1 is the one that programs are linked with: name the driver's folder first in "
    "LD_LIBRARY_PATH",
    NO_DEVICE: "see what nvidia-smi lists, and whether CUDA_VISIBLE_DEVICES hides it",
    NO_BINARY_FOR_GPU: "the kernels were compiled for another GPU: compile the model again on this machine",
}

_HANDLE: Final = c_void_p


class KernelNode(Structure):
    """`CUDA_KERNEL_NODE_PARAMS`: a launch in a graph."""

    _fields_: ClassVar = [
        ("func", _HANDLE),
        ("gridDimX", c_uint),
        ("gridDimY", c_uint),
        ("gridDimZ", c_uint),
        ("blockDimX", c_uint),
        ("blockDimY", c_uint),
        ("blockDimZ", c_uint),
        ("sharedMemBytes", c_uint),
        ("kernelParams", POINTER(c_void_p)),
        ("extra", POINTER(c_void_p)),
        ("kern", _HANDLE),
        ("ctx", _HANDLE),
    ]


_ADDRESS: Final = c_uint64
"""`CUdeviceptr`."""

FUNCTIONS: Final = MappingProxyType(
    {
        "cuInit": (c_uint,),
        "cuDriverGetVersion": (POINTER(c_int),),
        "cuDeviceGetCount": (POINTER(c_int),),
        "cuDeviceGet": (POINTER(c_int), c_int),
        "cuDeviceGetName": (c_char_p, c_int, c_int),
        "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
        "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
        "cuDevicePrimaryCtxRetain": (POINTER(_HANDLE), c_int),
        "cuCtxGetCurrent": (POINTER(_HANDLE),),
        "cuCtxPushCurrent_v2": (_HANDLE,),
        "cuCtxPopCurrent_v2": (POINTER(_HANDLE),),
        "cuCtxSynchronize": (),
        "cuModuleLoadData": (POINTER(_HANDLE), c_void_p),
        "cuModuleUnload": (_HANDLE,),
        "cuModuleGetFunction": (POINTER(_HANDLE), _HANDLE, c_char_p),
        "cuFuncGetAttribute": (POINTER(c_int), c_int, _HANDLE),
        "cuFuncSetAttribute": (_HANDLE, c_int, c_int),
        "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
        "cuMemAlloc_v2": (POINTER(_ADDRESS), c_size_t),
        "cuMemFree_v2": (_ADDRESS,),
        "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
        "cuMemFreeHost": (c_void_p,),
        "cuMemcpyHtoDAsync_v2": (_ADDRESS, c_void_p, c_size_t, _HANDLE),
        "cuMemcpyDtoHAsync_v2": (c_void_p, _ADDRESS, c_size_t, _HANDLE),
        "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, c_size_t, _HANDLE),
        "cuMemsetD8Async": (_ADDRESS, c_ubyte, c_size_t, _HANDLE),
        "cuStreamCreate": (POINTER(_HANDLE), c_uint),
        "cuStreamDestroy_v2": (_HANDLE,),
        "cuStreamSynchronize": (_HANDLE,),
        "cuStreamWaitEvent": (_HANDLE, _HANDLE, c_uint),
        "cuStreamBeginCapture_v2": (_HANDLE, c_int),
        "cuStreamEndCapture": (_HANDLE, POINTER(_HANDLE)),
        "cuStreamGetCaptureInfo_v2": (
            _HANDLE,
            POINTER(c_int),
            POINTER(c_uint64),
            POINTER(_HANDLE),
            POINTER(POINTER(_HANDLE)),
            POINTER(c_size_t),
        ),
        "cuEventCreate": (POINTER(_HANDLE), c_uint),
        "cuEventDestroy_v2": (_HANDLE,),
        "cuEventRecord": (_HANDLE, _HANDLE),
        "cuEventSynchronize": (_HANDLE,),
        "cuEventElapsedTime": (POINTER(c_float), _HANDLE, _HANDLE),
        "cuLaunchKernel": (_HANDLE, *[c_uint] * 7, _HANDLE, POINTER(c_void_p), POINTER(c_void_p)),
        "cuGraphInstantiateWithFlags": (POINTER(_HANDLE), _HANDLE, c_ulonglong),
        "cuGraphLaunch": (_HANDLE, _HANDLE),
        "cuGraphExecKernelNodeSetParams_v2": (_HANDLE, _HANDLE, POINTER(KernelNode)),
        "cuGraphExecDestroy": (_HANDLE,),
        "cuGraphDestroy": (_HANDLE,),
        "cuGetErrorName": (c_int, POINTER(c_char_p)),
        "cuGetErrorString": (c_int, POINTER(c_char_p)),
    }
)
"""The types of arguments, by the names that the library exports."""


class Driver:
    """The driver, initialised. `Driver.open()` gives it, one a process."""

    def __init__(self, path: str) -> None:
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise DeviceError(
                f"no NVIDIA driver here: {path} is not found ({error}). A target of GPUs runs where NVIDIA's driver is "
                "installed; in a container, start it with --gpus all"
            ) from error
        self._functions: dict[str, Any] = {}
        for name, types in FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise DeviceError(
                    f"the NVIDIA driver is too old: it has no {name}; install one for CUDA 12 or later"
                ) from error
            function.argtypes, function.restype = types, c_int
            self._functions[name] = function
        self.call("cuInit", 0)

    @classmethod
    def open(cls, path: str = LIBRARY) -> Driver:
        """The library at a path, opened and initialised once a process.

        Raises DeviceError where there is no driver, or one without a GPU."""
        return _opened(path)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function. Raises ShortageError where the GPU has no memory left, DeviceError for any other code."""
        code = self._functions[name](*arguments)
        if code:
            raise self._error(name, code)

    def destroy(self, name: str, handle: int) -> None:
        """Calls a function that gives something back. At the end of a process the driver may have done so itself, and
        after an error of a kernel it refuses every call: nobody is told, for nothing can be done."""
        self._functions[name](handle)

    def version(self) -> tuple[int, int]:
        """The version of CUDA that the driver has, as (12, 8)."""
        found = c_int()
        self.call("cuDriverGetVersion", ctypes.byref(found))
        return found.value // 1000, found.value % 1000 // 10

    def devices(self) -> int:
        """How many GPUs the process sees."""
        found = c_int()
        self.call("cuDeviceGetCount", ctypes.byref(found))
        return found.value

    def _error(self, name: str, code: int) -> OpweldError:
        told = f"{self._text('cuGetErrorName', code)} ({code}): {self._text('cuGetErrorString', code)}"
        if code == NO_MEMORY:
            return ShortageError(f"the GPU has no memory left: {name} answers {told}")
        if code == NO_DEVICE:
            return DeviceError(f"no GPU here: {name} answers {told}; {_REMEDIES[code]}")
        remedy = f"; {_REMEDIES[code]}" if code in _REMEDIES else ""
        return DeviceError(f"the GPU's driver failed: {name} answers {told}{remedy}")

    def _text(self, name: str, code: int) -> str:
        found = c_char_p()
        if self._functions[name](code, ctypes.byref(found)) or found.value is None:
            return "unknown"
        return found.value.decode(errors="replace")


@remember
def _opened(path: str) -> Driver:
    return Driver(path)
