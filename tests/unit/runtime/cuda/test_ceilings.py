"""The ceilings of a GPU, as `opweld machine` measures them, where each piece of work takes two milliseconds: the driver
is fake_cuda.c."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jsonschema
import pytest

from opweld.analysis import gpu
from opweld.analysis.gpu import Gpu, measure_gpu
from opweld.analysis.machine import Figure
from opweld.build.cache import Cache
from opweld.cli import machine as command
from opweld.runtime.cuda.device import Device
from tests.schemas import schema_of
from tests.unit.runtime.cuda.conftest import Fake

MIB = 1 << 20


@pytest.fixture
def measured(device: Device) -> Gpu:
    return measure_gpu(device, copied=4 * MIB, pinned=MIB, samples=5)


def test_a_copy_counts_what_it_reads_and_writes(measured: Gpu) -> None:
    assert measured.copy.value == pytest.approx(2 * 4 * MIB / 2e-3)
    assert measured.to_device.value == measured.to_host.value == pytest.approx(MIB / 2e-3)
    assert measured.copy.samples == 5


def test_a_launch_of_a_graph_is_a_part_of_it(measured: Gpu) -> None:
    assert measured.graph_launch.value == pytest.approx(2e-3)
    assert measured.launch.value > 0


def test_all_is_given_back(measured: Gpu, fake: Fake) -> None:
    assert fake.alive == 0


def test_json_fits_the_schema(measured: Gpu) -> None:
    schema = schema_of("machine")
    jsonschema.validate([measured.to_json()], {"$defs": schema["$defs"], **schema["properties"]["gpus"]})


def test_what_is_shown(measured: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    command._show_gpu(dataclasses.replace(measured, matrix={"bf16": Figure(7.5e14, 0.02, 10)}))
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert rows[0].startswith("Fake H100: sm_90, 132 multiprocessors, 80.0 GiB, measured 20")
    assert "bf16 matrix products 750000 GFLOP/s 2%" in rows
    assert "copy, read and written 4.2 GB/s 0%" in rows
    assert "launch in a graph 2e+06 ns 0%" in rows


def test_a_gpu_is_measured_once(device: Device, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Gpu] = []

    def measure(device: Device) -> Gpu:
        measured.append(measure_gpu(device, copied=MIB, pinned=MIB, samples=len(measured) + 1))
        return measured[-1]

    monkeypatch.setattr(gpu, "devices", lambda: 1)
    monkeypatch.setattr(Device, "open", lambda number: device)
    monkeypatch.setattr(gpu, "measure_gpu", measure)
    assert gpu.gpus() == gpu.gpus() == measured
    assert gpu.gpus(again=True) == gpu.gpus() == [measured[1]]
    assert len(measured) == 2


def test_what_is_stored_of_another_driver_or_damaged_is_not_used(measured: Gpu, cache_folder: Path) -> None:
    cache = Cache.open(cache_folder)
    changed = dataclasses.replace(measured, matrix={"bf16": Figure(7.5e14, 0.02, 10)})
    changed.remember(cache)
    assert Gpu.remembered(measured.properties, cache) == changed
    assert Gpu.remembered(dataclasses.replace(measured.properties, cuda=(13, 0)), cache) is None
    for path in cache_folder.glob("machines/*/*"):
        path.write_text('{"measured": "today"}')
    assert Gpu.remembered(measured.properties, cache) is None


def test_where_there_is_no_gpu_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "devices", lambda: 0)
    assert gpu.gpus() == []
