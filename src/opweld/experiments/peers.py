"""Other runtimes on the same model, inputs and threads, behind one call. Each is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.errors import OptionError

Array = NDArray[Any]
Run = Callable[[], list[Array]]
"""Runs a prepared model once and answers its outputs in the model's order."""


def prepare(name: str, model: Path, feeds: Mapping[str, Array], threads: int) -> Run:
    """Opens a model in the runtime `name` (a key of `PEERS`).

    Raises OptionError for a runtime that is not installed, or cannot open the model.
    """
    try:
        return PEERS[name](model, feeds, threads)
    except ImportError as error:
        raise _missing(name) from error
    except Exception as error:  # Each runtime has errors of its own.
        summary = " ".join(str(error).split())[:300]
        raise OptionError(f"{name} cannot open {model.name}: {summary}; leave it out with --vs") from error


def check_installed(names: Iterable[str]) -> None:
    """Raises OptionError for a runtime that is not installed: before a model is compiled to be compared with it."""
    for name in names:
        try:
            import_module(_package(name))
        except ImportError as error:
            raise _missing(name) from error


def _missing(name: str) -> OptionError:
    return OptionError(f"{name} is not installed: pip install 'opweld[{_package(name)}]', or leave it out with --vs")


def _package(name: str) -> str:
    """The package, and the extra, of a runtime."""
    return name.partition("-")[0]


def _onnxruntime(model: Path, feeds: Mapping[str, Array], threads: int, exact: bool = False) -> Run:
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def openvino(
    model: Path, feeds: Mapping[str, Array], threads: int, hint: str = "LATENCY", precision: str = "f32"
) -> Any:
    """A model compiled by OpenVINO for these shapes; `hint` is what it is tuned for, `precision` what its products are
    computed in: f32 or bf16."""
    runtime: Any = import_module("openvino")
    core = runtime.Core()
    # Its default on processors with bf16 is bf16: compare like with like.
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": hint}
    network = core.read_model(str(model))
    # Static shapes are the peer at its best: it plans once for them, as opweld binds once.
    network.reshape({name: list(values.shape) for name, values in feeds.items()})
    return core.compile_model(network, "CPU", settings)


def _openvino(model: Path, feeds: Mapping[str, Array], threads: int, precision: str = "f32") -> Run:
    compiled = openvino(model, feeds, threads, precision=precision)
    request = compiled.create_infer_request()

    def run() -> list[Array]:
        answer: Any = request.infer(feeds, share_inputs=True, share_outputs=True)
        return [np.asarray(answer[output]) for output in compiled.outputs]

    return run


PEERS: dict[str, Callable[[Path, Mapping[str, Array], int], Run]] = {
    "onnxruntime": _onnxruntime,
    "onnxruntime-exact": partial(_onnxruntime, exact=True),
    "openvino": _openvino,
    "openvino-bf16": partial(_openvino, precision="bf16"),
}
"""The runtimes that can be compared with, by the name of their package and extra: in float32, but for `openvino-bf16`,
which is for models compiled with `--precision bf16`. `onnxruntime-exact` is told not to
saturate where products of bytes do without VNNI; version 1.31 still does in QLinearMatMul of opset 21 and later, and in
bodies of If and Loop."""
