"""A rewritten model as a file: checked by ONNX, with its tensors beside it where they were before, or have to be."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import onnx
import onnx_ir as ir

from opweld.errors import ModelError, OptionError
from opweld.rewrite.optimize import Optimized, stored_tensors

INLINE_LIMIT = 2_000_000_000
"""Bytes; protobuf holds no file of more."""


def save(optimized: Optimized, path: Path) -> list[Path]:
    """Writes a model, whole or not at all, and returns the files. Raises OptionError when it cannot be written, and
    ModelError when ONNX's checker finds fault with it."""
    model = optimized.model
    tensors = stored_tensors(model)
    beside = (
        any(isinstance(t, ir.ExternalTensor) for t in tensors) or sum(int(t.nbytes) for t in tensors) > INLINE_LIMIT
    )
    data = path.name + ".data" if beside else None
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            made = Path(folder) / path.name
            ir.save(model, made, external_data=data)
            try:
                onnx.checker.check_model(str(made), full_check=True)
            except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
                raise ModelError(f"the rewritten model is not valid ONNX: {str(error)[:500]}") from error
            files = [path, *([path.with_name(data)] if data else [])]
            for file in reversed(files):
                os.replace(Path(folder) / file.name, file)
    except OSError as error:
        raise OptionError(f"{str(path)!r} cannot be written: {error.strerror or error}") from error
    return files
