"""Every command that prints a table, in terminals of several widths: no line is longer, no cell is broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opweld.build.cache import Cache
from opweld.options import available_cores
from tests.unit.analysis.test_machine import figure, machine
from tests.unit.cli.terminal import SOURCE, on_terminal, tables_of

WIDTHS = (60, 80, 120)
LONG = "/model/model.0/auto_model/encoder/layer.0/attention/output"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers with names as exporters write them, several outputs, and a reduction that cannot be fused."""
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal((64, 64), np.float32) for name in ("w", "v")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], name=f"{LONG}/dense/MatMul"),
        helper.make_node("Relu", ["t"], ["r"], name=f"{LONG}/activation/Relu"),
        helper.make_node("MatMul", ["r", "v"], [f"{LONG}/y"], name=f"{LONG}/projection/MatMul"),
        helper.make_node("ReduceMax", ["r"], ["m"], name=f"{LONG}/ReduceMax", axes=[0], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [
            helper.make_tensor_value_info(f"{LONG}/y", TensorProto.FLOAT, ["batch", 64]),
            helper.make_tensor_value_info("m", TensorProto.FLOAT, [64]),
        ],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    path = tmp_path_factory.mktemp("a model") / "model-with-a-name-as-models-have-them-when-downloaded.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def commands(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    """Commands by name; the first eleven print tables."""
    machine(threads=available_cores(), barrier=figure(1.5e-7, 0.6)).remember(Cache.open())
    folder = tmp_path_factory.mktemp("out")
    few = ["--dim", "batch=8"]
    return {
        "bench": ["bench", model, "--vs", "none", "--levels", "none,all", "--rounds", 1, *few],
        "profile": ["profile", model, "--runs", 2, "--top", 2, *few],
        "verify": ["verify", model, *few],
        "values": ["verify", model, "--intermediates", *few],
        "analyze": ["analyze", model, *few],
        "nodes": ["analyze", model, "--nodes", *few],
        "formulas": ["analyze", model, "--formulas"],
        "run": ["run", model, *few],
        "optimize": ["optimize", model, "-o", folder / "smaller.onnx"],
        "machine": ["machine"],
        "cache": ["cache"],
        "operators": ["operators"],
        "explain": ["explain", model],
        "all": ["explain", model, "--all"],
        "node": ["explain", model, "--node", f"{LONG}/dense/MatMul"],
        "kernel": ["profile", model, "--runs", 2, "--kernel", f"{LONG}/dense/MatMul", *few],
        "bisect": ["bisect", model, *few],
        "lock": ["lock", model, "-o", folder / "model.lock"],
        "check": ["lock", model, "--check", folder / "model.lock"],
        "compile": ["compile", model, "-o", folder / "out.opweld"],
    }


@pytest.fixture(scope="module")
def on_pipe(commands: dict[str, list[object]]) -> dict[str, list[tuple[str, ...]]]:
    """The titles of all tables of each command, where they take what they need."""
    driver = "import sys; sys.path.insert(0, sys.argv.pop(1)); from opweld.cli.main import main; main()"
    found: dict[str, list[tuple[str, ...]]] = {}
    for name in ("bench", "profile", "values", "nodes", "machine"):
        command = [sys.executable, "-c", driver, str(SOURCE), *map(str, commands[name])]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        found[name] = [table.titles for table in tables_of(answer.stdout)]
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_what_commands_print_fits(
    width: int, commands: dict[str, list[object]], on_pipe: dict[str, list[tuple[str, ...]]]
) -> None:
    answers = dict(zip(commands, on_terminal(width, list(commands.values())), strict=True))
    for name, answer in answers.items():
        assert answer, name
        for line in answer.splitlines():
            assert len(line) <= width or len(line.split()) == 1, f"{name}: {line}"  # a name that is longer is one word
    with_tables = list(commands)[: list(commands).index("explain")]
    for name in with_tables:
        tables = tables_of(answers[name])
        assert tables and all(table.rows for table in tables), name
        for table in tables:
            for title, cells in zip(table.titles, zip(*table.rows, strict=True), strict=True):
                assert (title and " " * 2 not in title) or title == table.titles[0]
                numbers = [cell for cell in cells if cell[:1].isdigit()]
                assert name == "formulas" or not any("…" in cell for cell in numbers), (name, title)
    left_out = [line for name in with_tables for line in answers[name].splitlines() if "not shown at this" in line]
    assert left_out or width == 120
    for name, titles in on_pipe.items():
        shown = [table.titles for table in tables_of(answers[name])]
        joined = " ".join(answers[name].split())
        for before, after in zip(titles, shown, strict=True):
            gone = [title for title in before if title not in after]
            assert not gone or f"not shown at this width: {', '.join(gone)}; --json has all" in joined, name


def test_help_fits_a_terminal() -> None:
    names = ["compile", "run", "bench", "profile", "verify", "bisect", "explain", "analyze", "report", "lock"]
    names += ["optimize", "quantize", "compress", "machine", "operators", "cache"]
    pages = on_terminal(80, [["--help"], *([name, "--help"] for name in names)])
    for name, page in zip(["", *names], pages, strict=True):
        assert f"  opweld {name}" in page
        assert [line for line in page.splitlines() if len(line) > 80] == []


def test_a_profile_of_two_kernels_is_short(commands: dict[str, list[object]]) -> None:
    (answer,) = on_terminal(80, [commands["profile"]])
    assert len(answer.splitlines()) < 40
