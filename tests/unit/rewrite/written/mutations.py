"""Models with one thing changed, by functions on the graph: what a near miss has to name, wherever it stands.

Only what depends on the data is changed, not sizes nor what is computed from stored tensors alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.unit.rewrite.rewritten import Array

ORDERED = ("Sub", "Div", "MatMul", "Concat")
"""Operators that mean something else with their operands the other way round."""


@dataclass(frozen=True)
class Mutant:
    """A model in which one thing is another.

    Attributes:
        kind: which mutation: a key of `MUTATIONS`.
        place: where, for people.
        named: what the ledger has to name, any of these.
        feeds: what it is fed beside what the model was.
    """

    kind: str
    place: str
    named: tuple[str, ...]
    model: onnx.ModelProto
    feeds: Mapping[str, Array]


def mutants(model: onnx.ModelProto) -> Iterator[Mutant]:
    """Every model with one change."""
    for kind, mutate in MUTATIONS.items():
        for place, named, changed, feeds in mutate(model):
            yield Mutant(kind, place, named, changed, feeds)


_Made = Iterator[tuple[str, tuple[str, ...], onnx.ModelProto, Mapping[str, Array]]]


def _cast(model: onnx.ModelProto) -> _Made:
    """A value is rounded to half precision on its way to one node."""
    for at, node in _computing(model):
        for position, name in enumerate(node.input):
            if name not in _data(model) or name in list(node.input)[:position]:
                continue
            if _declared(model, name).type.tensor_type.elem_type != TensorProto.FLOAT:
                continue
            changed = _copy(model)
            narrow = helper.make_node("Cast", [name], ["narrow"], "narrow", to=TensorProto.FLOAT16)
            wide = helper.make_node("Cast", ["narrow"], ["wide"], "wide", to=TensorProto.FLOAT)
            inputs = changed.graph.node[at].input
            inputs[:] = ["wide" if other == name else other for other in inputs]
            changed.graph.node.insert(at, narrow)
            changed.graph.node.insert(at + 1, wide)
            yield f"{name} > {node.output[0]}", ("narrow", "wide"), changed, {}


def _second_reader(model: onnx.ModelProto) -> _Made:
    """A value inside is read by a node besides, which makes an output."""
    outputs = {value.name for value in model.graph.output}
    for at, node in _computing(model):
        for name in node.output:
            if name in outputs or node.op_type == "Identity":
                continue
            changed, declared = _copy(model), _declared(model, name)
            operator = "Not" if declared.type.tensor_type.elem_type == TensorProto.BOOL else "Abs"
            changed.graph.node.insert(at + 1, helper.make_node(operator, [name], ["besides"], "besides"))
            changed.graph.output.append(onnx.ValueInfoProto(name="besides", type=declared.type))
            # Nodes that compute the same are one, by the name of either.
            same = [other for other in model.graph.node if (other.op_type, other.input) == (node.op_type, node.input)]
            yield name, tuple(output for other in same for output in other.output), changed, {}


def _fed(model: onnx.ModelProto) -> _Made:
    """A number or a weight that was stored is fed."""
    for tensor in _stored(model):
        changed, array = _copy(model), numpy_helper.to_array(tensor)
        for node in changed.graph.node:
            node.input[:] = ["fed" if name == tensor.name else name for name in node.input]
        changed.graph.input.append(helper.make_tensor_value_info("fed", tensor.data_type, array.shape))
        yield tensor.name, ("fed",), changed, {"fed": array}


def _number(model: onnx.ModelProto) -> _Made:
    """A stored number is another one, for one of its readers."""
    for at, node in _computing(model):
        for position, name in enumerate(node.input):
            tensor = next((tensor for tensor in _stored(model) if tensor.name == name), None)
            if tensor is None or numpy_helper.to_array(tensor).size != 1:
                continue
            changed, array = _copy(model), numpy_helper.to_array(tensor)
            number = _other(float(array.reshape(())))
            changed.graph.initializer.append(numpy_helper.from_array(np.full_like(array, number), "other"))
            changed.graph.node[at].input[position] = "other"
            # What is added to x is a sixth of it in HardSigmoid, which stands for the clipped sum by then.
            named = ("other", str(number), f"{np.float32(number) / 6:g}")
            yield f"{name} > {node.output[0]}", named, changed, {}
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.FLOAT:
                changed = _copy(model)
                (found,) = (own for own in changed.graph.node[at].attribute if own.name == attribute.name)
                found.f = _other(attribute.f)
                yield f"{attribute.name} of {node.output[0]}", (f"{node.output[0]}.{attribute.name}",), changed, {}


def _axis(model: onnx.ModelProto) -> _Made:
    """A node works along another axis."""
    for at, node in _computing(model):
        if node.op_type.startswith("Reduce"):
            changed = _copy(model)
            changed.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axis"))
            changed.graph.node[at].input[1] = "axis"
            yield node.output[0], ("1",), changed, {}
        for attribute in node.attribute:
            if attribute.name == "axis" and node.op_type in ("Softmax", "Concat", "Split"):
                changed = _copy(model)
                (found,) = (own for own in changed.graph.node[at].attribute if own.name == "axis")
                found.i = 2
                yield node.output[0], (f"{node.output[0]}.axis",), changed, {}


def _order(model: onnx.ModelProto) -> _Made:
    """Operands change places."""
    for at, node in _computing(model):
        if node.op_type in ORDERED and len(node.input) == 2 and not _is_one(model, node.input[0]):
            changed = _copy(model)
            changed.graph.node[at].input[:] = reversed(node.input)
            yield node.output[0], (node.output[0],), changed, {}


MUTATIONS: Mapping[str, Callable[[onnx.ModelProto], _Made]] = {
    "a Cast": _cast,
    "a second reader": _second_reader,
    "a fed weight": _fed,
    "another number": _number,
    "another axis": _axis,
    "swapped operands": _order,
}


def _computing(model: onnx.ModelProto) -> Iterator[tuple[int, NodeProto]]:
    """The nodes that depend on the data, and where they stand."""
    data = _data(model)
    for at, node in enumerate(model.graph.node):
        if node.op_type != "Shape" and any(name in data for name in node.input):
            yield at, node


def _data(model: onnx.ModelProto) -> set[str]:
    """The values that depend on what is fed, but for sizes."""
    known = {value.name for value in model.graph.input}
    for node in model.graph.node:
        if node.op_type != "Shape" and known & set(node.input):
            known |= set(node.output)
    return known


def _stored(model: onnx.ModelProto) -> list[TensorProto]:
    """The floating tensors that nodes read which depend on the data."""
    read = {name for _, node in _computing(model) for name in node.input}
    return [one for one in model.graph.initializer if one.name in read and one.data_type == TensorProto.FLOAT]


def _declared(model: onnx.ModelProto, name: str) -> onnx.ValueInfoProto:
    """The type and shape of a value."""
    whole = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    return next(value for value in (*whole.input, *whole.value_info, *whole.output) if value.name == name)


def _is_one(model: onnx.ModelProto, name: str) -> bool:
    """Whether a value is a stored 1, by which nothing is divided that stays."""
    return any(one.name == name and numpy_helper.to_array(one).tolist() in (1, [1]) for one in _stored(model))


def _other(number: float) -> float:
    """A number that is none of a formula's; what stands for -inf is none of those either."""
    return -100.0 if abs(number) > 1e30 else number * 1.5 + 0.3


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(model.SerializeToString())
