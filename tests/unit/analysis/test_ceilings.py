"""Measuring this machine: that figures are those of a processor, not what they are."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import math
from pathlib import Path

import pytest

from opweld.analysis import sets
from opweld.analysis.ceilings import figure_of, kinds, measure
from opweld.analysis.meter import SOURCE, Meter
from opweld.build.cache import Cache
from opweld.build.toolchain import compile_objects
from opweld.errors import OptionError, RunError
from opweld.options import available_cores
from opweld.target import MIB, Target


@pytest.fixture(scope="module")
def meter(tmp_path_factory: pytest.TempPathFactory) -> Meter:
    return Meter.open(available_cores(), Target.native(), Cache.open(tmp_path_factory.mktemp("cache") / "cache"))


def test_a_figure_is_the_median_and_the_middle_eight_tenths() -> None:
    found = figure_of([float(i) for i in range(101)])
    assert (found.value, found.samples) == (50, 101)
    assert found.spread == pytest.approx(80 / 50)
    assert figure_of([3.0]).spread == 0


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ((), ("fp32",)),
        (("avx2",), ("fp32", "int8")),
        (("avx512bw", "avx512bf16"), ("fp32", "bf16", "int8")),
    ],
)
def test_kinds_are_those_with_an_instruction(features: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert kinds(dataclasses.replace(Target.of("x86-64-v3"), features=features)) == expected


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_the_programs_compile_for_every_target(name: str, cache_folder: Path) -> None:
    target = Target.of(name)
    text = SOURCE.read_text(encoding="utf-8")
    assert compile_objects({SOURCE.name: text}, target=target, flags=("-Wall", "-Wextra", "-Werror"))
    if name == "x86-64-v3":
        with_vnni = dataclasses.replace(target, features=(*target.features, "avxvnni"))
        assert compile_objects({SOURCE.name: text}, target=with_vnni, flags=("-Wall", "-Wextra", "-Werror"))


@pytest.mark.parametrize("lines", [64, 1024, 1 << 15])
def test_a_chain_meets_each_line_once_in_an_order_that_nobody_foresees(meter: Meter, lines: int) -> None:
    met: list[int] = []
    with meter.memory(lines * 64) as memory:
        meter.read("chain", 0, memory=memory, size=lines * 64)
        address = memory.address
        for _ in range(lines):
            met.append((address - memory.address) // 64)
            address = ctypes.c_uint64.from_address(address).value
        assert address == memory.address
    assert sorted(met) == list(range(lines))
    assert len({after - before for before, after in itertools.pairwise(met)}) > lines // 8


def test_what_a_processor_lacks_cannot_be_asked(tmp_path: Path) -> None:
    old = dataclasses.replace(Target.of("x86-64-v3"), triple=Target.native().triple)
    if Target.native().name == "aarch64":
        old = dataclasses.replace(Target.of("aarch64"), triple=Target.native().triple)
    meter = Meter.open(1, old, Cache.open(tmp_path / "cache"))
    assert meter.read("fp32", 0.001).rate > 0
    for kind in ("bf16", "int8") if old.name == "aarch64" else ("bf16",):
        with pytest.raises(RunError, match=f"measuring {kind} on 1 threads"):
            meter.read(kind, 0.001)


def test_reading_goes_on_where_it_ended(meter: Meter) -> None:
    with meter.memory(8 * MIB) as memory:
        at = meter.read("read", 0, memory=memory, size=8 * MIB).at
        assert at == 256 * 1024
        at = meter.read("read", 0, memory=memory, size=8 * MIB, at=8 * MIB).at
        assert at == 256 * 1024, "from the front, after the end"


def test_threads_are_at_most_the_processors() -> None:
    most = available_cores()
    for threads in (-1, most + 1):
        with pytest.raises(OptionError, match=f"threads is {threads}, expected a number from 1 to {most}"):
            measure(threads)


def test_a_small_room_holds_every_set(meter: Meter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "free_memory", lambda: 0)
    for target in (Target.of("x86-64-v3"), Target.of("x86-64-v4"), Target.native()):
        for threads in (1, 4, 64):
            room = sets.room(target, threads)
            with meter.memory(room) as memory, meter.memory(room // 4) as far:
                for place in sets.places(target, threads, target.l3_bytes, memory, far):
                    assert 0 < place.one <= memory.bytes
                    assert 0 < place.all <= memory.part(threads)
                    assert place.chain <= (far.bytes if place.name == "DRAM" else memory.bytes)
                    assert place.one % 4096 == place.all % 4096 == 0


def test_every_figure_is_measured(meter: Meter, cache_folder: Path) -> None:
    """What they are is for whoever measures on a quiet machine; those that contradict each other are told."""
    seen: list[tuple[str, int, int]] = []
    found = measure(progress=lambda *what: seen.append(what), rounds=3, seconds=0.001)
    target = Target.native()
    assert seen[-1] == ("measuring", 3, 3)
    assert (found.target, found.threads, set(found.compute)) == (target.name, available_cores(), set(kinds(target)))
    assert [level.name for level in found.levels] in (["L1", "L2", "L3", "DRAM"], ["L1", "L2", "DRAM"])
    pairs = (*found.compute.values(), *(pair for level in found.levels for pair in (level.read, level.write)))
    figures = [figure for pair in pairs for figure in (pair.one, pair.all)]
    figures += [level.latency for level in found.levels] + [found.barrier]
    assert all(math.isfinite(figure.value) and figure.value > 0 for figure in figures)
