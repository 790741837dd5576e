"""Kernels are launched with arguments of their types, and graphs of launches run again. The driver is fake_cuda.c."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from numpy.typing import NDArray

from opweld.errors import DeviceError
from opweld.runtime.cuda.arguments import Arguments
from opweld.runtime.cuda.device import Device
from opweld.runtime.cuda.memory import Memory
from opweld.runtime.cuda.module import Function, Module
from opweld.runtime.cuda.stream import Stream
from tests.unit.runtime.cuda.conftest import Fake

CUBIN = b"\x7fELF\0sm_90"
TYPES = ("*fp32", "*fp32", "fp16", "fp32", "i32", "i64")  # those of the kernel `scale` of fake_cuda.c


class Scaling:
    """y = factor * x over eight numbers on the device."""

    def __init__(self, device: Device, factor: float) -> None:
        self.stream, self.x, self.y = Stream(device), Memory(device, 32), Memory(device, 32)
        self.function = Module(device, CUBIN).function("scale", threads=4)
        self.arguments = Arguments(TYPES, (self.y.address, self.x.address, 1.5, factor, -7, 8))
        self.stream.copy_in(self.x.address, np.arange(8, dtype=np.float32))
        self.stream.fill(self.y.address, 0, 32)

    def launch(self, blocks: int) -> None:
        self.function.launch((blocks, 1, 1), self.stream, self.arguments)

    def result(self) -> NDArray[np.float32]:
        found = np.empty(8, np.float32)
        self.stream.copy_out(found, self.y.address)
        self.stream.synchronize()
        return found


def test_a_launch_reads_its_arguments(device: Device) -> None:
    scaling = Scaling(device, 2.5)
    scaling.launch(1)
    assert scaling.result().tolist() == [0, 2.5, 5, 7.5, 0, 0, 0, 0]  # a block of four threads
    scaling.launch(2)
    assert scaling.result().tolist() == [0, 2.5, 5, 7.5, 10, 12.5, 15, 17.5]


def test_what_a_graph_needs_is_given_back(device: Device, fake: Fake) -> None:
    graphs = [Scaling(device, 2.0).stream.capture(lambda: None)]
    gc.collect()
    assert fake.alive == 2  # what was captured names its nodes
    graphs.clear()
    gc.collect()
    assert fake.alive == 0


def test_an_empty_grid_launches_nothing(device: Device, fake: Fake) -> None:
    scaling = Scaling(device, 2.5)
    fake.calls()
    scaling.function.launch((4, 0, 1), scaling.stream, scaling.arguments)
    assert fake.calls() == []


def test_a_graph_runs_what_was_captured_as_it_was(device: Device, fake: Fake) -> None:
    scaling = Scaling(device, 2.0)
    graph = scaling.stream.capture(lambda: scaling.launch(2))
    assert not scaling.result().any()
    scaling.arguments[3] = 100.0
    graph.launch(scaling.stream)
    assert scaling.result().tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    scaling.stream.copy_in(scaling.x.address, np.full(8, 10, np.float32))
    graph.launch(scaling.stream)
    assert scaling.result().tolist() == [20] * 8


def test_a_capture_that_fails_is_ended(device: Device, fake: Fake) -> None:
    scaling = Scaling(device, 2.0)
    before = fake.alive

    def fail() -> None:
        scaling.launch(1)
        scaling.stream.synchronize()  # which no graph can hold

    with pytest.raises(DeviceError, match="cuStreamSynchronize"):
        scaling.stream.capture(fail)
    fake.fail("cuStreamEndCapture", 901)
    with pytest.raises(DeviceError, match="cuStreamSynchronize"):
        scaling.stream.capture(fail)
    fake.fail("cuGraphInstantiateWithFlags", 801)
    with pytest.raises(DeviceError, match="cuGraphInstantiateWithFlags"):
        scaling.stream.capture(lambda: scaling.launch(1))
    assert fake.alive == before
    scaling.launch(2)
    assert scaling.result()[7] == 14


def test_shared_memory_beyond_the_usual_is_asked_for(device: Device, fake: Fake) -> None:
    module = Module(device, CUBIN)
    few = module.function("scale", threads=128, shared=48 << 10)
    assert "cuFuncSetAttribute" not in fake.calls()
    many = module.function("scale", threads=128, shared=200 << 10)
    assert (few.attribute(4), many.attribute(8)) == (40, 200 << 10)
    with pytest.raises(DeviceError, match=r"the kernel scale needs 262144 bytes of shared memory.*at most 232448"):
        module.function("scale", threads=128, shared=256 << 10)


def test_machine_code_of_another_gpu_is_refused(device: Device) -> None:
    with pytest.raises(DeviceError, match=r"cuModuleLoadData.*\(209\).*compile the model again on this machine"):
        Module(device, b"\x7fELF\0sm_80" + bytes(100))


def test_a_kernel_that_is_not_there_is_an_error(device: Device) -> None:
    with pytest.raises(DeviceError, match="cuModuleGetFunction"):
        Module(device, CUBIN).function("shift", threads=32)


def test_a_function_keeps_its_module(device: Device, fake: Fake) -> None:
    function: Function | None = Module(device, CUBIN).function("scale", threads=32)
    gc.collect()
    assert fake.alive == 1
    del function
    gc.collect()
    assert fake.alive == 0


def bits(kind: str, value: float) -> int:
    """What a kernel reads of a parameter of 16 bits."""
    arguments = Arguments((kind,), (value,))
    return int.from_bytes(ctypes.string_at(arguments.pointers[0], 2), "little")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("fp16", 1.5, 0x3E00),
        ("fp16", 1e6, 0x7C00),
        ("fp16", -1e6, 0xFC00),
        ("bf16", 1.0, 0x3F80),
        ("bf16", 1.0 + 2**-8, 0x3F80),  # a tie goes to the even one
        ("bf16", 1.0 + 3 * 2**-8, 0x3F82),
        ("bf16", float("-inf"), 0xFF80),
        ("bf16", 3.4e38, 0x7F80),
        ("bf16", float("nan"), 0x7FC0),
        ("i16", -2, 0xFFFE),
    ],
)
def test_numbers_of_16_bits(kind: str, value: float, expected: int) -> None:
    assert bits(kind, value) == expected


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(OverflowError, match="4294967296 does not fit the parameter 1 of type i32"):
        Arguments(("*fp32", "i32"), (0, 1 << 32))
    with pytest.raises(ValueError, match="a parameter of type 'tensormap' cannot be passed"):
        Arguments(("tensormap",))
    assert len(Arguments(())) == 0
