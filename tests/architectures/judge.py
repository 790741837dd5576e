"""Compiles an exported architecture, runs it at each of its sizes, and says what came of it.

An output is right within the larger of 1e-5 of the scale of torch's float64 output and four times the error of torch's
own float32 (`opweld.verification.compare`). An exporter may write a model that is not the module at other sizes; then
ONNX Runtime's output is the reference, within 1e-4 of its scale. Where neither opweld nor ONNX Runtime runs a model,
at some sizes or at all, it is the exporter's fault: the model has no meaning there; nor has a program of torch.export
where torch itself does not run it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import opweld
from opweld.errors import OpweldError
from opweld.verification.compare import compare
from tests.architectures.architecture import PROGRAMS, Architecture
from tests.architectures.export import exported, file_of, load_program

Array = NDArray[Any]

PEER_TOLERANCE = 1e-4
"""Two runtimes in float32 against each other, as a part of the scale."""


@dataclass(frozen=True)
class Finding:
    """What became of an architecture from one exporter.

    `verdict` is right, refused, wrong, internal, crash, or absent when the exporter gave nothing. `runs` counts the
    sizes at which it was right, `void` those at which the exported model has no meaning; `what` says what is amiss."""

    name: str
    exporter: str
    verdict: str
    runs: int = 0
    void: int = 0
    what: str = ""

    @property
    def bad(self) -> bool:
        """Whether opweld did not do what it should."""
        return self.verdict not in ("right", "absent")

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def judge(architecture: Architecture, exporter: str, note: Callable[[str], None]) -> Finding:
    """`note` is told what is about to be done, for whoever reads the last words of a process that crashes."""
    note("exporting")
    folder = exported(architecture, exporter)

    def found(verdict: str, what: str = "", runs: int = 0, void: int = 0) -> Finding:
        return Finding(architecture.name, exporter, verdict, runs, void, what)

    refusal = folder / "refusal.txt"
    if refusal.exists():
        return found("absent", refusal.read_text())
    runs = void = 0
    try:
        note("compiling")
        session = opweld.compile(_model(folder / file_of(exporter)), threads=1).session
        for number, sizes in enumerate(architecture.sizes):
            with np.load(folder / f"{number}.npz") as arrays:
                answers = dict(arrays.items())
            note(f"running at {sizes}")
            try:
                outputs = _run(session, answers)
            except OpweldError as error:
                if not (_takes(folder, answers) if exporter == PROGRAMS else _series(answers, "peer")):
                    void += 1
                    continue
                return found("refused", f"at {sizes}: {_brief(error)}", runs, void)
            problem = _problem(outputs, answers)
            if problem:
                return found("wrong", f"at {sizes}: {problem}", runs, void)
            runs += 1
    except OpweldError as error:
        if exporter != PROGRAMS and not any(
            _has_peer(folder / f"{number}.npz") for number in range(len(architecture.sizes))
        ):
            return found("absent", f"ONNX Runtime runs it as little as opweld: {_brief(error)}")
        return found("refused", f"{type(error).__name__}: {_brief(error)}", runs, void)
    except Exception as error:  # noqa: BLE001 - any other exception is a defect
        return found("internal", _where(error), runs, void)
    return found("right" if runs else "absent", "" if runs else "has no meaning at any sizes", runs, void)


def _model(path: Path) -> Any:
    return path if path.suffix == ".onnx" else load_program(path)


def _takes(folder: Path, answers: dict[str, Array]) -> bool:
    """Whether a program of torch.export itself runs at these sizes, which it may have been specialised to."""
    import torch

    fed = [torch.from_numpy(array) for name, array in answers.items() if name.startswith("feed_")]
    try:
        with torch.no_grad():
            _model(folder / file_of(PROGRAMS)).module()(*fed)
    except Exception:  # noqa: BLE001 - it raises what it likes
        return False
    return True


def _run(session: Any, answers: dict[str, Array]) -> list[Array]:
    """The outputs; a program of torch.export calls its inputs by their place."""
    fed = [name for name in answers if name.startswith("feed_")]
    places = {f"arguments_{place}": name for place, name in enumerate(fed)}
    feeds = {name: answers[places.get(name, f"feed_{name}")] for name in session.input_names}
    return [np.array(output) for output in session.run(feeds)]


def _has_peer(path: Path) -> bool:
    with np.load(path) as arrays:
        return "peer_0" in arrays


def _series(answers: dict[str, Array], what: str) -> list[Array]:
    return [answers[f"{what}_{i}"] for i in range(len(answers)) if f"{what}_{i}" in answers]


def _problem(outputs: Sequence[Array], answers: dict[str, Array]) -> str:
    """What is wrong with the outputs; empty where they are torch's or ONNX Runtime's."""
    right, plain, peer = (_series(answers, what) for what in ("right", "torch", "peer"))
    problem = ""
    for i, output in enumerate(outputs):
        name = f"output {i}"
        of_torch = compare(name, output, _sound(right[i], plain[i]), plain[i])
        if of_torch.passed:
            continue
        if peer and compare(name, output, peer[i], rtol=PEER_TOLERANCE).passed:
            continue
        problem = problem or f"{name}{'' if peer else ' (ONNX Runtime has no answer)'} {of_torch.problem}"
    return problem


def _sound(right: Array, plain: Array) -> Array:
    """torch's output in float64; that in float32 where a module's least number, which masks, overflows only there."""
    lost = right.dtype.kind == "f" and np.any(np.isfinite(plain) & ~np.isfinite(right))
    return plain.astype(right.dtype) if lost else right


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:600]


def _where(error: Exception) -> str:
    """The exception, and the places in opweld that it passed last."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "opweld" in f.filename]
    places = " < ".join(f"{f.filename.rpartition('opweld/')[2]}:{f.lineno} {f.name}" for f in frames[:-4:-1])
    return f"{type(error).__name__}: {_brief(error)} at {places}"
