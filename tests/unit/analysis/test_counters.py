"""Counters of the hardware: numbers where the machine gives them, a reason with a remedy where it does not."""

from __future__ import annotations

import errno
import os
import platform
import queue
import threading
import time

import numpy as np
import pytest

from opweld.analysis import counters
from opweld.analysis.counters import Counters, count


def work() -> float:
    return float(np.sum(np.arange(200_000.0) ** 2))


def test_this_machine_counts_or_says_why_not() -> None:
    found = count(work, 20)
    if found.available:
        assert found.reason == ""
        assert found.values["instructions"] > 50_000
        assert 0.05 < found.values["instructions_per_cycle"] < 20
        assert all(value >= 0 for value in found.values.values())
    else:
        assert len(found.reason) > 20 and found.values == {}


def test_nothing_stays_open() -> None:

    before = sorted(os.listdir("/proc/self/fd"))
    count(work, 1)
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EACCES, "perf_event_paranoid"),
        (errno.EPERM, "seccomp"),
        (errno.ENOENT, "virtual machine"),
        (errno.EOPNOTSUPP, "virtual PMU"),
        (errno.ENOSYS, "sandbox"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_refusals_come_with_a_remedy(code: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_open", lambda number, stack: ({}, [code]))
    found = count(work, 1)
    assert not found.available and words in found.reason


def test_other_machines_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert count(work, 1) == Counters(False, "opweld reads counters on Linux on x86_64 and aarch64 only")


def test_rates_are_told_where_both_events_were_counted() -> None:
    values = counters._with_rates({"cycles": 10.0, "instructions": 25.0, "cache_misses": 3.0})
    assert values["instructions_per_cycle"] == 2.5
    assert "cache_miss_rate" not in values


def test_events_of_all_threads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an event that the kernel itself counts (PERF_COUNT_SW_TASK_CLOCK, nanoseconds on a processor), which virtual
    machines have too. What the other thread took is asked of its own clock."""
    monkeypatch.setattr(counters, "_HARDWARE", 1)
    monkeypatch.setattr(counters, "EVENTS", {"cycles": 1})
    jobs, done = queue.SimpleQueue[bool](), queue.SimpleQueue[int]()

    def other() -> None:
        while jobs.get():
            start = time.thread_time_ns()
            while time.thread_time_ns() - start < 20_000_000:
                work()
            done.put(time.thread_time_ns() - start)

    took: list[int] = []

    def let_the_other_work() -> None:
        jobs.put(True)
        took.append(done.get())

    thread = threading.Thread(target=other)
    thread.start()
    try:
        found = count(let_the_other_work, 4)
    finally:
        jobs.put(False)
        thread.join()
    if not found.available:
        pytest.skip(f"this kernel counts nothing for this user: {found.reason}")
    assert found.values["cycles"] * 4 >= 0.9 * sum(took)
