"""What ONNX's own inference says of the outputs of a model, asked in a process of its own; see `output_shapes.py`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import onnx

from opweld.frontend import isolated
from opweld.frontend.opset import Stripped
from opweld.frontend.output_shapes import Library
from opweld.frontend.program import Shape

_UNNAMED = "unk__"
"""How the names begin that the library gives to dims without one."""


def library_of(model: onnx.ModelProto) -> Library:
    """How to ask about `model`, which is read when it is asked."""
    return partial(_infer, model)


def _infer(model: onnx.ModelProto) -> Mapping[str, Shape | None]:
    try:
        inferred = isolated.infer_shapes(Stripped(model).proto)
    except isolated.LibraryError:  # it knows less operators than there are
        return {}
    return {value.name: _shape(value) for value in inferred.graph.output}


def _shape(value: onnx.ValueInfoProto) -> Shape | None:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
        return None
    names = (d.dim_value if d.HasField("dim_value") else d.dim_param for d in kind.shape.dim)
    return tuple("" if isinstance(name, str) and name.startswith(_UNNAMED) else name for name in names)
