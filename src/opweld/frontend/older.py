"""Semantics of older opsets that onnx's converter loses: other defaults, and operators over several axes.

Softmax and LogSoftmax, which were over all axes from one on as Hardmax was, are rewritten by the converter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
from onnx import helper

from opweld.frontend.order import bodies_of
from opweld.frontend.replaced import replace_nodes

LARGEST = 3.4028234663852886e38
"""The greatest float32: a Clip without bounds clamps infinity to it before opset 11, and not since."""

DEFAULTS: Mapping[str, tuple[int, Mapping[str, float]]] = {
    "Clip": (11, {"min": -LARGEST, "max": LARGEST}),
    "Selu": (6, {"alpha": 1.6732, "gamma": 1.0507}),
}
"""For each operator, the opset that changed its defaults, and the old defaults. `tests/unit/frontend/test_older.py`
compares this, and what is left to the converter, with the schemas of all opsets."""

ONE_AXIS = 13
"""The opset since which Hardmax is along one axis; before, it is over all axes from one on."""


BOUNDS_ARE_INPUTS = 11
"""The opset since which the bounds of Clip are inputs, of its type."""


def state_defaults(graph: onnx.GraphProto, opset: int) -> None:
    """Gives nodes of an older opset that opset's defaults as explicit attributes, in place."""
    for node in graph.node:
        until, defaults = DEFAULTS.get(node.op_type, (0, {}))
        if opset < until and node.domain in ("", "ai.onnx"):
            given = {attribute.name for attribute in node.attribute}
            node.attribute.extend(helper.make_attribute(n, value) for n, value in defaults.items() if n not in given)
        for body in bodies_of(node):
            state_defaults(body, opset)


def along_one_axis(graph: onnx.GraphProto) -> None:
    """Rewrites each Hardmax of a graph from an opset before `ONE_AXIS`, converted otherwise, in place."""
    replace_nodes(graph, "Hardmax", _along_one_axis)


def cast_bounds(graph: onnx.GraphProto) -> None:
    """Gives each Clip of an opset before `BOUNDS_ARE_INPUTS` bounds of its own type, in place: attributes were float32,
    and onnx's converter made float32 constants of them."""
    replace_nodes(graph, "Clip", _cast_bounds)


def _cast_bounds(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    for place, name in enumerate(node.input):
        if place and name:
            node.input[place] = f"{node.output[0]}/bound{place}"
            yield helper.make_node("CastLike", [name, node.input[0]], [node.input[place]], name=node.name)
    yield node


def _along_one_axis(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Hardmax of the data reshaped to rows, and a reshape back."""
    (x,), (y,) = node.input, node.output
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
    shape, rows, largest = (f"{y}/{part}" for part in ("shape", "rows", "largest"))
    yield helper.make_node("Flatten", [x], [rows], name=node.name, axis=axis)
    yield helper.make_node("Hardmax", [rows], [largest], name=node.name, axis=1)
    yield helper.make_node("Shape", [x], [shape], name=node.name)
    yield helper.make_node("Reshape", [largest, shape], [y], name=node.name)
