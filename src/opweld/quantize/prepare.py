"""A model as quantisation wants it: constants folded, BatchNormalization in weights, an opset that has pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import load_external_data_for_model
from onnx.version_converter import ConvertError, convert_version

from opweld.compile import optimize
from opweld.errors import UnsupportedError
from opweld.frontends.onnx import onnx_model
from opweld.quantize.graph import Graph

OPSETS = {"int8": 13, "int8-weights": 13, "int4-weights": 21}
"""By precision, the first opset that says it: scales a channel since 13, int4 and blocks since 21."""


def prepared(model: Any, precision: str) -> Graph:
    """Raises ModelError for a bad model, UnsupportedError where it cannot be said in a newer opset."""
    source = onnx_model(model)
    made = optimize(source)
    if isinstance(source, Path):
        load_external_data_for_model(made, str(source.absolute().parent))
    wanted = OPSETS[precision]
    for entry in made.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < wanted:
            made = _converted(made, wanted, entry.version, precision)
            break
    return Graph(made)


def _converted(model: onnx.ModelProto, wanted: int, opset: int, precision: str) -> onnx.ModelProto:
    try:
        return convert_version(model, wanted)
    except (ConvertError, RuntimeError, ValueError) as error:
        remedy = "int8-weights needs opset 13 only" if wanted > OPSETS["int8"] else "export the model at that opset"
        text = f"{precision} needs opset {wanted}, and the model at opset {opset} cannot be converted"
        raise UnsupportedError(f"{text}: {str(error)[:200]}; {remedy}") from error
