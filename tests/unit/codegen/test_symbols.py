"""Kernels as perf and gdb see them: functions that are named for what they compute, with lines of the sources that an
artifact keeps."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.build import toolchain
from opweld.codegen.c.literals import words
from tests import precompiled
from tests.patience import PATIENCE_S

EVIL = 'a"b*/\nü'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of softmax(relu(x @ w)), whose first node has a name that no C compiler takes."""
    weights = np.random.default_rng(0).standard_normal((64, 32), np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["t"], name=f"/encoder/{EVIL}/MatMul"),
            helper.make_node("Relu", ["t"], ["u"], name="/encoder/Relu"),
            helper.make_node("Softmax", ["u"], ["y"], name="/head/Softmax", axis=-1),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [16, 32])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toolchain, "_precompile", precompiled.product)
        return opweld.compile(model, disable=["fuse.block"]).save(tmp_path_factory.mktemp("model") / "m.opweld")


def symbols_of(path: Path) -> list[str]:
    """The names in the symbol table of a 64-bit little-endian ELF file."""
    data = path.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01"
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQII", data, start + i * size) for i in range(count)]
    (table,) = (section for section in sections if section[1] == 2)
    names = sections[table[6]][4]
    found: list[str] = []
    for at in range(table[4], table[4] + table[5], 24):
        (name,) = struct.unpack_from("<I", data, at)
        found.append(data[names + name : data.index(b"\0", names + name)].decode())
    return found


def test_functions_are_named_for_what_they_compute(folder: Path) -> None:
    kernels = [name for name in symbols_of(folder / "module.so") if re.fullmatch(r"opw_k\d+_\w+_[0-9a-f]{12}", name)]
    told = " ".join(kernels)
    assert "contraction_encoder_a_b_MatMul_to_Relu" in told
    assert "Softmax" in told
    text = "".join(path.read_text() for path in (folder / "source").glob("kernels_*.c"))
    assert set(re.findall(r"^void (\w+)\(", text, re.MULTILINE)) == set(kernels)


def test_lines_are_those_of_the_sources_that_the_artifact_keeps(folder: Path) -> None:
    data = (folder / "module.so").read_bytes()
    for name in (b"kernels_0.c", b"source", b"opweld_vector.h"):
        assert b"\0" + name + b"\0" in data, f"no debugger finds {name.decode()}"
    for name in ("kernels_0.c", "module.c", "opweld_kernel.h", "opweld_vector.h"):
        assert (folder / "source" / name).is_file()
        assert (folder / "source" / name).stat().st_mtime_ns <= (folder / "module.so").stat().st_mtime_ns
    assert b"/tmp/" not in data, "where it was compiled is no part of it"


def test_what_a_model_calls_its_nodes_is_made_an_identifier() -> None:
    assert words("k1_map", ()) == "k1_map"
    assert words("k1_map", ("", "")) == "k1_map"
    assert words("k2_rows", (EVIL,)) == "k2_rows_a_b"
    assert words("k3_block", ("p2o.Conv.1", "p2o.Mul.0", "/a/b/p2o.Add.6")) == "k3_block_p2o_Conv_1_to_p2o_Add_6"
    long = words("k4", ("/".join(["layer"] * 1000), "x" * 1000))
    assert long.isidentifier() and len(long) < 100


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_gdb_stops_at_a_kernel_by_name_and_shows_its_source(folder: Path) -> None:
    (kernel,) = (name for name in symbols_of(folder / "module.so") if "MatMul_to_Relu" in name)
    code = "import sys, numpy, opweld; opweld.load(sys.argv[1]).run({'x': numpy.ones((16, 64), 'f')})"
    commands = [
        "set debuginfod enabled off",
        "set breakpoint pending on",
        f"directory {folder / 'source'}",
        f"break {kernel}",
        "run",
        "bt",
        "info line",
        "list",
        "kill",
    ]
    told = (word for command in commands for word in ("-ex", command))
    answer = subprocess.run(
        ["gdb", "-q", "-nx", "-batch", *told, "--args", sys.executable, "-c", code, str(folder)],
        env=os.environ | {"PYTHONPATH": str(Path(opweld.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if "ptrace" in answer.stderr and "hit Breakpoint" not in answer.stdout:
        pytest.skip("gdb may not trace processes here")
    assert re.search(rf"^#0 +{kernel} \(\) at (source/)?kernels_\d\.c:\d+", answer.stdout, re.MULTILINE), answer.stdout
    assert re.search(r"^#\d.* in compute_range \(\) at (\./|source/)?walk\.c:\d+", answer.stdout, re.MULTILINE)
    assert "void " + kernel in answer.stdout, "the text of the kernel is shown"
    assert "more recent than executable" not in answer.stdout + answer.stderr
