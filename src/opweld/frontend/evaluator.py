"""ONNX's reference evaluator in float64, with corrected operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import opweld.frontend.reference  # pyright: ignore[reportUnusedImport]  # noqa: F401 - registers what operators mean
from opweld.frontend.corrected import own_operators
from opweld.frontend.order import bodies_of
from opweld.ops.registry import OPSET, Reference, references

Array = NDArray[Any]

_NARROW = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
_DTYPE_ATTRIBUTES = {("Cast", "to"), ("RandomNormal", "dtype"), ("EyeLike", "dtype"), ("Multinomial", "dtype")}


def evaluator(model: onnx.ModelProto, instead: Iterable[type[OpRun]] = ()) -> ReferenceEvaluator:
    """An evaluator of a model in the model's precision; see `widen_model`. `instead`: operators that take precedence
    over all others of the same name."""
    used = {(node.domain, node.op_type) for owner in (model.graph, *model.functions) for node in _nodes(owner.node)}
    added = [_operator(*name, compute) for name, compute in references(used).items()]
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=OPSET)
    return ReferenceEvaluator(model, new_ops=[*instead, *own_operators(opset), *added])


def _operator(domain: str, name: str, compute: Reference) -> type[OpRun]:
    def run(self: OpRun, *inputs: Array | None, **attributes: Any) -> tuple[Array, ...]:
        # For an operator that ONNX has too, the evaluator adds ONNX's defaults of absent attributes.
        written = {attribute.name for attribute in self.onnx_node.attribute}
        outputs = compute(*inputs, **{name: value for name, value in attributes.items() if name in written})
        made = cast("tuple[Array, ...]", outputs) if isinstance(outputs, tuple) else (np.asarray(outputs),)
        return made[: len(self.onnx_node.output)]

    return type(name, (OpRun,), {"op_domain": domain, "_run": run})


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for body in bodies_of(node):
            yield from _nodes(body.node)


def widen_model(model: onnx.ModelProto) -> None:
    """Rewrites a model in place so that it computes in float64."""
    _widen_graph(model.graph)
    for function in model.functions:
        _widen_nodes(function.node)


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = _tensor_type(value.type)
        if kind.elem_type in _NARROW:
            kind.elem_type = onnx.TensorProto.DOUBLE
    _widen_nodes(graph.node)


def _tensor_type(kind: onnx.TypeProto) -> onnx.TypeProto.Tensor:
    """The type of a tensor, or of those in a sequence or optional."""
    for field in ("optional_type", "sequence_type"):
        kind = getattr(kind, field).elem_type if kind.HasField(field) else kind
    return kind.tensor_type


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


def widen_array(values: Array) -> Array:
    """float16 and float32 in float64, other types unchanged."""
    return values.astype(np.float64) if values.dtype in (np.dtype(np.float32), np.dtype(np.float16)) else values
