"""Phases: independent steps at the same time, one barrier between two phases, errors and times of such runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opweld.build import artifact
from opweld.build.artifact import Manifest
from opweld.build.toolchain import build_shared
from opweld.errors import ArtifactError, OpweldError
from opweld.interface import TensorInfo
from opweld.runtime.library import c_headers, public_headers
from opweld.runtime.session import Session
from opweld.target import Target
from tests.unit.runtime.files import files_in

SOURCE = Path(__file__).with_name("phases.c")
BURN_NS = 20_000

MANIFEST = Manifest(
    opweld="0",
    target="native",
    level="all",
    threads=0,
    inputs=(TensorInfo("x", "uint8", ("N",)), TensorInfo("fail", "int64", (3,))),
    outputs=(TensorInfo("met", "int64", (2,)), TensorInfo("marks", "int64", ("N",)), TensorInfo("total", "int64", ())),
)


def write(folder: Path, text: str, runtime: Path) -> Path:
    module = folder.parent / "module.so"
    build_shared({"phases.c": text}, module, target=Target.native(), headers=c_headers(), flags=("-Wall", "-Werror"))
    artifact.write(
        folder,
        manifest=MANIFEST,
        files=files_in(folder.parent, module, runtime, headers=public_headers()),
        weights=[],
        ledger_json="[]",
    )
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, roomy_runtime_so: Path) -> Path:
    """The module, with a runtime that believes in eight processors."""
    return write(tmp_path_factory.mktemp("phases") / "m.opweld", SOURCE.read_text(), roomy_runtime_so)


@pytest.fixture(scope="module")
def serial_folder(tmp_path_factory: pytest.TempPathFactory, roomy_runtime_so: Path) -> Path:
    """The same, for one thread: who waits for the other side waits in vain, and not for long."""
    text = "#define MEET_NS 1000000\n" + SOURCE.read_text()
    return write(tmp_path_factory.mktemp("serial") / "m.opweld", text, roomy_runtime_so)


def feeds(n: int, *fail: int) -> dict[str, Any]:
    return {"x": np.zeros(n, np.uint8), "fail": np.array([*fail, 0, 0, 0][:3], np.int64)}


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_serial_steps_of_a_phase_run_at_the_same_time(folder: Path, threads: int) -> None:
    session = Session(folder, threads=threads)
    for n in (2, 10, 40) * 10:
        met, marks, total = session.run(feeds(n))
        assert met.tolist() == [1, 1]
        assert marks.tolist() == [1] * n
        assert total == n + 2


def test_one_thread_takes_them_in_order(serial_folder: Path) -> None:
    met, marks, total = Session(serial_folder, threads=1).run(feeds(3))
    assert (met.tolist(), marks.tolist(), total) == ([0, 1], [1] * 3, 4)  # right begins when left has given up


def test_the_plan_tells_phases(folder: Path) -> None:
    plan = Session(folder, threads=2).plan(feeds(40))
    assert [step.phase for step in plan.steps] == [0, 1, 1, 1, 2]
    assert [step.threads for step in plan.steps] == [2, 1, 1, 2, 1]


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize(
    ("fail", "node"),
    [((9, 0, 0), "/Left"), ((0, 9, 0), "/Right"), ((0, 0, 9), "/Mark"), ((9, 9, 9), "/Left"), ((0, 9, 9), "/Right")],
)
def test_the_earliest_step_that_fails_is_named(
    folder: Path, serial_folder: Path, threads: int, fail: tuple[int, ...], node: str
) -> None:
    """Whichever of them failed first."""
    session = Session(serial_folder if threads == 1 else folder, threads=threads)
    for _ in range(5):
        with pytest.raises(OpweldError, match=f"^{node}: error 9 "):
            session.run(feeds(20, *fail))
    assert session.run(feeds(20))[1].tolist() == [1] * 20


@pytest.mark.parametrize("threads", [2, 7])
def test_no_rate_exceeds_what_the_threads_can_do(folder: Path, threads: int) -> None:
    """An iteration takes BURN_NS at least: the peak of a thread is known exactly, however busy the machine is."""
    session = Session(folder, threads=threads)
    for n in (2, 25, 100):
        for _ in range(10):
            profile = session.profile(feeds(n))
            time, step = profile.times[0], profile.plan.steps[0]
            assert step.flops == n
            assert time.busy >= n * BURN_NS
            assert time.wall * time.threads >= time.busy
            assert step.flops / time.wall <= step.threads / BURN_NS
            assert profile.wall >= sum(max(t.wall for t in profile.times[i:j]) for i, j in ((0, 1), (1, 4), (4, 5)))


def test_work_is_told_from_waiting(folder: Path) -> None:
    profile = Session(folder, threads=2).profile(feeds(1))
    burn, left, right = profile.times[:3]
    assert burn.threads == left.threads == right.threads == 1
    assert left.waiting == right.waiting == 0
    assert max(left.begin, right.begin) < min(left.end, right.end), "left and right met, so that they overlap"
    by_step = {part.step: part.thread for part in profile.parts}
    assert by_step[1] != by_step[2]
    # One of the two computed nothing while the other burnt.
    assert min(profile.busy) <= profile.wall - burn.wall
    assert sum(profile.busy) == sum(time.busy for time in profile.times)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{right, 1,", "{right, 0,", "step 2 is inconsistent"),
        ("{burn, 0,", "{burn, -1,", "step 0 is inconsistent"),
        ("{add, 2,", "{add, 9,", "step 4 is inconsistent"),
        ("BYTES, 0, 1}", "BYTES, 0, 0}", "buffer 0 is outside its lifetime"),
        ("BYTES, 0, 1}", "BYTES, 0, 3}", "buffer 0 .* is inconsistent"),
    ],
)
def test_phases_that_contradict_themselves_are_refused(
    tmp_path: Path, runtime_so: Path, old: str, new: str, message: str
) -> None:
    text = SOURCE.read_text()
    assert text.count(old) == 1
    with pytest.raises(ArtifactError, match=message):
        Session(write(tmp_path / "m.opweld", text.replace(old, new), runtime_so))
