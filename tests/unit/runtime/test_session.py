"""Session on the hand-written module: values, feeds, memory, threads, errors."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opweld.errors import AssumptionError, InputError, OpweldError
from opweld.options import available_cores
from opweld.runtime.bind import PLAN_CAPACITY
from opweld.runtime.session import Session
from tests.counted import calls
from tests.unit.runtime.fake_model import check, feeds_of
from tests.unit.runtime.files import native, plan_of


@pytest.mark.parametrize("n", [1, 2, 7, 98, 100, 1000, 4096])
@pytest.mark.parametrize("start", [0, 1])
def test_values(session: Session, n: int, start: int) -> None:
    if n == start:
        start = 0
    feeds = feeds_of(n, start=start)
    outputs = session.run(feeds)
    check(outputs, feeds)
    assert [output.dtype for output in outputs] == [np.float32, np.float32, np.int64]


def test_empty(session: Session) -> None:
    feeds = feeds_of(0, k=0)
    total, picked, ranges = session.run(feeds)
    assert total.shape == (0, 4)
    assert picked.shape == ranges.shape == (0,)
    assert [step.threads for step in session.plan(feeds).steps] == [0] * 6


def test_variants_in_order(session: Session) -> None:
    assert session.plan(feeds_of(8)).variant == "even"
    assert session.plan(feeds_of(7)).variant == "small"


def test_no_variant_names_every_guard_and_the_shapes(session: Session) -> None:
    with pytest.raises(AssumptionError) as caught:
        session.run(feeds_of(101))
    text = str(caught.value)
    assert "'even' needs x.shape[0] % 2 == 0" in text
    assert "'small' needs x.shape[0] <= 99" in text
    assert "x (101, 4)" in text


def test_by_value_input_takes_part_in_the_choice(session: Session) -> None:
    with pytest.raises(AssumptionError, match=r"0 <= start <= x\.shape\[0\]"):
        session.run(feeds_of(8) | {"start": np.array(9)})
    one, two = (plan_of(session, feeds_of(8) | {"start": np.array(start)}) for start in (1, 2))
    assert one is not two


def test_plans_are_remembered(session: Session) -> None:
    feeds = feeds_of(64)
    plan = plan_of(session, feeds)
    assert plan_of(session, feeds_of(64, seed=1)) is plan
    assert plan_of(session, feeds_of(66)) is not plan


def test_plans_are_bounded(folder: Path) -> None:
    session = Session(folder)
    first = plan_of(session, feeds_of(2))
    for n in range(4, 2 * 300, 2):
        check(session.run(feeds_of(n)), feeds_of(n))
        assert plan_of(session, feeds_of(4)) is not first
    assert len(native(session)._module._plans) == PLAN_CAPACITY
    check(session.run(feeds_of(2)), feeds_of(2))
    assert plan_of(session, feeds_of(2)) is not first


def test_arena_is_reused(session: Session) -> None:
    plan = session.plan(feeds_of(100))
    assert plan.total == 3 * 1600
    assert plan.arena == plan.live == 2 * 1600
    assert plan.scratch == 64


def test_partition_covers_the_grid(session: Session) -> None:
    feeds = feeds_of(4096)
    plan = session.plan(feeds)
    assert plan.threads == 2
    assert [step.threads for step in plan.steps] == [2, 2, 2, 1, 1, 2]
    for _ in range(50):
        # Eight pieces a thread, whichever thread takes them.
        ranges = session.run(feeds)[2]
        assert set(ranges) == set(range(0, 4096, 256))
        assert np.all(np.diff(ranges) >= 0)


def test_little_work_is_serial(session: Session) -> None:
    assert session.plan(feeds_of(16)).threads == 1


def test_no_more_threads_than_processors(folder: Path) -> None:
    plan = Session(folder, threads=7).plan(feeds_of(4096))
    assert plan.threads == min(7, available_cores())


def test_many_threads(roomy_folder: Path) -> None:
    session = Session(roomy_folder, threads=7)
    feeds = feeds_of(4096)
    assert session.plan(feeds).threads == 7
    for _ in range(20):
        outputs = session.run(feeds)
        check(outputs, feeds)
        assert len(set(outputs[2])) == 16  # two threads' worth: a serial step of its phase takes as long


def test_bad_index_names_the_node(session: Session) -> None:
    for n in (8, 4096):  # serial and threaded
        feeds = feeds_of(n)
        for bad in (-1, n * 4):
            with pytest.raises(OpweldError, match=r"^/Gather: an index is out of range \(kernel pick\)$"):
                session.run(feeds | {"index": np.array([0, bad])})
        check(session.run(feeds), feeds)


def test_run_into(session: Session) -> None:
    feeds = feeds_of(8)
    outputs = {
        "total": np.empty((8, 4), np.float32),
        "picked": np.empty(3, np.float32),
        "ranges": np.empty(8, np.int64),
    }
    session.run_into(feeds, outputs)
    check(list(outputs.values()), feeds)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("total", np.empty((8, 3), np.float32), r"expected float32 \(8, 4\), got float32 \(8, 3\)"),
        ("total", np.empty((8, 4), np.float64), r"got float64"),
        ("total", np.empty((4, 8), np.float32).T, r"C-contiguous"),
        ("total", np.broadcast_to(np.float32(0), (8, 4)), r"writable"),
        ("total", [0.0], r"expected an array to write to, got list"),
        ("picked", None, r"expected an array to write to, got NoneType"),
        ("extra", np.empty(1), r"'extra' is not an output"),
    ],
)
def test_run_into_refuses(session: Session, name: str, value: Any, message: str) -> None:
    outputs: dict[str, Any] = {
        "total": np.empty((8, 4), np.float32),
        "picked": np.empty(3, np.float32),
        "ranges": np.empty(8, np.int64),
    }
    with pytest.raises(InputError, match=message):
        session.run_into(feeds_of(8), outputs | {name: value})


def test_run_into_an_input_computes_apart(session: Session) -> None:
    feeds = feeds_of(8)
    memory = feeds["x"].copy()
    outputs = session.run_into(feeds | {"x": memory}, {"total": memory})
    assert outputs[0] is memory
    check(outputs, feeds)


def test_run_into_refuses_overlap(session: Session) -> None:
    feeds = feeds_of(8)
    room = np.empty(64, np.float32)
    with pytest.raises(InputError, match="'picked': its memory overlaps"):
        session.run_into(feeds, {"total": room[:32].reshape(8, 4), "picked": room[30:33]})


# ---- feeds ----


def test_missing_and_unknown_feeds(session: Session) -> None:
    feeds = feeds_of(8)
    with pytest.raises(InputError, match=r"input 'y' is missing; the model's inputs are 'x', 'y', 'index', 'start'"):
        session.run({name: value for name, value in feeds.items() if name != "y"})
    with pytest.raises(InputError, match="'z' is not an input"):
        session.run(feeds | {"z": feeds["x"]})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "x",
            np.zeros((8, 4)),
            r"'x': expected dtype float32, got float64; convert it with .astype\('float32'\)",
        ),
        ("x", np.zeros((8, 4, 1), np.float32), r"input 'x': expected shape \[N, 4\], got \[8, 4, 1\]"),
        ("x", np.zeros((8, 5), np.float32), r"input 'x': expected shape \[N, 4\], got \[8, 5\]"),
        ("x", np.float32(1), r"input 'x': expected shape \[N, 4\], got \[\]"),
        ("x", "text", r"input 'x': expected an array of dtype float32, got str"),
        ("x", None, r"input 'x': expected an array of dtype float32, got NoneType"),
        ("x", [[1.0], [1.0, 2.0]], r"input 'x': list does not convert"),
        ("x", np.zeros((8, 4), "datetime64[s]"), r"input 'x': expected dtype float32"),
        ("index", np.zeros(3, np.int32), r"input 'index': expected dtype int64, got int32"),
        ("index", [0.5], r"input 'index': expected an array of dtype int64, got list of float64"),
        ("index", [2**70], r"input 'index'"),
        ("x", np.ma.masked_array(np.zeros((8, 4), np.float32), True), r"masked"),
    ],
)
def test_wrong_feeds(session: Session, name: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        session.run(feeds_of(8) | {name: value})


def unaligned(array: Any) -> Any:
    room = np.zeros(array.nbytes + 1, np.uint8)
    view = room[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    assert not view.flags.aligned
    return view


@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: x.astype(">f4"),
        unaligned,
        lambda x: x.tolist(),
        lambda x: x.view(np.memmap),
        lambda x: np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),  # read-only
    ],
)
def test_equivalent_feeds(session: Session, change: Any) -> None:
    feeds = feeds_of(8)
    check(session.run(feeds | {"x": change(feeds["x"])}), feeds)


def test_python_scalar_feed(session: Session) -> None:
    feeds = feeds_of(8, start=2)
    scalar: Any = 2
    check(session.run(feeds | {"start": scalar}), feeds)


# ---- threads and processes ----


def test_eight_threads_on_one_session(session: Session) -> None:
    cases = [feeds_of(n, seed=n) for n in (1, 7, 64, 512, 4096, 2048, 1024, 3000)]
    start = threading.Barrier(8)

    def work(i: int) -> None:
        start.wait()
        for j in range(60):
            feeds = cases[(i + j) % 8]
            check(session.run(feeds), feeds)
            if j % 10 == i:
                with pytest.raises(OpweldError, match="/Gather"):
                    session.run(feeds | {"index": np.array([-1])})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_fork_while_the_pool_lives(session: Session) -> None:
    feeds = feeds_of(4096)
    check(session.run(feeds), feeds)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            outputs = session.run(feeds)
            check(outputs, feeds)
            code = 0 if len(set(outputs[2])) == 16 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    check(session.run(feeds), feeds)


def test_sessions_close(folder: Path) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(folder / "module.so"))

    gc.collect()
    before = mapped()
    session = Session(folder)
    plan = plan_of(session, feeds_of(8))
    session.run(feeds_of(8))
    assert mapped() > 0
    del session
    assert mapped() == before
    del plan
    gc.collect()


def test_python_costs_little(folder: Path) -> None:
    """Of what Python does a call, most is done once a shape: four inputs, three outputs, six kernels."""
    session = Session(folder, threads=1)
    feeds = feeds_of(2)
    session.run(feeds)
    assert calls(lambda: session.run(feeds))[0] < 150


def test_profile(session: Session) -> None:
    profile = session.profile(feeds_of(4096))
    check(profile.outputs, feeds_of(4096))
    assert [step.origin for step, _ in profile.steps()] == [
        "/first/Add", "/Mul", "/second/Add", "/Gather", "/Identity", "/Mark",
    ]  # fmt: skip
    assert all(nanoseconds > 0 for nanoseconds in profile.nanoseconds)
    empty = session.profile(feeds_of(0, k=0))
    assert empty.nanoseconds == (0,) * 6
    assert empty.parts == () and empty.busy == (0,)


def test_clocks_alone_say_what_a_profile_does(session: Session) -> None:
    for feeds in (feeds_of(4096), feeds_of(3), feeds_of(200_000), feeds_of(4096)):
        clocks, plan = session.clocked(feeds), session.plan(feeds)
        assert clocks.timings.shape == (plan.threads, len(plan.steps), 4)
        begin, end, busy, pieces = (clocks.timings[..., field] for field in range(4))
        assert 0 < end.max() <= clocks.wall
        assert np.all((pieces > 0) == (end > begin)) and np.all(busy <= end - begin)
        check(session.run(feeds), feeds)


def test_profile_tells_work_from_waiting(session: Session) -> None:
    profile = session.profile(feeds_of(200_000))
    assert profile.plan.threads == 2
    assert all(0 <= busy <= profile.wall for busy in profile.busy)  # a thread that comes late finds nothing left
    assert sum(profile.busy) > 0
    for step, time in zip(profile.plan.steps, profile.times, strict=True):
        assert 0 <= time.begin < time.end <= profile.wall
        assert 1 <= time.threads <= (1 if step.name in ("copy", "pick") else 2)
        assert 0 < time.busy <= time.threads * time.wall
        assert time.waiting == time.threads * time.wall - time.busy
    assert sum(profile.busy) == sum(time.busy for time in profile.times)
    # All threads meet between two phases: nothing of the next one begins before the last one ends.
    times = {
        step.phase: [t for s, t in zip(profile.plan.steps, profile.times, strict=True) if s.phase == step.phase]
        for step in profile.plan.steps
    }
    assert [len(times[phase]) for phase in range(4)] == [1, 1, 1, 3]
    assert all(max(t.end for t in times[p]) <= min(t.begin for t in times[p + 1]) for p in range(3))


def test_a_watched_run_shows_each_step_once_and_phases_in_order(roomy_folder: Path) -> None:
    session, feeds = Session(roomy_folder, threads=8), feeds_of(1000)
    seen: list[int] = []

    def look(step: int, buffers: Sequence[int]) -> None:
        assert buffers[0]
        seen.append(step)

    outputs = session.watch(feeds, look)
    check(outputs, feeds)
    phases = [step.phase for step in session.plan(feeds).steps]
    assert sorted(seen) == list(range(len(phases)))
    assert [phases[step] for step in seen] == sorted(phases)


def test_what_a_watcher_raises_comes_out_and_it_is_told_no_more(session: Session) -> None:
    seen: list[int] = []

    def look(step: int, _: Sequence[int]) -> None:
        seen.append(step)
        raise ZeroDivisionError(f"at step {step}")

    with pytest.raises(ZeroDivisionError, match="at step"):
        session.watch(feeds_of(100), look)
    assert len(seen) == 1
