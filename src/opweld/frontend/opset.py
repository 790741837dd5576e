"""One opset for every model: onnx's own converter, run on a copy of the model without its weights."""

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
from opweld.frontend.aligned import OPSET_OF_NUMPY, align_operands
from opweld.frontend.batched_scan import NEXT_OPSET, unbatch
from opweld.frontend.check import check_nodes
from opweld.frontend.order import bodies_of
from opweld.frontend.sequences import RESOLVED
from opweld.ops.registry import OPSET, is_supported

INLINE_BYTES = 512
"""Tensors up to this size stay in the copy: the converter reads small ones, such as axes and scales."""

DEFINED_DOMAINS = {"": OPSET, "ai.onnx.preview": 1}
"""Domain and version of the operators that may have a definition of other operators."""

DEFINITIONS = "opweld.definitions"
"""Domain of the functions that stand for definitions until they are inlined."""

MAX_EXPANSIONS = 4
"""Definitions that use operators with definitions are expanded to this depth."""

MAX_CALL_DEPTH = 100
"""Functions may call each other so deep; onnx's inliner goes no further."""

MAX_INLINED_NODES = 1 << 18
"""Nodes of a model whose functions are in place of their calls. A file of a few lines may stand for any number."""

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
        # Before IR 4 the converter finds no initializer that is not an input too.
        self.proto.ir_version = max(self.proto.ir_version, 4)
        # Once and by one name: the converter changes one entry.
        opsets = {"": OPSET} | {"" if o.domain == "ai.onnx" else o.domain: o.version for o in self.proto.opset_import}
        del self.proto.opset_import[:]
        for domain, version in opsets.items():
            self.proto.opset_import.add(domain=domain, version=version)
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
        for value in (*target.input, *target.output):
            _forget_negative_dims(value)

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
        # Asking for the size of a message costs as much as writing it.
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


def _forget_negative_dims(value: onnx.ValueInfoProto) -> None:
    """A negative dim is an unknown one, as exporters write it; onnx's inference takes it for a size, and aborts."""
    for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
        if dim.HasField("dim_value") and dim.dim_value < 0:
            dim.ClearField("dim_value")


def _copy_field(target: Any, name: str, value: Any) -> None:
    if isinstance(value, int | float | str | bytes):
        setattr(target, name, value)
    elif hasattr(value, "CopyFrom"):
        getattr(target, name).CopyFrom(value)
    else:
        getattr(target, name).extend(value)


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with calls of its own functions replaced by their bodies.

    Raises ModelError when they call themselves, UnsupportedError when they call each other too deep or make a model of
    too many nodes."""
    if not model.functions:
        return model
    _check_calls(model)
    try:
        return _inlined_functions(model)
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
                f"function {key[1][:200]!r} calls others more than {MAX_CALL_DEPTH} deep. Inline them before export."
            )
    total = _inlined(Counter(_calls(model.graph.node)), nodes)
    if total > MAX_INLINED_NODES:
        raise UnsupportedError(
            f"the model has {total:,} nodes when its functions are inlined; opweld takes up to {MAX_INLINED_NODES:,}"
        )


def _calls(nodes: Iterable[onnx.NodeProto]) -> Iterator[_FunctionId]:
    """What each node would call if it called a function, nodes of bodies included."""
    for node in nodes:
        yield node.domain, node.op_type, node.overload
        for body in bodies_of(node):
            yield from _calls(body.node)


def _inlined(calls: Counter[_FunctionId], nodes: dict[_FunctionId, int]) -> int:
    return sum(count * nodes.get(called, 1) for called, count in calls.items())


def expand_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with operators that opweld does not know replaced by what ONNX defines them to mean, where it does."""
    for _ in range(MAX_EXPANSIONS):
        if not _has_definitions(model.graph):
            break
        try:
            typed = isolated.infer_shapes(model)
            _call_definitions(typed)
            model = _inlined_functions(typed)
        except isolated.LibraryError:  # inference names the operators that stay
            break
        del model.graph.value_info[:]
    return model


def _call_definitions(model: onnx.ModelProto) -> None:
    """Makes each node of an unknown operator that has a definition a call of it, a function that the model gets."""
    nodes = list(_defined_nodes(model.graph, {}))
    for (node, _), definition in zip(nodes, _definitions(nodes), strict=True):
        definition.attribute_proto.extend(_defaults(_schema(node)))
        definition.domain, definition.name = DEFINITIONS, f"{node.op_type}_{len(model.functions)}"
        model.functions.add().CopyFrom(definition)
        node.domain, node.op_type = definition.domain, definition.name
    if model.functions and not any(entry.domain == DEFINITIONS for entry in model.opset_import):
        model.opset_import.add(domain=DEFINITIONS, version=1)


def _defined_nodes(
    graph: onnx.GraphProto, outer: Mapping[str, onnx.TypeProto]
) -> Iterator[tuple[onnx.NodeProto, list[onnx.TypeProto]]]:
    """The nodes of operators that opweld does not know but that have a definition, and the types of their inputs."""
    types = dict(outer)
    types.update((value.name, value.type) for value in (*graph.input, *graph.value_info, *graph.output))
    types.update((t.name, helper.make_tensor_type_proto(t.data_type, t.dims)) for t in graph.initializer)
    for node in graph.node:
        if _schema(node) is not None:
            yield node, [types.get(name, onnx.TypeProto()) for name in node.input]
        for body in bodies_of(node):
            yield from _defined_nodes(body, types)


def _defaults(schema: Any) -> list[onnx.AttributeProto]:
    """What the attributes of an operator are where a node has none of the name."""
    stated = (attribute.default_value for attribute in schema.attributes.values())
    return [default for default in stated if default.type != onnx.AttributeProto.UNDEFINED]


def _operators(graph: onnx.GraphProto | onnx.FunctionProto) -> set[str]:
    found = {node.op_type for node in graph.node}
    return found.union(*(_operators(body) for node in graph.node for body in bodies_of(node)))


def _has_definitions(graph: onnx.GraphProto) -> bool:
    return any(_schema(node) or any(map(_has_definitions, bodies_of(node))) for node in graph.node)


def _definitions(nodes: Iterable[tuple[onnx.NodeProto, list[onnx.TypeProto]]]) -> list[onnx.FunctionProto]:
    """What ONNX defines each operator to mean for inputs of these types."""
    found: list[onnx.FunctionProto] = []
    dependent: list[isolated.Definition] = []
    for node, given in nodes:
        schema = _schema(node)
        if schema.has_function:
            found.append(schema.function_body)
            continue
        # On the attributes and types of this model: the library may not survive them.
        dependent.append(isolated.Definition(len(found), schema.name, schema.since_version, schema.domain, node, given))
        found.append(onnx.FunctionProto())
    for request, definition in zip(dependent, isolated.definitions(dependent), strict=True):
        found[request.place] = definition
    return found


def _schema(node: onnx.NodeProto) -> Any:
    """The schema of an operator that opweld does not know, when it has a definition, else None."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain not in DEFINED_DOMAINS or is_supported(domain, node.op_type) or (domain, node.op_type) in RESOLVED:
        return None
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, DEFINED_DOMAINS[domain], domain)
    except onnx.defs.SchemaError:
        return None
    return schema if schema.has_function or schema.has_context_dependent_function else None


def convert(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model at `OPSET`. UnsupportedError when onnx cannot convert it, ModelError when the result is not valid."""
    if opset > OPSET:
        _check_older(model, opset)
    elif opset < NEXT_OPSET and "Scan" in _operators(model.graph):
        unbatch(model)
        return convert(model, NEXT_OPSET)
    elif any(_since(name, opset) != _since(name, OPSET) for name in _operators(model.graph)):
        model = align_operands(model) if opset < OPSET_OF_NUMPY else model
        try:
            model = isolated.convert_version(model, OPSET)
        except isolated.LibraryError as error:
            raise UnsupportedError(
                f"the model cannot be converted from opset {opset} to {OPSET}: {error}. "
                "Export it again with opset 17 or newer."
            ) from error
        if opset < 11:
            _state_coordinates(model.graph)
        check_nodes(model.graph.node, OPSET, {})
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = OPSET
    return model


def _state_coordinates(graph: onnx.GraphProto) -> None:
    """Resize of opset 10, and Upsample before it, count places from the corner of an element and round them down. Later
    ones have other defaults, which onnx's converter leaves them."""
    for node in graph.node:
        if node.op_type == "Resize" and node.domain in ("", "ai.onnx"):
            node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            node.attribute.append(helper.make_attribute("nearest_mode", "floor"))
        for body in bodies_of(node):
            _state_coordinates(body)


def _inlined_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The bodies of functions in place of their calls. They are converted only where that changes anything: the library
    must know the types of all values for it. Raises isolated.LibraryError."""
    opset = _opset_of(model)
    changes = any(
        _since(name, _opset_of(function)) != _since(name, opset)
        for function in model.functions
        for name in _operators(function)
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
    """Gives calls the attributes that they leave to their function; onnx's inliner leaves them out of its nodes."""
    for node in nodes:
        given = {attribute.name for attribute in node.attribute}
        called = defaults.get((node.domain, node.op_type, node.overload), ())
        node.attribute.extend(default for default in called if default.name not in given)
        for body in bodies_of(node):
            _state_defaults(body.node, defaults)


def _drop_repeated(graph: onnx.GraphProto) -> None:
    """Drops constants that onnx's inliner writes again before the body of each converted function that reads them."""
    names: set[str] = set()
    repeated: list[int] = []
    for place, node in enumerate(graph.node):
        if node.op_type == "Constant" and not node.domain and names.issuperset(node.output):
            repeated.append(place)
        names.update(node.output)
    for place in reversed(repeated):
        del graph.node[place]


def _opset_of(owner: onnx.ModelProto | onnx.FunctionProto) -> int:
    return next((entry.version for entry in owner.opset_import if entry.domain in ("", "ai.onnx")), 0)


def _since(name: str, opset: int) -> int:
    """The opset that gave an operator the meaning that it has in `opset`."""
    try:
        schema: Any = onnx.defs.get_schema(name, opset, "")
    except onnx.defs.SchemaError:
        return 0
    return schema.since_version


def _check_older(model: onnx.ModelProto, opset: int) -> None:
    """What newer opsets added are operators, attributes and element types, so a model that uses none of them means the
    same at `OPSET`; UnsupportedError for another one."""
    try:
        check_nodes(model.graph.node, OPSET, {})
    except ModelError as error:
        raise UnsupportedError(
            f"{error}: this model uses what opset {opset} added, which is not supported yet. "
            f"Export it with opset {OPSET}."
        ) from error
