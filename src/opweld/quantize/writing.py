"""The quantised model as standard ONNX: pairs of QuantizeLinear and DequantizeLinear, stored integers behind one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from opweld.calibration.edits import Edits
from opweld.calibration.graph import Graph, Layer
from opweld.quantize.placement import Placement, needed
from opweld.quantize.scales import Affine, Codes, least_weight_scales
from opweld.quantize.versions import Setting, Version, codes_of
from opweld.tensor.integer_weights import Weights

Array = NDArray[Any]

INT4_SINCE = 10
"""The version of ONNX's format that has int4."""


class Writer:
    """A copy of a model that becomes quantised."""

    def __init__(self, graph: Graph, codes: Codes, *, reduced: bool = False) -> None:
        """`reduced`: as for `codes_of`."""
        self._graph = graph
        self._codes = codes
        self._reduced = reduced
        self._edits = Edits(graph)
        self._written: dict[str, list[tuple[Weights, str]]] = {}

    def write(self, layers: Collection[Layer], setting: Setting, placement: Placement | None) -> onnx.ModelProto:
        """The model with those of the layers quantised that the setting has."""
        written = [layer for layer in layers if layer.node in setting.versions]
        if placement is not None:
            active = needed(self._graph, [layer for layer in written if layer.node in setting.integer])
            for value in placement.values:
                if value in active:
                    self._pair(value, setting.ranges[value], placement.readers[value])
        for layer in written:
            version = setting.versions[layer.node]
            self._layer(layer, version, setting.ranges if version.precision == "int8" else {})
        return self._edits.applied()

    def _pair(self, value: str, affine: Affine, readers: Collection[int]) -> None:
        dtype = np.uint8 if self._codes == "uint8" else np.int8
        scale = self._store(np.float32(affine.scale), f"{value}_scale")
        zero = self._store(np.asarray(affine.zero_point, dtype), f"{value}_zero_point")
        codes, back = self._edits.fresh(f"{value}_quantized"), self._edits.fresh(f"{value}_dequantized")
        self._edits.after.setdefault(self._graph.producers.get(value, -1), []).extend(
            (
                helper.make_node("QuantizeLinear", [value, scale, zero], [codes], name=codes),
                helper.make_node("DequantizeLinear", [codes, scale, zero], [back], name=back),
            )
        )
        for reader in readers:
            self._edits.renamed.setdefault(reader, {})[value] = back

    def _layer(self, layer: Layer, version: Version, ranges: Mapping[str, Affine]) -> None:
        weights, corrected = version.weights, version.bias
        bias = corrected if corrected is not None else self._graph.array(layer.bias) if layer.bias else None
        renamed = self._edits.renamed.setdefault(layer.node, {})
        # A bias that has not as many digits as its steps ask for widens the weights' scales.
        if bias is not None and ranges and layer.axis is not None:
            least = least_weight_scales(bias, ranges[layer.data].scale)
            wide = least > weights.scales
            if wide.any():
                weights = _replaced(weights, codes_of(self._graph, layer, self._reduced, least), wide)
        renamed[layer.weights] = self._dequantized(layer, weights)
        if bias is None:
            return
        if not ranges:
            name = layer.bias if corrected is None else self._store(bias, f"{layer.name}_bias")
        else:
            name = self._bias(layer, bias, weights, ranges[layer.data].scale)
        self._edits.biases[layer.node] = name

    def _bias(self, layer: Layer, bias: Array, weights: Weights, scale: float) -> str:
        """A bias as int32, of the scale of the products that it is added to; in floats where it would not fit."""
        steps = (np.float32(scale) * weights.scales).astype(np.float32)
        codes = np.round(bias.astype(np.float64) / steps)
        base = layer.bias or f"{layer.name}_bias"
        fits = np.isfinite(codes).all() and np.isfinite(steps).all() and np.abs(codes).max(initial=0) < 2.0**31
        if not fits:
            return self._store(bias, base + "_corrected")
        stored = self._store(codes.astype(np.int32), f"{base}_quantized")
        result = self._edits.fresh(f"{base}_dequantized")
        inputs = [stored, self._store(steps, f"{base}_scale")]
        node = helper.make_node("DequantizeLinear", inputs, [result], name=result)
        if weights.axis is not None:
            node.attribute.append(helper.make_attribute("axis", 0))
        self._edits.first.append(node)
        return result

    def _dequantized(self, layer: Layer, weights: Weights) -> str:
        base = layer.weights
        before = self._written.setdefault(base, [])
        for held, name in before:  # of several readers each has what is the same to it
            if held.axis == weights.axis and held.block == weights.block and _equal(held, weights):
                return name
        four = bool(weights.block)
        codes = self._store(weights.codes, f"{base}_quantized", TensorProto.INT4 if four else TensorProto.INT8)
        scale = self._store(weights.scales, f"{base}_scale")
        zeros = np.zeros(weights.scales.shape, np.int8)
        zero = self._store(zeros, f"{base}_zero_point", TensorProto.INT4 if four else TensorProto.INT8)
        result = self._edits.fresh(f"{base}_dequantized")
        attributes: dict[str, int] = {} if weights.axis is None else {"axis": weights.axis}
        if four:
            attributes["block_size"] = weights.block
        node = helper.make_node("DequantizeLinear", [codes, scale, zero], [result], name=result)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._edits.first.append(node)
        before.append((weights, result))
        return result

    def _store(self, array: Any, base: str, kind: int | None = None) -> str:
        if kind != TensorProto.INT4:
            return self._edits.store(array, base)
        name, held, made = self._edits.fresh(base), np.asarray(array), self._edits.made
        made.ir_version = max(made.ir_version, INT4_SINCE)
        return self._edits.store_tensor(
            TensorProto(name=name, data_type=kind, dims=held.shape, raw_data=packed_int4(held))
        )


def _replaced(weights: Weights, others: Weights, channels: NDArray[np.bool_]) -> Weights:
    """Weights with those of others in some channels; the rest stay as rounded, which their bias makes up for."""
    assert weights.axis is not None
    along = channels.reshape([-1 if i == weights.axis else 1 for i in range(weights.codes.ndim)])
    codes, scales = np.where(along, others.codes, weights.codes), np.where(channels, others.scales, weights.scales)
    return Weights(codes, scales, weights.axis)


def _equal(one: Weights, other: Weights) -> bool:
    return np.array_equal(one.codes, other.codes) and np.array_equal(one.scales, other.scales)


def packed_int4(codes: NDArray[Any]) -> bytes:
    """Two codes a byte, the first in the lower half; of an odd number, the last upper half is 0."""
    flat = codes.reshape(-1).astype(np.int8).view(np.uint8) & 0xF
    even = np.append(flat, np.uint8(0)) if flat.size % 2 else flat
    return (even[::2] | even[1::2] << 4).astype(np.uint8).tobytes()
