"""Runs of a model on a GPU: where its inputs and outputs lie, and what is told of errors.

The driver is fake_cuda.c, whose kernel is y = factor * x."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opweld.errors import ArtifactError, RunError
from opweld.runtime.cuda import prepared, resident
from opweld.runtime.cuda.bound import Bound, bind
from opweld.runtime.cuda.device import Device
from opweld.runtime.cuda.program import Argument, Buffer, Code, Fed, Launch, Program, Variant
from opweld.runtime.cuda.resident import Resident
from opweld.runtime.cuda.stream import Stream
from opweld.runtime.flow import Flow, OpenedVariant, Segment
from tests.unit.runtime.cuda.conftest import Fake
from tests.unit.runtime.cuda.test_launch import CUBIN, TYPES

COUNT = 8


def scale(target: int, source: int, errors: tuple[str, ...] = ()) -> Launch:
    """y = 2 x, by a kernel whose error word is the first number of x where it has errors."""
    arguments = [Argument("y", "buffer", target), Argument("x", "buffer", source), Argument("h", "size", size="15872")]
    if errors:
        arguments = [Argument("y", "error"), *arguments[1:]]
    factor = struct.unpack("i", struct.pack("f", 1.0 if errors else 2.0))[0]
    numbers = [Argument(n, "size", size=str(v)) for n, v in (("f", factor), ("m", -7), ("n", 1 if errors else COUNT))]
    return Launch("kernel", (), "scale", "k0", (str(COUNT),), (*arguments, *numbers), errors)


def program(*steps: Launch, architecture: int = 90) -> Program:
    """x -> y by way of t."""
    buffers = (
        Buffer("x", "float32", str(COUNT), "input", 0, 0, 0),
        Buffer("t", "float32", str(COUNT), "arena", 0, 0, 1),
        Buffer("y", "float32", str(COUNT), "output", 0, 1, 1),
    )
    shape = (str(COUNT),)
    variant = Variant("v", (Fed("x", "float32", shape),), (Fed("y", "float32", shape),), (), (), buffers, steps)
    types = tuple(zip("yxhfmn", ("*fp32", "*fp32", "i16", "i32", "i32", "i64"), strict=True))
    assert len(types) == len(TYPES)
    code = Code("scale", "scale", "scale.cubin", 1, parameters=types)
    flow = Flow(("x",), ("y",), (Segment(("x",), (OpenedVariant("v"),)),))
    return Program({"v": variant}, {"scale": code}, flow, architecture)


TWICE = scale(1, 0), scale(2, 1)


class Memory:
    """Numbers that the fake GPU reaches, at a multiple of 16 bytes or 4 beside it."""

    def __init__(self, values: Any = 0.0, beside: int = 0) -> None:
        self.room = np.zeros(COUNT + 8, np.float32)
        start = -self.room.ctypes.data // 4 % 4 + beside
        self.array = self.room[start : start + COUNT]
        self.array[:] = values

    @property
    def address(self) -> int:
        return self.array.ctypes.data


@pytest.fixture
def opened(device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Opens a program on the fake GPU, whose smallest inputs are reached directly."""
    monkeypatch.setattr(prepared, "NODE", 1)
    monkeypatch.setattr(resident.Device, "open", lambda ordinal: device)
    (tmp_path / "scale.cubin").write_bytes(CUBIN)

    def opens(*steps: Launch, architecture: int = 90) -> tuple[Resident, Bound]:
        made = program(*steps, architecture=architecture)
        ready = Resident(tmp_path, made, np.zeros(0, np.uint8))
        return ready, bind(made.variants["v"], {"x": np.zeros(COUNT, np.float32)})

    return opens


def test_arrays_of_the_host(opened: Any) -> None:
    ready, bound = opened(*TWICE)
    for values in (np.arange(COUNT, dtype=np.float32), np.ones(COUNT, np.float32)):
        (found,) = ready.run(bound, [values])
        assert found.tolist() == (4 * values).tolist()


def test_kernels_use_what_a_caller_has_where_it_is(opened: Any, device: Device, fake: Fake) -> None:
    ready, bound = opened(*TWICE)
    theirs = Stream(device)
    pairs = [(Memory(number), Memory()) for number in range(3)]
    fake.calls()
    for number, (x, y) in enumerate(pairs):
        ready.run_between(bound, [x.address], [y.address], theirs.handle)
        assert y.array.tolist() == [4.0 * number] * COUNT
    calls = fake.calls()
    assert "cuMemcpyDtoDAsync" not in calls
    assert calls.count("cuGraphInstantiateWithFlags") == 1
    assert calls.count("cuGraphExecKernelNodeSetParams") == 4  # two kernels, for the second and the third run
    x, y = pairs[-1]
    ready.run_between(bound, [x.address], [y.address], theirs.handle)
    assert "cuGraphExecKernelNodeSetParams" not in fake.calls()


def test_what_lies_beside_a_multiple_of_16_is_copied(opened: Any, device: Device, fake: Fake) -> None:
    ready, bound = opened(*TWICE)
    theirs = Stream(device)
    x, y = Memory(3, beside=1), Memory(beside=2)
    fake.calls()
    ready.run_between(bound, [x.address], [y.address], theirs.handle)
    assert y.array.tolist() == [12.0] * COUNT
    assert fake.calls().count("cuMemcpyDtoDAsync") == 2


def test_what_is_small_is_copied(opened: Any, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, bound = opened(*TWICE)
    monkeypatch.setattr(prepared, "NODE", 4 * COUNT + 1)
    x, y = Memory(3), Memory()
    fake.calls()
    ready.run_between(bound, [x.address], [y.address])
    assert y.array.tolist() == [12.0] * COUNT
    assert fake.calls().count("cuMemcpyDtoDAsync") == 2


def test_what_copies_touch_stays_where_the_graph_has_it(opened: Any) -> None:
    copy = Launch("copy", buffers=(0, 1), offsets=("0", "0"), bytes=str(4 * COUNT))
    ready, bound = opened(copy, scale(2, 1))
    for number in (5, 6):
        x, y = Memory(number), Memory()
        ready.run_between(bound, [x.address], [y.address])
        assert y.array.tolist() == [2.0 * number] * COUNT


def test_arrays_of_the_host_beside_memory_of_the_device(opened: Any) -> None:
    ready, bound = opened(*TWICE)
    y = Memory()
    ready.run_between(bound, [np.full(COUNT, 2, np.float32)], [y.address])
    assert y.array.tolist() == [8.0] * COUNT
    (found,) = ready.run(bound, [np.full(COUNT, 3, np.float32)])
    assert found.tolist() == [12.0] * COUNT
    x = Memory(1)
    ready.run_between(bound, [x.address], [y.address])
    assert y.array.tolist() == [4.0] * COUNT


def test_an_error_of_a_run_that_nobody_waits_for_is_raised_by_the_next(opened: Any, device: Device) -> None:
    wrong = scale(0, 0, ("gather: an index is not in [0, 4)",))
    ready, bound = opened(wrong, *TWICE)
    theirs = Stream(device)
    x, y = Memory(), Memory()
    x.array[0] = struct.unpack("f", struct.pack("i", 1))[0]  # the bits of the error's number
    ready.run_between(bound, [x.address], [y.address], theirs.handle)
    with pytest.raises(RunError, match="gather: an index"):
        ready.run_between(bound, [x.address], [y.address], theirs.handle)
    for _ in range(2):  # without a stream of the caller's it is raised at once
        with pytest.raises(RunError, match="gather: an index"):
            ready.run_between(bound, [x.address], [y.address])
    with pytest.raises(RunError, match="gather: an index"):
        ready.run(bound, [x.array])
    x.array[0] = 0
    ready.run_between(bound, [x.address], [y.address])


def test_memory_of_the_device_is_read_and_written(opened: Any) -> None:
    ready, _ = opened(*TWICE)
    memory, array = Memory(7), np.empty(COUNT, np.float32)
    ready.read(array, memory.address)
    assert array.tolist() == [7.0] * COUNT
    ready.write(memory.address, np.arange(COUNT, dtype=np.float32))
    assert memory.array.tolist() == list(range(COUNT))


def test_code_for_another_gpu_is_refused(opened: Any) -> None:
    with pytest.raises(ArtifactError, match="was compiled for sm_80, and this GPU is sm_90"):
        opened(*TWICE, architecture=80)
