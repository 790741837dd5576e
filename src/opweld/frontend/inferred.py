"""The shapes of outputs by ONNX's own inference, run in a process of its own; see `output_shapes.py`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import onnx

from opweld.frontend import isolated
from opweld.frontend.opset import Stripped
from opweld.frontend.output_shapes import Library
from opweld.frontend.program import Shape

_UNNAMED = "unk__"
"""The prefix of names that the library generates for unnamed dims."""


def library_of(model: onnx.ModelProto) -> Library:
    """The query for `model`, which is read when it is called."""
    return partial(_infer, model)


def _infer(model: onnx.ModelProto) -> Mapping[str, Shape | None]:
    try:
        inferred = isolated.infer_shapes(Stripped(model).proto)
    except isolated.LibraryError:  # it does not know all operators
        return {}
    return {value.name: _shape(value) for value in inferred.graph.output}


def _shape(value: onnx.ValueInfoProto) -> Shape | None:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
        return None
    names = (d.dim_value if d.HasField("dim_value") else d.dim_param for d in kind.shape.dim)
    return tuple("" if isinstance(name, str) and name.startswith(_UNNAMED) else name for name in names)
