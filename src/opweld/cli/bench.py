"""`opweld bench`: how fast, against whom, and what the optimiser is worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import opweld
from opweld.cli import arguments, show
from opweld.errors import OptionError
from opweld.ledger import printable
from opweld.options import LEVELS, Options
from opweld.table import Column, of_names, of_words


@arguments.with_options(without=(*arguments.RUNNING, "level"))
def bench(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="ONNX files.", show_default=False)],
    *,
    options: Options,
    vs: Annotated[
        str,
        typer.Option(
            "--vs",
            metavar="NAMES",
            help="Runtimes to compare with: onnxruntime, onnxruntime-exact, openvino, openvino-bf16; or none.",
        ),
    ] = "onnxruntime",
    levels: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Compare levels too, as none,all: one row each.", show_default=False),
    ] = None,
    values: arguments.InputOption = None,
    dim: arguments.InputDimOption = None,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Blocks of runs each contestant gets.")] = 7,
    seed: arguments.SeedOption = 0,
    json: arguments.JsonOption = None,
) -> None:
    """Time a model against other runtimes on the same inputs and threads: alternating blocks, medians.

    \b
    opweld bench model.onnx --threads 2
    opweld bench a.onnx b.onnx --vs onnxruntime,openvino --json bench.json
    opweld bench model.onnx --dim height=640 --dim width=640
    opweld bench model.onnx --levels none,all --vs none
        what is fusion worth?
    opweld bench model.onnx --pin ID=ALTERNATIVE
        what is another choice worth?

    The ratio is the first other runtime's time by opweld's: above 1, opweld is faster. The error is the largest
    difference to that runtime's outputs, as a part of each output's scale. Nine of ten runs took at most p90: where
    that is far from the median, or the system took processors away, which is said before the table, measure again.
    """
    from opweld.experiments.contest import Row
    from opweld.experiments.peers import PEERS, check_installed
    from opweld.verification.asked import check_asked

    peers = [] if vs == "none" else _names(vs, "--vs")
    for peer in peers:
        if peer not in PEERS:
            raise OptionError(f"--vs {peer!r}: expected some of {', '.join(PEERS)}; or none")
    chosen = _names(levels, "--levels") if levels else ["all"]
    for level in chosen:
        if level not in LEVELS:
            raise OptionError(f"--levels {level!r}: expected some of {', '.join(LEVELS)}")
    check_installed(peers)
    sizes, given = arguments.sizes(dim), arguments.pairs(values, "--input")
    for model in models:  # all of them before the first is compiled
        arguments.check_files(model, json=json)
        check_asked(model, given, sizes, seed)
    rows: list[Row] = []
    with show.progress() as progress:
        for model in models:
            rows += opweld.bench(
                model,
                given,
                sizes=sizes,
                seed=seed,
                vs=peers,
                levels=chosen,
                rounds=rounds,
                progress=progress,
                **options.keywords(),
            )
    if json is not None:
        show.write_json({"rows": [row.to_json() for row in rows]}, json)
    if json is None or str(json) != "-":
        print_rows(rows, peers)


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise OptionError(f"{option} {text!r}: expected names separated by commas, each once")
    return names


def print_rows(rows: Sequence[Any], peers: Sequence[str]) -> None:
    """Prints the rows of one or more contests as one table."""
    many = len({row.level for row in rows}) > 1
    columns = [
        of_names("model"),
        *([of_words("level")] if many else []),
        Column("nodes -> kernels", 3),
        Column("max error", 2),
    ]
    columns += [Column("opweld ms"), Column("opweld p90", 2)]
    for number, peer in enumerate(peers):
        columns += [Column(f"{peer} ms", 1 if number else 0), Column(f"{peer} p90", 3)]
    columns += [*([Column("ratio")] if peers else []), Column("moved", 4), Column("arena", 5), Column("all tensors", 6)]
    table: list[list[str]] = []
    for row in rows:
        cells = [printable(row.model), *([row.level] if many else []), f"{row.nodes} -> {row.kernels}"]
        cells += ["-" if row.error is None else f"{row.error:.1e}"]
        for contestant in ("opweld", *peers):
            timing = row.timings[contestant]
            cells += map(show.milliseconds, (timing.median_s, timing.p90_s))
        cells += [f"{row.ratio:.2f}"] if row.ratio is not None else []
        cells += map(show.byte_count, (row.moved_bytes, row.arena_bytes, row.tensor_bytes))
        table.append(cells)
    for name, warning in dict.fromkeys((row.model, row.disturbance.warning) for row in rows):
        if warning:
            show.text(f"warning, {printable(name)}: {warning}")
    show.table("", columns, table)
