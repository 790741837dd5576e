"""A server that dies is started again, unless it does nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opweld.serve.watchdog import HUNG_S
from tests.patience import PATIENCE_S
from tests.unit.serve.fakes import eventually

ROOT = Path(__file__).parents[3]

_PROGRAM = """
import os, signal, sys, time
from opweld.serve.supervisor import supervised
from opweld.serve.watchdog import Watchdog
young, seconds = map(float, sys.argv[-2:])
watchdog = Watchdog(seconds=seconds)
status = supervised(lambda line: print(line, flush=True), None, watchdog, first_wait=0.01, young=young, tries=3)
if status is not None:
    print("status", status, flush=True)
    sys.exit(status)
print("server", os.getpid(), flush=True)
"""

_WAITS = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint('up', flush=True)\ntime.sleep(3600)\n"


def started(
    server: str, *arguments: str, young: float = 1800.0, seconds: float = HUNG_S, stderr: int | None = None
) -> subprocess.Popen[str]:
    """A supervisor and what it starts, with arguments from `sys.argv[2]` on.

    Args:
        seconds: that an event loop may stand still.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM + server, "", *arguments, str(young), str(seconds)],
        env=environment,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def gone(pid: int) -> bool:
    try:
        return ") Z" in Path(f"/proc/{pid}/stat").read_text()  # nobody may have waited for it
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_it_is_started_again(number: signal.Signals) -> None:
    with started(_WAITS, young=0.0) as process:
        for _ in range(4):
            pid = int(line(process).removeprefix("server "))
            assert line(process) == "up"
            os.kill(pid, number)
            assert line(process) == f"the server died: {number.name}; it is started again in 0.01 s"
        assert line(process).startswith("server ")
        assert line(process) == "up"
        process.send_signal(signal.SIGTERM)
        assert line(process) == "status 7"
        assert process.wait(PATIENCE_S) == 7


_BEATS = """
import asyncio, faulthandler
faulthandler.enable()
async def serve():
    beat = asyncio.create_task(watchdog.beat(0))
    print("up", flush=True)
    await asyncio.sleep(float(sys.argv[2]))
    print("stands still", flush=True)
    while True:
        pass
asyncio.run(serve())
"""


def test_a_server_whose_event_loop_stands_still_is_ended_with_a_traceback_and_started_again() -> None:
    # Looked at 120 times a second, and found after 60 of these.
    with started(_BEATS, "0.5", seconds=0.5, stderr=subprocess.PIPE) as process:
        for _ in range(2):
            assert line(process).startswith("server ")
            assert line(process) == "up"
            assert line(process) == "stands still"
            assert line(process) == "the server hangs: its event loop has stood still for 0.5 s; it is ended (SIGABRT)"
            assert line(process).startswith("the server died: SIGABRT; it is started again")
        assert process.stderr is not None
        traceback = process.stderr.readline()
        while "in serve" not in traceback:
            assert traceback
            traceback = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


def test_a_server_that_has_no_event_loop_yet_goes_on() -> None:
    with started(_WAITS, seconds=0.1) as process:
        assert line(process).startswith("server ")
        assert line(process) == "up"
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert line(process) == "status 7"


def test_who_dies_at_once_again_and_again_is_given_up() -> None:
    with started("os.kill(os.getpid(), signal.SIGSEGV)") as process:
        said, _ = process.communicate(timeout=PATIENCE_S)
        told = [one for one in said.splitlines() if not one.startswith("server ")]
        assert told == [
            "the server died: SIGSEGV; it is started again in 0.01 s",
            "the server died: SIGSEGV; it is started again in 0.02 s",
            "the server died: SIGSEGV, 3 times within 1800 s of its start; given up",
            f"status {128 + signal.SIGSEGV}",
        ]


def test_who_ends_by_itself_is_not_started_again() -> None:
    with started("sys.exit(3)") as process:
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 3 and said.count("server") == 1


def test_the_server_ends_with_its_supervisor() -> None:
    with started(_WAITS) as process:
        pid = int(line(process).removeprefix("server "))
        assert line(process) == "up"
        process.kill()
        process.wait(PATIENCE_S)
        eventually(lambda: gone(pid))


_LAST = """
import sys
import opweld.serve.supervisor as supervisor
def supervised(*_):
    print(sorted(name for name in sys.modules if name in sys.argv[1].split()), flush=True)
    return 5
supervisor.supervised = supervised
from opweld.cli.main import application
application(["serve"])(["serve", "no_such_model.gguf", "no_such_model.onnx", "--port", "0"])
"""


def test_a_server_that_is_started_again_has_nothing_large_to_import() -> None:
    names = sorted(["numpy", "opweld.llm.load", "opweld.serve.inference.repository", "tokenizers"])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _LAST, " ".join(names)]
    done = subprocess.run(command, env=environment, cwd=ROOT, text=True, capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout.strip()) == (5, str(names)), done.stderr
