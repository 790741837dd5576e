"""A copy of a model with other weights: what its nodes read, what is stored and fed, and nodes that are new."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
        attributes: by place, those of another value. instead: by place, the nodes that stand for one.
        resized: values of another size along an axis.
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
        self.attributes: dict[int, dict[str, Any]] = {}
        self.instead: dict[int, list[onnx.NodeProto]] = {}
        self.resized: dict[str, tuple[int, int]] = {}
        self._stored: dict[str, onnx.TensorProto] = {}
        self._names: set[str] = set()

    def fresh(self, base: str) -> str:
        """A name that nothing has yet."""
        name, number = base, 0
        while name in self.graph.names or name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        return name

    def store(self, array: Any, base: str) -> str:
        """Stores an array under a name like this, which is answered."""
        return self.store_tensor(numpy_helper.from_array(np.asarray(array), self.fresh(base)))

    def store_tensor(self, tensor: onnx.TensorProto) -> str:
        """Stores a tensor under its name, which is answered."""
        self._stored[tensor.name] = tensor
        return tensor.name

    def array(self, node: int, name: str) -> NDArray[Any]:
        """What a node reads now where it read a stored tensor of this name."""
        held = self.renamed.get(node, {}).get(name, name)
        return numpy_helper.to_array(self._stored[held]) if held in self._stored else self.graph.array(held)

    def replace(self, node: int, name: str, array: NDArray[Any]) -> None:
        """Has a node read another array where it read a stored tensor of this name."""
        self.renamed.setdefault(node, {})[name] = self.store(array, name)

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
        self._assemble(range(len(self.graph.nodes)))
        made, read = self.made.graph, self._read()
        inputs = [value for value in made.input if value.name in read or value.name not in self.graph.stored]
        told = [value for value in made.value_info if value.name not in self.resized]
        for field, values in ((made.input, inputs), (made.value_info, told)):
            del field[:]
            field.extend(values)
        return self.made

    def part(self, nodes: Collection[int], shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
        """Of the copy with all changes these nodes alone, a model of its own: of what they read and do not make, of
        these shapes, it gives what they make and do not read, as far as that is float32."""
        self._assemble(sorted(nodes))
        made = self.made.graph
        results = {name for node in made.node for name in node.output if name}
        read = {name for node in made.node for name in node.input if name}
        for field in (made.input, made.output, made.value_info):
            del field[:]
        held = {tensor.name for tensor in made.initializer}
        for name in sorted(read - results - held):
            shape = list(shapes[name])
            if name in self.resized:
                axis, size = self.resized[name]
                shape[axis] = size
            self.feed(name, shape)
        for name in sorted(results - read):
            made.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        return self.made

    def _assemble(self, nodes: Iterable[int]) -> None:
        made = self.made.graph
        made.node.extend([*self.first, *self.after.get(-1, ())])
        for i in nodes:
            made.node.extend([*(self.instead.get(i) or [self._changed(i)]), *self.after.get(i, ())])
        read = self._read()
        stored = (*self.graph.stored.values(), *self._stored.values())
        made.initializer.extend(tensor for tensor in stored if tensor.name in read)

    def _read(self) -> set[str]:
        return {*Graph(self.made).readers, *(value.name for value in self.made.graph.output)}

    def _changed(self, i: int) -> onnx.NodeProto:
        copy = onnx.NodeProto()
        copy.CopyFrom(self.graph.nodes[i])
        for j, name in enumerate(copy.input):
            copy.input[j] = self.renamed.get(i, {}).get(name, name)
        if i in self.biases:
            del copy.input[2:]
            copy.input.append(self.biases[i])
        changed = self.attributes.get(i, {})
        kept = [attribute for attribute in copy.attribute if attribute.name not in changed]
        del copy.attribute[:]
        copy.attribute.extend((*kept, *(helper.make_attribute(name, value) for name, value in changed.items())))
        return copy


def fed_weights(edits: Edits, weights: dict[int, tuple[str, NDArray[Any]]]) -> dict[int, str]:
    """Makes inputs of what layers multiply by, by place of the node the stored name and array; answers their names."""
    found: dict[int, str] = {}
    for node, (stored, array) in weights.items():
        found[node] = edits.fresh(f"{stored}_fed")
        edits.renamed.setdefault(node, {})[stored] = found[node]
        edits.feed(found[node], array.shape)
    return found
