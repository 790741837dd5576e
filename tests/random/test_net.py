"""Random graphs, compiled at every level and run at every choice of sizes: none is wrong, none breaks the compiler."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from opweld.cached import sources_digest
from tests.random.__main__ import environment
from tests.random.judge import LEVELS, PEER, Finding
from tests.random.net import Worker, cast_net
from tests.random.worker import NATIVE, NNSMITH, OURS, QUANTIZED

WORKERS = len(os.sched_getaffinity(0))


def findings_of(
    seeds: Sequence[int],
    folder: Path,
    compiler: str,
    generator: str = OURS,
    levels: Sequence[str] = LEVELS,
    target: str = NATIVE,
) -> list[Finding]:
    variables = environment(folder, compiler, target)
    # Every other graph on one thread first: what one thread compiles, two must run, and the other way round.
    threads = (lambda seed: (1, 2) if seed % 2 else (2, 1)) if target == NATIVE else (lambda seed: (1,))
    found = cast_net(seeds, levels, threads, WORKERS, variables, generator, target)
    return [finding for findings in found for finding in findings]


def require_good(findings: Sequence[Finding], graphs: int, levels: Sequence[str] = LEVELS) -> None:
    assert len(findings) == graphs * len(levels)
    bad = [f"seed {f.seed} at {f.level}: {f.outcome}: {f.what}" for f in findings if f.bad]
    assert not bad, "\n".join((*bad, "reduce with: python -m tests.random --reduce --only SEED"))
    # A net that refuses its catch would be blind; of a handful, one may be a tie that processors round differently.
    assert sum(f.outcome == "right" for f in findings) > 0.8 * (len(findings) - 1)


def test_fixed_seeds(tmp_path: Path) -> None:
    require_good(findings_of(range(32), tmp_path, "quick"), 32)


def test_fixed_seeds_with_the_compiler_of_the_product(tmp_path: Path) -> None:
    require_good(findings_of(range(1000, 1004), tmp_path, "product"), 4)


def test_fixed_seeds_of_quantised_values(tmp_path: Path) -> None:
    require_good(findings_of(range(4), tmp_path, "quick", QUANTIZED, ("all",)), 4, ("all",))


@pytest.mark.slow
def test_fixed_seeds_of_the_cuda_backend(tmp_path: Path) -> None:
    """Of quantised values, whose graphs are small: Triton's interpreter takes minutes for some of the others."""
    require_good(findings_of(range(260000, 260004), tmp_path, "product", QUANTIZED, ("all",), "sm_90"), 4, ("all",))


CRASHES = f"""import json, os, sys
job = json.loads(sys.stdin.readline())
level = job["levels"][0]
if "alone" not in job:
    print(json.dumps({{"note": {PEER!r} if level == "all" else "none: running"}}), flush=True)
    os.abort()
finding = dict(seed=job["seed"], level=level, threads=1, choice=0, outcome="right", what="")
print(json.dumps({{"finding": finding}}), json.dumps({{"done": True}}), sep=chr(10), flush=True)
"""


class Crashing(Worker):
    """A worker that crashes at every level, at `all` while the other runtime is asked, unless it is not."""

    def _start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, "-c", CRASHES], stdin=pipe, stdout=pipe, text=True)
        return self._process


def test_a_crash_of_the_other_runtime_is_not_ours() -> None:
    with contextlib.closing(Crashing({})) as worker:
        found = worker.run({"seed": 7, "levels": ["none", "all"], "threads": [1]})
    assert [(finding.level, finding.outcome) for finding in found] == [("none", "crash"), ("all", "right")]


FRESH = 100
"""Graphs of the long run; `python -m tests.random --count 5000` casts a wider net."""


@pytest.mark.slow
def test_fresh_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other graphs for every change of the compiler, the same for the same text: what was green stays green."""
    first = int(sources_digest()[:8], 16)
    with capsys.disabled():
        sys.stdout.write(f"seeds from {first}\n")
    require_good(findings_of(range(first, first + FRESH), tmp_path, "quick"), FRESH)


@pytest.mark.slow
def test_fresh_seeds_of_nnsmith(tmp_path: Path) -> None:
    first = int(sources_digest()[:8], 16)
    require_good(findings_of(range(first, first + FRESH), tmp_path, "quick", NNSMITH), FRESH)


@pytest.mark.slow
def test_fresh_seeds_of_quantised_values(tmp_path: Path) -> None:
    first = int(sources_digest()[:8], 16)
    require_good(findings_of(range(first, first + FRESH), tmp_path, "quick", QUANTIZED), FRESH)
