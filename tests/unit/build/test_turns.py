"""One process at a time makes a thing, and a lock goes with its holder."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opweld.build.cache import Cache
from opweld.build.turns import Holder, turn
from tests.patience import PATIENCE_S

HOLD = """
import pathlib, sys
from opweld.build.turns import turn
with turn(pathlib.Path(sys.argv[1]), print):
    print("has it", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(path: Path) -> Generator[subprocess.Popen[str]]:
    """A process that has the turn, until its standard input is closed."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "has it\n"
        try:
            yield process
        finally:
            process.kill()


def nobody(holder: Holder | None) -> None:
    raise AssertionError(f"{holder} has it")


@pytest.mark.parametrize("end", ["kill", "release"])
def test_a_turn_is_waited_for_and_comes_however_its_holder_ends(tmp_path: Path, end: str) -> None:
    told: list[Holder | None] = []
    before = time.time()
    with held(tmp_path / "key") as process:

        def waiting(holder: Holder | None) -> None:
            told.append(holder)
            if end == "kill":
                process.kill()
            else:
                process.communicate(timeout=PATIENCE_S)

        with turn(tmp_path / "key", waiting):
            assert process.wait(PATIENCE_S) is not None
    (holder,) = told
    assert holder is not None and holder.pid == process.pid
    assert before <= holder.since <= time.time()
    assert str(holder).startswith(f"process {process.pid} (since ")
    assert not list(tmp_path.iterdir()), "nothing is left"


def test_a_thread_of_this_process_is_waited_for_too(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def waiting(holder: Holder | None) -> None:
        assert holder is not None and str(holder).startswith("another thread (since ")
        raise Enough

    with turn(tmp_path / "key", nobody):
        with turn(tmp_path / "other", nobody), pytest.raises(Enough), turn(tmp_path / "key", waiting):
            pass
    with turn(tmp_path / "key", nobody):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EROFS])
def test_without_locks_everybody_has_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with turn(tmp_path / "key", nobody), turn(tmp_path / "key", nobody):
        pass


def test_where_nothing_can_be_written_everybody_has_a_turn(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with turn(tmp_path / "file" / "key", nobody), Cache(tmp_path / "file").turn("key", nobody):
        pass


def test_what_a_holder_has_not_written_yet_is_not_known(tmp_path: Path) -> None:
    file = os.open(tmp_path / "key", os.O_CREAT | os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    told: list[Holder | None] = []

    def waiting(holder: Holder | None) -> None:
        told.append(holder)
        os.close(file)

    with turn(tmp_path / "key", waiting):
        assert told == [None]


def test_the_child_of_a_fork_keeps_no_turn(tmp_path: Path) -> None:
    """It lives on when its parent, which had the turn, is killed."""
    script = f"""
import os, pathlib, signal, sys
from opweld.build.turns import turn
with turn(pathlib.Path({str(tmp_path / "key")!r}), print):
    child = os.fork()
    if not child:
        sys.stdin.read()
        os._exit(0)
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert process.wait(PATIENCE_S) < 0
        os.kill(child, 0)
        answers: list[str] = []
        sayings: Callable[[Holder | None], None] = lambda holder: answers.append(str(holder))
        with turn(tmp_path / "key", sayings):
            os.kill(child, 0)
