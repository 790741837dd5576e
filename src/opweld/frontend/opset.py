"""Conversion to one opset by onnx's own converter, run on a copy of the model without its weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto, helper

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend import isolated
from opweld.frontend.aligned import OPSET_OF_NUMPY, align_operands, restore_operands
from opweld.frontend.batched_scan import NEXT_OPSET, unbatch
from opweld.frontend.check import check_nodes
from opweld.frontend.grouped import OF_GROUPS, write_groups
from opweld.frontend.older import BOUNDS_ARE_INPUTS, ONE_AXIS, along_one_axis, cast_bounds, state_defaults
from opweld.frontend.order import bodies_of
from opweld.ops.registry import OPSET
from opweld.ops.resample import ROUNDING_OF_10

INLINE_BYTES = 512
"""The size in bytes up to which tensors stay in the copy: the converter reads small ones, such as axes and scales."""

MAX_CALL_DEPTH = 100
"""The deepest nesting of function calls; the limit of onnx's inliner."""

MAX_INLINED_NODES = 1 << 18
"""The most nodes of a model after inlining; a small file may expand to any number."""

MARK = "#"
"""Location of a removed tensor in the copy: the mark and its number. `check_external` never sees it."""


class Stripped:
    """A copy of a model without weights, and the weights by number."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.removed: list[TensorProto] = []
        self.proto = onnx.ModelProto()
        for field, value in model.ListFields():
            if field.name not in ("graph", "functions", "training_info"):
                copy_field(self.proto, field.name, value)
        # Before IR 4 the converter ignores initializers that are not inputs.
        self.proto.ir_version = max(self.proto.ir_version, 4)
        # One entry, under one name, since the converter changes only one.
        opsets = {"": OPSET} | {"" if o.domain == "ai.onnx" else o.domain: o.version for o in self.proto.opset_import}
        del self.proto.opset_import[:]
        for domain, version in opsets.items():
            self.proto.opset_import.add(domain=domain, version=version)
        self._graph(model.graph, self.proto.graph)
        for function in model.functions:
            copy = self.proto.functions.add()
            for field, value in function.ListFields():
                if field.name != "node":
                    copy_field(copy, field.name, value)
            self._nodes(function.node, copy.node)

    def _graph(self, source: onnx.GraphProto, target: onnx.GraphProto) -> None:
        for field, value in source.ListFields():
            if field.name == "node":
                self._nodes(source.node, target.node)
            elif field.name == "initializer":
                for tensor in source.initializer:
                    self._tensor(tensor, target.initializer.add())
            elif field.name != "value_info":  # stale after conversion, and inferred again
                copy_field(target, field.name, value)
        for value in (*target.input, *target.output):
            _forget_negative_dims(value)

    def _nodes(self, source: Iterable[onnx.NodeProto], target: Any) -> None:
        for node in source:
            copy = target.add()
            for field, value in node.ListFields():
                if field.name != "attribute":
                    copy_field(copy, field.name, value)
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
                copy_field(target, field.name, value)

    def _tensor(self, source: TensorProto, target: TensorProto) -> None:
        # Computing the size of a message costs as much as writing it.
        few = math.prod(source.dims) <= 2 * INLINE_BYTES
        small = few and source.ByteSize() <= INLINE_BYTES + len(source.name)
        if source.data_location != TensorProto.EXTERNAL and small:
            target.CopyFrom(source)
            return
        target.name, target.data_type = source.name, source.data_type
        target.dims.extend(source.dims)
        target.data_location = TensorProto.EXTERNAL
        target.external_data.add(key="location", value=f"{MARK}{len(self.removed)}")
        self.removed.append(source)

    def restore(self, graph: onnx.GraphProto) -> None:
        """Puts the weights back into a graph that was made of the copy, and into its bodies."""
        for tensor in graph.initializer:
            self._put_back(tensor)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    self._put_back(attribute.t)
            for body in bodies_of(node):
                self.restore(body)

    def _put_back(self, tensor: TensorProto) -> None:
        place = next((e.value for e in tensor.external_data if e.key == "location"), "")
        if place.startswith(MARK):
            name = tensor.name
            tensor.CopyFrom(self.removed[int(place[len(MARK) :])])
            tensor.name = name


def _forget_negative_dims(value: onnx.ValueInfoProto) -> None:
    """A negative dim is an unknown one, as written by some exporters; onnx's inference takes it for a size, and
    aborts."""
    for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
        if dim.HasField("dim_value") and dim.dim_value < 0:
            dim.ClearField("dim_value")


def copy_field(target: Any, name: str, value: Any) -> None:
    """Copies a field of a message, as `ListFields` has it, into another message."""
    if isinstance(value, int | float | str | bytes):
        setattr(target, name, value)
    elif hasattr(value, "CopyFrom"):
        getattr(target, name).CopyFrom(value)
    else:
        getattr(target, name).extend(value)


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with calls of its own functions replaced by their bodies.

    Raises ModelError when they call themselves, UnsupportedError when calls are nested too deeply or expand to a model
    of too many nodes."""
    if not model.functions:
        return model
    _check_calls(model)
    try:
        return inlined_functions(model)
    except isolated.LibraryError as error:
        raise ModelError(f"the functions of the model cannot be inlined: {error}") from error


_FunctionId = tuple[str, str, str]


def _check_calls(model: onnx.ModelProto) -> None:
    calls = {(f.domain, f.name, f.overload): Counter(_calls(f.node)) for f in model.functions}
    if len(calls) < len(model.functions):
        raise ModelError("the model defines a function twice")
    nodes: dict[_FunctionId, int] = {}
    depth: dict[_FunctionId, int] = {}
    try:
        order = list(
            TopologicalSorter({key: [c for c in called if c in calls] for key, called in calls.items()}).static_order()
        )
    except CycleError as error:
        raise ModelError(
            f"function {error.args[1][0][1][:200]!r} calls itself, directly or through others; such a model never ends"
        ) from error
    for key in order:
        nodes[key] = _inlined(calls[key], nodes)
        depth[key] = 1 + max((depth[called] for called in calls[key] if called in depth), default=0)
        if depth[key] > MAX_CALL_DEPTH:
            raise UnsupportedError(
                f"function {key[1][:200]!r} calls others deeper than {MAX_CALL_DEPTH}. Inline them before export."
            )
    total = _inlined(Counter(_calls(model.graph.node)), nodes)
    if total > MAX_INLINED_NODES:
        raise UnsupportedError(
            f"the model has {total:,} nodes when its functions are inlined; opweld takes up to {MAX_INLINED_NODES:,}"
        )


def _calls(nodes: Iterable[onnx.NodeProto]) -> Iterator[_FunctionId]:
    """The callee of each node, if it were a call, including nodes of bodies."""
    for node in nodes:
        yield node.domain, node.op_type, node.overload
        for body in bodies_of(node):
            yield from _calls(body.node)


def _inlined(calls: Counter[_FunctionId], nodes: dict[_FunctionId, int]) -> int:
    return sum(count * nodes.get(called, 1) for called, count in calls.items())


def operators_of(graph: onnx.GraphProto | onnx.FunctionProto) -> set[str]:
    """The names of the operators of a graph, including bodies."""
    found = {node.op_type for node in graph.node}
    return found.union(*(operators_of(body) for node in graph.node for body in bodies_of(node)))


def convert(model: onnx.ModelProto, opset: int, target: int = OPSET) -> onnx.ModelProto:
    """The model at the opset `target`. UnsupportedError when onnx cannot convert it, ModelError when the result is not
    valid."""
    if opset > target:
        _check_older(model, opset, target)
    elif opset < NEXT_OPSET and "Scan" in operators_of(model.graph):
        unbatch(model)
        return convert(model, NEXT_OPSET, target)
    elif any(since(name, opset) != since(name, target) for name in operators_of(model.graph)):
        model = align_operands(model) if opset < OPSET_OF_NUMPY else model
        state_defaults(model.graph, opset)
        if opset in OF_GROUPS and target not in OF_GROUPS:
            write_groups(model.graph)
        try:
            model = isolated.convert_version(model, target)
        except isolated.LibraryError as error:
            raise UnsupportedError(
                f"the model cannot be converted from opset {opset} to {target}: {error}. "
                "Export it again with opset 17 or newer."
            ) from error
        if opset < OPSET_OF_NUMPY:
            restore_operands(model)
        if opset < ONE_AXIS:
            along_one_axis(model.graph)
        if opset < BOUNDS_ARE_INPUTS:
            cast_bounds(model.graph)
        if opset < 11:
            _state_coordinates(model.graph)
        check_nodes(model.graph.node, target, {})
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = target
    return model


def at_opset(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """A copy of the model at a newer opset, with its weights unchanged: onnx's converter sees none of them, so that
    there is no limit of 2 GB. Raises UnsupportedError where onnx cannot convert it."""
    stripped = Stripped(model)
    made = convert(stripped.proto, opset_of(model), target)
    stripped.restore(made.graph)
    restore_declared(made, model)
    return made


def restore_declared(converted: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Restores what conversion loses or adds to: the declared interface and the metadata."""
    for name in ("producer_name", "producer_version", "domain", "doc_string", "model_version"):
        if original.HasField(name):
            setattr(converted, name, getattr(original, name))
    del converted.metadata_props[:]
    converted.metadata_props.extend(original.metadata_props)
    converted.graph.name, converted.graph.doc_string = original.graph.name, original.graph.doc_string
    for mine, theirs in (
        (converted.graph.input, original.graph.input),
        (converted.graph.output, original.graph.output),
    ):
        declared = {value.name: value for value in theirs}
        for value in mine:
            if value.name in declared:
                value.CopyFrom(declared[value.name])
    # An input that is passed through is one value: what an output leaves undeclared must not undo what the input says.
    fed = {value.name: value for value in converted.graph.input}
    for value in converted.graph.output:
        if value.name in fed:
            value.CopyFrom(fed[value.name])
    del converted.graph.value_info[:]


def _state_coordinates(graph: onnx.GraphProto) -> None:
    """Resize of opset 10, and Upsample before it, compute positions from the corner of an element, and round them as
    `ROUNDING_OF_10` describes. Later versions have other defaults, which onnx's converter uses."""
    for node in graph.node:
        if node.op_type == "Resize" and node.domain in ("", "ai.onnx"):
            node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            node.attribute.append(helper.make_attribute("nearest_mode", ROUNDING_OF_10))
        for body in bodies_of(node):
            _state_coordinates(body)


def inlined_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with calls replaced by the bodies of functions. They are converted only where that changes anything,
    since the library needs the types of all values for it. Raises isolated.LibraryError."""
    opset = opset_of(model)
    changes = any(
        since(name, opset_of(function)) != since(name, opset)
        for function in model.functions
        for name in operators_of(function)
    )
    for entry in (entry for function in model.functions for entry in function.opset_import):
        if not changes and entry.domain in ("", "ai.onnx"):
            entry.version = opset
    defaults = {(f.domain, f.name, f.overload): list(f.attribute_proto) for f in model.functions if f.attribute_proto}
    for nodes in (model.graph.node, *(function.node for function in model.functions)) if defaults else ():
        _state_defaults(nodes, defaults)
    if not changes:
        return isolated.inline_local_functions(model, False)
    inlined = isolated.inline_local_functions(isolated.infer_shapes(model), True)
    _drop_repeated(inlined.graph)
    return inlined


def _state_defaults(nodes: Iterable[onnx.NodeProto], defaults: Mapping[_FunctionId, list[onnx.AttributeProto]]) -> None:
    """Adds default attributes of functions to their calls; onnx's inliner drops them."""
    for node in nodes:
        given = {attribute.name for attribute in node.attribute}
        called = defaults.get((node.domain, node.op_type, node.overload), ())
        node.attribute.extend(default for default in called if default.name not in given)
        for body in bodies_of(node):
            _state_defaults(body.node, defaults)


def _drop_repeated(graph: onnx.GraphProto) -> None:
    """Removes duplicates of constants that onnx's inliner writes before each converted function's body."""
    names: set[str] = set()
    repeated: list[int] = []
    for place, node in enumerate(graph.node):
        if node.op_type == "Constant" and not node.domain and names.issuperset(node.output):
            repeated.append(place)
        names.update(node.output)
    for place in reversed(repeated):
        del graph.node[place]


def opset_of(owner: onnx.ModelProto | onnx.FunctionProto) -> int:
    """The opset of the default domain that a model or function is written in, 0 if absent."""
    return next((entry.version for entry in owner.opset_import if entry.domain in ("", "ai.onnx")), 0)


def since(name: str, opset: int) -> int:
    """The opset that defined an operator's version at `opset`."""
    try:
        schema: Any = onnx.defs.get_schema(name, opset, "")
    except onnx.defs.SchemaError:
        return 0
    return schema.since_version


def _check_older(model: onnx.ModelProto, opset: int, target: int) -> None:
    """Checks that a model of a newer opset uses none of the operators, attributes and element types that were added, so
    that its semantics are the same at `target`; UnsupportedError otherwise."""
    try:
        check_nodes(model.graph.node, target, {})
    except ModelError as error:
        raise UnsupportedError(
            f"{error}: the model uses features added in opset {opset}, which is not supported yet. "
            f"Export it with opset {target}."
        ) from error
