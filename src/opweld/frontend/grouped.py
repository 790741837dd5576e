"""GroupNormalization of opsets 18 to 20, whose scale and bias are those of groups: an InstanceNormalization of groups.

Opset 21 gave it those of channels and deprecated the one before it, which onnx's converter takes only where the number
of channels is declared.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper

from opweld.frontend.replaced import replace_nodes

OF_GROUPS = range(18, 21)
"""The opsets that have it."""


def write_groups(graph: onnx.GraphProto) -> None:
    """Writes each such node as one that sees a group as a channel, in place. They may stand in bodies."""
    replace_nodes(graph, "GroupNormalization", _written)


def _written(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    x, scale, bias = node.input
    (y,) = node.output
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    shape, split, groups, normal = (f"{y}/{part}" for part in ("shape", "split", "groups", "normal"))
    yield helper.make_node("Constant", [], [split], value_ints=[0, attributes.pop("num_groups"), -1])
    yield helper.make_node("Reshape", [x, split], [groups], name=node.name)
    yield helper.make_node("InstanceNormalization", [groups, scale, bias], [normal], name=node.name, **attributes)
    yield helper.make_node("Shape", [x], [shape], name=node.name)
    yield helper.make_node("Reshape", [normal, shape], [y], name=node.name)
