"""The table of the driver's functions, and what is told where there is no driver or where it fails."""

from __future__ import annotations

import re
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any

import pytest

from opweld.errors import DeviceError, ShortageError
from opweld.runtime.cuda.device import Device, devices
from opweld.runtime.cuda.driver import FUNCTIONS, Driver, KernelNode
from opweld.runtime.cuda.memory import Memory
from tests.unit.runtime.cuda.conftest import Fake

VALUES = {
    "int": c_int, "unsigned int": c_uint, "size_t": c_size_t, "unsigned char": c_ubyte, "float": c_float,
    "unsigned long long": c_ulonglong, "CUdevice": c_int, "CUdeviceptr": c_uint64, "CUresult": c_int,
    "CUdevice_attribute": c_int, "CUfunction_attribute": c_int, "CUstreamCaptureMode": c_int,
    **dict.fromkeys(("CUcontext", "CUmodule", "CUfunction", "CUstream", "CUevent", "CUgraph", "CUgraphExec"), c_void_p),
    "CUgraphNode": c_void_p, "CUstreamCaptureStatus": c_int, "cuuint64_t": c_uint64,
    "CUDA_KERNEL_NODE_PARAMS": KernelNode,
    "void *": c_void_p, "const void *": c_void_p, "char *": c_char_p, "const char *": c_char_p,
}  # fmt: skip


def ctypes_of(parameter: str) -> Any:
    """The type of a parameter of a prototype, with or without its name."""
    text = re.sub(r"\s*(\w+)$", "", parameter.strip()) if re.search(r"[\w*]\s*\w+$", parameter.strip()) else parameter
    text = re.sub(r"\s*\*", " *", text).strip()
    if text in VALUES:
        return VALUES[text]
    pointee = text.removesuffix("*").strip()
    return POINTER(ctypes_of(pointee) if pointee.endswith("*") else VALUES[pointee.removeprefix("const ")])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_types_are_those_of_the_header(name: str, header: Path) -> None:
    text = header.read_text(encoding="utf-8", errors="replace")
    versions = dict(re.findall(r"#define (cu\w+)\s+(?:__CUDA_API_PT\w+\()?(cu\w+)\)?\s*\n", text))
    plain = next((short for short, long in versions.items() if long == name and short != name), name)
    assert versions.get(name, name) == name, f"the header means {versions[name]} by {name}"
    prototype = re.search(rf"CUresult CUDAAPI {plain}\(([^)]*)\);", text)
    assert prototype is not None
    parameters = [] if prototype[1] == "void" else prototype[1].split(",")
    assert FUNCTIONS[name] == tuple(map(ctypes_of, parameters))


def test_a_launch_in_a_graph_is_laid_out_as_in_the_header(header: Path) -> None:
    text = header.read_text(encoding="utf-8", errors="replace")
    body = re.search(r"typedef struct CUDA_KERNEL_NODE_PARAMS_v2_st \{(.*?)\} ", text, re.DOTALL)
    assert body is not None
    fields = re.findall(r"^\s*([\w ]+[ *]+?)(\w+);", body[1], re.MULTILINE)
    known = VALUES | {"CUkernel": c_void_p, "void **": POINTER(c_void_p)}
    assert [(name, known[kind.strip()]) for kind, name in fields] == KernelNode._fields_


def test_where_there_is_no_driver_that_is_said() -> None:
    with pytest.raises(DeviceError, match=r"no NVIDIA driver here: no_such_cuda\.so is not found"):
        Driver.open("no_such_cuda.so")
    assert devices("no_such_cuda.so") == 0


def test_a_library_without_a_function_is_an_old_driver() -> None:
    with pytest.raises(DeviceError, match="too old: it has no cuInit"):
        Driver.open("libc.so.6")


def test_where_there_is_no_gpu_that_is_said(fake: Fake) -> None:
    fake.library.fake_devices(0)
    with pytest.raises(
        DeviceError, match=r"no GPU here: cuInit answers CUDA_ERROR_OTHER \(100\).*CUDA_VISIBLE_DEVICES"
    ):
        Device.open(0, fake.path)
    assert devices(fake.path) == 0
    fake.library.fake_devices(1)
    assert devices(fake.path) == 1  # what failed once is asked again


def test_a_gpu_that_is_not_there_is_named(fake: Fake) -> None:
    with pytest.raises(DeviceError, match="there is no GPU 1: this process sees 1, numbered from 0"):
        Device.open(1, fake.path)


def test_errors_have_the_drivers_names(device: Device, fake: Fake) -> None:
    fake.fail("cuCtxSynchronize", 700)
    with pytest.raises(DeviceError, match=r"cuCtxSynchronize answers CUDA_ERROR_OTHER \(700\): something else$"):
        device.synchronize()
    fake.fail("cuCtxSynchronize", 999)
    with pytest.raises(DeviceError, match=r"cuCtxSynchronize answers unknown \(999\): unknown"):
        device.synchronize()
    device.synchronize()


def test_exhausted_memory_is_a_shortage(device: Device) -> None:
    with pytest.raises(ShortageError, match=r"the GPU has no memory left: cuMemAlloc_v2 answers CUDA_ERROR_OUT_OF_MEM"):
        Memory(device, 1 << 40)
