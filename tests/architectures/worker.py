"""A process of its own for models that may crash: names of architectures as lines of JSON in, findings out.

A job is {"name": ..., "exporter": ...}; the answer is {"note": ...} before anything that may crash, then
{"finding": ...}.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from typing import Any

from tests.architectures.catalogue import CATALOGUE
from tests.architectures.judge import judge
from tests.machines import run_as_told

HANG_S = 1440.0
"""Seconds of processor time after which an architecture hangs."""


def main() -> None:
    """Works until standard input ends."""
    run_as_told()
    # What compiled code or a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)

    def say(**words: Any) -> None:
        answers.write(json.dumps(words) + "\n")

    by_name = {architecture.name: architecture for architecture in CATALOGUE}
    for line in sys.stdin:
        job = json.loads(line)
        # Nobody handles the signal: a hang ends the process. Processor time, for a machine may be busy with other work.
        signal.setitimer(signal.ITIMER_PROF, HANG_S)
        finding = judge(by_name[job["name"]], job["exporter"], lambda text: say(note=text))
        say(finding=finding.to_json())


if __name__ == "__main__":
    main()
