"""`opweld bisect`: which decision breaks it?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

import opweld
from opweld.cli import arguments, show
from opweld.ledger import Decision, printable
from opweld.options import Options

if TYPE_CHECKING:
    from opweld.verification.bisect import Bisection, Trial


@arguments.with_options(without=(*arguments.RUNNING, "tune", "schedules"))
def bisect(
    model: arguments.ModelArgument,
    *,
    options: Options,
    values: arguments.InputOption = None,
    dim: arguments.InputDimOption = None,
    rtol: arguments.RtolOption = None,
    atol: arguments.AtolOption = None,
    latency: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO",
            help="Bad is what takes more than so many times as long as the model with no decision granted.",
            show_default=False,
        ),
    ] = None,
    optimized: Annotated[
        bool, typer.Option("--optimized", help="Look among the decisions of `opweld optimize` instead.")
    ] = False,
    runtime: Annotated[
        str, typer.Option("--for", metavar="RUNTIME", help="With --optimized: any or onnxruntime, as for `optimize`.")
    ] = "any",
    seed: arguments.SeedOption = 0,
    json: arguments.JsonOption = None,
) -> None:
    """Find the one decision that makes a model wrong, or slow, by halving the ledger.

    \b
    opweld bisect model.onnx --input x=photo.npy
    opweld bisect model.onnx --rtol 1e-4
        bad is an error of more than this part of an output's scale
    opweld bisect model.onnx --latency 1.1
        bad is slower than 1.1 times the model without any decision
    opweld bisect model.onnx --optimized
        among the decisions of `opweld optimize`

    It compiles with the decisions up to one granted and all later ones at their baseline, and halves what is between
    good and bad: 2 + log2(n) runs. What is wrong without any decision is no decision's fault, and it says so. Exit
    status 0 when the model is good, 1 when it is not.
    """
    arguments.check_files(model, json=json)
    given, dims = arguments.pairs(values, "--input"), arguments.sizes(dim)
    with show.progress() as progress:
        found = opweld.bisect(
            model,
            given,
            sizes=dims,
            seed=seed,
            rtol=rtol,
            atol=atol,
            latency=latency,
            optimized=optimized,
            runtime=runtime,
            progress=progress,
            **options.keywords(),
        )
    measure = "time" if latency is not None else "error"
    if json is not None:
        show.write_json({"model": str(model), "measure": measure, **_data(found)}, json)
    if json is None or str(json) != "-":
        show.text("\n".join(_report(found, str(model), measure, "optimize" if optimized else "compile")))
    if not found.whole.good:
        raise typer.Exit(1)


def _report(found: Bisection, model: str, measure: str, command: str) -> list[str]:
    figure: Callable[[Trial], str] = _error if measure == "error" else _time
    lines = [f"{printable(model)}: {len(found.decisions)} decisions took more than their baseline"]
    if found.whole.good:
        return [*lines, f"good with all of them: {figure(found.whole)}"]
    lines.append(f"bad with all of them: {figure(found.whole)}")
    if measure == "error" and not math.isinf(found.whole.figure):
        lines.append(f"  {printable(found.whole.problem, 300)}")
    if found.found is None:
        lines.append(f"bad with none of them too: {figure(found.bare)}")
        return [*lines, "so it is no decision: a kernel as such, an operator's lowering, or the tolerance"]
    assert found.before is not None and found.after is not None and found.without is not None
    decision = found.found
    taken = f"{decision.rule} {printable(decision.taken)}"
    lines += [
        f"good with none of them: {figure(found.bare)}",
        f"{found.runs} runs found the one:",
        "",
        f"  {decision.id} {taken} at {printable(', '.join(decision.site)) or '(no node)'}",
        f"    {printable(decision.reason, 200)}; instead of {_others(decision)}",
        f"    about {printable(decision.subject, 200)}",
        f"    up to it, without it: {figure(found.before)}",
        f"    up to it, with it: {figure(found.after)}",
        "",
    ]
    if found.without.good:
        return [*lines, f"good with all but this one ({figure(found.without)}): --disable {decision.id}"]
    return [
        *lines,
        f"still bad with all but this one: {figure(found.without)}",
        f"so it is not alone; look on with opweld bisect {'--optimized ' * (command == 'optimize')}"
        f"--disable {decision.id}",
    ]


def _others(decision: Decision) -> str:
    return printable(", ".join(a.name for a in decision.alternatives if a.name != decision.taken), 200)


def _error(trial: Trial) -> str:
    if math.isinf(trial.figure):
        return printable(trial.problem, 300)
    return f"error {trial.figure:.2e} of scale"


def _time(trial: Trial) -> str:
    if math.isinf(trial.figure):
        return printable(trial.problem, 300)
    return f"{trial.figure:.2f} times as long as without any"


def _data(found: Bisection) -> dict[str, Any]:
    """What was found as JSON types."""
    outcome = "good" if found.whole.good else "decision" if found.found is not None else "no decision"
    trials = {
        "whole": found.whole,
        "bare": found.bare,
        "before": found.before,
        "after": found.after,
        "without": found.without,
    }
    return {
        "outcome": outcome,
        "decisions": len(found.decisions),
        "runs": found.runs,
        "found": None if found.found is None else found.found.to_json(),
        **{name: None if trial is None else _trial(trial) for name, trial in trials.items()},
    }


def _trial(trial: Trial) -> dict[str, Any]:
    figure = "infinity" if math.isinf(trial.figure) else trial.figure
    return {"good": trial.good, "figure": figure, "problem": trial.problem}
