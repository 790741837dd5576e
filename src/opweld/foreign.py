"""Recognises models of other formats, objects or files, and tells how to export them to ONNX."""

from __future__ import annotations

import io
import sys
import zipfile

_TORCH = "export it: torch.onnx.export(model, (example inputs,), 'model.onnx', dynamo=True)"
_COMPILED = "compile it: opweld.compile(model, (example inputs,))"
_PROGRAM = "export it: torch.onnx.export(program, dynamo=True).save('model.onnx')"
_SKLEARN = "opweld.compile(estimator, X[:1]) takes it where skl2onnx is: pip install 'opweld[estimators]'"
_FITTED = "compile it: opweld.compile(estimator, X[:1])"
_KERAS = "export it: model.export('model.onnx', format='onnx'), or use the package tf2onnx"
_BOOSTED = "opweld.compile(booster) takes it where onnxmltools is: pip install 'opweld[estimators]'"

_CLASSES = {
    ("torch.export", "ExportedProgram"): ("a program of torch.export", _PROGRAM),
    ("torch.onnx", "ONNXProgram"): ("a program of torch.onnx", "pass its model_proto"),
    ("torch.nn", "Module"): ("a PyTorch module", _TORCH),
    ("sklearn", "BaseEstimator"): ("a scikit-learn estimator", _SKLEARN),
    ("keras", "Layer"): ("a Keras model", _KERAS),
    ("tensorflow", "Module"): ("a TensorFlow module", "convert it with the package tf2onnx"),
    ("xgboost", "Booster"): ("an XGBoost model", _BOOSTED),
    ("lightgbm", "Booster"): ("a LightGBM model", _BOOSTED),
    ("catboost", "CatBoost"): ("a CatBoost model", "export it: model.save_model('model.onnx', format='onnx')"),
    ("onnx", "GraphProto"): ("a graph", "pass onnx.helper.make_model(graph)"),
    ("onnxruntime", "InferenceSession"): ("a session of ONNX Runtime", "pass the file that it was opened from"),
}
"""By (package or module, class name) of an object: what it is, and the remedy."""

_BEGINNINGS = (
    (0, b"version https://git-lfs", "a pointer of Git LFS: fetch the file itself with `git lfs pull`"),
    (0, b"<!DOCTYPE html", "a web page: the download went wrong"),
    (0, b"<!doctype html", "a web page: the download went wrong"),
    (0, b"<html", "a web page: the download went wrong"),
    (0, b"<?xml", "XML, as of OpenVINO: take the ONNX file that it was made from"),
    (0, b"\x89HDF", f"an HDF5 file, as of Keras: {_KERAS}"),
    (0, b"GGUF", "a GGUF file, which holds weights and no graph: export the model that they belong to"),
    (0, b"\x1f\x8b", "compressed with gzip: unpack it"),
    (4, b"TFL3", "a TensorFlow Lite model: convert it: python -m tf2onnx.convert --tflite"),
    (4, b"ORTM", "in ONNX Runtime's own format: take the ONNX file that it was made from"),
    (8, b'{"', "a safetensors file, which holds weights and no graph: export the model that they belong to"),
)
"""(offset in a file, bytes there, what the file is)."""


def is_of(model: object, module: str, name: str) -> bool:
    """Whether a model is of a class of a module that the caller has imported. Imports nothing; a stub has no class."""
    return isinstance(model, getattr(sys.modules.get(module), name, ()))


def of_object(model: object) -> str | None:
    """What an object is, and the remedy; None where that is not known. Imports nothing."""
    for kind in type(model).__mro__:
        for (package, name), (what, remedy) in _CLASSES.items():
            if kind.__name__ == name and f"{kind.__module__}.".startswith(f"{package}."):
                return f"{what}: {remedy}"
    return None


def of_file(data: bytes) -> str | None:
    """What a file that is not an ONNX model is, and the remedy; None where that is not known."""
    if not data:
        return "empty: it has 0 bytes"
    for place, beginning, what in _BEGINNINGS:
        if data[place : place + len(beginning)] == beginning:
            return what
    if data.startswith(b"PK\x03\x04"):
        return _archive(data)
    if data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return f"a pickle. Open it with what made it. Is it a PyTorch model, {_COMPILED}; an estimator, {_FITTED}"
    return None


def _archive(data: bytes) -> str:
    try:
        names = [name.rpartition("/")[2] for name in zipfile.ZipFile(io.BytesIO(data)).namelist()]
    except (zipfile.BadZipFile, ValueError, OSError):
        names = []
    if "archive_format" in names or "serialized_exported_program.json" in names:
        return "a program of torch.export (.pt2): opweld.compile(torch.export.load(path))"
    if "data.pkl" in names or not names:
        return f"a PyTorch file (.pt, .pth). Load it with torch.load, then {_COMPILED}"
    if "model.weights.h5" in names:
        return f"a Keras file (.keras). Load it, then {_KERAS}"
    return "a ZIP archive: unpack it"
