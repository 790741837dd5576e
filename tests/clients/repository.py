"""The models that the examples of Triton's clients call, and a server of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import onnx
import onnx.parser

from tests.patience import PATIENCE_S
from tests.unit.serve.fakes import eventually

ROOT: Final = Path(__file__).parents[2]

_ADD_AND_SUBTRACT = """
({0}[batch, 16] INPUT0, {0}[batch, 16] INPUT1) => ({0}[batch, 16] OUTPUT0, {0}[batch, 16] OUTPUT1) {{
    OUTPUT0 = Add(INPUT0, INPUT1)
    OUTPUT1 = Sub(INPUT0, INPUT1)
}}"""

_GRAPHS: Final = {
    "simple": _ADD_AND_SUBTRACT.format("int32"),
    "simple_int8": _ADD_AND_SUBTRACT.format("int8"),
    "simple_identity": "(string[batch, 16] INPUT0) => (string[batch, 16] OUTPUT0) { OUTPUT0 = Identity(INPUT0) }",
    "custom_identity_int32": "(int32[batch, n] INPUT0) => (int32[batch, n] OUTPUT0) { OUTPUT0 = Identity(INPUT0) }",
    # A classifier's input and output.
    "densenet_onnx": """(float[3, 224, 224] data_0) => (float[1000] fc6_1) {
        mean = ReduceMean<keepdims = 0>(data_0)
        classes = Constant<value_ints = [1000]>()
        fc6_1 = Expand(mean, classes)
    }""",
}

# No model of ONNX: opweld's do not read and write numbers in strings.
_SIMPLE_STRING = """
import numpy as np

from opweld.serve.inference.program import program

NAMES = ("INPUT0", "INPUT1")


@program(
    inputs={name: (str, ("batch", 16)) for name in NAMES},
    outputs={name: (str, ("batch", 16)) for name in ("OUTPUT0", "OUTPUT1")},
    models=("simple",),
)
async def add_and_subtract(models, **texts):
    found = await models["simple"]({name: texts[name].astype(np.int32) for name in NAMES})
    return {name: numbers.astype(str).astype(object) for name, numbers in found.items()}
"""


def write_models(folder: Path) -> None:
    """A repository of them."""
    for name, graph in _GRAPHS.items():
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {name} {graph}')
        (folder / name / "1").mkdir(parents=True)
        onnx.save(model, folder / name / "1" / "model.onnx")
    (folder / "simple_string").mkdir()
    (folder / "simple_string" / "program.py").write_text(_SIMPLE_STRING)


@contextmanager
def served(models: Path | str, http: int = 0, grpc: int = 0) -> Generator[tuple[str, str]]:
    """`opweld serve` of a repository or a NAME=MODEL, with shared memory: its addresses for HTTP and gRPC. Ports of 0
    are free ones."""
    command = [sys.executable, "-m", "opweld", "serve", str(models), "--shared-memory"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with subprocess.Popen(
        [*command, "--port", str(http), "--grpc-port", str(grpc)], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "Ctrl-C" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            # Whoever does not read its log stops the server.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            address = said.rpartition("http://")[2].partition("/")[0]
            eventually(lambda: _is_ready(address))
            yield address, said.rpartition("gRPC at ")[2].partition(";")[0]
        finally:
            process.terminate()


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/v2/health/ready", timeout=PATIENCE_S) as answer:
            return answer.status == 200
    except urllib.error.URLError:
        return False
