"""A caller's changes to a model before it is compiled: stored weights, and dims by their denotation."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from opweld.errors import ModelError, OptionError
from opweld.frontend.onnx import read_model


def overridden(
    model: Path | bytes | onnx.ModelProto,
    initializers: Mapping[str, np.ndarray[Any, Any]],
    denotations: Mapping[str, int],
) -> onnx.ModelProto:
    """A copy of the model with other values in it.

    Args:
        model: a path, bytes or a ModelProto. Weights in external files must be replaced too: the copy does not know
            their paths.
        initializers: replacements of stored tensors, by name; of the same dtype and shape.
        denotations: sizes of the inputs' dims by what they denote, as DATA_BATCH.

    Raises ModelError for a bad model, OptionError naming the mismatch.
    """
    proto, _ = read_model(model)
    proto = copy.deepcopy(proto) if proto is model else proto
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    for name, array in initializers.items():
        if name not in stored:
            raise OptionError(f"add_initializer: the model stores no {name!r}")
        tensor = stored[name]
        try:
            value = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        except (TypeError, ValueError, KeyError) as error:
            raise OptionError(f"add_initializer: {name!r} cannot be an array of {array.dtype}") from error
        if value.data_type != tensor.data_type or list(value.dims) != list(tensor.dims):
            expected = onnx.helper.tensor_dtype_to_string(tensor.data_type).removeprefix("TensorProto.").lower()
            raise OptionError(
                f"add_initializer: {name!r} is {array.dtype} {list(array.shape)}, "
                f"the model stores {expected} {list(tensor.dims)}"
            )
        tensor.CopyFrom(value)
    for denotation, size in denotations.items():
        _fix(proto.graph, denotation, size)
    return proto


def _fix(graph: onnx.GraphProto, denotation: str, size: int) -> None:
    """Fixes the inputs' dims with this denotation, and others of the same names."""
    dims = [dim for value in (*graph.input, *graph.output) for dim in value.type.tensor_type.shape.dim]
    names = {dim.dim_param for dim in dims if dim.denotation == denotation} - {""}
    for dim in dims:
        if dim.denotation == denotation or dim.dim_param in names:
            if dim.HasField("dim_value") and dim.dim_value != size:
                raise ModelError(f"a dim that denotes {denotation!r} is {dim.dim_value}, which cannot be {size}")
            dim.dim_value = size
