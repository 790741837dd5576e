"""The sizes and the plan of a typical run of a model, without running it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from opweld.account.account import Account
from opweld.analysis.costs import fed_sizes
from opweld.errors import OpweldError
from opweld.options import PROCESSORS, Options
from opweld.runtime.plan import PlanDescription
from opweld.runtime.session import Session
from opweld.target import Target
from opweld.verification.expected import expectation_of
from opweld.verification.inputs import fitting_inputs

MOST = 1 << 24
"""The limit of input elements for a plan, as a multiple of a usual run's."""


def most_threads(options: Options) -> int:
    """The number of threads of a run, if there is no plan."""
    processor = options.target in PROCESSORS  # only an installed backend knows the parallelism of its machines
    return options.threads or (Target.of(options.target).cores if processor else 1)


def planned(
    model: Session | Path | None, account: Account, dims: Mapping[str, int], threads: int = 0
) -> tuple[Mapping[str, int], PlanDescription | None]:
    """The sizes of a run and its plan, see `run_of`, of a session or an artifact; no plan if there is none, or if this
    machine cannot run it. `threads`: for opening it, 0 for its default."""
    if model is None:
        return dims, None
    try:
        session = Session(model, threads=threads or None) if isinstance(model, Path) else model
    except OpweldError:
        return dims, None
    return run_of(session, account, dims)


def run_of(
    session: Session, account: Account, dims: Mapping[str, int]
) -> tuple[Mapping[str, int], PlanDescription | None]:
    """The sizes of the dims of a run, and its plan: `dims` are given, the others chosen as by `opweld run`.

    Returns the given sizes and no plan if shapes alone do not determine the variants, or the model has no such dims or
    does not accept these sizes."""
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
