"""What the watchdog of a supervisor takes for a server that hangs, by a clock of the test's own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from opweld.serve import watchdog as module
from opweld.serve.watchdog import Watchdog
from tests.unit.serve.fakes import eventually

SERVERS = {0: os.getpid(), 1: os.getpid()}


class Clock:
    """What a test moves."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module.time, "monotonic", lambda: found.now)
    return found


def beat(watchdog: Watchdog, server: int) -> None:
    """As an event loop does that comes round once."""

    async def once() -> None:
        task = asyncio.ensure_future(watchdog.beat(server))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(once())


def look(
    clock: Clock, watchdog: Watchdog, times: int, servers: Mapping[int, int] = SERVERS
) -> list[tuple[int, signal.Signals]]:
    found: list[tuple[int, signal.Signals]] = []
    for _ in range(times):
        clock.now = watchdog.due()
        found += watchdog.look(servers)
    return found


def test_a_loop_that_stands_still_is_found_once_and_killed_where_abort_does_nothing(clock: Clock) -> None:
    watchdog = Watchdog(2, seconds=60)
    beat(watchdog, 1)
    assert look(clock, watchdog, 60) == []
    assert look(clock, watchdog, 1) == [(1, signal.SIGABRT)]
    assert look(clock, watchdog, 20) == [(1, signal.SIGKILL)]
    assert look(clock, watchdog, 200) == []


def test_a_late_beat_counts(clock: Clock) -> None:
    watchdog = Watchdog(2, seconds=60)
    for _ in range(5):
        beat(watchdog, 0)
        assert look(clock, watchdog, 59) == []


def test_a_server_that_has_not_begun_and_one_that_is_started_again_are_not_found(clock: Clock) -> None:
    watchdog = Watchdog(2, seconds=60)
    assert look(clock, watchdog, 200) == []
    beat(watchdog, 0)
    assert look(clock, watchdog, 50) == []
    watchdog.reset(0)
    assert look(clock, watchdog, 200) == []


def test_processes_that_were_stopped_together_have_missed_one_look(clock: Clock) -> None:
    watchdog = Watchdog(2, seconds=60)
    beat(watchdog, 0)
    look(clock, watchdog, 2)
    clock.now += 3600
    assert list(watchdog.look(SERVERS)) == []
    beat(watchdog, 0)
    assert look(clock, watchdog, 60) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell that a process is stopped")
def test_a_server_that_is_stopped_alone_is_counted_from_when_it_goes_on(clock: Clock) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as process:
        state = Path(f"/proc/{process.pid}/stat")
        servers = {0: process.pid}
        watchdog = Watchdog(seconds=60)
        beat(watchdog, 0)
        assert look(clock, watchdog, 50, servers) == []
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: ") T " in state.read_text())
        assert look(clock, watchdog, 200, servers) == []
        process.send_signal(signal.SIGCONT)
        eventually(lambda: ") T " not in state.read_text())
        assert look(clock, watchdog, 59, servers) == []
        assert look(clock, watchdog, 1, servers) == [(0, signal.SIGABRT)]
        process.kill()


def test_nobody_looks_before_it_is_time(clock: Clock) -> None:
    watchdog = Watchdog(2, seconds=60)
    beat(watchdog, 0)
    look(clock, watchdog, 1)
    for _ in range(1000):
        assert list(watchdog.look(SERVERS)) == []
