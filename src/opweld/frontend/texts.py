"""Strings, replaced by integers: each string of the model has a number, and strings in inputs get one at run time.

So operators that move, compare or look up strings (labels of classes, keys of encoders) are compiled as for integers.
Operators that create strings, or use their characters or order, are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from opweld.errors import UnsupportedError
from opweld.frontend.check import ML
from opweld.frontend.order import bodies_of, sort_nodes, title_of

_MOVES: Mapping[tuple[str, str], slice] = {
    **{
        ("", name): slice(0, 1)
        for name in (
            "Compress", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice",
            "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
        )
    },
    ("", "Concat"): slice(0, None),
    ("", "Where"): slice(1, 3),
    (ML, "ArrayFeatureExtractor"): slice(0, 1),
}  # fmt: skip
"""Operators whose outputs are elements of their inputs."""

_READS = frozenset({("", "Equal"), ("", "Shape"), ("", "Size"), (ML, "LabelEncoder"), (ML, "OneHotEncoder")})
"""Operators with string inputs and other outputs."""

_INTEGERS: Mapping[tuple[str, str], str] = {
    ("LabelEncoder", "keys_strings"): "keys_int64s",
    ("LabelEncoder", "values_strings"): "values_int64s",
    ("LinearClassifier", "classlabels_strings"): "classlabels_ints",
    ("OneHotEncoder", "cats_strings"): "cats_int64s",
    ("SVMClassifier", "classlabels_strings"): "classlabels_ints",
    ("TreeEnsembleClassifier", "classlabels_strings"): "classlabels_int64s",
}
"""Lists of strings of operators of ai.onnx.ml, and the attributes that replace them."""

_UNUSED = b"_Unused"
"""The default of LabelEncoder for an unknown key if its values are strings."""


class Texts:
    """The strings of a model, numbered."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def known(self) -> tuple[str, ...]:
        """The strings in the order of their numbers."""
        return tuple(self._numbers)

    def number(self, text: bytes) -> int:
        """The number of a string."""
        return self._numbers.setdefault(text.decode("utf-8", "replace"), len(self._numbers))

    def tensor(self, tensor: TensorProto) -> TensorProto:
        """The numbers of a tensor of strings."""
        numbers = np.array([self.number(text) for text in tensor.string_data], np.int64)
        return numpy_helper.from_array(numbers.reshape(tuple(tensor.dims)), tensor.name)


@dataclass(frozen=True)
class Numbered:
    """The strings of a model by their numbers, and the inputs and outputs that hold such numbers."""

    texts: tuple[str, ...] = ()
    values: frozenset[str] = frozenset()


def number_texts(graph: onnx.GraphProto) -> Numbered:
    """Replaces every string of a graph by an int64, in place, and sorts its nodes topologically.

    Raises UnsupportedError naming the node whose use of strings is not supported."""
    if not has_texts(graph):
        return Numbered()
    sort_nodes(graph)
    texts = Texts()
    strings: set[str] = set()
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.STRING:
            tensor.CopyFrom(texts.tensor(tensor))
            strings.add(tensor.name)
    for value in graph.input:
        if _is_text(value):
            strings.add(value.name)
    for node in graph.node:
        _number_node(node, texts, strings)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if _is_text(value):
            value.type.tensor_type.elem_type = TensorProto.INT64
    return Numbered(texts.known, frozenset(strings & {value.name for value in (*graph.input, *graph.output)}))


def _is_text(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type == TensorProto.STRING


def has_texts(graph: onnx.GraphProto) -> bool:
    """Whether a graph contains strings."""
    if any(map(_is_text, (*graph.input, *graph.output))):
        return True
    return any(t.data_type == TensorProto.STRING for t in graph.initializer) or any(
        attribute.t.data_type == TensorProto.STRING or (node.op_type, attribute.name) in _INTEGERS
        for node in graph.node
        for attribute in node.attribute
    )


def _mentions(body: onnx.GraphProto, strings: Set[str]) -> bool:
    """Whether a body contains or captures strings."""
    return has_texts(body) or any(
        not strings.isdisjoint(node.input) or any(_mentions(inner, strings) for inner in bodies_of(node))
        for node in body.node
    )


def _number_node(node: onnx.NodeProto, texts: Texts, strings: set[str]) -> None:
    key = "" if node.domain == "ai.onnx" else node.domain, node.op_type
    fed = [position for position, name in enumerate(node.input) if name in strings]
    moved = _MOVES.get(key)
    fed += [-1 for body in bodies_of(node) if _mentions(body, strings)]
    if fed and not (key in _READS or (moved is not None and set(fed) <= set(range(len(node.input))[moved]))):
        raise UnsupportedError(
            f"{title_of(node)}: its use of strings is not supported: opweld moves them, compares them and looks "
            "them up. Do it before or after the model."
        )
    makes = bool(fed) and moved is not None
    for attribute in list(node.attribute):
        if attribute.t.data_type == TensorProto.STRING:
            attribute.t.CopyFrom(texts.tensor(attribute.t))
            makes |= attribute.name in ("value", "values_tensor")
        elif key == ("", "Constant") and attribute.name in ("value_string", "value_strings"):
            _replace(node, attribute, helper.make_attribute("value", texts.tensor(_stored(attribute))))
            makes = True
        elif key[0] == ML and (node.op_type, attribute.name) in _INTEGERS and attribute.strings:
            numbers: Any = [texts.number(text) for text in attribute.strings]
            _replace(node, attribute, helper.make_attribute(_INTEGERS[node.op_type, attribute.name], numbers))
            makes |= attribute.name in ("values_strings", "classlabels_strings")
    if makes:
        strings.update(node.output if moved is not None else node.output[:1])
        if node.op_type == "LabelEncoder":
            _number_default(node, texts)


def _number_default(node: onnx.NodeProto, texts: Texts) -> None:
    """The default of a LabelEncoder whose values are strings."""
    if any(attribute.name == "default_tensor" for attribute in node.attribute):
        return
    given = [attribute for attribute in node.attribute if attribute.name.startswith("default_")]
    said = next((attribute.s for attribute in given if attribute.name == "default_string"), _UNUSED)
    for attribute in given:
        node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute("default_int64", texts.number(said)))


def _stored(attribute: AttributeProto) -> TensorProto:
    listed = attribute.name == "value_strings"
    texts: Any = list(attribute.strings) if listed else [attribute.s]
    return helper.make_tensor("", TensorProto.STRING, [len(texts)] if listed else [], texts)


def _replace(node: onnx.NodeProto, old: AttributeProto, new: AttributeProto) -> None:
    for other in [attribute for attribute in node.attribute if attribute.name in (old.name, new.name)]:
        node.attribute.remove(other)
    node.attribute.append(new)
