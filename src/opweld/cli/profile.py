"""`opweld profile`: where the time of a run goes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opweld.cli import arguments, show
from opweld.errors import OptionError, ToolchainError
from opweld.options import Options
from opweld.table import Column

if TYPE_CHECKING:
    from opweld.account.account import Account
    from opweld.analysis.machine import Machine
    from opweld.analysis.profile import ModelProfile
    from opweld.analysis.resources import Resources
    from opweld.runtime.session import Session


@arguments.with_options(without=arguments.RUNNING)
def profile(
    model: arguments.AnyModelArgument,
    *,
    options: Options,
    values: arguments.InputOption = None,
    dim: arguments.InputDimOption = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Tell more of this kernel, or of those that compute this node.", show_default=False
        ),
    ] = None,
    sort: Annotated[
        str, typer.Option(metavar="KEY", help="What is listed first: time, busy, waiting, flops, bytes or order.")
    ] = "time",
    top: Annotated[int, typer.Option(metavar="N", min=0, help="How many kernels to list; 0 for all.")] = 20,
    resources: Annotated[
        bool,
        typer.Option(
            "--resources",
            help="Tell what every kernel takes of a core: vector registers, spills, stack; in --json too.",
        ),
    ] = False,
    runs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Runs with clocks, and as many without; what fits into two seconds where not given.",
            show_default=False,
        ),
    ] = None,
    seed: arguments.SeedOption = 0,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the median run for Perfetto or chrome://tracing.", show_default=False),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a row a kernel.", show_default=False)
    ] = None,
    json: arguments.JsonOption = None,
) -> None:
    """Time every kernel of a model in many runs, and say which nodes and which source lines it comes from.

    \b
    opweld profile model.onnx
    opweld profile model.opweld --dim seq=200 --threads 1
    opweld profile model.onnx --top 0 --sort order
        every kernel, in the order in which they run
    opweld profile model.onnx --kernel k12_contraction
        its members, schedule and nodes; predicted, and measured
    opweld profile model.onnx --kernel /layer1/Conv
        the kernels that compute this node
    opweld profile model.onnx --resources
        every kernel's vector registers, spills and stack
    opweld profile model.onnx --trace trace.json
        open it at https://ui.perfetto.dev
    opweld profile model.onnx --json profile.json

    Runs with clocks and without take turns; what the clocks add is told. Times are medians over runs, each by itself.
    A machine that is too busy to measure on is named before any result. What --json writes is described by
    docs/profile.schema.json.
    """
    from opweld.accounts import account_of
    from opweld.analysis.machine import Machine
    from opweld.analysis.profile_data import COLUMNS, profile_json, profile_rows
    from opweld.analysis.profile_text import (
        NAMES,
        RESOURCE_COLUMNS,
        SORTS,
        kernel_text,
        kernels_called,
        profile_table,
        resource_rows,
        summary_text,
    )
    from opweld.analysis.resources import Resources
    from opweld.analysis.trace import trace_json
    from opweld.cli.open import open_model
    from opweld.verification.asked import check_asked

    arguments.check_files(model, csv=csv, json=json, trace=trace)
    if sort not in SORTS:
        raise OptionError(f"--sort {sort!r}: expected one of {', '.join(SORTS)}")
    given, dims = arguments.pairs(values, "--input"), arguments.sizes(dim)
    check_asked(model, given, dims, seed)
    opened = open_model(model, options, dims)
    feeds = opened.feeds(given, dims, seed)
    account = account_of(opened.session.folder)
    machine = Machine.remembered()
    made = taken(opened.session, feeds, account, machine, runs)
    target = opened.session.manifest.target
    if trace is not None:
        show.write_json(trace_json(made, str(model)), trace, "--trace", indent=None)
    if csv is not None:
        show.write_csv(COLUMNS, (dict(zip(COLUMNS, row, strict=True)) for row in profile_rows(made)), csv)
    wanted = resources or kernel is not None
    taken_of = _resources(opened.session.folder) if wanted else dict[str, Resources]()
    if json is not None:
        show.write_json(profile_json(made, str(model), target, taken_of), json)
    if "-" in map(str, (json, csv, trace)):
        return
    if kernel is not None:
        if made.disturbance.warning:
            show.text(f"warning: {made.disturbance.warning}")
        for found in kernels_called(made, account, kernel):
            own = taken_of.get(f"{found.variant}/{found.name}")
            show.text(kernel_text(made, account, found, own))
        return
    if made.disturbance.warning:
        show.text(f"warning: {made.disturbance.warning}")
    table = profile_table(made, sort, top)
    show.table("", table.columns, table.rows)
    if resources:
        ranks = {"nodes": 1, "stack": 2}
        columns = [
            Column(title, ranks.get(title, 0), NAMES.get(title, 0), left=title in ("kernel", "nodes"))
            for title in RESOURCE_COLUMNS
        ]
        show.table("what kernels take of a core", columns, resource_rows(made, sort, taken_of))
        if not taken_of:
            show.text("unknown: there is no compiler to tell, or the artifact is for another target")
    if machine is None:
        show.text("what kernels are bound by: unknown, `opweld machine` measures what this machine can do at most")
    show.text(summary_text(made, str(model), target, account))


def _resources(folder: Path) -> Mapping[str, Resources]:
    """What kernels take of a core, by "variant/kernel"; nothing where there is no compiler to tell."""
    from opweld.analysis.resources import kernel_resources

    try:
        return kernel_resources(folder)
    except ToolchainError:
        return {}


def taken(
    session: Session,
    feeds: Mapping[str, Any],
    account: Account,
    machine: Machine | None,
    runs: int | None = None,
) -> ModelProfile:
    """Profiles a session, with a progress bar; what kernels are bound by is said where there is a machine."""
    from opweld.analysis.profiled import profiled

    with show.progress() as progress:
        return profiled(session, feeds, account, machine, runs, None if progress is None else partial(progress, "runs"))
