"""What fewer bits and fusion are worth together: eight models at five precisions, fused and not, by one command.

    python -m benchmarks.precision                     everything, about twenty minutes; nothing else may run
    python -m benchmarks.precision minilm --again      a part, measured anew: other models of FILE are kept
    python -m benchmarks.precision --minutes 10        begins no model after that long
    python -m benchmarks.precision --render            the page again, from what FILE holds

Models are kept in FILE (--json) as they come, and a model measured with the same sources of opweld is not measured
again, so that what was stopped goes on; its quantised files and artifacts lie in caches until then. The page is
docs/precision.md, which tells too what `benchmarks.quantisers` found.

fp32 is the model as it is; bf16 is `precision="bf16"`, which a decision takes for a product where that is predicted to
be faster; int8, int8-weights and int4-weights are files of `opweld.quantize`, the first with samples. Not fused is
without `FUSION`: each operator computes in a kernel of its own, and products are what the precision says. All ten of a
model run in processes of their own, in alternating blocks. `weights` are bytes of the artifact's: a product that waits
for its arithmetic and not for bytes multiplies floats, whatever the file holds. `peak` is the resident memory of the
process. Accuracy is the task's score of all samples where `benchmarks.trained` has a task, else the error
against ONNX Runtime without its optimiser on the float model.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import opweld
from benchmarks.paired import REPOSITORY, Contestant, contest
from benchmarks.performance import geometric, machine
from benchmarks.quantisers import answers_of, error_of_all, tables
from benchmarks.trained import TASKS, Feed, Task
from benchmarks.zoo import fetch, inputs
from opweld.accounts import account_of
from opweld.cached import sources_digest
from opweld.typed import typed

PAGE = REPOSITORY / "docs" / "precision.md"
DATA = PAGE.with_suffix(".json")
PRECISIONS = ("fp32", "bf16", "int8", "int8-weights", "int4-weights")
FUSION = ("fuse.view", "fuse.chain", "fuse.epilogue", "fuse.rows", "fuse.block")
"""The rules by which an operator is computed in the kernel of another one."""
TASK_OF = {"minilm": "minilm", "magika": "magika", "ppocrv4-rec": "ocr"}
"""By model of the zoo, its task."""
MODELS = (*TASK_OF, "ppocrv4-cls", "silero-vad-16k", "ddddocr", "mobilenetv2", "resnet50")
CALIBRATED, COMPARED = 16, 4
"""Samples that ranges are of, and, of a model without a task, that its error is of."""


@dataclass(frozen=True)
class Cell:
    """A model at a precision, fused or not.

    Attributes:
        milliseconds: the median run. ratio: how often as fast it is as fp32, fused; low, high: the quartiles of blocks
            that follow one another. file, weights: bytes of the ONNX file and of the artifact's weights. peak: MiB.
            accuracy: see `Measured`.
    """

    precision: str
    fused: bool
    kernels: int
    milliseconds: float
    ratio: float
    low: float
    high: float
    file: int
    weights: int
    peak: float
    accuracy: float


@dataclass(frozen=True)
class Measured:
    """What a model does at all precisions.

    Attributes:
        what: the accuracy is: a task's score, the larger the better, or an error. failed: why a precision is missing.
    """

    model: str
    threads: int
    sources: str
    what: str
    cells: tuple[Cell, ...]
    failed: Mapping[str, str]


@dataclass(frozen=True)
class Subject:
    """A model of the zoo, the samples that it is calibrated and judged with, and how."""

    name: str
    file: Path
    calibration: list[Feed]
    judged: list[Feed]
    accuracy: Callable[[Any, Any], float]
    what: str

    @staticmethod
    def of(name: str) -> Subject:
        """The model with its task, or with samples of the zoo."""
        if name in TASK_OF:
            task: Task = TASKS[TASK_OF[name]]()
            return Subject(name, task.model, task.calibration[:CALIBRATED], task.scored, task.score, task.what)
        feeds = [dict(inputs.example(name, 0, seed)) for seed in range(CALIBRATED + COMPARED)]
        return Subject(
            name, fetch.path(name), feeds[:CALIBRATED], feeds[CALIBRATED:], error_of_all, "error against float"
        )


# ------------------------------------------------------------------------------------------------------------ measuring


def file_of(subject: Subject, precision: str) -> Path:
    """The model at a precision, as an ONNX file: that of the zoo, or a quantised one, kept for these sources."""
    if precision in ("fp32", "bf16"):
        return subject.file
    out = fetch.cache_folder() / "precision" / sources_digest()[:12] / f"{subject.name}-{precision}.onnx"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_suffix(".part.onnx")
        data = subject.calibration if precision == "int8" else None
        chosen: Any = precision
        opweld.quantize(subject.file, data, precision=chosen).save(part)
        part.rename(out)
    return out


@dataclass(frozen=True)
class Way:
    """A precision, fused or not, compiled to an artifact."""

    precision: str
    fused: bool
    file: Path
    artifact: Path
    kernels: int
    accuracy: float

    @property
    def name(self) -> str:
        """What it is called where runs are told."""
        return self.precision if self.fused else f"{self.precision}, not fused"


def made(subject: Subject, precision: str, fused: bool, threads: int, folder: Path, right: Any) -> Way:
    """Compiles, saves and judges one."""
    options: dict[str, Any] = {"precision": "bf16"} if precision == "bf16" else {}
    file = file_of(subject, precision)
    model = opweld.compile(file, threads=threads, disable=() if fused else FUSION, **options)
    artifact = Path(model.save(folder / f"{precision}-{'fused' if fused else 'apart'}.opweld"))
    answers = [[np.array(one) for one in model.session.run(feed)] for feed in subject.judged]
    return Way(precision, fused, file, artifact, len(account_of(artifact).kernels), subject.accuracy(answers, right))


def measure(name: str, threads: int, rounds: int) -> Measured:
    """All of a model. A precision that cannot be had is told, and left out."""
    subject = Subject.of(name)
    right = answers_of(subject.file, subject.judged, literal=True)
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="opweld-precision-") as place, contextlib.ExitStack() as stack:
        folder, ways = Path(place), list[Way]()
        for precision in PRECISIONS:
            begun = time.monotonic()
            try:
                ways += [made(subject, precision, fused, threads, folder, right) for fused in (True, False)]
            except Exception as error:  # noqa: BLE001 - one that fails must not lose the others
                failed[precision] = " ".join(str(error).split())[:120]
            print(f"  {precision:<13} {time.monotonic() - begun:5.1f} s  {failed.get(precision, '')}", flush=True)
        feeds = folder / "feeds.npz"
        np.savez(feeds, allow_pickle=False, **inputs.example(name))
        started = (Contestant(way.name, REPOSITORY, "opweld", way.artifact, feeds, threads) for way in ways)
        contestants = contest(started, rounds, stack, f"{name}: ")
        cells = tuple(_cell(way, one, contestants[0]) for way, one in zip(ways, contestants, strict=True))
    return Measured(name, threads, sources_digest(), subject.what, cells, failed)


def _cell(way: Way, contestant: Contestant, first: Contestant) -> Cell:
    low, ratio, high = first.ratio_to(contestant)
    weights = sum(file.stat().st_size for file in way.artifact.glob("weights*"))
    return Cell(
        way.precision, way.fused, way.kernels, contestant.median * 1e3, ratio, low, high, way.file.stat().st_size,
        weights, contestant.opened["peak"] / 2**20, way.accuracy,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- the page


def page(found: Sequence[Measured], quantisers: Mapping[str, Any], about: Mapping[str, str]) -> str:
    """docs/precision.md."""
    lines = [
        "# Precision: what fewer bits cost, and what they save",
        "",
        "Made by `python -m benchmarks.precision`, whose docstring says what each figure is, and, from",
        "[Quantisers](#quantisers) on, by `python -m benchmarks.quantisers`.",
        "",
    ]
    if found:
        lines += ["; ".join(f"{name} {value}" for name, value in about.items()) + ".", ""]
        lines += _means(found)
    for one in found:
        lines += ["", f"## {one.model}", ""]
        lines += [f"{one.threads} threads. Accuracy: {one.what}.", ""]
        lines += [
            "| precision | fused | kernels | ms | as fast as fp32, fused | KB file | KB weights | MiB peak | accuracy |"
        ]
        lines += ["|---|---|--:|--:|--:|--:|--:|--:|--:|"]
        lines += [_line(cell, "score" if one.model in TASK_OF else "error") for cell in one.cells]
        lines += [f"\n{precision}: {why}" for precision, why in one.failed.items()]
    return "\n".join([*lines, "", *tables(quantisers)]) + "\n"


def _line(cell: Cell, kind: str) -> str:
    accuracy = f"{cell.accuracy:.4f}" if kind == "score" else f"{cell.accuracy:.1e}"
    return (
        f"| {cell.precision} | {'yes' if cell.fused else 'no'} | {cell.kernels} | {cell.milliseconds:.3g} "
        f"| {cell.ratio:.2f} ({cell.low:.2f} to {cell.high:.2f}) | {cell.file / 1e3:,.0f} | {cell.weights / 1e3:,.0f} "
        f"| {cell.peak:.0f} | {accuracy} |"
    )


def _means(found: Sequence[Measured]) -> list[str]:
    """How often as fast as fp32, fused, and of how many times its bytes, each precision is, over all models."""
    lines = [
        "| precision | models | fused: as fast | not fused: as fast | file, of fp32's | weights, of fp32's |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for precision in PRECISIONS:
        pairs = [pair for one in found if (pair := _pair(one, precision)) is not None]
        if not pairs:
            continue
        fused, apart = (geometric(pair[i].ratio for pair in pairs) for i in (0, 1))
        file = geometric(pair[0].file / pair[2].file for pair in pairs)
        weights = geometric(pair[0].weights / pair[2].weights for pair in pairs)
        lines.append(f"| {precision} | {len(pairs)} | {fused:.2f} | {apart:.2f} | {file:.2f} | {weights:.2f} |")
    return [*lines, "", "Geometric means; above 1, it is faster than fp32, fused."]


def _pair(one: Measured, precision: str) -> tuple[Cell, Cell, Cell] | None:
    """(fused, not fused, fp32 fused) of a model; None where the precision is missing."""
    by = {(cell.precision, cell.fused): cell for cell in one.cells}
    if (precision, True) not in by or (precision, False) not in by:
        return None
    return by[precision, True], by[precision, False], by["fp32", True]


def main() -> int:
    """Measures what is missing, then writes the page; 1 where time was up before all was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"left out: {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="blocks of a contestant")
    parser.add_argument("--minutes", type=float, default=20.0, help="no model is begun after these")
    parser.add_argument("--again", action="store_true", help="measure models that FILE has already")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--json", type=Path, default=DATA, metavar="FILE")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    options = parser.parse_args()
    data: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    found = {one.model: one for one in (typed(Measured, row, options.json.name) for row in data.get("models", ()))}
    begun = time.monotonic()
    asked = () if options.render else options.models or MODELS
    stale = {name for name in asked if name not in found or found[name].sources != sources_digest()}
    missing = [name for name in asked if options.again or name in stale]
    left = _measured(missing, options, data, found, begun)
    ordered = sorted(found.values(), key=lambda one: (*MODELS, one.model).index(one.model))
    options.page.write_text(page(ordered, data.get("quantisers", {}), data.get("machine", {})))
    if left:
        print(f"{options.minutes:g} minutes are over; the same command goes on with {', '.join(left)}", flush=True)
    return int(bool(left))


def _measured(
    missing: Sequence[str], options: Any, data: dict[str, Any], found: dict[str, Measured], begun: float
) -> Sequence[str]:
    """Measures these models and keeps each in the file; those that there was no time for."""
    for number, name in enumerate(missing):
        spent = (time.monotonic() - begun) / 60
        if spent > options.minutes:
            return missing[number:]
        print(f"{name} ({number + 1} of {len(missing)}, {spent:.1f} minutes so far)", flush=True)
        try:
            found[name] = measure(name, options.threads, options.rounds)
        except Exception as error:  # noqa: BLE001 - nor one model the others
            print(f"  left out: {type(error).__name__}: {error}", flush=True)
            continue
        for cell in found[name].cells:
            print(f"  {_line(cell, 'score' if name in TASK_OF else 'error')}", flush=True)
        data |= {"machine": machine(), "models": [asdict(one) for one in found.values()]}
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    return ()


if __name__ == "__main__":
    sys.exit(main())
