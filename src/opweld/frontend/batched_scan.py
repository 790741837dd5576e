"""Scan of opset 8, whose values have a batch axis before the time axis, as a Loop over batches of a newer Scan."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import NodeProto, TensorProto, helper

from opweld.errors import UnsupportedError
from opweld.frontend.order import bodies_of, title_of
from opweld.frontend.replaced import replace_nodes

NEXT_OPSET = 9
"""The opset whose Scan has no batches. The only other operator that it changed is Upsample."""


def unbatch(model: onnx.ModelProto) -> None:
    """Converts a model of opset 8 with Scans to opset 9, in place. UnsupportedError for lengths that differ by
    batch."""
    if _holds(model.graph, "Upsample"):
        raise UnsupportedError("Upsample beside a Scan of opset 8 is not supported. Export with opset 9 or newer.")
    replace_nodes(model.graph, "Scan", _looped)
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = NEXT_OPSET


def _holds(graph: onnx.GraphProto, op_type: str) -> bool:
    return any(node.op_type == op_type or any(_holds(body, op_type) for body in bodies_of(node)) for node in graph.node)


def _looped(node: NodeProto) -> Iterator[NodeProto]:
    """For each batch: its slice of every input, a Scan of these, and its results as slices of the outputs."""
    if node.input and node.input[0]:
        raise UnsupportedError(
            f"{title_of(node)}: batches of different lengths are not supported. Export with opset 9 or newer."
        )
    values = list(node.input)[1:]
    prefix = f"{next(filter(None, node.output), 'scan')}/batch"
    batch, goes_on = f"{prefix}/number", f"{prefix}/goes_on"
    parts = [f"{prefix}/in{position}" for position in range(len(values))]
    results = [f"{prefix}/out{position}" for position in range(len(node.output))]
    scan = helper.make_node("Scan", parts, results, name=node.name)
    for attribute in node.attribute:
        scan.attribute.add().CopyFrom(attribute)
        if attribute.name == "directions":
            scan.attribute[-1].name = "scan_input_directions"
    inner = [helper.make_node("Gather", [v, batch], [p], axis=0) for v, p in zip(values, parts, strict=True)]
    body = helper.make_graph(
        [*inner, scan, helper.make_node("Identity", [goes_on], [f"{prefix}/goes_on_still"])],
        "batch",
        [
            helper.make_tensor_value_info(batch, TensorProto.INT64, []),
            helper.make_tensor_value_info(goes_on, TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info(f"{prefix}/goes_on_still", TensorProto.BOOL, []),
            *(helper.make_empty_tensor_value_info(name) for name in results),
        ],
    )
    yield helper.make_node("Shape", [values[-1]], [f"{prefix}/shape"])
    first = helper.make_tensor("first", TensorProto.INT64, [], [0])
    yield helper.make_node("Constant", [], [f"{prefix}/first"], value=first)
    yield helper.make_node("Gather", [f"{prefix}/shape", f"{prefix}/first"], [f"{prefix}/count"], axis=0)
    yield helper.make_node("Loop", [f"{prefix}/count", ""], node.output, name=node.name, body=body)
