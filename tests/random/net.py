"""Runs many cases in worker processes, one for each core, and collects what came of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.parallel import spread
from tests.random.judge import PEER, Finding
from tests.random.worker import NATIVE, OURS

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 1800
"""A case that takes longer hangs without using the processor; see `worker.HANG_S`."""


class Worker:
    """A child process that survives as long as the graphs let it."""

    def __init__(self, variables: dict[str, str]) -> None:
        path = os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))
        self._variables = os.environ | {"PYTHONPATH": path} | variables
        self._process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-W", "ignore", "-m", "tests.random.worker"]
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, env=self._variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self._process

    def run(self, job: dict[str, Any]) -> list[Finding]:
        """The findings of one job; a crash and a hang are findings too, but for a crash of the other runtime, without
        which the job is judged then."""
        process = self._start()
        assert process.stdin is not None and process.stdout is not None
        alarm = threading.Timer(TIMEOUT_S, process.kill)
        alarm.start()
        findings: list[Finding] = []
        note = "starting"
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                note = answer.get("note", note)
                if "finding" in answer:
                    findings.append(Finding(**answer["finding"]))
                if "done" in answer:
                    return findings
        except BrokenPipeError:
            pass
        finally:
            hung = not alarm.is_alive()
            alarm.cancel()
        code = self._end()
        what = f"no answer within {TIMEOUT_S} s" if hung else _name_of(code)
        done = {finding.level for finding in findings}
        if note == PEER and not hung:
            return [*findings, *self.run(job | {"levels": [n for n in job["levels"] if n not in done], "alone": True})]
        level = next((level for level in job["levels"] if level not in done), job["levels"][-1])
        crash = Finding(job.get("seed", 0), level, job["threads"][0], 0, "crash", f"{what} while {note}")
        rest = [other for other in job["levels"] if other not in done | {level}]
        return [*findings, crash, *(self.run(job | {"levels": rest}) if rest else [])]

    def close(self) -> None:
        """Lets the process end."""
        if self._process is not None:
            self._end()

    def _end(self) -> int:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        self._process = None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        return process.wait()


def _name_of(code: int) -> str:
    if code == -signal.SIGPROF:
        return "hang"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"


def cast_net(
    seeds: Iterable[int],
    levels: Sequence[str],
    threads: Callable[[int], Sequence[int]],
    workers: int,
    variables: dict[str, str],
    generator: str = OURS,
    target: str = NATIVE,
) -> Iterator[list[Finding]]:
    """The findings of each seed, as they come in. `threads` says on how many threads a seed is run, `target` by what.

    What is bad with a compiler of the net's own is judged again with the product's, whose word stands: gcc 12 -O1 has
    broken on vectors wider than the machine's, and has lost an addition before their division in a correct program."""
    product = {name: value for name, value in variables.items() if name != "OPWELD_CC"}
    product["OPWELD_CACHE"] = variables["OPWELD_CACHE"] + "-product"

    @contextlib.contextmanager
    def opened() -> Generator[Callable[[int], list[Finding]]]:
        worker, second = Worker(variables), Worker(product)

        def run(seed: int) -> list[Finding]:
            job = {"seed": seed, "generator": generator, "target": target}
            job |= {"levels": list(levels), "threads": list(threads(seed))}
            findings = worker.run(job)
            if "OPWELD_CC" in variables and any(finding.bad for finding in findings):
                findings = second.run(job)
            return findings

        try:
            yield run
        finally:
            worker.close()
            second.close()

    return spread(seeds, workers, opened)
