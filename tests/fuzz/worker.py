"""A process of its own for mutants: seeds as lines in, notes of what begins and findings out, as JSON."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any

from tests.machines import run_as_told

MEMORY = 4 << 30
"""Address space of a worker. The models are small."""

HANG_S = 60.0
"""Seconds of processor time after which a mutant hangs."""


def main() -> None:
    """Works until standard input ends."""
    run_as_told()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # What a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    from opweld.frontend import isolated
    from tests.fuzz.finding import probe
    from tests.fuzz.mutate import mutant_of

    def say(**words: Any) -> None:
        answers.write(json.dumps(words) + "\n")

    isolated.MAX_SECONDS = int(HANG_S)
    for line in sys.stdin:
        seed = int(line)
        signal.setitimer(signal.ITIMER_PROF, 0)
        say(note="making the mutant")
        name, data = mutant_of(seed)
        # Nobody handles the signal: a hang ends the process. Processor time, for a machine may be busy with other work.
        signal.setitimer(signal.ITIMER_PROF, HANG_S)
        finding = probe(seed, name, data, lambda text: say(note=text))
        say(finding=finding.to_json())


if __name__ == "__main__":
    main()
