"""What quantisers make of trained models, scored: opweld's, ONNX Runtime's and NNCF's, given the same samples.

    python -m benchmarks.quantisers                  all tasks and precisions; about half an hour
    python -m benchmarks.quantisers ocr --only int8  a part: other rows of docs/precision.json are kept

NNCF makes files of int8, where it is installed (pip install nncf). Every file is scored in ONNX Runtime, so that files
are compared and not runtimes; then opweld and, where it is installed, OpenVINO run the first samples too, and `apart`
says how far answers are from those of ONNX Runtime with its optimiser off.
`python -m benchmarks.precision --render` writes the page.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import opweld
from benchmarks.trained import TASKS, Feed, Task
from opweld.calibration.error import error_of
from opweld.experiments.peers import openvino
from opweld.frontend.opset import at_opset, opset_of

Array = NDArray[Any]
Maker = Callable[[Task, Path], str]
"""Writes a quantised model and answers a remark."""

ROWS = Path(__file__).parents[1] / "docs" / "precision.json"
COMPARED = 4
"""Samples that all runtimes answer."""


RUNTIMES = ("opweld", "ONNX Runtime", "OpenVINO")


def _ours(precision: Any) -> Maker:
    def make(task: Task, out: Path) -> str:
        done = opweld.quantize(task.model, task.calibration, precision=precision)
        done.save(out)
        biases = ", biases corrected" if done.corrected else ""
        rounding = ", gptq" if done.rounding == "gptq" else ""
        return f"error {done.error:.3g} held out; {done.ranges or 'no ranges'}{biases}{rounding}"

    return make


def _static(task: Task, out: Path) -> str:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(task.calibration)

        def get_next(self) -> Feed | None:  # pyright: ignore
            return next(self._left, None)

    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        newer = Path(folder) / "newer.onnx"  # scales a channel are there since opset 13
        model = onnx.load(task.model)
        onnx.save(at_opset(model, 17) if opset_of(model) < 17 else model, str(newer))
        quant_pre_process(str(newer), str(prepared), skip_symbolic_shape=True)
        remark = "quantize_static, min/max, by channel"
        for extra in ({}, {"QDQDisableWeightAdjustForInt32Bias": True}):
            try:
                quantize_static(
                    str(prepared), str(out), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, extra_options=extra,
                )  # fmt: skip
            except ValueError:  # of a comparison of two arrays, in that adjustment
                remark += "; adjustment of weights for biases off, where it fails"
            else:
                break
    return remark


def _nncf(task: Task, out: Path) -> str:
    import nncf  # pyright: ignore

    model = onnx.load(task.model)
    library: Any = nncf
    kind = library.ModelType.TRANSFORMER if "MiniLM" in task.name else None
    made = library.quantize(
        at_opset(model, 17) if opset_of(model) < 17 else model, library.Dataset(task.calibration), model_type=kind,
        preset=library.QuantizationPreset.MIXED, subset_size=len(task.calibration),
    )  # fmt: skip
    onnx.save(made, out)
    return "nncf.quantize, mixed preset, biases corrected"


def _dynamic(task: Task, out: Path) -> str:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(task.model), str(out), per_channel=True, weight_type=QuantType.QInt8,
                     op_types_to_quantize=["MatMul", "Gather"])  # fmt: skip
    return "quantize_dynamic of MatMul and Gather: activations are integers too"


def _nbits(task: Task, out: Path) -> str:
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    model = at_opset(onnx.load(task.model), 21)  # the first with int4
    maker = MatMulNBitsQuantizer(
        model, bits=4, block_size=32, is_symmetric=True, quant_format=QuantFormat.QOperator,
        op_types_to_quantize=("MatMul", "Gather"),
    )  # fmt: skip
    maker.process()
    made: Any = maker.model
    onnx.save(made.model, str(out))
    return "MatMulNBits, blocks of 32; convolutions in float"


MAKERS: dict[tuple[str, str], Maker] = {
    ("int8", "opweld"): _ours("int8"),
    ("int8", "ONNX Runtime"): _static,
    ("int8", "NNCF"): _nncf,
    ("int8-weights", "opweld"): _ours("int8-weights"),
    ("int8-weights", "ONNX Runtime"): _dynamic,
    ("int4-weights", "opweld"): _ours("int4-weights"),
    ("int4-weights", "ONNX Runtime"): _nbits,
}


def measured(task: Task, only: Sequence[str], rows: dict[str, dict[str, Any]], key: str) -> Iterator[None]:
    """Fills in the rows of a task, one after the other."""
    right = answers_of(task.model, task.scored)
    rows[f"{key}/float/"] = _row(task, task.model, right, right, "", 0.0)
    yield
    for (precision, by), make in MAKERS.items():
        if only and precision not in only:
            continue
        if by == "NNCF" and importlib.util.find_spec("nncf") is None:
            continue
        name = f"{key}/{precision}/{by}"
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "model.onnx"
            begun = time.monotonic()
            try:
                remark = make(task, out)
                taken = time.monotonic() - begun
                rows[name] = _row(task, out, answers_of(out, task.scored), right, remark, taken)
            except Exception as error:  # noqa: BLE001 - each quantiser has errors of its own
                rows[name] = {"model": task.name, "remark": f"fails: {' '.join(str(error).split())[:120]}"}
        yield


def answers_of(model: Path, feeds: Sequence[Feed], *, literal: bool = False) -> list[list[Array]]:
    """ONNX Runtime's answers, output by output; `literal`: without its optimiser."""
    options = onnxruntime.SessionOptions()
    if literal:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 2, 3
    session = onnxruntime.InferenceSession(str(model), options)
    return [[np.asarray(one) for one in session.run(None, feed)] for feed in feeds]


def _row(task: Task, model: Path, answers: Any, right: Any, remark: str, taken: float) -> dict[str, Any]:
    return {
        "model": task.name,
        "score": task.score(answers, right),
        "what": task.what,
        "samples": len(task.scored),
        "bytes": model.stat().st_size,
        "apart": _apart(task, model),
        "seconds": taken,
        "remark": remark,
    }


def _apart(task: Task, model: Path) -> dict[str, float | str]:
    """How far runtimes' answers to the first samples are from what the file says to the letter, the worst output."""
    feeds = task.scored[:COMPARED]
    letter = answers_of(model, feeds, literal=True)
    found: dict[str, float | str] = {}
    runners: dict[str, Callable[[], Any]] = {
        "opweld": lambda: _opweld(model, feeds),
        "ONNX Runtime": lambda: answers_of(model, feeds),
    }
    if any(True for _ in importlib.metadata.distributions(name="openvino")):
        runners["OpenVINO"] = lambda: _openvino(model, feeds)
    for runtime, run in runners.items():
        try:
            found[runtime] = error_of_all(run(), letter)
        except Exception as error:  # noqa: BLE001 - each runtime has errors of its own
            found[runtime] = " ".join(str(error).split())[:120]
    return found


def error_of_all(answers: Sequence[Sequence[Array]], right: Sequence[Sequence[Array]]) -> float:
    """The error of answers, sample by sample and output by output, see `error_of`."""
    got, expected = ([{str(i): array for i, array in enumerate(one)} for one in all_] for all_ in (answers, right))
    return error_of(got, expected)


def _opweld(model: Path, feeds: Sequence[Feed]) -> list[list[Array]]:
    compiled = opweld.compile(model)
    names = [value.name for value in onnx.load(model, load_external_data=False).graph.output]
    return [[compiled.run(feed)[name] for name in names] for feed in feeds]


def _openvino(model: Path, feeds: Sequence[Feed]) -> list[list[Array]]:
    compiled = openvino(model, feeds[0], 2)
    return [[np.array(compiled(feed)[output]) for output in compiled.outputs] for feed in feeds]


def tables(held: Mapping[str, Any]) -> list[str]:
    """The lines of the page that tell the rows."""
    rows = dict(sorted(held.get("rows", {}).items(), key=lambda item: ORDER.index(item[0])))
    lines = [
        "# Quantisers",
        "",
        "Trained models, scored. Every file is run by ONNX Runtime, so that files are compared and not runtimes.",
        "`apart` is how far a runtime's answers are from those of ONNX Runtime with its optimiser off, which computes",
        "what the file says to the letter, as a part of their size: with int8 activations a step of a scale here and",
        "there, which the layers that follow carry on. All quantisers are given the same samples, and none of them is",
        "scored. Rows that are missing have not been measured yet.",
        "",
        held.get("versions", ""),
        "",
    ]
    for name in dict.fromkeys(row["model"] for row in rows.values()):
        held = {key: row for key, row in rows.items() if row["model"] == name}
        known = next(row for row in held.values() if "score" in row)
        lines += [
            f"## {name}",
            "",
            "| precision | by | score | bytes | of float | apart: opweld | ONNX Runtime | OpenVINO | |",
        ]
        lines += ["|---|---|--:|--:|--:|--:|--:|--:|---|"]
        for key, row in held.items():
            _, precision, by = key.split("/")
            if "score" not in row:
                lines.append(f"| {precision} | {by} | | | | | | | {row['remark']} |")
                continue
            start = f"| {precision} | {by} | {row['score']:.4f} | {row['bytes']:,}"
            apart = [_number(row["apart"].get(runtime, "")) for runtime in RUNTIMES]
            part = row["bytes"] / known["bytes"]
            lines.append(f"{start} | {part:.2f} | {' | '.join(apart)} | {row['remark']} |")
        lines += ["", f"Score: {known['what']}, over {known['samples']} samples.", ""]
    return lines


ORDER = [f"{key}/{precision}/{by}" for key in TASKS for precision, by in [("float", ""), *MAKERS]]
"""Names of rows, as they are told."""


def _number(value: float | str) -> str:
    return f"{value:.1e}" if isinstance(value, float) else "fails" if value else ""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, []], help="of the models; all where none is named")
    parser.add_argument("--only", action="append", default=[], help="a precision; repeat for more")
    arguments = parser.parse_args()
    data: dict[str, Any] = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    held = data.setdefault("quantisers", {"versions": "", "rows": {}})
    for key in arguments.tasks or TASKS:
        packages = ("onnxruntime", "openvino", "nncf")
        installed = [p for p in packages if any(True for _ in importlib.metadata.distributions(name=p))]
        told = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in installed)
        held["versions"] = f"opweld {opweld.__version__}, {told}; {_processor()}."
        for _ in measured(TASKS[key](), arguments.only, held["rows"], key):
            ROWS.write_text(json.dumps(data, indent=1) + "\n")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))


if __name__ == "__main__":
    main()
