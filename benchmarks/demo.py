"""Compiles, runs, checks and times four trained models against ONNX Runtime, and prints one table: `make demo`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from benchmarks.zoo import fetch, inputs
from opweld.cli import show
from opweld.cli.open import open_model
from opweld.errors import OpweldError
from opweld.experiments.contest import Row, contest
from opweld.options import Options, available_cores
from opweld.table import Column, of_names
from opweld.verification.check import check_outputs

MODELS = ("ppocrv4-det", "minilm", "silero-vad", "magika")
PEER = "onnxruntime"


def main() -> int:
    """Runs the demo; 1 when an answer is outside its tolerance."""
    options = Options(threads=min(2, available_cores()))
    rows: list[Row] = []
    problems: list[str] = []
    for model in MODELS:
        row, wrong = demonstrate(model, _fetch(model), options)
        rows.append(row)
        problems += wrong
    titles = ("nodes -> kernels", "max error", "opweld ms", "ONNX Runtime ms", "ratio")
    columns = (of_names("model"), *(Column(title) for title in titles))
    title = f"{options.threads} threads; error against float64 as a part of the scale; ratio above 1: opweld is faster"
    show.table(title, columns, [cells(row) for row in rows], problems, rest="")
    return 1 if problems else 0


def demonstrate(name: str, model: Path, options: Options) -> tuple[Row, list[str]]:
    """One model: its row of the table, and in words which outputs are wrong."""
    feeds = inputs.example(name)
    outputs = open_model(model, options).run(feeds)
    check = check_outputs(model, feeds, list(outputs), list(outputs.values()))
    (row,) = contest(model, name, {options.level: options}, [PEER], lambda _: feeds, rounds=7)
    problems = [f"{name}: {c.name}: {c.problem}" for c in check.comparisons if not c.passed]
    return dataclasses.replace(row, error=check.error), problems


def cells(row: Row) -> tuple[str, ...]:
    """A row as text."""
    mine, theirs = row.timings["opweld"].median_s, row.timings[PEER].median_s
    return (
        row.model,
        f"{row.nodes} -> {row.kernels}",
        f"{row.error:.1e}",
        show.milliseconds(mine),
        show.milliseconds(theirs),
        f"{theirs / mine:.2f}",
    )


def _fetch(name: str) -> Path:
    with show.progress() as progress:
        return fetch.path(name, progress and (lambda arrived: progress(f"fetching {name}, bytes", arrived, 0)))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OpweldError as error:
        print(f"opweld: {error}", file=sys.stderr)
        sys.exit(1)
