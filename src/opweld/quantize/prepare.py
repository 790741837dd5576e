"""A model as quantisation wants it: constants folded, BatchNormalization in weights, an opset that has pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnx.external_data_helper import load_external_data_for_model

from opweld.compile import optimize
from opweld.errors import UnsupportedError
from opweld.frontend.opset import at_opset, opset_of
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
    if opset_of(made) < wanted:
        try:
            made = at_opset(made, wanted)
        except UnsupportedError as error:
            hint = "; int8-weights needs opset 13 only" if wanted > OPSETS["int8"] else ""
            raise UnsupportedError(f"{precision} needs opset {wanted}: {error}{hint}") from error
    return Graph(made)
