"""Runs many seeds in worker processes, one for each core, and collects what came of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path

from tests.fuzz.finding import Finding
from tests.parallel import spread

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 1800
"""A mutant that takes longer hangs without using the processor; see `worker.HANG_S`."""


class Worker:
    """A child process that survives as long as the mutants let it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, seed: int) -> Finding:
        """The finding of one seed; a crash and a hang are findings too."""
        process = self._process = self._process or _start()
        assert process.stdin is not None and process.stdout is not None
        alarm = threading.Timer(TIMEOUT_S, process.kill)
        alarm.start()
        note = "starting"
        try:
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                note = answer.get("note", note)
                if "finding" in answer:
                    return Finding(**answer["finding"])
        except BrokenPipeError:
            pass
        finally:
            hung = not alarm.is_alive()
            alarm.cancel()
        code = self.close()
        if hung or code == -signal.SIGPROF:
            return Finding(seed, "hang", note)
        ended = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return Finding(seed, "crash", f"{note}: {ended}")

    def close(self) -> int:
        """Lets the process end; its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        return process.wait()


def _start() -> subprocess.Popen[str]:
    path = os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.fuzz.worker"],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def _opened() -> Generator[Callable[[int], Finding]]:
    worker = Worker()
    try:
        yield worker.run
    finally:
        worker.close()


def findings_of(seeds: Iterable[int], workers: int) -> Iterator[Finding]:
    """The finding of each seed, as they come in. Seeds are asked for one at a time, by threads."""
    return spread(seeds, workers, _opened)
