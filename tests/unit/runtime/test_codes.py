"""Codes at the interface of compiled models: arrays of ml_dtypes, or bytes where that is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.errors import InputError
from opweld.onnxruntime import InferenceSession
from tests.patience import PATIENCE_S

SOURCE = Path(opweld.__file__).parents[1]


def weights() -> np.ndarray:
    """[8, 6] of int4, which a file packs."""
    return (np.arange(48) * 5 % 16 - 8).reshape(8, 6).astype(ml_dtypes.int4)


def scales() -> np.ndarray:
    """One for two rows of each column."""
    return np.linspace(0.5, 2, 24, dtype=np.float32).reshape(4, 6)


def model() -> onnx.ModelProto:
    """Dequantized weights, dynamic sizes, codes that are fed, moved, computed and picked by."""
    nodes = [
        helper.make_node("Cast", ["q"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "wide"], ["sum"]),
        helper.make_node("DequantizeLinear", ["w", "scales"], ["dense"], axis=0, block_size=2),
        helper.make_node("MatMul", ["sum", "dense"], ["y"]),
        helper.make_node("QuantizeLinear", ["x", "one"], ["small"], output_dtype=TensorProto.INT4),
        helper.make_node("Transpose", ["q"], ["turned"]),
        helper.make_node("Cast", ["which"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["dense", "index"], ["picked"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8]),
        helper.make_tensor_value_info("q", TensorProto.FLOAT8E4M3FN, ["n", 8]),
        helper.make_tensor_value_info("which", TensorProto.UINT4, ["k"]),
    ]
    outputs = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in (
            ("y", TensorProto.FLOAT),
            ("small", TensorProto.INT4),
            ("turned", TensorProto.FLOAT8E4M3FN),
            ("picked", TensorProto.FLOAT),
        )
    ]
    constants = {"w": weights(), "scales": scales(), "one": np.array(1, np.float32)}
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "codes", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


@pytest.fixture(scope="module")
def compiled() -> opweld.Model:
    return opweld.compile(model())


def feeds(n: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(n)
    return {
        "x": random.standard_normal((n, 8), np.float32) * 9,
        "q": (np.arange(8 * n) % 256).astype(np.uint8).view(ml_dtypes.float8_e4m3fn).reshape(n, 8),
        "which": np.array([7, 0, 3]).astype(ml_dtypes.uint4),
    }


@pytest.mark.parametrize("n", [1, 2, 15, 37])
def test_values(compiled: opweld.Model, n: int) -> None:
    fed = feeds(n)
    dense = weights().astype(np.float32) * np.repeat(scales(), 2, 0)
    outputs = compiled.run(fed)
    with np.errstate(invalid="ignore"):
        wanted = (fed["x"] + fed["q"].astype(np.float32)).astype(np.float64) @ dense
    np.testing.assert_allclose(outputs["y"], wanted, 1e-5, 1e-3)
    assert outputs["small"].dtype == ml_dtypes.int4
    np.testing.assert_array_equal(outputs["small"], np.clip(np.rint(fed["x"]), -8, 7).astype(ml_dtypes.int4))
    assert outputs["turned"].tobytes() == fed["q"].T.tobytes(), "every code, whatever NaN it is"
    np.testing.assert_array_equal(outputs["picked"], dense[[7, 0, 3]])


def test_other_types_are_refused_and_bits_above_a_code_ignored(compiled: opweld.Model) -> None:
    with pytest.raises(InputError, match="input 'q': expected dtype float8_e4m3fn, got float32"):
        compiled.run(feeds(2) | {"q": np.zeros((2, 8), np.float32)})
    dirty = feeds(2)
    dirty["which"] = np.array([0x17, 0xF0, 0x33], np.uint8).view(ml_dtypes.uint4)
    np.testing.assert_array_equal(compiled.run(dirty)["picked"], compiled.run(feeds(2))["picked"])


def test_an_index_out_of_range_is_told(compiled: opweld.Model) -> None:
    with pytest.raises(opweld.OpweldError, match="Gather"):
        compiled.run(feeds(2) | {"which": np.array([8]).astype(ml_dtypes.uint4)})


def test_without_ml_dtypes_codes_are_bytes(compiled: opweld.Model, tmp_path: Path) -> None:
    fed = feeds(5)
    np.savez(tmp_path / "in.npz", x=fed["x"], q=fed["q"].view(np.uint8), which=fed["which"].view(np.uint8))
    code = f"""
import sys
sys.path.insert(0, {str(SOURCE)!r})
sys.modules["ml_dtypes"] = sys.modules["onnx"] = sys.modules["onnx_ir"] = None
import numpy, opweld
outputs = opweld.load({str(compiled.path)!r}).run(dict(numpy.load({str(tmp_path / "in.npz")!r})))
numpy.savez({str(tmp_path / "out.npz")!r}, **outputs)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)
    found = np.load(tmp_path / "out.npz")
    for name, expected in compiled.run(fed).items():
        wanted = expected if expected.dtype == np.float32 else expected.view(np.uint8)
        assert found[name].dtype == wanted.dtype
        np.testing.assert_array_equal(found[name], wanted)


def test_names_of_types_are_onnxs(compiled: opweld.Model) -> None:
    session = InferenceSession(compiled.path)
    assert [node.type for node in session.get_inputs()] == [
        "tensor(float)",
        "tensor(float8e4m3fn)",
        "tensor(uint4)",
    ]
    assert [node.type for node in session.get_outputs()][1:3] == ["tensor(int4)", "tensor(float8e4m3fn)"]
