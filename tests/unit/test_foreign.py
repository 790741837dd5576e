"""Models of other kinds, given as one of ONNX: the error says what they are, and how to get to ONNX."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import opweld
from opweld.errors import ArtifactError, DamagedModelError, InputError, ModelError, ModelTypeError, RunError
from opweld.foreign import of_object
from tests.unit.frontend.models import model_of, node


def class_of(module: str, name: str) -> Any:
    """An object of a class below one of that name: packages are known by names, as they are not imported."""
    base = type(name, (), {"__module__": module})
    return type("Own", (base,), {"__module__": "somewhere"})()


@pytest.mark.parametrize(
    ("module", "name", "remedy"),
    [
        ("torch.nn.modules.module", "Module", "torch.onnx.export"),
        ("torch.export.exported_program", "ExportedProgram", "torch.onnx.export"),
        ("torch.onnx", "ONNXProgram", "model_proto"),
        ("sklearn.base", "BaseEstimator", "skl2onnx"),
        ("keras.src.layers.layer", "Layer", "model.export"),
        ("xgboost.core", "Booster", "onnxmltools"),
    ],
)
def test_objects_of_other_packages(module: str, name: str, remedy: str) -> None:
    model = class_of(module, name)
    with pytest.raises(ModelTypeError, match="the model is a") as refused:
        opweld.compile(model)
    assert remedy in str(refused.value)
    assert of_object(class_of("somewhere", name)) is None
    assert of_object(class_of("torchlike.nn", name)) is None


def test_parts_of_a_model() -> None:
    model = model_of([node("Relu", ["x"], "y")], {"x": [3]}, ["y"])
    with pytest.raises(ModelTypeError, match="make_model"):
        opweld.compile(model.graph)  # type: ignore[arg-type]
    with pytest.raises(ModelTypeError, match="expected the path of an ONNX file"):
        opweld.compile(None)  # type: ignore[arg-type]


def archive(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name in names:
            file.writestr(name, "content")
    return data.getvalue()


HEADER = json.dumps({"w": {"dtype": "F32"}}).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty: it has 0 bytes"),
        (archive("m/data.pkl", "m/version"), "a PyTorch file"),
        (archive("m/data.pkl", "m/version")[:40], "a PyTorch file"),
        (archive("m/archive_format", "m/models/model.json"), "a program of torch.export"),
        (archive("config.json", "model.weights.h5"), "a Keras file"),
        (archive("readme.txt"), "a ZIP archive"),
        (pickle.dumps([1, 2]), "a pickle"),
        (len(HEADER).to_bytes(8, "little") + HEADER, "a safetensors file"),
        (b"GGUF\x03\x00", "a GGUF file"),
        (b"\x1c\x00\x00\x00TFL3" + bytes(40), "a TensorFlow Lite model"),
        (b"\x1c\x00\x00\x00ORTM" + bytes(40), "ONNX Runtime's own format"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"<?xml version='1.0'?><net/>", "XML"),
        (b"<!DOCTYPE html><html>404</html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (gzip.compress(b"model"), "compressed with gzip"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_of_other_kinds(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "some.model"
    path.write_bytes(data)
    for model in (path, data):
        with pytest.raises(DamagedModelError, match="is not an ONNX model: it is") as refused:
            opweld.compile(model)
        assert words in str(refused.value)


@pytest.mark.parametrize("path", ["", "\0", "a" * 5000, "/absent/model.onnx"])
def test_paths_that_name_no_file(path: str) -> None:
    for take in (opweld.compile, opweld.InferenceSession):
        with pytest.raises(ModelError):
            take(path)


@pytest.mark.parametrize("place", ["\0", "a" * 300, "/proc/absent"])
def test_places_where_no_artifact_can_be(place: str, tmp_path: Path) -> None:
    model = opweld.compile(model_of([node("Relu", ["x"], "y")], {"x": [3]}, ["y"]))
    with pytest.raises(ArtifactError, match="cannot write"):
        model.save(tmp_path / place)


def test_a_feed_that_is_larger_than_memory() -> None:
    model = opweld.compile(model_of([node("Relu", ["x"], "y")], {"x": ["N", 3]}, ["y"]))
    with pytest.raises(RunError, match="input 'x'"):
        model.run({"x": np.broadcast_to(np.float32(0), (2**40, 3))})


@pytest.mark.parametrize("keep", [1, 10, 60])
def test_a_truncated_model(keep: int) -> None:
    data = model_of([node("Relu", ["x"], "y")], {"x": [3]}, ["y"]).SerializeToString()
    with pytest.raises(opweld.OpweldError, match="truncated"):
        opweld.compile(data[:keep])


def test_dims_without_a_name_are_shown() -> None:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 3, "h", -1])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = opweld.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    assert "x float32[?, 3, h, ?]" in repr(model)
    with pytest.raises(InputError, match=r"expected shape \[\?, 3, h, \?\], got \[2, 4, 5, 6\]"):
        model.run({"x": np.zeros((2, 4, 5, 6), np.float32)})
