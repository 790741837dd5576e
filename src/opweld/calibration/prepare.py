"""A model whose weights are to be changed: constants folded, BatchNormalization in weights, of an opset as needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from onnx.external_data_helper import load_external_data_for_model

from opweld.calibration.graph import Graph
from opweld.compile import optimize
from opweld.frontend.opset import at_opset, opset_of
from opweld.frontends.onnx import onnx_model

if TYPE_CHECKING:
    from opweld.compile import OnnxModel


def prepared(model: OnnxModel, opset: int = 0) -> Graph:
    """A model of at least this opset, with all weights in memory. Raises ModelError for a bad one, UnsupportedError
    where it cannot be said in a newer opset."""
    source = onnx_model(model)
    made = optimize(source)
    if isinstance(source, Path):
        load_external_data_for_model(made, str(source.absolute().parent))
    return Graph(at_opset(made, opset) if opset_of(made) < opset else made)


def size_of(model: OnnxModel, graph: Graph) -> int:
    """Bytes of a model as it was given; `graph` is made of it."""
    if isinstance(model, str | os.PathLike):
        return Path(model).stat().st_size
    return len(model) if isinstance(model, bytes) else graph.model.ByteSize()
