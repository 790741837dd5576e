"""Expands operators that opweld does not know to their definitions in ONNX.

A definition is written for the types of a node's inputs, at the opset that defined the operator. It is converted to
`OPSET` here, alone: onnx's inliner does that too, but needs the type of each value around the node, and does not find
those of stored tensors and of values around a body.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import onnx
from onnx import helper

from opweld.errors import UnsupportedError
from opweld.frontend import isolated
from opweld.frontend.opset import inlined_functions, operators_of, opset_of, since
from opweld.frontend.order import bodies_of, title_of
from opweld.frontend.sequences import RESOLVED
from opweld.ops.registry import OPSET, is_supported

DEFINED_DOMAINS = {"": OPSET, "ai.onnx.preview": 1}
"""Domain and version of the operators that may be defined by other operators."""

DEFINITIONS = "opweld.definitions"
"""Domain of the functions of definitions, before they are inlined."""

MAX_EXPANSIONS = 4
"""The depth to which definitions that use other definitions are expanded."""

Types = Mapping[str, onnx.TypeProto]
"""Types of values by name."""


def declared_types(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    """The element types that a file declares for results of operators of other domains, which onnx cannot infer."""
    stated = {value.name: value.type for value in graph.value_info}
    found: dict[str, onnx.TypeProto] = {}
    for node in graph.node:
        if node.domain not in ("", "ai.onnx", *DEFINED_DOMAINS):
            for name in node.output:
                if name in stated and stated[name].HasField("tensor_type"):
                    found[name] = helper.make_tensor_type_proto(stated[name].tensor_type.elem_type, None)
        for body in bodies_of(node):
            found |= declared_types(body)
    return found


def expand_operators(model: onnx.ModelProto, declared: Types) -> onnx.ModelProto:
    """Replaces operators that opweld does not know, but ONNX defines by others.

    `declared`: types that onnx does not infer. Raises UnsupportedError where a definition cannot replace
    its nodes."""
    for _ in range(MAX_EXPANSIONS):
        if not _has_definitions(model.graph):
            break
        names = sorted({node.op_type for node in _nodes_of(model.graph) if _schema(node) is not None})
        try:
            model = isolated.infer_shapes(_with_types(model, declared))
            _call_definitions(model)
            model = inlined_functions(model)
        except isolated.LibraryError as error:
            raise UnsupportedError(
                f"ONNX's definition of {', '.join(names)} cannot replace its nodes: {error}. "
                "Write it with other operators before export."
            ) from error
        del model.graph.value_info[:]
    return model


def _with_types(model: onnx.ModelProto, declared: Types) -> onnx.ModelProto:
    for graph in (model.graph, *(body for node in _nodes_of(model.graph) for body in bodies_of(node))):
        for node in graph.node:
            graph.value_info.extend(
                helper.make_value_info(name, declared[name]) for name in node.output if name in declared
            )
    return model


def _call_definitions(model: onnx.ModelProto) -> None:
    """Turns each node of an unknown operator into a call of its definition, added as a function."""
    nodes = list(_defined_nodes(model.graph, {}))
    converted: dict[bytes, onnx.FunctionProto] = {}
    for (node, types), definition in zip(nodes, _definitions(nodes), strict=True):
        _bind(definition.node, _attributes_of(node))
        key = definition.SerializeToString(deterministic=True) + b"".join(t.SerializeToString() for t in types)
        if key not in converted:
            converted[key] = _at_newest_opset(definition, types)
            converted[key].domain, converted[key].name = DEFINITIONS, f"{node.op_type}_{len(converted)}"
            model.functions.append(converted[key])
        node.domain, node.op_type = DEFINITIONS, converted[key].name
        del node.attribute[:]
    if model.functions and not any(entry.domain == DEFINITIONS for entry in model.opset_import):
        model.opset_import.add(domain=DEFINITIONS, version=1)


def _attributes_of(node: onnx.NodeProto) -> dict[str, onnx.AttributeProto]:
    """The attributes of a node, including defaults."""
    stated = [attribute.default_value for attribute in _schema(node).attributes.values()]
    defaults = {default.name: default for default in stated if default.type != onnx.AttributeProto.UNDEFINED}
    return defaults | {attribute.name: attribute for attribute in node.attribute}


def _bind(nodes: Iterable[onnx.NodeProto], given: Mapping[str, onnx.AttributeProto]) -> None:
    """Substitutes the attributes of a call for references to them."""
    for node in nodes:
        attributes = list(node.attribute)
        del node.attribute[:]
        for attribute in attributes:
            if not attribute.ref_attr_name:
                node.attribute.append(attribute)
            elif attribute.ref_attr_name in given:
                node.attribute.append(given[attribute.ref_attr_name])
                node.attribute[-1].name = attribute.name
        for body in bodies_of(node):
            _bind(body.node, given)


def _at_newest_opset(definition: onnx.FunctionProto, types: Iterable[onnx.TypeProto]) -> onnx.FunctionProto:
    """The definition in operators of `OPSET`, for inputs of these types. Raises isolated.LibraryError."""
    opset = opset_of(definition) or OPSET  # one of another domain may lack it
    changes = any(since(name, opset) != since(name, OPSET) for name in operators_of(definition))
    converted = onnx.FunctionProto()
    converted.CopyFrom(definition)
    del converted.attribute[:], converted.attribute_proto[:], converted.opset_import[:]
    converted.opset_import.add(version=OPSET)
    for entry in definition.opset_import:
        if entry.domain not in ("", "ai.onnx"):
            converted.opset_import.append(entry)
    if changes:
        inputs = [helper.make_empty_tensor_value_info(name) for name in definition.input]
        for value, kind in zip(inputs, types, strict=False):
            value.type.CopyFrom(kind)
        made = {name for node in definition.node for name in node.output}
        # A definition lacks optional outputs that the node does not use.
        outputs = [helper.make_empty_tensor_value_info(name) for name in definition.output if name in made]
        graph = helper.make_graph(list(definition.node), definition.name, inputs, outputs)
        model = helper.make_model(graph, opset_imports=list(definition.opset_import))
        body = isolated.convert_version(model, OPSET).graph
        del converted.node[:]
        for tensor in body.initializer:
            converted.node.append(helper.make_node("Constant", [], [tensor.name], value=tensor))
        converted.node.extend(body.node)
    return converted


def _defined_nodes(graph: onnx.GraphProto, outer: Types) -> Iterator[tuple[onnx.NodeProto, list[onnx.TypeProto]]]:
    """The nodes of operators that opweld does not know but that have a definition, and the types of their inputs."""
    types = dict(outer)
    types.update((value.name, value.type) for value in (*graph.input, *graph.value_info, *graph.output))
    types.update((t.name, helper.make_tensor_type_proto(t.data_type, t.dims)) for t in graph.initializer)
    for node in graph.node:
        if _schema(node) is not None:
            yield node, [_known(node, name, types) for name in node.input]
        for body in bodies_of(node):
            yield from _defined_nodes(body, types)


def _known(node: onnx.NodeProto, name: str, types: Types) -> onnx.TypeProto:
    found = types.get(name, onnx.TypeProto())
    if name and not found.tensor_type.elem_type:
        raise UnsupportedError(
            f"{title_of(node)}: its definition depends on the type of {name[:200]!r}, which is not declared. "
            "Declare it in the model (value_info)."
        )
    return found


def _nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for body in bodies_of(node):
            yield from _nodes_of(body)


def _has_definitions(graph: onnx.GraphProto) -> bool:
    return any(_schema(node) is not None for node in _nodes_of(graph))


def _definitions(nodes: Iterable[tuple[onnx.NodeProto, list[onnx.TypeProto]]]) -> list[onnx.FunctionProto]:
    """ONNX's definition of each operator for inputs of these types."""
    found: list[onnx.FunctionProto] = []
    dependent: list[isolated.Definition] = []
    for node, given in nodes:
        schema = _schema(node)
        if schema.has_function:
            found.append(schema.function_body)
            continue
        # The library may crash on the attributes and types of a model.
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
