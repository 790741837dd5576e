"""Trained models, scored, before and after `opweld.compress`: layers, bytes, operations, time, and what they lose.

    python -m benchmarks.compressed                    all models of benchmarks/trained.py, at an error of 0.05
    python -m benchmarks.compressed minilm --max-error 0.02 --method low-rank
    python -m benchmarks.compressed ocr --layers       every layer, and why it is as it was

Scores are by ONNX Runtime, so that files are compared and not runtimes; times are by opweld, before and after in turns.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import opweld
from benchmarks.trained import TASKS, Answers, Feed, Task
from opweld.compress.report import Compressed


def row(task: Task, done: Compressed) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        right, got = (_answers(path, task.scored) for path in (task.model, done.save(Path(folder) / "model.onnx")))
    scores = f"{task.score(right, right):.4f} -> {task.score(got, right):.4f} ({task.what})"
    before, after = done.flops
    changed = sum(bool(layer.methods) for layer in done.layers)
    kept = "as it was" if not changed or done.measured is None else f"{done.measured.ratio:.2f} times as fast"
    return (
        f"| {task.name} | {changed} of {len(done.layers)} | {done.size_after / done.size_before:.2f} | "
        f"{after / before:.2f} | {kept} | {done.error:.3g} | {scores} |"
    )


def _answers(model: Path, feeds: Sequence[Feed]) -> Answers:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 2, 3
    session = onnxruntime.InferenceSession(str(model), options)
    return [[np.asarray(one) for one in session.run(None, feed)] for feed in feeds]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, []], help="of the models; all where none is named")
    parser.add_argument("--max-error", type=float, default=0.05, help="what outputs may lose, as a part of their size")
    parser.add_argument("--method", action="append", default=[], help="of opweld compress; repeat for more")
    parser.add_argument("--layers", action="store_true", help="print the layers too")
    arguments = parser.parse_args()
    chosen: dict[str, Any] = {"methods": arguments.method} if arguments.method else {}
    lines = [
        "| model | layers changed | bytes | operations of layers | a run | error, held out | score |",
        "|---|--:|--:|--:|---|--:|---|",
    ]
    print(*lines, sep="\n", flush=True)
    for key in arguments.tasks or TASKS:
        task = TASKS[key]()
        done = opweld.compress(task.model, task.calibration, max_error=arguments.max_error, **chosen)
        print(row(task, done), flush=True)
        if arguments.layers:
            print(done)


if __name__ == "__main__":
    main()
