"""A random graph in float16: whatever of it is float32, weights and feeds too, where operators take that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from opweld.frontend.order import bodies_of
from tests.random.generate import Case

NARROWED = {("Cast", "to"), ("EyeLike", "dtype"), ("RandomNormal", "dtype"), ("RandomUniform", "dtype")}
"""Attributes that say an element type."""


def halved(case: Case) -> Case | None:
    """The case in float16; None where it has no float32, or ONNX does not allow it, as scales of Resize are float32."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    _narrow(model.graph)
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    feeds = [
        {name: array.astype(np.float16) if array.dtype == np.float32 else array for name, array in fed.items()}
        for fed in case.feeds
    ]
    changed = any(array.dtype == np.float16 for fed in feeds for array in fed.values())
    return replace(case, model=model, feeds=feeds) if changed else None


def _narrow(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _narrow_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _narrow_tensor(attribute.t)
            if (node.op_type, attribute.name) in NARROWED and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
        for body in bodies_of(node):
            _narrow(body)


def _narrow_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        with np.errstate(over="ignore"):
            half = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
