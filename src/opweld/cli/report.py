"""`opweld report`: all that is known of a compiled model, as one HTML file to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opweld import whole
from opweld.cli import arguments, show
from opweld.errors import ArtifactError, OptionError, RunError, UnsupportedError
from opweld.ledger import printable
from opweld.options import Options

if TYPE_CHECKING:
    from opweld.analysis.machine import Machine
    from opweld.experiments.opened import Opened
    from opweld.experiments.traced import Trace
    from opweld.verification.compare import Comparison
    from opweld.verification.intermediates import Intermediate, Traced

ARTIFACT = "an artifact holds no graph to compute in float64: report on the ONNX file that it was made from"
NOT_RUN = "the report was made without a run: leave --no-run out"
NOT_COMPARED = "the report was made with --no-numerics"


@arguments.with_options(without=("dims",))
def report(
    model: arguments.AnyModelArgument,
    *,
    options: Options,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="The file to write.", show_default=False)
    ],
    vs: Annotated[
        str, typer.Option("--vs", metavar="NAMES", help="Runtimes to compare with: onnxruntime, openvino; or none.")
    ] = "none",
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Show what was compiled only: no times, no errors, no other runtimes.")
    ] = False,
    no_numerics: Annotated[
        bool, typer.Option("--no-numerics", help="Leave out errors: float64 takes long for a large model.")
    ] = False,
    values: arguments.InputOption = None,
    dim: arguments.InputDimOption = None,
    seed: arguments.SeedOption = 0,
) -> None:
    """Write one HTML file that shows a model before and after: graph, roofline, timeline, memory, decisions, errors.

    \b
    opweld report model.onnx -o report.html
    opweld report model.onnx -o report.html --vs onnxruntime,openvino --threads 2
    opweld report model.onnx -o report.html --dim batch=1 --dim seq=256
    opweld report model.opweld -o report.html
        of an artifact: all but errors and other runtimes
    opweld report model.onnx -o report.html --no-run
        what was compiled, without running it

    The file holds everything that it shows, asks no network, and opens in any browser of today. The roofs of its
    roofline are those that `opweld machine` measured; where it never did, they are measured first.
    """
    from opweld.account.data import account_json
    from opweld.accounts import account_of
    from opweld.analysis.analysis import analysis_of
    from opweld.analysis.costs import fed_sizes
    from opweld.analysis.data import analysis_json
    from opweld.analysis.machine import Machine
    from opweld.analysis.profile_data import profile_json
    from opweld.analysis.sources import kernel_sources
    from opweld.analysis.usual_run import most_threads, planned
    from opweld.build import artifact
    from opweld.cli.open import artifact_of, file_bytes, open_model
    from opweld.cli.profile import taken
    from opweld.cli.traced import traced
    from opweld.report.document import Document
    from opweld.report.page import page
    from opweld.verification.asked import check_asked
    from opweld.verification.intermediates import Tracing

    arguments.check_files(model, output=output)
    peers = _peers(vs)
    if peers and (no_run or model.is_dir()):
        why = "--no-run runs nothing" if no_run else f"{str(model)!r} is an artifact, which other runtimes cannot read"
        raise OptionError(f"--vs {vs}: {why}")
    given, dims = arguments.pairs(values, "--input"), arguments.sizes(dim)
    check_asked(model, given, dims, seed)
    tracing = None if no_run or no_numerics or model.is_dir() else Tracing()
    folder = artifact_of(model, options, dims, tracing)
    manifest = artifact.read(folder)
    account = account_of(folder)
    numerics, reason = None, NOT_RUN if no_run else NOT_COMPARED if no_numerics else ARTIFACT
    profiled, unprofiled, plan, sizes = None, NOT_RUN, None, dims
    opened, feeds = None, dict[str, Any]()
    if not no_run:
        try:
            opened = open_model(model, options, dims)
            feeds = opened.feeds(given, dims, seed)
        except (ArtifactError, RunError, UnsupportedError) as error:
            opened, unprofiled = None, str(error)
            reason = reason if tracing is None else unprofiled
    fits = opened is not None and opened.session.folder == folder  # else it is compiled for what is fed
    if opened is not None and tracing is not None:
        traces = tracing.traced if fits else {}
        again = partial(traced, model, options, given, dims, seed)
        numerics, reason = _numerics(model, opened, feeds, traces, again)
    machine = Machine.remembered() if no_run else _measured()
    if opened is not None:
        try:
            if not fits:
                opened = open_model(folder, options)
                feeds = opened.feeds(given, dims, seed)
            sizes = fed_sizes(account.record, feeds)
            made = taken(opened.session, feeds, account, machine)
            profiled, plan = profile_json(made, str(model), manifest.target), opened.session.plan(feeds)
        except (ArtifactError, RunError, UnsupportedError) as error:
            unprofiled = str(error)
    if plan is None:
        sizes, plan = planned(folder, account, sizes, options.threads)
    analysis = analysis_of(account, sizes, machine, plan, most_threads(options))
    shown = Document(
        title=model.resolve().stem,
        model=str(model),
        opweld=manifest.opweld,
        target=manifest.made_for,
        account=account_json(account, str(model), account.record.nodes, account.ledger),
        sources=kernel_sources(folder),
        analysis=analysis_json(analysis, str(model), manifest.target, file_bytes(model)),
        profile=profiled,
        profile_reason="" if profiled else unprofiled,
        machine=None if machine is None else machine.to_json(),
        numerics=numerics,
        numerics_reason=reason,
        peers=_latencies(model, options, peers, given, dims, seed) if peers else (),
    )
    text = page(shown.to_json())
    whole.write_text(text, output, "--output")
    print(f"{printable(str(output))}  ({len(text) / 1e6:.1f} MB)")


def _measured() -> Machine:
    """The ceilings of this machine, measured where they never were."""
    from opweld.analysis.ceilings import measure
    from opweld.analysis.machine import Machine

    found = Machine.remembered()
    if found is None:
        with show.progress() as progress:
            found = measure(progress=progress)
        found.remember()
    return found


def _peers(vs: str) -> list[str]:
    from opweld.experiments.peers import PEERS

    names = [] if vs == "none" else [name.strip() for name in vs.split(",")]
    if len(set(names)) != len(names) or not PEERS.keys() >= set(names):
        raise OptionError(f"--vs {vs!r}: expected some of {', '.join(PEERS)}, each once; or none")
    return names


def _latencies(
    model: Path, options: Options, peers: list[str], given: Mapping[str, str], dims: Mapping[str, int], seed: int
) -> list[dict[str, Any]]:
    """Of opweld and of other runtimes, taken in turn."""
    from opweld.experiments.contest import contest

    level = {"all": options}
    rows = contest(model, model.stem, level, peers, lambda opened: opened.feeds(given, dims, seed), 7, dims)
    return [
        {"name": name, "median": timing.median_s, "best": timing.best_s} for name, timing in rows[0].timings.items()
    ]


def _numerics(
    model: Path,
    opened: Opened,
    feeds: Mapping[str, Any],
    traces: Mapping[str, Traced],
    compiled_again: Callable[[], Trace],
) -> tuple[dict[str, Any] | None, str]:
    """Errors of the outputs and of the values that are in memory, and why some are not there.

    `traces`: where the session keeps values; what is `compiled_again` tells them where there are none."""
    from opweld.experiments.traced import compared
    from opweld.verification.check import FLOAT64, check_outputs
    from opweld.verification.intermediates import read_values
    from opweld.verification.reference import float64_values

    made, fed = opened.run(feeds), opened.session.as_declared(feeds)
    with show.working("computing in float64"):
        try:
            right = float64_values(model, fed)
        except UnsupportedError:
            right = dict[str, Any]()
        known = [right[name] for name in made] if made.keys() <= right.keys() else None
        try:
            check = check_outputs(model, fed, list(made), list(made.values()), right=known)
        except UnsupportedError as error:
            return None, str(error)
    outputs, values, notes = [_output(one) for one in check.comparisons], list[dict[str, Any]](), [*check.notes]
    judged = {"outputs": outputs, "values": values, "source": check.reference}
    if check.reference != FLOAT64:
        notes.append("values on the way are compared with float64 alone, which is no reference for this model")
        return judged, ". ".join(notes)
    try:
        if traces and right:
            trace = compared(model, read_values(opened.session, traces, feeds), fed, right)
        else:
            trace = compiled_again()
        values += [_value(value) for value in trace.values]
        notes += [note for note in trace.notes if note not in notes]
    except UnsupportedError as error:
        notes.append(str(error))
    return judged, ". ".join(notes)


def _output(comparison: Comparison) -> dict[str, Any]:
    data = comparison.to_json()
    return {
        key: data[key] for key in ("name", "shape", "scale", "error", "tolerance", "peer_error", "passed", "verdict")
    }


def _value(value: Intermediate) -> dict[str, Any]:
    data = value.to_json()
    own = {key: data[key] for key in ("name", "node", "shape", "scale", "error", "before", "wrong", "verdict")}
    return own | {"tolerated": data["tolerance"]}
