"""Programs that import onnxruntime, in processes of their own: they get opweld, if asked for, and nobody else does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

import opweld
from opweld.shim import SITE, install
from tests.patience import PATIENCE_S

SOURCE = Path(opweld.__file__).parents[1]

PROGRAM = """
import importlib.metadata
import importlib.util
import multiprocessing
import subprocess
import sys

import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state as state
from onnxruntime.capi import _pybind_state
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, NoSuchFile
from onnxruntime.quantization import QuantType


def origin(_):
    return onnxruntime.InferenceSession.__module__


if __name__ == "__main__":
    assert importlib.metadata.version("onnxruntime") == onnxruntime.__version__
    assert importlib.util.find_spec("onnxruntime").origin == onnxruntime.__file__
    assert onnxruntime.capi.onnxruntime_pybind11_state is state
    assert _pybind_state.get_available_providers() == ["CPUExecutionProvider"]
    files = [str(module.__file__) for name, module in sys.modules.items() if name.startswith("onnxruntime")]
    assert len(files) > 5 and not any(file.endswith(".so") for file in files), files
    try:
        onnxruntime.InferenceSession("nothing.onnx", providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NoSuchFile as error:
        print("refused:", error)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(origin(0), *pool.map(origin, [1]))
    code = "import onnxruntime; print(onnxruntime.InferenceSession.__module__)"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    print(sys.argv[1:])
    sys.exit(7)
"""


def python(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)} | variables
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)
    return path


def check(answer: subprocess.CompletedProcess[str]) -> None:
    assert answer.returncode == 7, answer.stderr
    refused, own, child, arguments = answer.stdout.splitlines()
    assert refused.startswith("refused: nothing.onnx: no such file")
    assert own == "opweld.onnxruntime.session opweld.onnxruntime.session"
    assert child == "opweld.onnxruntime.session"
    assert arguments == "['a', '--b']"


def test_scripts_get_opweld(program: Path) -> None:
    check(python("-m", "opweld.shim", program, "a", "--b"))


def test_modules_get_opweld(program: Path) -> None:
    path = os.pathsep.join((str(SOURCE), str(program.parent)))
    check(python("-m", "opweld.shim", "-m", "program", "a", "--b", PYTHONPATH=path))


def test_a_path_is_enough(program: Path) -> None:
    answer = python("-m", "opweld.shim", "--path")
    assert answer.stdout == f"{SITE}\n"
    check(python(program, "a", "--b", PYTHONPATH=os.pathsep.join((str(SITE), str(SOURCE)))))


def test_a_process_may_install_it_before_it_imports_onnxruntime() -> None:
    code = "import opweld.shim; opweld.shim.install(); opweld.shim.install(); import onnxruntime; "
    answer = python("-c", code + "print(onnxruntime.get_build_info())")
    assert answer.stdout.startswith("opweld "), answer.stderr
    assert onnxruntime.__name__ in sys.modules
    with pytest.raises(ImportError, match=r"call it first"):
        install()


def test_nobody_gets_it_who_did_not_ask() -> None:
    code = "import opweld, opweld.shim, onnxruntime; print(onnxruntime.InferenceSession.__module__)"
    assert python("-c", code).stdout.startswith("onnxruntime.")


def test_inner_modules_are_those_of_opweld() -> None:
    code = "import opweld.shim; opweld.shim.install(); from importlib import import_module as load; print([" + (
        "vars(load('onnxruntime.capi.' + n))[name] is vars(load('opweld.capi.' + n))[name] for n, name in "
        "(('_pybind_state', 'Fail'), ('onnxruntime_inference_collection', 'InferenceSession'), "
        "('onnxruntime_validation', 'get_package_name_and_version_info'), ('onnxruntime_pybind11_state', 'Fail'))])"
    )
    answer = python("-c", code)
    assert answer.stdout == f"{[True] * 4}\n", answer.stderr


def test_a_wrong_command_line_is_told() -> None:
    assert "usage: python -m opweld.shim SCRIPT" in python("-m", "opweld.shim", "--help").stdout
    empty = python("-m", "opweld.shim")
    assert empty.returncode == 2 and "usage:" in empty.stderr


def test_names_and_version_are_those_of_onnxruntime() -> None:
    (info,) = SITE.glob("onnxruntime-*.dist-info")
    assert info.name == f"onnxruntime-{onnxruntime.__version__}.dist-info"
    assert f"Version: {onnxruntime.__version__}" in (info / "METADATA").read_text()
