"""Judges many architectures in worker processes, one for each core."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

from tests.architectures.architecture import Architecture
from tests.architectures.judge import Finding
from tests.parallel import spread

REPOSITORY = Path(__file__).parents[2]
Job = tuple[str, str]


class Worker:
    """A child process that survives as long as the models let it."""

    def __init__(self, variables: dict[str, str]) -> None:
        path = os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))
        self._variables = os.environ | {"PYTHONPATH": path} | variables
        self._process: subprocess.Popen[str] | None = None

    def run(self, job: Job) -> Finding:
        """The finding of one job; a crash is one too."""
        name, exporter = job
        process = self._process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        note = "starting"
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps({"name": name, "exporter": exporter}) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                note = answer.get("note", note)
                if "finding" in answer:
                    return Finding(**answer["finding"])
        return Finding(name, exporter, "crash", what=f"{_ending(self.close())} while {note}")

    def close(self) -> int:
        """Lets the process end, and returns its status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        return process.wait()

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", "-m", "tests.architectures.worker"]
        return subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=self._variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


def _ending(code: int) -> str:
    if code == -signal.SIGPROF:
        return "hang"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def judged(architectures: Sequence[Architecture], workers: int, variables: dict[str, str]) -> Iterator[Finding]:
    """The findings of all architectures from all their exporters, in no order."""

    @contextlib.contextmanager
    def opened() -> Generator[Callable[[Job], Finding]]:
        worker = Worker(variables)
        try:
            yield worker.run
        finally:
            worker.close()

    jobs = [(a.name, exporter) for a in architectures for exporter in a.exporters]
    return spread(jobs, min(workers, len(jobs)), opened)
