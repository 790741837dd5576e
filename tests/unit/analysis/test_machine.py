"""A machine as a value: its text, what is remembered of it, and how sure it is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from opweld.analysis import machine as module
from opweld.analysis.machine import Figure, Level, Machine, Pair
from opweld.build.cache import Cache
from opweld.errors import ArtifactError
from opweld.target import Target, processor_name
from tests.schemas import faults, schema_of


def figure(value: float, spread: float = 0.01) -> Figure:
    return Figure(value, spread, 25)


def pair(one: float, all: float, spread: float = 0.01) -> Pair:
    return Pair(figure(one, spread), figure(all, spread))


def level(name: str, size: int, read: float, latency: float) -> Level:
    return Level(name, size, pair(read, 2 * read), pair(read / 2, read), figure(latency), declared=size)


def machine(**changes: Any) -> Machine:
    """Two cores of a processor such as there are."""
    usual = Machine(
        processor=processor_name(),
        target="x86-64-v4",
        threads=2,
        measured="2026-01-31T12:00:00+00:00",
        opweld="0.1.0",
        compute={"fp32": pair(200e9, 400e9), "int8": pair(800e9, 1500e9)},
        levels=(
            level("L1", 48 << 10, 400e9, 1.4e-9),
            level("L2", 1 << 20, 200e9, 4e-9),
            level("L3", 32 << 20, 100e9, 2e-8),
            level("DRAM", 0, 40e9, 1e-7),
        ),
        barrier=figure(1.5e-7),
        notes=("clock: 4.00 GHz",),
    )
    return dataclasses.replace(usual, **changes)


def test_the_text_is_read_back_as_it_was_written() -> None:
    assert Machine.loads(machine().dumps()) == machine()
    assert hash(machine().levels) == hash(Machine.loads(machine().dumps()).levels)


def test_it_fits_the_schema() -> None:
    data = json.loads(machine().dumps())
    assert faults("machine", data) == []
    assert {*data, "gpus"} == set(schema_of("machine")["properties"])  # which are there where GPUs are
    data["levels"][0]["latency"]["value"] = "1"
    assert faults("machine", data) == ["$.levels[0].latency.value: '1' is not of type 'number'"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=2), "format is 2, expected 1"),
        (lambda d: d.pop("barrier"), "lacks 'barrier'"),
        (lambda d: d.update(threads=0), "threads is 0, expected a whole number from 1"),
        (lambda d: d.update(threads=True), "threads is True"),
        (lambda d: d.update(processor=7), "processor is 7, expected a text"),
        (lambda d: d.update(levels={}), "levels is {}, expected a list"),
        (lambda d: d["levels"].append("L4"), "expected an object, found str"),
        (lambda d: d["compute"]["fp32"]["one"].update(value=float("inf")), "value is inf"),
        (lambda d: d["compute"]["fp32"]["one"].update(value=float("nan")), "value is nan"),
        (lambda d: d["compute"]["fp32"]["one"].update(value=0), "value is 0, expected more"),
        (lambda d: d["barrier"].update(spread=-1), "spread is -1, expected a number from 0"),
        (lambda d: d["barrier"].update(samples=1.5), "samples is 1.5"),
    ],
)
def test_a_text_of_no_machine_is_refused(change: Any, message: str) -> None:
    data = json.loads(machine().dumps())
    change(data)
    with pytest.raises(ArtifactError, match="run `opweld machine` again") as error:
        Machine.loads(json.dumps(data))
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"format": 1}'])
def test_a_broken_text_is_refused(text: str) -> None:
    with pytest.raises(ArtifactError, match="run `opweld machine` again"):
        Machine.loads(text)


def test_the_ceiling_of_some_threads_is_neither_more_than_theirs_nor_than_that_of_all() -> None:
    shared = pair(40.0, 120.0)
    assert [shared.at(threads) for threads in (1, 2, 3, 8)] == [40, 80, 120, 120]
    assert pair(40.0, 84.0).at(2) == 84, "two cores may be faster each than one alone"
    assert pair(40.0, 30.0).at(2) == 40, "noise: two threads can do what one can"


def test_ridges_are_arithmetic_by_bandwidth() -> None:
    found = machine()
    l3 = found.level("L3")
    assert l3 is not None and found.level("L4") is None
    assert (found.ridge("fp32", l3, 1), found.ridge("fp32", l3, 2), found.ridge("int8", l3, 2)) == (2, 2, 7.5)
    told = json.loads(found.dumps())["ridges"]
    assert {"kind": "int8", "level": "L3", "one": 8, "all": 7.5} in told
    assert len(told) == 8


def test_calm_figures_are_sure() -> None:
    assert (machine().sure, machine().doubts) == ("high", ())


def test_one_noisy_figure_is_a_doubt_and_no_more() -> None:
    found = machine(barrier=figure(1.5e-7, 0.6))
    assert found.sure == "high"
    assert found.doubts == ("the barrier varied by 60% while it was measured",)


@pytest.mark.parametrize(("spread", "sure"), [(0.1, "high"), (0.2, "medium"), (0.3, "low")])
def test_how_sure_follows_from_the_spreads(spread: float, sure: str) -> None:
    noisy = {kind: pair(100e9, 200e9, spread) for kind in ("fp32", "bf16", "int8")}
    found = machine(compute=noisy)
    assert found.sure == sure
    assert len(found.doubts) == (0 if sure == "high" else 6)
    if found.doubts:
        assert found.doubts[0] == f"fp32 arithmetic on one core varied by {spread:.0%} while it was measured"


def test_figures_that_contradict_each_other_are_not_sure() -> None:
    l1, l2, l3, dram = machine().levels
    for changes, doubt in (
        ({"compute": {"fp32": pair(200e9, 150e9)}}, "fp32 arithmetic was slower on all threads than on one core"),
        (
            {"levels": (l1, dataclasses.replace(l2, read=pair(50e9, 100e9)), l3, dram)},
            "reading L2 was slower than reading L3",
        ),
        (
            {"levels": (l1, l2, l3, dataclasses.replace(dram, latency=figure(1e-8)))},
            "the latency of L3 was greater than that of DRAM",
        ),
    ):
        found = machine(**changes)
        assert found.sure == "low"
        assert found.doubts == (doubt,)


def test_a_cache_that_others_share_is_told() -> None:
    l1, l2, l3, dram = machine().levels
    found = machine(levels=(l1, l2, dataclasses.replace(l3, declared=480 << 20), dram))
    assert found.sure == "high", "the figures are those of this machine"
    assert found.doubts == ("L3 is reported to hold 480 MiB, of which one core has 32 MiB: others share it",)


def test_what_was_measured_is_remembered_until_it_is_measured_again(tmp_path: Path) -> None:
    cache = Cache.open(tmp_path / "cache")
    assert Machine.remembered(cache, 2) is None
    machine().remember(cache)
    assert Machine.remembered(cache, 2) == machine()
    assert Machine.remembered(cache, 1) is None, "other threads have other ceilings"
    later = machine(measured="2026-02-01T12:00:00+00:00")
    later.remember(cache)
    assert Machine.remembered(cache, 2) == later
    assert [entry.kind for entry in cache.entries()] == ["machines"]
    cache.clear()
    assert Machine.remembered(cache, 2) is None


def test_another_processor_remembers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache.open(tmp_path / "cache")
    machine().remember(cache)
    native = Target.native()
    for change in (
        lambda patch: patch.setattr(module, "processor_name", lambda: "another"),
        lambda patch: patch.setattr(module, "MEASURING", module.MEASURING + 1),
        lambda patch: patch.setattr(Target, "native", lambda: dataclasses.replace(native, features=())),
        lambda patch: patch.setattr(Target, "native", lambda: dataclasses.replace(native, l3_bytes=1 << 30)),
    ):
        with monkeypatch.context() as patch:
            change(patch)
            assert Machine.remembered(cache, 2) is None
    assert Machine.remembered(cache, 2) == machine()


def test_what_was_moved_here_from_another_machine_is_not_believed(tmp_path: Path) -> None:
    cache = Cache.open(tmp_path / "cache")
    machine(processor="another").remember(cache)
    assert Machine.remembered(cache, 2) is None


def test_a_damaged_memory_is_none(tmp_path: Path) -> None:
    cache = Cache.open(tmp_path / "cache")
    machine().remember(cache)
    (entry,) = cache.entries()
    for damaged in (b"", b"\xff\xfe", machine().dumps().encode()[:200]):
        entry.path.write_bytes(damaged)
        assert Machine.remembered(cache, 2) is None
