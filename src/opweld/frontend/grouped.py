"""GroupNormalization of opsets 18 to 20, with a scale and a bias for each group, as an InstanceNormalization of groups.

Opset 21 changed them to channels and deprecated this form, which onnx's converter supports only where the number of
channels is declared.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper

from opweld.frontend.replaced import replace_nodes

OF_GROUPS = range(18, 21)
"""The opsets that have it."""


def write_groups(graph: onnx.GraphProto) -> None:
    """Rewrites such nodes, with each group as a channel, in place, in bodies too."""
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
