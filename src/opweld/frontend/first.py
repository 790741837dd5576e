"""Operators of opset 1 for which onnx's converter has no adapter, as the newest opset has them."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper

FIRST = ("GlobalLpPool", "LpPool", "Pad", "Split")
"""Their names. What opsets 2 to 6 made of them is written in the same way."""


def newest_form(node: onnx.NodeProto, domain: str) -> Iterator[onnx.NodeProto]:
    """The nodes that stand for one of `FIRST`: what attributes said are inputs, and a norm is a whole number.

    The last is the node itself, changed in place, in `domain`."""
    stated = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    name = next(filter(None, node.output))
    if node.op_type == "Pad":
        yield _constant(f"{name}/pads", stated.pop("paddings", stated.pop("pads", ())))
        node.input.append(f"{name}/pads")
        value = stated.pop("value", 0.0)
        if value:
            yield helper.make_node("Constant", [], [f"{name}/number"], value=helper.make_tensor("", 1, [], [value]))
            yield helper.make_node("CastLike", [f"{name}/number", node.input[0]], [f"{name}/value"], domain=domain)
            node.input.append(f"{name}/value")
    elif node.op_type == "Split":
        if "split" in stated:
            yield _constant(f"{name}/sizes", stated.pop("split"))
            node.input.append(f"{name}/sizes")
        else:
            stated["num_outputs"] = len(node.output)
    elif "p" in stated:
        stated["p"] = int(stated["p"])
    del node.attribute[:]
    node.attribute.extend(helper.make_attribute(key, given) for key, given in stated.items())
    node.domain = domain
    yield node


def _constant(name: str, numbers: object) -> onnx.NodeProto:
    values = [int(number) for number in numbers]  # type: ignore[attr-defined]
    return helper.make_node("Constant", [], [name], value=helper.make_tensor("", 7, [len(values)], values))
