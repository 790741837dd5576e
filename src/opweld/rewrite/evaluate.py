"""Nodes computed by ONNX's own evaluator: in float64, of which the rounded value is what the model gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from opweld.frontend.evaluator import evaluator, widen_array, widen_model
from opweld.rewrite.scope import Array, Scope

STEPPED = frozenset((
    "Cast", "CastLike", "Floor", "Ceil", "Round", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "ArgMax",
    "ArgMin", "TopK", "NonZero", "Sign", "Unique", "Mod", "Range", "IsNaN", "IsInf", "BitCast",
))  # fmt: skip
"""Operators that jump: they get what the model has, rounded, so that they jump where it does."""


class Evaluator:
    """Computes nodes one after the other, and keeps the float64 values that rounded ones come from."""

    def __init__(self, scope: Scope, opsets: Mapping[str, int]) -> None:
        self._scope = scope
        self._opsets = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        self._wide: dict[ir.Value, Array] = {}

    def run(self, node: ir.Node, known: Mapping[ir.Value, Array]) -> dict[ir.Value, Array] | None:
        """The outputs of a node whose inputs are stored or known, rounded to their types; None where it cannot be
        computed."""
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
            wide = value in self._wide and node.op_type not in STEPPED
            feeds[value.name or ""] = self._wide[value] if wide else rounded
        dtypes = [self._dtype(value) for value in node.outputs]
        if None in dtypes:
            return None
        outputs = self._computed(proto, feeds)
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

    def _computed(self, node: onnx.NodeProto, feeds: Mapping[str, Array]) -> list[Any] | None:
        wide = {name: widen_array(array) for name, array in feeds.items()}
        unknown = onnx.TensorProto.UNDEFINED
        graph = helper.make_graph(
            [node],
            "node",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a in wide.items()
            ],
            [helper.make_tensor_value_info(name, unknown, None) for name in node.output if name],
        )
        model = helper.make_model(graph, opset_imports=self._opsets)
        widen_model(model)
        try:
            with np.errstate(all="ignore"):
                found: Any = evaluator(model).run(None, wide)
        except Exception:  # noqa: BLE001 - the evaluator raises whatever NumPy does: then the node is left as it is
            return None
        return [np.asarray(array) for array in found]
