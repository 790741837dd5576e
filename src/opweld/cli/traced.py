"""`opweld verify --intermediates` and `--first-bad`: where an error begins, and where a NaN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import typer

import opweld
from opweld.cli import show
from opweld.errors import RunError
from opweld.experiments.traced import Trace
from opweld.ledger import printable
from opweld.options import Options
from opweld.table import Column, of_names, of_words
from opweld.verification.intermediates import (
    Intermediate,
    first_spoilt,
)


def traced(
    model: Path,
    options: Options,
    given: Mapping[str, str],
    dims: Mapping[str, int],
    seed: int,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> Trace:
    """See `opweld.trace`, with a progress bar."""
    with show.progress() as progress:
        return opweld.trace(
            model, given, sizes=dims, seed=seed, rtol=rtol, atol=atol, progress=progress, **options.keywords()
        )


def report_values(
    model: Path,
    options: Options,
    given: Mapping[str, str],
    dims: Mapping[str, int],
    seed: int,
    json: Path | None,
    *,
    rtol: float | None,
    atol: float | None,
) -> None:
    """Prints every value that is in memory, and where the error begins; exit status 1 when one is."""
    trace = traced(model, options, given, dims, seed, rtol=rtol, atol=atol)
    found = trace.values
    wrong = [value for value in found if value.wrong]
    if json is not None:
        data = {"model": str(model), "values": [value.to_json() for value in found], "notes": list(trace.notes)}
        show.write_json(data, json)
    if json is None or str(json) != "-":
        columns = (
            of_names("value"),
            of_names("node", 6),
            of_words("shape", 5),
            Column("scale", 4),
            Column("error"),
            Column("before", 2),
            Column("tolerated", 1),
            Column("ONNX Runtime", 3),
            of_words("verdict"),
        )
        title = f"{printable(str(model))}: the values in memory against float64, errors as parts of the scale"
        show.table(title, columns, [_row(value) for value in found], [f"note: {note}" for note in trace.notes])
        for value in wrong:
            begins = "the error begins at" if value.jumps else "an output is outside:"
            show.text(f"{begins} {_where(value)}: {value.comparison.problem}")
        for value in found:
            if value.verdict == "unseen":
                print(
                    f"{_where(value)} is off by more than rounding, which no output shows: {value.comparison.problem}"
                )
        if not wrong:
            print(f"{len(found)} values, none of them wrong")
    if wrong:
        raise typer.Exit(1)


def _row(value: Intermediate) -> tuple[str, ...]:
    c = value.comparison
    verdict = "WRONG" if value.wrong else value.verdict
    return (
        printable(value.name),
        printable(value.node),
        "x".join(map(str, c.shape)) or "scalar",
        f"{c.scale:.3g}",
        f"{c.error:.2e}",
        f"{value.before:.2e}",
        f"{c.tolerance:.2e}",
        "-" if c.peer_error is None else f"{c.peer_error:.2e}",
        f"{verdict}, begins here" if value.wrong and value.jumps else verdict,
    )


@dataclass(frozen=True)
class _Found:
    """The first thing that is bad: its node, empty where nothing is, and what to say of it."""

    node: str
    words: str
    shared: bool = False
    """Whether its kernel computes other nodes too."""


def report_first_bad(
    model: Path, options: Options, given: Mapping[str, str], dims: Mapping[str, int], seed: int, json: Path | None
) -> None:
    """Names the first value that is not finite where the reference is, or the first bad index; exit status 1 when there
    is one. Where its kernel computes several nodes, the model is asked again with a kernel for each."""
    found, notes = _first_bad(model, options, given, dims, seed)
    if found.shared:
        plain = replace(options, level="none", disable=(), pins={}, schedules=None)
        alone, _ = _first_bad(model, plain, given, dims, seed)
        remedy = "at level none nothing is bad: `opweld bisect` names the decision"
        found = alone if alone.node else replace(found, words=f"{found.words}; {remedy}")
    lines = [found.words, *notes]
    if json is not None:
        show.write_json({"model": str(model), "node": found.node or None, "lines": lines}, json)
    if json is None or str(json) != "-":
        show.text("\n".join(lines))
    if found.node:
        raise typer.Exit(1)


def _first_bad(
    model: Path, options: Options, given: Mapping[str, str], dims: Mapping[str, int], seed: int
) -> tuple[_Found, list[str]]:
    """What is bad first, and what to say of the model itself."""
    try:
        trace = traced(model, options, given, dims, seed)
    except RunError as error:
        nodes = str(error).partition(": ")[0]
        return _Found(nodes, str(error), shared=", " in nodes), []
    notes: list[str] = []
    if trace.undefined is not None:
        name, node, count = trace.undefined
        notes.append(f"{_named(name, node)}: {count} elements are NaN in float64 too; that is the model's own doing")
    first = first_spoilt(trace.values)
    if first is None:
        count = len(trace.values)
        return _Found("", f"{count} values are in memory; none is NaN or infinite where float64 has numbers"), notes
    words = f"{_where(first)}: {first.spoilt} elements are NaN or infinite, where float64 has numbers"
    return _Found(first.node, words, shared=len(first.nodes) > 1), notes


def _where(value: Intermediate) -> str:
    return _named(value.name, value.node)


def _named(name: str, node: str) -> str:
    return f"{printable(name)} (node {printable(node)})"
