"""The right answer: a model computed in float64 by ONNX's own reference evaluator.

Every float32 and float16 of the model becomes float64: weights, constants, casts, declared types. Slow, for checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from opweld.errors import UnsupportedError

Array = NDArray[Any]

_NARROW = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
_DTYPE_ATTRIBUTES = {("Cast", "to"), ("RandomNormal", "dtype"), ("EyeLike", "dtype"), ("Multinomial", "dtype")}


class BatchNormalization(OpRun):
    """Inference. ONNX's own computes training wherever a model before opset 14 says `momentum`."""

    op_domain = ""

    def _run(self, x: Array, scale: Array, bias: Array, mean: Array, var: Array, **attributes: Any) -> tuple[Array]:
        if attributes.get("training_mode") or attributes.get("is_test") == 0:
            raise UnsupportedError("BatchNormalization in training mode has no reference")
        scale, bias, mean, var = (v.reshape(-1, *(1,) * (x.ndim - 2)) for v in (scale, bias, mean, var))
        epsilon = attributes.get("epsilon")
        return (scale * (x - mean) / np.sqrt(var + (1e-5 if epsilon is None else epsilon)) + bias,)


class GlobalMaxPool(OpRun):
    """ONNX's own is wrong for every rank but 4."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


def float64_outputs(model: Path | onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """All outputs of a model for `feeds`, computed in float64.

    Raises UnsupportedError where the reference evaluator cannot: it lacks an operator, or one takes no float64.
    """
    proto = onnx.load(model) if isinstance(model, Path) else onnx.ModelProto.FromString(model.SerializeToString())
    widen_model(proto)
    wide = {name: _widen_array(values) for name, values in feeds.items()}
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(proto, new_ops=[BatchNormalization, GlobalMaxPool])
            outputs: Sequence[Any] = evaluator.run(None, wide)  # pyright: ignore[reportAssignmentType]
    except Exception as error:  # The evaluator raises whatever NumPy does.
        raise UnsupportedError(f"no float64 reference for this model: {type(error).__name__}: {error}") from error
    return [np.asarray(output) for output in outputs]


def widen_model(model: onnx.ModelProto) -> None:
    """Rewrites a model in place so that it computes in float64."""
    _widen_graph(model.graph)
    for function in model.functions:
        _widen_nodes(function.node)


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        if kind.elem_type in _NARROW:
            kind.elem_type = onnx.TensorProto.DOUBLE
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.HasField("g"):
                _widen_graph(attribute.g)
            if (node.op_type, attribute.name) in _DTYPE_ATTRIBUTES and attribute.i in _NARROW:
                attribute.i = onnx.TensorProto.DOUBLE
            if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                values = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                tensor = numpy_helper.from_array(np.asarray(values, np.float64))
                attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _NARROW:
        wide = numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
        tensor.CopyFrom(wide)


def _widen_array(values: Array) -> Array:
    return values.astype(np.float64) if values.dtype in (np.dtype(np.float32), np.dtype(np.float16)) else values


def onnxruntime_outputs(model: Path, feeds: Mapping[str, Array], *, optimised: bool = False) -> list[Array]:
    """All outputs of a model from ONNX Runtime, by default unoptimised. Raises UnsupportedError without it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UnsupportedError("comparing with ONNX Runtime needs it: pip install 'opweld[onnxruntime]'") from error
    runtime = cast("Any", onnxruntime)
    levels = runtime.GraphOptimizationLevel
    options = runtime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        return [np.asarray(output) for output in session.run(None, dict(feeds))]
    except Exception as error:  # Its errors have no common class.
        summary = " ".join(str(error).split())[:300]
        raise UnsupportedError(f"ONNX Runtime does not run this model: {summary}") from error
