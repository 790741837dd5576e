"""A process of its own for graphs that may crash: jobs as lines of JSON in, progress and findings out.

A job is {"seed": ...} or {"folder": path} (see `kept.py`), with "generator" where that is not ours, "target" where that
is not this machine, "levels" and "threads"; "alone" where ONNX Runtime is not to be asked. The answer is one line a
level, {"finding": ...}, then {"done": true}; before anything that may crash, {"note": ...}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from tests.machines import run_as_told
from tests.random.generate import Case, case_of
from tests.random.halves import halved
from tests.random.judge import Judge, judge_level
from tests.random.kept import load_case
from tests.random.quantized import generate as quantized
from tests.random.quantized.judge import StepJudge

OURS, HALVES, NNSMITH, QUANTIZED = "ours", "halves", "nnsmith", "quantized"
"""Generators of graphs; the second gives the graphs of the first in float16, where there is such a graph."""

NATIVE = "native"
"""The target that is this machine."""

HANG_S = 720.0
"""Seconds of processor time after which a case hangs."""


def main() -> None:
    """Works until standard input ends."""
    run_as_told()
    # What the compiled code or a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(**words: Any) -> None:
        answers.write(json.dumps(words) + "\n")

    for line in sys.stdin:
        job = json.loads(line)
        # Nobody handles the signal: a hang ends the process. Processor time, for a machine may be busy with other work.
        signal.setitimer(signal.ITIMER_PROF, HANG_S)
        say(note="generating")
        generator = job.get("generator", OURS)
        case = load_case(job["folder"]) if "folder" in job else drawn(job["seed"], generator)
        judge = StepJudge(case) if generator == QUANTIZED else Judge(case, asks="alone" not in job)
        say(nodes=len(case.model.graph.node))
        for level in job["levels"]:
            target = job.get("target", NATIVE)
            finding = judge_level(judge, level, job["threads"], lambda text: say(note=text), target)
            say(finding=finding.to_json())
        say(done=True)


def drawn(seed: int, generator: str) -> Case:
    """The case of a seed of one of the generators."""
    if generator == OURS:
        return case_of(seed)
    if generator == QUANTIZED:
        return quantized.case_of(seed)
    if generator == HALVES:
        return halved(case_of(seed)) or case_of(seed)
    from tests.random import smith

    return smith.case_of(seed)


if __name__ == "__main__":
    main()
