"""Operators of opset 1 for which onnx's converter has no adapter, in the newest form."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper

from opweld.errors import ModelError
from opweld.frontend.order import title_of

FIRST = ("GlobalLpPool", "LpPool", "Pad", "Split")
"""Their names. Nodes of these operators in opsets 2 to 6 are converted in the same way."""

_INPUTS = {"Split": 2, "Tile": 3}
"""For each operator, the number of inputs that only opset 1 has, where numbers have the data's type, float16 to
float64: the sizes of the parts of Split; the number of copies and the axis of Tile."""


def is_opset1(node: onnx.NodeProto) -> bool:
    """Whether a node of an opset below 7 is converted here."""
    inputs = len(node.input)
    known = (node.op_type in FIRST and inputs == 1) or _INPUTS.get(node.op_type) == inputs
    return known and node.domain in ("", "ai.onnx") and any(node.output)


def newest_form(node: onnx.NodeProto, domain: str) -> Iterator[onnx.NodeProto]:
    """The nodes that replace one of `FIRST`: attributes become inputs, and the order of a norm an integer.

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
    elif node.op_type == "Tile":
        yield from _copies(node, name, domain)
    elif node.op_type == "Split":
        if len(node.input) == 2:
            if "split" in stated:
                raise ModelError(f"{title_of(node)}: its sizes are both an attribute and an input")
            yield _whole(node.input[1], f"{name}/sizes", domain)
            node.input[1] = f"{name}/sizes"
        elif "split" in stated:
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


def _copies(node: onnx.NodeProto, name: str, domain: str) -> Iterator[onnx.NodeProto]:
    """The copies along each axis: the given number along one, one along the others."""
    data, count, axis = node.input

    def made(op_type: str, *operands: str, part: str) -> onnx.NodeProto:
        return helper.make_node(op_type, operands, [f"{name}/{part}"], domain=domain)

    yield made("Shape", data, part="shape")
    yield made("Size", f"{name}/shape", part="rank")
    yield from (_constant(f"{name}/{part}", numbers) for part, numbers in (("flat", [-1]), ("one", [1])))
    yield from (_number(f"{name}/{part}", number) for part, number in (("first", 0), ("step", 1)))
    for text, part in ((axis, "axis"), (count, "count")):
        yield _whole(text, f"{name}/{part}/whole", domain)
        yield made("Reshape", f"{name}/{part}/whole", f"{name}/flat", part=part)
    yield made("Mod", f"{name}/axis", f"{name}/rank", part="along")  # from the front
    yield made("Range", f"{name}/first", f"{name}/rank", f"{name}/step", part="axes")
    yield made("Equal", f"{name}/axes", f"{name}/along", part="there")
    yield made("Where", f"{name}/there", f"{name}/count", f"{name}/one", part="repeats")
    del node.input[1:]
    node.input.append(f"{name}/repeats")


def _whole(name: str, made: str, domain: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [name], [made], to=onnx.TensorProto.INT64, domain=domain)


def _constant(name: str, numbers: object) -> onnx.NodeProto:
    values = [int(number) for number in numbers]  # type: ignore[attr-defined]
    return helper.make_node("Constant", [], [name], value=helper.make_tensor("", 7, [len(values)], values))


def _number(name: str, number: int) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=helper.make_tensor("", 7, [], [number]))
