"""ONNX's own operators as functions of arrays, for those that are defined by them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from opweld.frontend.corrected import OWN_OPERATORS
from opweld.ops.registry import OPSET

Array = NDArray[Any]

MICROSOFT = "com.microsoft"


def standard(op_type: str, *inputs: Array | None, **attributes: Any) -> Array:
    """The first output of an operator of ONNX. Raises whatever ONNX's evaluator does."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(inputs)]
    given = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **{n: v for n, v in attributes.items() if v is not None})],
        op_type,
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in given],
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", min(OPSET, 23))])
    return np.asarray(cast("Any", ReferenceEvaluator(model, new_ops=[*OWN_OPERATORS])).run(None, given)[0])


def wide(array: Array) -> Array:
    """An array to compute with: floats unchanged, other types in float64, which holds every 32-bit integer."""
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def erf(x: Array) -> Array:
    """The error function, in the precision of its input."""
    return standard("Erf", x)


def softmax(x: Array, axis: int | tuple[int, ...] = -1) -> Array:
    """Softmax; rows of only minus infinity are NaN."""
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))"""
    return 1 / (1 + np.exp(-x))
