"""A GPU: what it is, whose context is current, and that all is given back. The driver is fake_cuda.c."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from opweld.errors import DeviceError
from opweld.runtime.cuda.device import Device, capability
from opweld.runtime.cuda.memory import Memory, Pinned
from opweld.runtime.cuda.stream import Event, Stream
from tests.unit.runtime.cuda.conftest import Fake


def test_properties(fake: Fake) -> None:
    device = Device.open(0, fake.path)
    properties = device.properties
    assert (properties.name, properties.capability, properties.arch) == ("Fake H100", (9, 0), 90)
    assert (properties.multiprocessors, properties.memory, properties.l2) == (132, 80 << 30, 50 << 20)
    assert (properties.shared_per_block, properties.shared_per_multiprocessor) == (227 << 10, 228 << 10)
    assert (properties.clock, properties.memory_clock, properties.memory_bus) == (1.98e9, 2.619e9, 5120)
    assert properties.cuda == (12, 8)
    assert device.free_memory() == 79 << 30
    assert Device.open(0, fake.path) is device
    assert fake.calls().count("cuDevicePrimaryCtxRetain") == 1


def test_the_capability_is_asked_without_a_context(fake: Fake) -> None:
    assert capability(fake.path) == (9, 0)
    assert "cuDevicePrimaryCtxRetain" not in fake.calls()
    assert capability("no_such_cuda.so") is None


def test_the_context_is_current_during_a_call_alone(device: Device, fake: Fake) -> None:
    device.synchronize()
    assert fake.calls() == ["push", "cuCtxSynchronize", "pop"]
    with device.current():
        device.synchronize()
        device.synchronize()
    assert fake.calls() == ["push", "cuCtxSynchronize", "cuCtxSynchronize", "pop"]
    assert fake.depth == 0


def test_the_context_of_another_gpu_is_current_again_after_a_call(device: Device, fake: Fake) -> None:
    fake.library.fake_foreign_context(1)
    fake.fail("cuCtxSynchronize", 700)
    with pytest.raises(DeviceError):
        device.synchronize()
    device.synchronize()
    assert fake.depth == 1
    fake.library.fake_foreign_context(0)


def test_threads_have_the_context_each(device: Device, fake: Fake) -> None:
    def copied(number: int) -> bool:
        stream, memory = Stream(device), Memory(device, 400)
        source, target = np.full(100, number, np.int32), np.empty(100, np.int32)
        stream.copy_in(memory.address, source)
        stream.copy_out(target, memory.address)
        stream.synchronize()
        return bool((target == source).all()) and fake.depth == 0

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(copied, range(64)))


def test_what_nobody_refers_to_is_given_back(device: Device, fake: Fake) -> None:
    held = [Memory(device, 16), Memory(device, 0), Pinned(device, 16), Pinned(device, 0), Stream(device), Event(device)]
    assert fake.alive == len(held)
    held[0].close()
    held[0].close()
    assert fake.alive == len(held) - 1
    held.clear()
    gc.collect()
    assert fake.alive == 0


def test_a_stream_of_somebody_else_stays(device: Device, fake: Fake) -> None:
    own = Stream(device)
    Stream(device, own.handle).close()
    assert fake.alive == 1


def test_an_array_of_pinned_memory_keeps_it(device: Device, fake: Fake) -> None:
    array = np.asarray(Pinned(device, 8)).view(np.float64)
    gc.collect()
    assert fake.alive == 1
    array[:] = 3.5
    memory, stream, target = Memory(device, 8), Stream(device), np.zeros(1)
    stream.copy_in(memory.address, array)
    stream.copy_out(target, memory.address)
    assert target[0] == 3.5
    del array
    gc.collect()
    assert fake.alive == 2


def test_copies_and_fills(device: Device, fake: Fake) -> None:
    stream, memory = Stream(device), Memory(device, 64)
    stream.fill(memory.address, 0xA5, 64)
    stream.copy_in(memory.address + 8, np.arange(4, dtype=np.int16))
    stream.copy(memory.address + 32, memory.address + 8, 8)
    found = np.zeros(32, np.int16)
    stream.copy_out(found, memory.address)
    filled = np.uint16(0xA5A5).view(np.int16)
    assert found.tolist() == [filled] * 4 + [0, 1, 2, 3] + [filled] * 8 + [0, 1, 2, 3] + [filled] * 12
    fake.calls()
    stream.copy_in(0, found[:0])
    stream.copy_out(found[:0], 0)
    stream.copy(0, 0, 0)
    stream.fill(0, 0, 0)
    assert fake.calls() == []


def test_an_array_with_gaps_is_not_copied(device: Device) -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\) and strides \(16,\).*expected a dense one"):
        Stream(device).copy_in(0, np.zeros(4)[::2])


def test_events_tell_seconds_and_order_streams(device: Device) -> None:
    stream, other, memory = Stream(device), Stream(device), Memory(device, 8)
    start, end, untimed = Event(device), Event(device), Event(device, timing=False)
    start.record(stream)
    stream.fill(memory.address, 0, 8)  # takes 2 ms
    end.record(stream)
    end.synchronize()
    assert end.elapsed(start) == pytest.approx(2e-3)
    untimed.record(stream)
    other.wait(untimed)
    with pytest.raises(DeviceError, match="cuEventElapsedTime"):
        untimed.elapsed(start)
