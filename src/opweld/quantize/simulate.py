"""One compiled model that answers as any assignment of precisions would: what is quantised is an input of it.

Each value that may be integer passes through rounding to codes and back, in floats, and a switch; weights and biases of
layers, scales, zero points and switches are fed, so that ranges, nodes, roundings and corrections are compared without
compiling anything again. The values are outputs too, so that ranges are gathered with the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from opweld.calibration.data import Sample
from opweld.calibration.edits import Edits, fed_weights
from opweld.calibration.error import error_of
from opweld.calibration.graph import Graph, Layer
from opweld.calibration.progress import Progress
from opweld.calibration.shaped import Shaped
from opweld.quantize.calibrate import Observed
from opweld.quantize.placement import Placement, needed
from opweld.quantize.scales import Codes
from opweld.quantize.versions import Setting

Array = NDArray[Any]

NOTHING = Setting({}, {})
"""All layers are floats."""


class Simulation:
    """A model whose precisions are fed.

    Args:
        layers: those that may be quantised. watched: the values that are outputs too.
        placement: of the pairs, with all layers quantised; None where activations stay float.
    """

    def __init__(
        self,
        graph: Graph,
        layers: Sequence[Layer],
        watched: Iterable[str],
        placement: Placement | None,
        codes: Codes,
        progress: Progress | None,
    ) -> None:
        self.graph, self.layers, self.placement = graph, layers, placement
        self.values = () if placement is None else placement.values
        self._low, self._high = (0, 255) if codes == "uint8" else (-128, 127)
        self._floats = {layer.node: graph.array(layer.weights) for layer in layers}
        self._biases = {layer.node: self._bias(layer) for layer in layers if layer.biased}
        edits = Edits(graph)
        self._names = {name: edits.fresh(f"simulated_{name}") for name in ("scales", "lows", "highs", "on")}
        self._fed = fed_weights(edits, {layer.node: (layer.weights, self._floats[layer.node]) for layer in layers})
        self._fed_biases = {node: edits.fresh(f"simulated_bias_{node}") for node in self._biases}
        self._model = Shaped(self._built(edits, list(watched)), progress)

    def run(self, sample: Sample, setting: Setting = NOTHING) -> dict[str, Array]:
        """The outputs and the watched values that the model computes, where these layers are quantised."""
        return self._model.run({**sample, **self._switches(setting)})

    def answers(self, setting: Setting, samples: Iterable[Sample]) -> list[dict[str, Array]]:
        """The outputs alone, sample by sample."""
        switches = self._switches(setting)
        found = (self._model.run({**sample, **switches}) for sample in samples)
        return [{name: one[name] for name in self.graph.outputs} for one in found]

    def error(self, setting: Setting, observed: Observed, samples: int | None = None) -> float:
        """The error at the outputs where these layers are quantised, over the first of the samples that settings are
        compared by; see `error_of`."""
        return error_of(self.answers(setting, observed.compared[:samples]), observed.right)

    def _switches(self, setting: Setting) -> dict[str, Array]:
        """What is fed beside a sample."""
        fed: dict[str, Array] = {}
        for layer in self.layers:
            version = setting.versions.get(layer.node)
            fed[self._fed[layer.node]] = self._floats[layer.node] if version is None else version.weights.values()
            if layer.node in self._biases:
                bias = None if version is None else version.bias
                fed[self._fed_biases[layer.node]] = self._biases[layer.node] if bias is None else bias
        if not self.values:
            return fed
        active = needed(self.graph, [layer for layer in self.layers if layer.node in setting.integer])
        ranges = [setting.ranges.get(value) for value in self.values]
        zeros = np.array([0 if one is None else one.zero_point for one in ranges])
        names = self._names
        fed[names["on"]] = np.array(
            [value in active and one is not None for value, one in zip(self.values, ranges, strict=True)]
        )
        fed[names["scales"]] = np.array([1.0 if one is None else one.scale for one in ranges], np.float32)
        fed[names["lows"]] = (self._low - zeros).astype(np.float32)
        fed[names["highs"]] = (self._high - zeros).astype(np.float32)
        return fed

    def _bias(self, layer: Layer) -> Array:
        if layer.bias:
            return self.graph.array(layer.bias)
        dims = self.graph.stored[layer.weights].dims
        return np.zeros(dims[0 if layer.axis is None else layer.axis], np.float32)

    def _built(self, edits: Edits, watched: Sequence[str]) -> onnx.ModelProto:
        for i, value in enumerate(self.values):
            nodes, result = self._rounded(edits, i, value)
            edits.after.setdefault(self.graph.producers.get(value, -1), []).extend(nodes)
            assert self.placement is not None
            for reader in self.placement.readers[value]:
                edits.renamed.setdefault(reader, {})[value] = result
        for node, array in self._biases.items():
            edits.feed(self._fed_biases[node], array.shape)
            edits.biases[node] = self._fed_biases[node]
        for name in self._names if self.values else ():
            edits.feed(self._names[name], (len(self.values),), TensorProto.BOOL if name == "on" else TensorProto.FLOAT)
        edits.watch(watched)
        return edits.applied()

    def _rounded(self, edits: Edits, i: int, value: str) -> tuple[list[onnx.NodeProto], str]:
        """The nodes that round a value to codes and back where its switch is on, and their result."""
        nodes: list[onnx.NodeProto] = []
        place = edits.store(np.int64(i), "simulated_place")
        scale, low, high, on = (
            _node(edits, "Gather", [self._names[name], place], nodes) for name in ("scales", "lows", "highs", "on")
        )
        steps = _node(edits, "Round", [_node(edits, "Div", [value, scale], nodes)], nodes)
        held = _node(edits, "Min", [_node(edits, "Max", [steps, low], nodes), high], nodes)
        back = _node(edits, "Mul", [held, scale], nodes)
        return nodes, _node(edits, "Where", [on, back, value], nodes)


def _node(edits: Edits, op: str, inputs: Iterable[str], nodes: list[onnx.NodeProto]) -> str:
    result = edits.fresh("simulated")
    nodes.append(helper.make_node(op, list(inputs), [result], name=result))
    return result
