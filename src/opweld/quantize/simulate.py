"""One compiled model that answers as any assignment of precisions would: what is quantised is an input of it.

Each value that may be integer passes through rounding to codes and back, in floats, and a switch; each layer's weights
and bias have two versions and a switch. Scales, zero points and switches are fed, so that ranges, nodes and the
correction of biases are compared without compiling anything again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from opweld.compile import compile as compile_model
from opweld.quantize.calibrate import Observed, Progress
from opweld.quantize.error import error_of
from opweld.quantize.graph import Graph, Layer
from opweld.quantize.placement import Placement, needed
from opweld.quantize.scales import Affine, Codes, Weights

Array = NDArray[Any]


class Simulation:
    """A model whose precisions are fed.

    Args:
        weights: by the place of a layer's node, its weights as integers; `biases` its corrected bias, float32.
        placement: of the pairs, with all layers quantised; None where activations stay float.
    """

    def __init__(
        self,
        graph: Graph,
        layers: Sequence[Layer],
        weights: Mapping[int, Weights],
        biases: Mapping[int, Array],
        placement: Placement | None,
        observed: Observed,
        codes: Codes,
        progress: Progress | None,
    ) -> None:
        self.graph, self.layers, self.placement, self.observed = graph, layers, placement, observed
        self.values = () if placement is None else placement.values
        self._names = {
            name: graph.fresh(f"simulated_{name}") for name in ("scales", "zeros", "on", "wide", "corrected")
        }
        self._low, self._high = (0.0, 255.0) if codes == "uint8" else (-128.0, 127.0)
        self._made = onnx.ModelProto()
        self._made.CopyFrom(graph.model)
        self._number = 0
        self._model = compile_model(self._built(weights, biases), progress=progress)

    def error(
        self, chosen: Collection[int], ranges: Mapping[str, Affine], corrected: bool, samples: int | None = None
    ) -> float:
        """The error at the outputs where the layers of these nodes are quantised; see `error_of`."""
        layers = [layer for layer in self.layers if layer.node in chosen]
        active = needed(self.graph, layers) if self.placement is not None else {}
        scales = [ranges[value].scale if value in ranges else 1.0 for value in self.values]
        zeros = [float(ranges[value].zero_point) if value in ranges else 0.0 for value in self.values]
        names = self._names
        switches: dict[str, Array] = {
            names["on"]: np.array([value in active and value in ranges for value in self.values] or [False]),
            names["scales"]: np.array(scales or [1.0], np.float32),
            names["zeros"]: np.array(zeros or [0.0], np.float32),
            names["wide"]: np.array([layer.node in chosen for layer in self.layers]),
            names["corrected"]: np.array(corrected),
        }
        fed = {value.name for value in self._made.graph.input}
        switches = {name: array for name, array in switches.items() if name in fed}
        answers = [self._model.run({**sample, **switches}) for sample in self.observed.samples[:samples]]
        return error_of(answers, self.observed.answers)

    def _built(self, weights: Mapping[int, Weights], biases: Mapping[int, Array]) -> onnx.ModelProto:
        made, names, readers = self._made, self._names, dict[int, dict[str, str]]()
        after: dict[int, list[onnx.NodeProto]] = {}
        if self.placement is not None:
            for i, value in enumerate(self.placement.values):
                nodes, result = self._rounded(i, value)
                after.setdefault(self.graph.producers.get(value, -1), []).extend(nodes)
                for reader in self.placement.readers[value]:
                    readers.setdefault(reader, {})[value] = result
        before: list[onnx.NodeProto] = []
        used = {"wide", "scales", "zeros", "on"} if self.values else {"wide"}
        for i, layer in enumerate(self.layers):
            wide = self._gathered(names["wide"], i, before)
            quantised = self._stored(weights[layer.node].values())
            renamed = readers.setdefault(layer.node, {})
            renamed[layer.weights] = self._node("Where", [wide, quantised, layer.weights], before)
            if layer.node in biases:
                used.add("corrected")
                plain = layer.bias or self._stored(np.zeros_like(biases[layer.node]))
                both = self._node("And", [wide, names["corrected"]], before)
                bias = self._node("Where", [both, self._stored(biases[layer.node]), plain], before)
                renamed[layer.bias or f"#{layer.node}"] = bias
        del made.graph.node[:]
        made.graph.node.extend([*before, *after.get(-1, ())])
        for i, node in enumerate(self.graph.nodes):
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            renamed = readers.get(i, {})
            for j, name in enumerate(copy.input):
                copy.input[j] = renamed.get(name, name)
            if f"#{i}" in renamed:
                del copy.input[2:]
                copy.input.append(renamed[f"#{i}"])
            made.graph.node.extend([copy, *after.get(i, ())])
        sizes = {
            "scales": len(self.values),
            "zeros": len(self.values),
            "on": len(self.values),
            "wide": len(self.layers),
        }
        for name in sorted(used):
            kind = TensorProto.FLOAT if name in ("scales", "zeros") else TensorProto.BOOL
            shape = [] if name == "corrected" else [sizes[name]]
            made.graph.input.append(helper.make_tensor_value_info(names[name], kind, shape))
        return made

    def _rounded(self, i: int, value: str) -> tuple[list[onnx.NodeProto], str]:
        """The nodes that round a value to codes and back where its switch is on, and their result."""
        nodes: list[onnx.NodeProto] = []
        scale, zero, on = (self._gathered(self._names[name], i, nodes) for name in ("scales", "zeros", "on"))
        steps = self._node("Div", [value, scale], nodes)
        codes = self._node("Add", [self._node("Round", [steps], nodes), zero], nodes)
        low, high = self._stored(np.float32(self._low)), self._stored(np.float32(self._high))
        held = self._node("Sub", [self._node("Clip", [codes, low, high], nodes), zero], nodes)
        back = self._node("Mul", [held, scale], nodes)
        return nodes, self._node("Where", [on, back, value], nodes)

    def _gathered(self, vector: str, i: int, nodes: list[onnx.NodeProto]) -> str:
        return self._node("Gather", [vector, self._stored(np.int64(i))], nodes)

    def _node(self, op: str, inputs: Iterable[str], nodes: list[onnx.NodeProto]) -> str:
        self._number += 1
        result = self.graph.fresh(f"simulated_{self._number}")
        nodes.append(helper.make_node(op, list(inputs), [result], name=result))
        return result

    def _stored(self, array: Any) -> str:
        self._number += 1
        name = self.graph.fresh(f"simulated_{self._number}")
        self._made.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name
