"""A copy of a model with other weights: what its nodes read, what is stored and fed, and nodes that are new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from opweld.calibration.graph import Graph
from opweld.frontend.opset import copy_field


class Edits:
    """Changes of a model, which are made to a copy all at once.

    Attributes:
        made: the copy. first: nodes before all others. after: nodes behind one, by its place, those of -1 before all.
        renamed: by a node's place, what it reads instead of what. biases: by place, the names of biases, there or new.
        instead: by place, the nodes that stand for one.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = onnx.ModelProto()
        for field, value in graph.model.ListFields():
            if field.name != "graph":
                copy_field(self.made, field.name, value)
        for field, value in graph.model.graph.ListFields():
            if field.name not in ("node", "initializer"):
                copy_field(self.made.graph, field.name, value)
        self.first: list[onnx.NodeProto] = []
        self.after: dict[int, list[onnx.NodeProto]] = {}
        self.renamed: dict[int, dict[str, str]] = {}
        self.biases: dict[int, str] = {}
        self.instead: dict[int, list[onnx.NodeProto]] = {}

    def store(self, array: Any, base: str) -> str:
        """Stores an array under a name like this, which is answered."""
        name = self.graph.fresh(base)
        self.made.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def feed(self, name: str, shape: Sequence[int], kind: int = TensorProto.FLOAT) -> None:
        """Adds an input."""
        self.made.graph.input.append(helper.make_tensor_value_info(name, kind, shape))

    def watch(self, values: Iterable[str]) -> None:
        """Makes outputs of values that nodes make."""
        for value in values:
            if value in self.graph.producers and value not in self.graph.outputs:
                self.made.graph.output.append(helper.make_tensor_value_info(value, TensorProto.FLOAT, None))

    def applied(self) -> onnx.ModelProto:
        """The copy with all changes, without the stored tensors that nothing reads any more."""
        made, stored = self.made.graph, self.graph.stored
        made.node.extend([*self.first, *self.after.get(-1, ())])
        for i, node in enumerate(self.graph.nodes):
            made.node.extend([*(self.instead.get(i) or [self._changed(i, node)]), *self.after.get(i, ())])
        read = {*Graph(self.made).readers, *(value.name for value in made.output)}
        made.initializer.extend(tensor for name, tensor in stored.items() if name in read)
        inputs = [value for value in made.input if value.name in read or value.name not in stored]
        del made.input[:]
        made.input.extend(inputs)
        return self.made

    def _changed(self, i: int, node: onnx.NodeProto) -> onnx.NodeProto:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for j, name in enumerate(copy.input):
            copy.input[j] = self.renamed.get(i, {}).get(name, name)
        if i in self.biases:
            del copy.input[2:]
            copy.input.append(self.biases[i])
        return copy


def fed_weights(edits: Edits, weights: dict[int, tuple[str, NDArray[Any]]]) -> dict[int, str]:
    """Makes inputs of what layers multiply by, by place of the node the stored name and array; answers their names."""
    found: dict[int, str] = {}
    for node, (stored, array) in weights.items():
        found[node] = edits.graph.fresh(f"{stored}_fed")
        edits.renamed.setdefault(node, {})[stored] = found[node]
        edits.feed(found[node], array.shape)
    return found
