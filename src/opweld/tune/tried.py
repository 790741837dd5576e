"""A candidate of another package, run in a process of its own: what crashes, hangs or takes all memory takes that one.

`try_out` starts it and tells what became of it; `main` is what it does: it opens the model without the candidate and
with it, compares their answers, and times both in turns."""

from __future__ import annotations

import json
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from opweld.analysis.alternate import Blocks, alternate_runs
from opweld.analysis.profile import step_seconds
from opweld.runtime.session import Session
from opweld.tune.trial import Trial, differs, race_seconds

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.float64]

PATIENCE = 30.0
"""Seconds that a candidate may take beyond many times what the model takes without it."""

_TIMES = 10
"""Times what is expected that it may take."""

MEMORY = 2 << 30
"""Bytes that the model may take with a candidate, beyond twice of what it takes without."""

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from opweld.tune.tried import main; main(sys.argv[2], sys.argv[3])"
)


@dataclass(frozen=True, eq=False)
class Side:
    """Of one model: the variant that ran, its kernels, and seconds of each run, in all and [runs, kernels]."""

    variant: str
    kernels: tuple[str, ...]
    runs: Numbers
    seconds: Numbers


@dataclass(frozen=True, eq=False)
class Tried:
    """What came of a candidate. `why` says what is wrong with it, "" where nothing is; `sides` are the models without
    and with it where they were timed."""

    why: str
    sides: tuple[Side, Side] | None = None


@dataclass(frozen=True, eq=False)
class _Task:
    folders: tuple[str, str]
    threads: int
    feeds: Mapping[str, Array]
    blocks: Blocks | None
    memory: int


def try_out(base: Trial, trial: Trial, feeds: Mapping[str, Array], blocks: Blocks | None) -> Tried:
    """Runs a model beside what it was without a candidate, and times both in these blocks where there are some."""
    limit = _limit(base, feeds, blocks)
    with TemporaryDirectory(prefix="opweld-tried-") as folder:
        task, answer = Path(folder, "task"), Path(folder, "answer")
        folders = str(base.folder.absolute()), str(trial.folder.absolute())
        task.write_bytes(pickle.dumps(_Task(folders, trial.threads, dict(feeds), blocks, MEMORY)))
        command = [sys.executable, "-c", _START, json.dumps(sys.path), str(task), str(answer)]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=limit, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return Tried(f"it does not end within {limit:.0f} s")
        if done.returncode:
            return Tried(_death(done))
        return cast("Tried", pickle.loads(answer.read_bytes()))


def _limit(base: Trial, feeds: Mapping[str, Array], blocks: Blocks | None) -> float:
    start = time.monotonic()
    base.session.run_tensors(feeds)
    run = time.monotonic() - start
    return PATIENCE + _TIMES * (run + (race_seconds(run, blocks) if blocks else 0.0))


def _death(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode < 0:
        return f"it crashes ({signal.Signals(-done.returncode).name})"
    lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
    return f"it fails: {lines[-1][:200]}"


def main(task: str, answer: str) -> None:
    """What the process does. What it prints goes nowhere, what it finds to the file `answer`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    given = cast("_Task", pickle.loads(Path(task).read_bytes()))
    base, trial = (Session(folder, threads=given.threads or None) for folder in given.folders)
    base.run_tensors(given.feeds)
    taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    limit = 2 * taken + given.memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        why = differs(base, trial, given.feeds)
        found = Tried(f"it answers differently: {why}" if why else "")
        if given.blocks is not None and not why:
            found = Tried("", _timed(base, trial, given.feeds, given.blocks))
    except MemoryError:
        found = Tried(f"it takes more than {limit / 1e9:.1f} GB of memory")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the candidate's
        found = Tried(f"it fails: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
    Path(answer).write_bytes(pickle.dumps(found))


def _timed(base: Session, trial: Session, feeds: Mapping[str, Array], blocks: Blocks) -> tuple[Side, Side]:
    sessions = {"without": base, "with": trial}
    made = alternate_runs({name: partial(one.clocked, feeds) for name, one in sessions.items()}, blocks)
    sides: list[Side] = []
    for name, session in sessions.items():
        plan, clocks = session.plan(feeds), [run.answer for run in made[name]]
        runs = np.array([clock.wall * 1e-9 for clock in clocks])
        sides.append(Side(plan.variant, tuple(s.name for s in plan.steps), runs, step_seconds(plan, clocks)))
    return sides[0], sides[1]
