"""Writes a rewritten model: checked by ONNX, with external data as in the original, or where it is required."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from opweld.errors import ModelError
from opweld.frontend.order import bodies_of
from opweld.rewrite.file import checkable, pieces, serialized, without_large
from opweld.rewrite.optimize import Optimized, stored_tensors
from opweld.shortage import unwritable

INLINE_LIMIT = 2_000_000_000
"""Bytes; the limit of protobuf."""


def save(optimized: Optimized, path: Path) -> list[Path]:
    """Writes a model, atomically, and returns the files.

    Raises OptionError when it cannot be written, ShortageError where the disk is full or a limit is reached, and
    ModelError when ONNX's checker rejects it."""
    model = optimized.model
    tensors = stored_tensors(model)
    beside = (
        any(isinstance(t, ir.ExternalTensor) for t in tensors) or sum(int(t.nbytes) for t in tensors) > INLINE_LIMIT
    )
    data = path.name + ".data" if beside else None
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            made = Path(folder) / path.name
            if data is None:
                plain, large = without_large(model)
                _check(checkable(plain, large), optimized)
                with made.open("wb") as file:
                    file.writelines(pieces(plain, large))
            else:
                ir.save(model, made, external_data=data)
                _check(str(made), optimized)
            files = [path, *([path.with_name(data)] if data else [])]
            for file in reversed(files):
                os.replace(Path(folder) / file.name, file)
    except OSError as error:
        raise unwritable(error, path) from error
    return files


def message(optimized: Optimized) -> onnx.ModelProto:
    """The model as protobuf's message; external tensors keep their names in its folder."""
    made = serialized(optimized.model)
    if optimized.folder is not None:
        for tensor in _tensors(made.graph):
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = os.path.relpath(entry.value, optimized.folder)
    return made


def check(optimized: Optimized) -> None:
    """Raises ModelError when ONNX's checker rejects a rewritten model, and not the original."""
    _check(checkable(*without_large(optimized.model)), optimized)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors that a graph and its bodies store."""
    yield from graph.initializer
    for node in graph.node:
        for body in bodies_of(node):
            yield from _tensors(body)


def _check(model: onnx.ModelProto | str, optimized: Optimized) -> None:
    for full in (True, False):
        found = _fault(model, full=full)
        if not found:
            return
        if not _fault(checkable(*without_large(ir.serde.deserialize_model(optimized.original))), full=full):
            raise ModelError(f"the rewritten model is not valid ONNX: {found}")


def _fault(model: onnx.ModelProto | str, *, full: bool) -> str:
    """The error of ONNX's checker, with shape inference if `full`; empty if there is none."""
    try:
        onnx.checker.check_model(model, full_check=full)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error)[:500] or "invalid"
    return ""
