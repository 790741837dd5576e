"""One opset for every model: onnx's own converter, run on a copy of the model without its weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
import onnx.inliner
import onnx.shape_inference
from onnx import AttributeProto, TensorProto, version_converter

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.check import check_nodes
from opweld.frontend.order import bodies_of
from opweld.ops.registry import OPSET, supported

INLINE_BYTES = 512
"""Tensors up to this size stay in the copy: the converter reads small ones, such as axes and scales."""

MAX_EXPANSIONS = 4
"""Definitions that use operators with definitions are expanded to this depth."""

_CONVERSION_ERRORS = (version_converter.ConvertError, onnx.shape_inference.InferenceError)

MARK = "#"
"""Location of a removed tensor in the copy: the mark and its number. `check_external` never sees it."""


class Stripped:
    """A copy of a model without weights, and the weights by number."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.removed: list[TensorProto] = []
        self.proto = onnx.ModelProto()
        for field, value in model.ListFields():
            if field.name not in ("graph", "functions", "training_info"):
                _copy_field(self.proto, field.name, value)
        if not any(entry.domain in ("", "ai.onnx") for entry in self.proto.opset_import):
            self.proto.opset_import.add(domain="", version=OPSET)
        self._graph(model.graph, self.proto.graph)
        for function in model.functions:
            copy = self.proto.functions.add()
            for field, value in function.ListFields():
                if field.name != "node":
                    _copy_field(copy, field.name, value)
            self._nodes(function.node, copy.node)

    def _graph(self, source: onnx.GraphProto, target: onnx.GraphProto) -> None:
        for field, value in source.ListFields():
            if field.name == "node":
                self._nodes(source.node, target.node)
            elif field.name == "initializer":
                for tensor in source.initializer:
                    self._tensor(tensor, target.initializer.add())
            elif field.name != "value_info":  # stale after conversion, and inferred anew in any case
                _copy_field(target, field.name, value)

    def _nodes(self, source: Iterable[onnx.NodeProto], target: Any) -> None:
        for node in source:
            copy = target.add()
            for field, value in node.ListFields():
                if field.name != "attribute":
                    _copy_field(copy, field.name, value)
            for attribute in node.attribute:
                self._attribute(attribute, copy.attribute.add())

    def _attribute(self, source: AttributeProto, target: AttributeProto) -> None:
        for field, value in source.ListFields():
            if field.name == "t":
                self._tensor(source.t, target.t)
            elif field.name == "g":
                target.g.SetInParent()
                self._graph(source.g, target.g)
            elif field.name == "graphs":
                for graph in source.graphs:
                    self._graph(graph, target.graphs.add())
            else:
                _copy_field(target, field.name, value)

    def _tensor(self, source: TensorProto, target: TensorProto) -> None:
        if source.data_location != TensorProto.EXTERNAL and source.ByteSize() <= INLINE_BYTES + len(source.name):
            target.CopyFrom(source)
            return
        target.name, target.data_type = source.name, source.data_type
        target.dims.extend(source.dims)
        target.data_location = TensorProto.EXTERNAL
        target.external_data.add(key="location", value=f"{MARK}{len(self.removed)}")
        self.removed.append(source)


def _copy_field(target: Any, name: str, value: Any) -> None:
    if isinstance(value, int | float | str | bytes):
        setattr(target, name, value)
    elif hasattr(value, "CopyFrom"):
        getattr(target, name).CopyFrom(value)
    else:
        getattr(target, name).extend(value)


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with calls of its own functions replaced by their bodies; ModelError when they call themselves."""
    if not model.functions:
        return model
    bodies = {(function.domain, function.name): function for function in model.functions}
    state: dict[tuple[str, str], bool] = {}

    def visit(key: tuple[str, str]) -> None:
        if state.get(key):
            return
        if key in state:
            raise ModelError(
                f"function {key[1][:200]!r} calls itself, directly or through others; such a model never ends"
            )
        state[key] = False
        for node in bodies[key].node:
            if (node.domain, node.op_type) in bodies:
                visit((node.domain, node.op_type))
        state[key] = True

    for key in bodies:
        visit(key)
    try:
        return onnx.inliner.inline_local_functions(model, convert_version=True)
    except (*_CONVERSION_ERRORS, RuntimeError, ValueError, IndexError) as error:
        raise ModelError(f"the functions of the model cannot be inlined: {_first_line(error)}") from error


def expand_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with operators that opweld does not know replaced by what ONNX defines them to mean, where it does."""
    for _ in range(MAX_EXPANSIONS):
        unknown = {name for name in _operators(model.graph) if name not in supported() and _has_definition(name)}
        if not unknown:
            break
        try:
            typed = onnx.shape_inference.infer_shapes(model)
            model = onnx.inliner.inline_selected_functions(
                typed, [("", name) for name in sorted(unknown)], inline_schema_functions=True
            )
        except (
            RuntimeError,
            ValueError,
            IndexError,
            onnx.shape_inference.InferenceError,
        ):  # the operator stays, and inference names it
            break
        del model.graph.value_info[:]
    return model


def _operators(graph: onnx.GraphProto) -> set[str]:
    found: set[str] = set()
    for node in graph.node:
        if node.domain in ("", "ai.onnx"):
            found.add(node.op_type)
        for body in bodies_of(node):
            found |= _operators(body)
    return found


def _has_definition(name: str) -> bool:
    schema: Any = onnx.defs.get_schema(name, OPSET, "")
    return bool(schema.has_function or schema.has_context_dependent_function)


def convert(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model at `OPSET`. UnsupportedError when onnx cannot convert it, ModelError when the result is not valid."""
    if opset > OPSET:
        return _relabelled(model, opset)
    if opset < OPSET:
        try:
            model = version_converter.convert_version(model, OPSET)
        except (*_CONVERSION_ERRORS, RuntimeError, ValueError, IndexError) as error:
            raise UnsupportedError(
                f"the model cannot be converted from opset {opset} to {OPSET}: {_first_line(error)}. "
                "Export it again with opset 17 or newer."
            ) from error
        check_nodes(model.graph.node, OPSET, {})
    return model


def _relabelled(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """A newer model at `OPSET`. What was added since are operators, attributes and element types, so a model that uses
    none of them means the same."""
    try:
        check_nodes(model.graph.node, OPSET, {})
    except ModelError as error:
        raise UnsupportedError(
            f"{error}: this model uses what opset {opset} added, which is not supported yet. "
            f"Export it with opset {OPSET}."
        ) from error
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = OPSET
    return model


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
