"""`opweld machine` as a user calls it, where the machine has been measured before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opweld.analysis.machine import Machine
from opweld.build.cache import Cache
from opweld.options import available_cores
from tests.schemas import faults
from tests.unit.analysis.test_machine import figure, machine
from tests.unit.cli.test_main import opweld


@pytest.fixture
def remembered(cache_folder: Path) -> Machine:
    """What the cache has: figures made up, and one of them noisy."""
    found = machine(threads=available_cores(), barrier=figure(1.5e-7, 0.6))
    found.remember(Cache.open(cache_folder))
    return found


def test_what_is_remembered_is_shown_with_its_date(remembered: Machine) -> None:
    answer = opweld("machine")
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert lines[0].startswith(remembered.processor)
    assert lines[0].endswith("remembered from 2026-01-31 12:00 UTC")
    rows = [" ".join(line.split()) for line in lines]
    for row in (
        "fp32 arithmetic 200 GFLOP/s 400 GFLOP/s 1%",
        "int8 arithmetic 800 GOP/s 1500 GOP/s 1%",
        "L1 read (48.0 KiB) 400.0 GB/s 800.0 GB/s 1%",
        "DRAM read 40.0 GB/s 80.0 GB/s 1%",
        "L2 latency 4 ns - 1%",
        "barrier - 150 ns 60%",
    ):
        assert row in rows
    ridges = lines.index("") + 1
    assert rows[ridges].startswith("operations a byte L1 one L1 all L2 one")
    assert [line.split()[0] for line in lines[ridges + 2 : ridges + 4]] == ["fp32", "int8"]
    told = answer.stdout[answer.stdout.index("sure:") :]
    assert told.startswith("sure: high\n  the barrier varied by 60% while it was measured\n")
    assert told.endswith("note: clock: 4.00 GHz\n--again measures anew\n")


def test_json_fits_the_schema_and_is_read_back(remembered: Machine, tmp_path: Path) -> None:
    answer = opweld("machine", "--json", "-")
    assert answer.returncode == 0
    assert faults("machine", json.loads(answer.stdout)) == []
    assert Machine.loads(answer.stdout) == remembered
    file = tmp_path / "machine.json"
    beside = opweld("machine", "--json", file)
    assert beside.stdout == opweld("machine").stdout
    assert Machine.loads(file.read_text()) == remembered


def test_more_threads_than_processors_are_refused(cache_folder: Path) -> None:
    answer = opweld("machine", "--threads", available_cores() + 1)
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"opweld: threads is {available_cores() + 1}, expected a number from 1 to")


def test_help_says_when_it_measures() -> None:
    page = opweld("machine", "--help")
    assert page.returncode == 0
    assert "opweld machine --again" in page.stdout
    assert "what can this machine do at most?" in opweld("--help").stdout


@pytest.mark.slow
def test_it_measures_the_first_time_and_again_when_asked(cache_folder: Path) -> None:
    first = opweld("machine", "--threads", 1, "--json", cache_folder.parent / "first.json")
    assert first.returncode == 0, first.stderr
    assert ", 1 thread, measured " in first.stdout.splitlines()[0]
    assert ", 1 thread, remembered from " in opweld("machine", "--threads", 1).stdout.splitlines()[0]
    again = opweld("machine", "--threads", 1, "--again", "--json", "-")
    before = Machine.loads((cache_folder.parent / "first.json").read_text())
    after = Machine.loads(again.stdout)
    assert after.measured > before.measured
    assert Machine.remembered(Cache.open(cache_folder), 1) == after
