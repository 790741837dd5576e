"""The command line, and `python -m opweld.run`, where nothing but NumPy can be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opweld
from tests.models.bare import FORBIDDEN
from tests.patience import PATIENCE_S
from tests.unit.cli.terminal import SOURCE

_DRIVER = """
import runpy, sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from tests.models.bare import Forbid, FORBIDDEN
assert not any(name in sys.modules for name in FORBIDDEN)
sys.meta_path.insert(0, Forbid(missing=True))
module, sys.argv[1:] = sys.argv[3], sys.argv[4:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def bare(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `python -m MODULE ARGUMENTS` where only NumPy is installed."""
    paths = (str(SOURCE), str(SOURCE.parent))
    command = [sys.executable, "-c", _DRIVER, *paths, module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=os.environ)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = x * x and the number of x's columns, of x of shape [rows, 4]."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "x"], ["y"]), helper.make_node("Neg", ["n"], ["out/n"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4]),
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 4]),
            helper.make_tensor_value_info("out/n", TensorProto.INT64, []),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return opweld.compile(model).save(tmp_path_factory.mktemp("bare") / "square.opweld")


def test_inputs_come_from_files_and_outputs_go_to_a_folder(artifact: Path, tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--input", "n=7", "--output", tmp_path / "out", "--verify-files"]
    answer = bare("opweld.run", artifact, *given)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert np.array_equal(np.load(tmp_path / "out" / "0-y.npy"), x * x)
    assert np.load(tmp_path / "out" / "1-out_n.npy") == -7
    assert "3x4" in answer.stdout and "wrote " in answer.stdout


def test_inputs_are_made_up_where_none_are_given(artifact: Path) -> None:
    answer = bare("opweld.run", artifact, "--dim", "rows=5", "--threads", 1)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "5x4" in answer.stdout
    assert answer.stdout == bare("opweld.run", artifact, "--dim", "rows=5").stdout


def test_the_commands_say_what_they_need_and_what_runs_without(artifact: Path) -> None:
    answer = bare("opweld", "run", artifact)
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (1, "", 1)
    assert "pip install typer" in answer.stderr and "python -m opweld.run" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["absent"], 2, "opweld: 'absent' is no artifact"),
        (["ARTIFACT", "--dim", "columns=2"], 2, "opweld: --dim 'columns'"),
        (["ARTIFACT", "--input", "x"], 2, "opweld: --input 'x' is not NAME=VALUE"),
        (["ARTIFACT", "--input", "x=absent.npy"], 1, "opweld: --input x=absent.npy"),
        (["ARTIFACT", "--threads", "-1"], 2, "opweld: --threads -1"),
        ([], 2, "usage: python -m opweld.run"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], status: int, message: str, artifact: Path) -> None:
    answer = bare("opweld.run", *(str(artifact) if text == "ARTIFACT" else text for text in arguments))
    assert (answer.returncode, answer.stdout) == (status, "")
    assert answer.stderr.startswith(message) and "Traceback" not in answer.stderr


def test_what_is_forbidden_is_what_an_artifact_does_not_need() -> None:
    assert {"typer", "rich", "onnx", "onnx_ir", "ziglang", "ml_dtypes"} <= {*FORBIDDEN}
