"""States of a model on a GPU, and what it is fed at once. The driver is fake_cuda.c."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opweld.runtime.cuda import resident, staged
from opweld.runtime.cuda.bound import bind
from opweld.runtime.cuda.device import Device
from opweld.runtime.cuda.program import Buffer, Fed, Kept, Launch, Program, Source, Variant
from opweld.runtime.cuda.resident import Resident
from opweld.runtime.flow import Flow
from tests.unit.runtime.cuda.conftest import Fake

X, Y, S = (Fed(name, "float32", ("$n",)) for name in ("x", "y", "s"))
BUFFERS = tuple(
    Buffer(name, "float32", "$n", kind, 0) for name, kind in (("x", "input"), ("y", "output"), ("s", "state"))
)
BYTES = "$n 4 *"
VARIANT = Variant(
    "delay", (X,), (Y,), (Source("n", "x", 0, False, 1, 1, ""),), (), BUFFERS,
    (Launch("copy", buffers=(2, 1), offsets=("0", "0"), bytes=BYTES),
     Launch("copy", buffers=(0, 2), offsets=("0", "0"), bytes=BYTES)),
    states=(Kept(S, ("$n",)),),
)  # fmt: skip
"""y is what x was in the run before."""


@pytest.fixture
def machine(device: Device, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resident:
    monkeypatch.setattr(resident.Device, "open", lambda ordinal: device)
    return Resident(tmp_path, Program({"delay": VARIANT}, {}, Flow(("x", "s"), ("y",), ()), 90), np.empty(0, np.uint8))


def run(machine: Resident, x: np.ndarray, kept: resident.KeptMemory) -> list[float]:  # type: ignore[type-arg]
    bound = bind(VARIANT, {"x": x, "s": np.broadcast_to(np.zeros(()), x.shape)})
    (y,) = machine.run(bound, [x], [kept])
    return y.tolist()


def test_a_state_is_zero_and_then_what_the_run_before_left(machine: Resident) -> None:
    first, second = machine.keep(12), machine.keep(12)
    rows = [np.array(row, np.float32) for row in ((1, 2, 3), (4, 5, 6))]
    assert run(machine, rows[0], first) == [0, 0, 0]
    assert run(machine, rows[1], first) == [1, 2, 3]
    assert run(machine, rows[0], second) == [0, 0, 0]
    assert first.view().view(np.float32).tolist() == [4, 5, 6]
    second.write(first.view())
    assert run(machine, rows[0], second) == [4, 5, 6]
    second.zero()
    assert run(machine, rows[0], second) == [0, 0, 0]


def test_a_run_copies_all_that_is_fed_at_once_and_launches_a_graph(machine: Resident, fake: Fake) -> None:
    kept, x = machine.keep(8), np.array([1, 2], np.float32)
    bound = bind(VARIANT, {"x": x, "s": x})
    machine.run(bound, [x], [kept])
    fake.calls()
    machine.run(bound, [x], [kept])
    calls = [name for name in fake.calls() if name.startswith(("cuMemcpy", "cuGraphLaunch", "cuLaunch"))]
    assert calls == ["cuMemcpyHtoDAsync", "cuGraphLaunch", "cuMemcpyDtoHAsync"]


def test_clocks_of_a_run_with_a_state(machine: Resident) -> None:
    kept, x = machine.keep(8), np.array([1, 2], np.float32)
    bound = bind(VARIANT, {"x": x, "s": x})
    machine.run(bound, [x], [kept])
    (y,), clocks = machine.run_clocked(bound, [2 * x], [kept])
    assert y.tolist() == [1, 2] and kept.view().view(np.float32).tolist() == [2, 4]
    assert len(clocks) == 2 and all(end > begin for begin, end in clocks)


def test_what_is_large_is_copied_from_where_it_lies(machine: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "STAGED", 8)
    kept, x = machine.keep(12), np.array([1, 2, 3], np.float32)
    assert [run(machine, x, kept), run(machine, x, kept)] == [[0, 0, 0], [1, 2, 3]]


def test_what_was_found_stays_as_it_was_and_its_memory_is_used_again(machine: Resident) -> None:
    kept = machine.keep(8)
    rows = [np.array([number, -number], np.float32) for number in range(6)]
    bound = bind(VARIANT, {"x": rows[0], "s": rows[0]})
    found = [machine.run(bound, [row], [kept])[0] for row in rows]
    assert [array[0] for array in found] == [0, 0, 1, 2, 3, 4]
    places = {array.ctypes.data for array in found}
    assert len(places) == 6
    assert not machine.staging.free
    found.clear()
    assert len(machine.staging.free) == staged.KEPT
    again = [machine.run(bound, [row], [kept])[0] for row in rows]
    assert not machine.staging.free
    assert [array[0] for array in again] == [5, 0, 1, 2, 3, 4]
    assert all(array.flags.writeable for array in again)


def test_small_shapes_are_kept_and_large_ones_are_few(machine: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = machine.keep(400)
    for count in range(1, 21):
        run(machine, np.zeros(count, np.float32), kept)
    assert len(machine._prepared) == 20
    monkeypatch.setattr(resident, "SMALL", 1)
    run(machine, np.zeros(30, np.float32), kept)
    assert len(machine._prepared) == resident.PREPARED
