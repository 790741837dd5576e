"""Which decision makes a model wrong, or slow?"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from opweld.errors import OptionError, RunError
from opweld.experiments.attempts import ByError, ByTime, CompiledAttempts, OptimizedAttempts, declared_inputs
from opweld.experiments.opened import Opened
from opweld.option import documented
from opweld.options import CompileOptions, Options
from opweld.runtime.fitted import FittedSessions
from opweld.runtime.session import Session
from opweld.verification.apart import Apart
from opweld.verification.asked import check_asked
from opweld.verification.bisect import Attempt, Attempting, Bisection
from opweld.verification.bisect import bisect as search
from opweld.verification.check import check_tolerances
from opweld.verification.inputs import Given, make_inputs

if TYPE_CHECKING:
    from opweld.compile import Progress

RUNTIMES = ("any", "onnxruntime")
"""Who may run a rewritten model."""


@documented(Options)
def bisect(
    model: str | os.PathLike[str],
    feeds: Mapping[str, Given] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    latency: float | None = None,
    optimized: bool = False,
    runtime: str = "any",
    progress: Progress | None = None,
    **options: Unpack[CompileOptions],
) -> Bisection:
    """Finds the one decision that makes a model wrong, or slow, by halving the ledger: what `opweld bisect` prints.

    Args:
        model: the path of an ONNX file.
        feeds: by input, an array, or a text as `opweld run --input` takes it; what is not given is made up.
        sizes: of symbolic dims of inputs that are made up.
        seed: of inputs that are made up.
        rtol: bad is an error of more than this part of an output's scale; by dtype and by ONNX Runtime's own
            error where None.
        atol: tolerance of the difference itself.
        latency: bad is what takes more than so many times as long as the model with no decision granted; no answers are
            compared then.
        optimized: looks among the decisions of `opweld.optimize` instead.
        runtime: who runs what is optimized: any, or onnxruntime, which has operators of its own.
        progress: called with (what is being done, steps done, steps in all).
        options: see docs/options.md.

    Returns what was found: `found` is None where the model is good (`whole.good`), or bad with no decision granted.
    Raises what `compile` raises, and OptionError for an input or size that the model does not have, before anything is
    compiled; RunError where a model that is timed does not run."""
    if runtime not in RUNTIMES:
        raise OptionError(f"runtime is {runtime!r}, expected {' or '.join(RUNTIMES)}")
    if latency is not None and (optimized or rtol is not None or atol is not None):
        raise OptionError("latency stands alone: it compares times of compiled models, and no answers")
    if latency is not None and not latency >= 1:
        raise OptionError(f"latency is {latency}, expected 1 or more, which is the model without any decision")
    check_tolerances(rtol=rtol, atol=atol)
    path, given, dims, chosen = Path(model), feeds or {}, sizes or {}, Options.of(**options)
    check_asked(path, given, dims, seed)
    if optimized:
        made = make_inputs(declared_inputs(path), given=given, dims=dims, seed=seed)
        contributed = runtime == "onnxruntime"
        attempts = OptimizedAttempts(path, chosen, made, contributed=contributed, rtol=rtol, atol=atol)
        return search(_shown(attempts, progress))

    def feed(session: Session) -> dict[str, Any]:
        return Opened(session, FittedSessions(session, None)).feeds(given, dims, seed)

    with Apart() as apart:
        judge = ByError(path, apart, rtol=rtol, atol=atol) if latency is None else ByTime(latency)
        compiled = CompiledAttempts(path, chosen, judge, feed)
        if latency is not None:
            bare = compiled(frozenset(), "").trial  # what all others are timed against
            if not bare.good:
                raise RunError(f"without any decision the model does not run: {bare.problem}")
        return search(_shown(compiled, progress))


def _shown(attempt: Attempting, progress: Progress | None) -> Attempting:
    """The same, with a word before each run to who watches."""
    runs, most = 0, 0

    def shown(granted: Collection[str] | None, without: str) -> Attempt:
        nonlocal runs, most
        if progress is not None:
            words = "all granted" if granted is None else f"{len(granted)} granted"
            progress(f"run {runs + 1}: {words}", runs, most)
        made = attempt(granted, without)
        runs += 1
        count = sum(decision.fired for decision in made.ledger)
        most = most or 3 + math.ceil(math.log2(max(count, 1)))
        return made

    return shown
