"""The quantised model as standard ONNX: pairs of QuantizeLinear and DequantizeLinear, stored integers behind one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from opweld.quantize.graph import Graph, Layer
from opweld.quantize.placement import Placement, needed
from opweld.quantize.scales import Affine, Codes, Weights, least_weight_scales, quantize_weights

Array = NDArray[Any]

INT4_SINCE = 10
"""The version of ONNX's format that has int4."""


class Writer:
    """A copy of a model that becomes quantised."""

    def __init__(self, graph: Graph, codes: Codes) -> None:
        self._graph = graph
        self._codes = codes
        self._made = onnx.ModelProto()
        self._made.CopyFrom(graph.model)
        self._first: list[onnx.NodeProto] = []
        self._after: dict[int, list[onnx.NodeProto]] = {}
        self._renamed: dict[int, dict[str, str]] = {}
        self._added: dict[int, str] = {}
        self._written: dict[tuple[str, int | None], str] = {}

    def write(
        self,
        layers: Collection[Layer],
        weights: Mapping[int, Weights],
        biases: Mapping[int, Array],
        placement: Placement | None,
        ranges: Mapping[str, Affine],
    ) -> onnx.ModelProto:
        """The model with these layers quantised; `biases` are those that were corrected."""
        if placement is not None:
            active = needed(self._graph, layers)
            for value in placement.values:
                if value in active:
                    self._pair(value, ranges[value], placement.readers[value])
        for layer in layers:
            self._layer(layer, weights[layer.node], biases.get(layer.node), ranges if placement is not None else {})
        self._assemble()
        return self._made

    def _pair(self, value: str, affine: Affine, readers: Collection[int]) -> None:
        dtype = np.uint8 if self._codes == "uint8" else np.int8
        scale = self._store(np.float32(affine.scale), f"{value}_scale")
        zero = self._store(np.asarray(affine.zero_point, dtype), f"{value}_zero_point")
        codes, back = self._graph.fresh(f"{value}_quantized"), self._graph.fresh(f"{value}_dequantized")
        self._after.setdefault(self._graph.producers.get(value, -1), []).extend(
            (
                helper.make_node("QuantizeLinear", [value, scale, zero], [codes], name=codes),
                helper.make_node("DequantizeLinear", [codes, scale, zero], [back], name=back),
            )
        )
        for reader in readers:
            self._renamed.setdefault(reader, {})[value] = back

    def _layer(self, layer: Layer, weights: Weights, corrected: Array | None, ranges: Mapping[str, Affine]) -> None:
        bias = corrected if corrected is not None else self._graph.array(layer.bias) if layer.bias else None
        renamed = self._renamed.setdefault(layer.node, {})
        # A bias that has not as many digits as its steps ask for widens the weights' scales: no other reader has them.
        own = False
        if bias is not None and ranges and layer.axis is not None:
            least = least_weight_scales(bias, ranges[layer.data].scale)
            if own := bool((least > weights.scales).any()):
                weights = quantize_weights(self._graph.array(layer.weights), layer.axis, least)
        key = layer.weights, layer.axis
        if own or key not in self._written:
            self._written[key] = self._dequantized(layer, weights)
        renamed[layer.weights] = self._written[key]
        if own:
            del self._written[key]
        if bias is None:
            return
        if not ranges:
            name = layer.bias if corrected is None else self._store(bias, f"{layer.name}_bias")
        else:
            name = self._bias(layer, bias, weights, ranges[layer.data].scale)
        if layer.bias:
            renamed[layer.bias] = name
        else:
            self._added[layer.node] = name

    def _bias(self, layer: Layer, bias: Array, weights: Weights, scale: float) -> str:
        """A bias as int32, of the scale of the products that it is added to; in floats where it would not fit."""
        steps = (np.float32(scale) * weights.scales).astype(np.float32)
        codes = np.round(bias.astype(np.float64) / steps)
        base = layer.bias or f"{layer.name}_bias"
        if not np.isfinite(codes).all() or np.abs(codes).max(initial=0) >= 2.0**31:
            return self._store(bias, base + "_corrected")
        stored = self._store(codes.astype(np.int32), f"{base}_quantized")
        result = self._graph.fresh(f"{base}_dequantized")
        inputs = [stored, self._store(steps, f"{base}_scale")]
        node = helper.make_node("DequantizeLinear", inputs, [result], name=result)
        if weights.axis is not None:
            node.attribute.append(helper.make_attribute("axis", 0))
        self._first.append(node)
        return result

    def _dequantized(self, layer: Layer, weights: Weights) -> str:
        base = layer.weights
        four = bool(weights.block)
        codes = self._store(weights.codes, f"{base}_quantized", TensorProto.INT4 if four else TensorProto.INT8)
        scale = self._store(weights.scales, f"{base}_scale")
        zeros = np.zeros(weights.scales.shape, np.int8)
        zero = self._store(zeros, f"{base}_zero_point", TensorProto.INT4 if four else TensorProto.INT8)
        result = self._graph.fresh(f"{base}_dequantized")
        said: dict[str, int] = {} if weights.axis is None else {"axis": weights.axis}
        if four:
            said["block_size"] = weights.block
        node = helper.make_node("DequantizeLinear", [codes, scale, zero], [result], name=result)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in said.items())
        self._first.append(node)
        return result

    def _store(self, array: Any, wish: str, kind: int | None = None) -> str:
        name = self._graph.fresh(wish)
        held = np.asarray(array)
        if kind == TensorProto.INT4:
            made = TensorProto(name=name, data_type=kind, dims=held.shape, raw_data=packed_int4(held))
            self._made.ir_version = max(self._made.ir_version, INT4_SINCE)
        else:
            made = numpy_helper.from_array(held, name)
        self._made.graph.initializer.append(made)
        return name

    def _assemble(self) -> None:
        graph = self._made.graph
        del graph.node[:]
        graph.node.extend([*self._first, *self._after.get(-1, ())])
        for i, node in enumerate(self._graph.nodes):
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            for j, name in enumerate(copy.input):
                copy.input[j] = self._renamed.get(i, {}).get(name, name)
            if i in self._added:
                del copy.input[2:]
                copy.input.append(self._added[i])
            graph.node.extend([copy, *self._after.get(i, ())])
        read = {*Graph(self._made).readers, *self._graph.outputs}
        kept = [tensor for tensor in graph.initializer if tensor.name in read]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        names = {tensor.name for tensor in kept}
        gone = [value for value in graph.input if value.name in self._graph.stored and value.name not in names]
        for value in gone:
            graph.input.remove(value)


def packed_int4(codes: NDArray[Any]) -> bytes:
    """Two codes a byte, the first in the lower half; of an odd number, the last upper half is 0."""
    flat = codes.reshape(-1).astype(np.int8).view(np.uint8) & 0xF
    even = np.append(flat, np.uint8(0)) if flat.size % 2 else flat
    return (even[::2] | even[1::2] << 4).astype(np.uint8).tobytes()
