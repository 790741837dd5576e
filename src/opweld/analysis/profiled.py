"""Profiles a session: timing, counting, combining and judging."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opweld.account.account import Account
from opweld.analysis import counters
from opweld.analysis.alternate import Blocks
from opweld.analysis.costs import fed_sizes
from opweld.analysis.judge import judge_of
from opweld.analysis.machine import Machine
from opweld.analysis.profile import ModelProfile, model_profile
from opweld.analysis.sample import sample
from opweld.runtime.session import Session

ROUNDS = 5
"""The number of blocks of runs with clocks and without."""


def profiled(
    session: Session,
    feeds: Mapping[str, Any],
    account: Account,
    machine: Machine | None,
    runs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ModelProfile:
    """Runs a session on these tensors with clocks and without, and returns where the time goes, with bottlenecks of
    kernels if there is a machine.

    `runs`: with clocks, and as many without; as many as fit into two seconds if None."""
    blocks = Blocks(min(ROUNDS, runs or ROUNDS), runs=runs or 0)
    samples = sample(session, feeds, blocks, progress)
    counted = counters.count(lambda: session.run_tensors(feeds), max(1, min(100, len(samples.plain))))
    made = model_profile(samples, account, counted, session.denormal_steps(feeds))
    if machine is None:
        return made
    return made.judged(judge_of(account, machine, fed_sizes(account.record, feeds)))
