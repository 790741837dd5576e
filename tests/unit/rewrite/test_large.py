"""Models whose weights lie in files and are larger than a protobuf, or memory."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.external_data_helper import convert_model_to_external_data

import opweld
from opweld.ledger import Ledger
from opweld.rewrite import spill
from opweld.rewrite.optimize import optimize_model
from opweld.rewrite.write import save
from opweld.rules import REWRITES
from opweld.verification.reference import float64_outputs
from tests.patience import PATIENCE_S
from tests.unit.rewrite.rewritten import Array, kinds, model_of, normal

SIBLINGS = "g (float[n, 30] x) => (float[n, 8] y) { a = MatMul(x, w) b = MatMul(x, v) y = Mul(a, b) }"

COLUMNS, ROWS = 200, 900_000
WEIGHT = 4 * COLUMNS * ROWS
"""Three weights of 720 MB are more than 2 GB."""

PEAK_KB = 400 << 10
"""Resident memory of the command; 112 MB were measured (x86-64, Python 3.11), and as much for a small model."""

MEASURED = """
import sys
from pathlib import Path
from opweld.cli.main import application
application()(sys.argv[1:], standalone_mode=False)
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])  # getrusage tells of the parent too
"""


def apart(model: onnx.ModelProto, folder: Path) -> Path:
    """The model as a file, its weights in another."""
    path, copied = folder / "model.onnx", copy.deepcopy(model)
    convert_model_to_external_data(copied, location="weights.bin", size_threshold=0)
    onnx.save(copied, path)
    return path


def test_data_of_several_hard_links_is_read_as_installers_leave_it(tmp_path: Path) -> None:
    model = model_of(SIBLINGS, {"w": normal(30, 8), "v": normal(30, 8, seed=1)})
    path = apart(model, tmp_path)
    os.link(tmp_path / "weights.bin", tmp_path / "again.bin")
    made, feeds = tmp_path / "made.onnx", {"x": normal(3, 30)}
    done = optimize_model(path)
    assert kinds(done) == ["MatMul", "Split", "Mul"]
    save(done, made)
    np.testing.assert_allclose(float64_outputs(made, feeds)[0], float64_outputs(model, feeds)[0], atol=1e-5)


def test_a_message_names_the_data_beside_the_model_as_the_file_did(tmp_path: Path) -> None:
    path = apart(model_of(SIBLINGS, {"w": normal(30, 8), "v": normal(30, 8, seed=1)}), tmp_path)
    made = opweld.optimize(path, disable=["rewrite.siblings"])
    places = {entry.value for tensor in made.graph.initializer for entry in tensor.external_data[:1]}
    assert places == {"weights.bin"}
    onnx.save(made, tmp_path / "made.onnx")
    feeds = {"x": normal(3, 30)}
    np.testing.assert_array_equal(
        float64_outputs(tmp_path / "made.onnx", feeds)[0], float64_outputs(path, feeds)[0], strict=True
    )


def test_equal_tensors_of_a_file_are_found_without_a_copy(tmp_path: Path) -> None:
    weights = normal(30, 8)
    other = weights.copy()
    other[15, 3] += 1  # alike at both ends
    text = "g (float[n, 30] x, float[n, 30] z) => (float[n, 8] y) { a = MatMul(x, w) b = MatMul(z, v) c = MatMul(z, u)"
    model = model_of(text + " d = Mul(a, b) y = Mul(d, c) }", {"w": weights, "v": weights, "u": other})
    done = optimize_model(apart(model, tmp_path), lambda: Ledger(["rewrite.siblings"], rules=REWRITES))
    assert set(done.model.graph.initializers) == {"w", "u"}


@pytest.mark.parametrize("shape", [(spill.LARGE // 4,), (3, spill.LARGE // 4)])
def test_large_weights_that_rewriting_makes_lie_in_a_file(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    kept = spill.spilled(array)
    assert isinstance(kept, np.memmap)
    np.testing.assert_array_equal(kept, array)
    assert not isinstance(spill.spilled(np.zeros(3)), np.memmap)


def test_weights_stay_in_memory_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spill.tempfile, "TemporaryFile", full)
    array = np.zeros(spill.LARGE, np.uint8)
    assert spill.spilled(array) is array


def test_weights_that_lie_in_a_file_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "LARGE", 1)
    model, feeds = model_of(SIBLINGS, {"w": normal(30, 8), "v": normal(30, 8, seed=1)}), {"x": normal(3, 30)}
    for source in (model, apart(model, tmp_path)):
        done = optimize_model(source)
        stored = [value.const_value for value in done.model.graph.initializers.values()]
        assert any(isinstance(tensor.numpy(), np.memmap) for tensor in stored if isinstance(tensor, ir.Tensor))
        save(done, tmp_path / "made.onnx")
        found = float64_outputs(tmp_path / "made.onnx", feeds)[0]
        np.testing.assert_allclose(found, float64_outputs(model, feeds)[0], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [1, 3])
def test_a_model_of_more_than_2_gb_is_never_in_memory(tmp_path: Path, kept: int) -> None:
    """Holes of a file are zeros that take no room, until they are written to another one: so one weight is kept, and
    all three where there is room for them."""
    room, needed = shutil.disk_usage(tmp_path).free, kept * WEIGHT + (1 << 30)
    if kept == 3 and room < needed:
        pytest.skip(f"three weights take {needed >> 20} MiB in {tmp_path}, which has {room >> 20}; one is tested")
    source, made = sparse(tmp_path, kept), tmp_path / "made" / "made.onnx"
    made.parent.mkdir()
    arguments = [sys.executable, "-c", MEASURED, "optimize", str(source), "-o", str(made)]
    try:
        answer = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert answer.returncode == 0, answer.stderr
        assert int(answer.stdout.split()[-1]) < PEAK_KB
        assert "Identity" not in {node.op_type for node in onnx.load(made, load_external_data=False).graph.node}
        assert made.with_name("made.onnx.data").stat().st_size >= kept * WEIGHT
        np.testing.assert_array_equal(computed(made), computed(source), strict=True)
    finally:
        shutil.rmtree(made.parent)  # pytest keeps the folders of its last runs


def sparse(folder: Path, kept: int) -> Path:
    """A model with three weights, nearly all of them zeros, of which the first `kept`, 1 or 3, are needed."""
    model = model_of(
        f"""g (float[n, {COLUMNS}] x) => (float[n] y) {{ a = Identity(x) b = MatMul(a, w0) c = Relu(b)
        d = MatMul(c, w1) e = Relu(d) f = MatMul(e, w2) y = ReduceMax<keepdims = 0>({"f" if kept == 3 else "c"}, last)
        }}""",
        {"last": np.array([1])},
    )
    size = WEIGHT
    with (folder / "weights.bin").open("wb") as file:
        for number in range(3):
            for part in range(50):
                file.seek(number * size + part * (size // 50))
                file.write(normal(1000, seed=number * 50 + part).tobytes())
            shape = (ROWS, COLUMNS) if number == 1 else (COLUMNS, ROWS)
            tensor = model.graph.initializer.add(name=f"w{number}", data_type=onnx.TensorProto.FLOAT, dims=shape)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", "weights.bin"), ("offset", number * size), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
        file.truncate(3 * size)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def computed(path: Path) -> Array:
    """What ONNX Runtime gives, which reads the weights where they are."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": normal(2, COLUMNS)})
    assert isinstance(found, np.ndarray) and np.any(found)
    return found
