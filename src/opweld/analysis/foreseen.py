"""The sizes that a model would be run at, and the plan of such a run: nothing is run for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from opweld.account.account import Account
from opweld.analysis.costs import fed_sizes
from opweld.errors import OpweldError
from opweld.options import TARGETS, Options
from opweld.runtime.plan import PlanDescription
from opweld.runtime.session import Session
from opweld.target import Target
from opweld.verification.expected import expectation_of
from opweld.verification.inputs import fitting_inputs

MOST = 1 << 24
"""Beyond so many times the elements of a usual run, inputs are not made for a plan."""


def most_threads(options: Options) -> int:
    """How many threads a run would have, where no plan tells."""
    processor = options.target in TARGETS  # what a machine of an installed backend runs side by side, it alone knows
    return options.threads or (Target.of(options.target).cores if processor else 1)


def planned(
    model: Session | Path | None, account: Account, dims: Mapping[str, int], threads: int = 0
) -> tuple[Mapping[str, int], PlanDescription | None]:
    """The sizes of a run and its plan, see `foreseen`, of a session or an artifact; no plan where there is none, or
    this machine cannot run it. `threads`: of what is to be opened, 0 as it says."""
    if model is None:
        return dims, None
    try:
        session = Session(model, threads=threads or None) if isinstance(model, Path) else model
    except OpweldError:
        return dims, None
    return foreseen(session, account, dims)


def foreseen(
    session: Session, account: Account, dims: Mapping[str, int]
) -> tuple[Mapping[str, int], PlanDescription | None]:
    """The sizes of the dims of a run, and its plan: `dims` are given, the others as `opweld run` would choose them.

    Those that are given, and no plan, where shapes alone do not tell what runs, or the model has no such dims or takes
    no such sizes."""
    named = {d for info in session.manifest.inputs for d in info.shape or () if isinstance(d, str)}
    if session.has_dynamic_control_flow or not named >= dims.keys() or math.prod(dims.values()) > MOST:
        return dims, None
    try:
        feeds, _ = fitting_inputs(
            session.manifest.inputs, session.check, given={}, dims=dims, expected=expectation_of(session.folder)
        )
        return {**fed_sizes(account.record, feeds), **dims}, session.plan(feeds)
    except OpweldError:
        return dims, None
