"""Evaluates nodes by ONNX's reference evaluator: in float64, rounded at the end to the model's types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from opweld.frontend.evaluator import evaluator, widen_array, widen_model
from opweld.rewrite.scope import Array, Scope

DISCONTINUOUS = frozenset((
    "Cast", "CastLike", "Floor", "Ceil", "Round", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "ArgMax",
    "ArgMin", "TopK", "NonZero", "Sign", "Unique", "Mod", "Range", "IsNaN", "IsInf", "BitCast", "Hardmax", "Shrink",
    "ThresholdedRelu", "NonMaxSuppression", "GridSample", "RoiAlign",
))  # fmt: skip
"""Discontinuous operators: they are evaluated in the model's types, step by step, so that they jump where the model
does."""


class Evaluator:
    """Evaluates nodes one after the other. It keeps the float64 values behind rounded ones, and for discontinuous
    operators the values with each step rounded to the model's types."""

    def __init__(self, scope: Scope, opsets: Mapping[str, int]) -> None:
        self._scope = scope
        self._opsets = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        self._wide: dict[ir.Value, Array] = {}
        self._own: dict[ir.Value, Array] = {}

    def run(self, node: ir.Node, known: Mapping[ir.Value, Array]) -> dict[ir.Value, Array] | None:
        """The outputs of a node whose inputs are stored or known, rounded to their types; None where it cannot be
        evaluated."""
        if node.op_type == "CastLike":
            return self._cast(node, known)
        proto = ir.serde.serialize_node(node)
        feeds: dict[str, Array] = {}
        for value in node.inputs:
            if value is None:
                continue
            rounded = known[value] if value in known else self._scope.constant(value)
            if rounded is None or rounded.dtype.kind not in "fiub":
                return None
            if value not in self._wide:
                feeds[value.name or ""] = rounded
            elif node.op_type in DISCONTINUOUS:
                feeds[value.name or ""] = self._stepwise(value, known)
            else:
                feeds[value.name or ""] = self._wide[value]
        dtypes = [self._dtype(value) for value in node.outputs]
        if None in dtypes:
            return None
        outputs = self._computed(proto, feeds)
        if outputs is not None and any(array.dtype.kind == "f" and np.isnan(array).any() for array in outputs):
            # The root of a tiny negative number, which in the model is 0, must not be NaN.
            own = {value.name or "": self._stepwise(value, known) for value in node.inputs if value is not None}
            outputs = self._computed(proto, own)
        if outputs is None:
            return None
        made: dict[ir.Value, Array] = {}
        for value, array, dtype in zip(node.outputs, outputs, dtypes, strict=True):
            if dtype is None:
                return None
            with np.errstate(over="ignore", invalid="ignore"):
                made[value] = array.astype(dtype)
            if array.dtype == np.dtype(np.float64) and dtype != np.dtype(np.float64):
                self._wide[value] = array
        return made

    def _stepwise(self, value: ir.Value, known: Mapping[ir.Value, Array]) -> Array:
        """A known or stored value with every step that leads to it rounded to the model's types."""
        node = value.producer()
        if value not in self._wide or node is None:
            stored = self._scope.constant(value)
            return known[value] if stored is None else stored
        if value not in self._own:
            feeds = {v.name or "": self._stepwise(v, known) for v in node.inputs if v is not None}
            outputs = self._computed(ir.serde.serialize_node(node), feeds, wide=False)
            for output, array in zip(node.outputs, outputs or (), strict=False):
                dtype = self._dtype(output)
                if dtype is not None:
                    with np.errstate(over="ignore", invalid="ignore"):
                        self._own[output] = array.astype(dtype)
        return self._own.get(value, known[value])

    def _cast(self, node: ir.Node, known: Mapping[ir.Value, Array]) -> dict[ir.Value, Array] | None:
        source, dtype = node.inputs[0], self._dtype(node.outputs[0])
        array = None if source is None else known.get(source, self._scope.constant(source))
        if array is None or dtype is None or array.dtype.kind not in "fiub":
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            return {node.outputs[0]: array.astype(dtype)}

    def _dtype(self, value: ir.Value) -> np.dtype[Any] | None:
        fact = self._scope.fact(value)
        return None if fact is None or fact.dtype.numpy.kind not in "fiub" else fact.dtype.numpy

    def _computed(self, node: onnx.NodeProto, feeds: Mapping[str, Array], wide: bool = True) -> list[Any] | None:
        """The outputs of a node, in float64 if `wide`."""
        given = {name: widen_array(array) for name, array in feeds.items()} if wide else dict(feeds)
        unknown = onnx.TensorProto.UNDEFINED
        graph = helper.make_graph(
            [node],
            "node",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a in given.items()
            ],
            [helper.make_tensor_value_info(name, unknown, None) for name in node.output if name],
        )
        model = helper.make_model(graph, opset_imports=self._opsets)
        if wide:
            widen_model(model)
        try:
            with np.errstate(all="ignore"):
                found: Any = evaluator(model).run(None, given)
        except Exception:  # noqa: BLE001 - the evaluator raises whatever NumPy does; the node is kept then
            return None
        return [np.asarray(array) for array in found]
