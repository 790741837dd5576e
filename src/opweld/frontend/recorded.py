"""The nodes of a file by their own names, with their names after loading, so that each can be traced to a kernel."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator

import onnx
import onnx_ir as ir

from opweld.frontend.order import bodies_of
from opweld.record import QUANTISED, FileNode

TRACE = "pkg.torch.onnx.stack_trace"
"""The metadata in which PyTorch's exporter stores the call stack of a node, outermost first."""

_FRAME = re.compile(r'File "([^"\n]{1,500})", line (\d{1,9})')
_SCRIPT_FRAME = re.compile(r"^(.{1,500}\.py)\((\d{1,9})\): ", re.MULTILINE)
"""A frame as TorchScript's exporter writes it to a node's documentation, innermost first, if verbose."""

_LIBRARY = re.compile(r"[/\\]site-packages[/\\]torch[/\\]")


def recorded_nodes(proto: onnx.ModelProto, model: ir.Model, stored: Collection[str]) -> tuple[FileNode, ...]:
    """The nodes of a file, including those of bodies; `model`: the loaded model; `stored`: its parameters."""
    names = {node.name or "" for node in model.graph.all_nodes()}
    makers: dict[str, dict[str, None]] = {}
    for node in model.graph.all_nodes():
        for value in node.outputs:
            makers.setdefault(value.name or "", {})[node.name or ""] = None
    found: list[FileNode] = []
    for node, owner in _nodes(proto.graph, ""):
        makes = [name for output in node.output if output for name in makers.get(output, ())]
        called = tuple(dict.fromkeys((*((node.name,) if node.name in names and node.name else ()), *makes)))
        found.append(
            FileNode(
                name=node.name or (called[0] if called else ""),
                operator=node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}",
                inputs=tuple(node.input),
                outputs=tuple(node.output),
                source=source_of(node),
                body=owner,
                called=called,
                weights=tuple(dict.fromkeys(name for name in node.input if name in stored)),
                quantised=next((entry.value for entry in node.metadata_props if entry.key == QUANTISED), ""),
            )
        )
    return tuple(found)


def stored_parameters(proto: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    """Elements and bytes of each stored tensor that counts as parameters: of floats, or of integers of 8 bits or fewer,
    as quantised weights. Scalars, and tensors that control computation, such as shapes, do not count. Tensors of the
    same name in different bodies are numbered, except the first."""
    found: dict[str, tuple[int, int]] = {}
    graphs: list[onnx.GraphProto | onnx.FunctionProto] = [proto.graph, *proto.functions]
    while graphs:
        graph = graphs.pop(0)
        tensors = [(t.name, t) for t in graph.initializer] if isinstance(graph, onnx.GraphProto) else []
        for node in graph.node:
            graphs += bodies_of(node)
            if node.op_type == "Constant":
                tensors += [(node.output[0], a.t) for a in node.attribute if a.name == "value" and node.output]
        for name, tensor in tensors:
            if tensor.dims and tensor.data_type in _BITS:
                elements = math.prod(tensor.dims)
                place = name if name not in found else f"{name} ({len(found)})"
                found[place] = elements, (elements * _BITS[tensor.data_type] + 7) // 8
    return found


_BITS = {
    kind.value: int(8 * kind.itemsize)
    for kind in ir.DataType
    if kind.is_floating_point() or (kind.name.startswith(("INT", "UINT")) and kind.itemsize <= 1)
}
"""Bits of an element of each type that parameters may have."""


def source_of(node: onnx.NodeProto) -> str:
    """file:line of the innermost call outside of PyTorch that led to a node; "" if not recorded."""
    trace = next((entry.value for entry in node.metadata_props if entry.key == TRACE), "")
    frames = [(match[1], match[2]) for match in _FRAME.finditer(trace)]
    frames += [(match[1], match[2]) for match in _SCRIPT_FRAME.finditer(node.doc_string)][::-1]
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    return ":".join(own[-1]) if own else ""


def _nodes(graph: onnx.GraphProto, owner: str) -> Iterator[tuple[onnx.NodeProto, str]]:
    """The nodes of a graph and of its bodies, each with the name of the node that owns the body."""
    todo = [(graph, owner)]
    while todo:
        graph, owner = todo.pop()
        for node in graph.node:
            yield node, owner
            name = node.name or next(iter(node.output), "") or node.op_type
            todo += [(body, name) for body in bodies_of(node)]


def nodes_in_order(model: ir.Model) -> Iterator[ir.Node]:
    """The nodes of a model in the order of `recorded_nodes`."""
    todo: list[ir.Graph] = [model.graph]
    while todo:
        for node in todo.pop():
            yield node
            for attribute in node.attributes.values():
                if attribute.type is ir.AttributeType.GRAPH:
                    todo.append(attribute.as_graph())
                elif attribute.type is ir.AttributeType.GRAPHS:
                    todo += attribute.as_graphs()
