"""A server that dies is started again, unless it does nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.unit.serve.fakes import eventually

ROOT = Path(__file__).parents[3]

_PROGRAM = """
import os, signal, sys, time
from opweld.serve.supervisor import supervised
status = supervised(lambda line: print(line, flush=True), first_wait=0.01, young=float(sys.argv[1]), tries=3)
if status is not None:
    print("status", status, flush=True)
    sys.exit(status)
print("server", os.getpid(), flush=True)
"""

_WAITS = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint('up', flush=True)\ntime.sleep(3600)\n"


def started(server: str, young: float = 1800.0) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM + server, str(young)],
        env=environment,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
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
def supervised(tell, hub):
    print(sorted(name for name in sys.modules if name in sys.argv[1].split()), flush=True)
    return 5
supervisor.supervised = supervised
from opweld.cli.main import application
application(["serve"])(["serve", "no_such_model.gguf", "no_such_model.onnx", "--port", "0"])
"""


def test_a_server_that_is_started_again_has_nothing_large_to_import() -> None:
    names = sorted(["fastapi", "numpy", "opweld.llm.load", "opweld.serve.inference.repository", "tokenizers"])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _LAST, " ".join(names)]
    done = subprocess.run(command, env=environment, cwd=ROOT, text=True, capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout.strip()) == (5, str(names)), done.stderr
