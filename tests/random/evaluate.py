"""One node at a time in float64: the values of a graph, and how far rounding alone may carry them.

The generator looks at values while it builds; the judge asks what happens to them when every operand and every result
is off by a rounding of its dtype. What such a disturbance can move is noise, what it cannot is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

from opweld.frontend.evaluator import OWN_OPERATORS, widen_model
from tests.random.windows import AveragePool, Conv, MaxPool

Array = NDArray[Any]

OPSET = 23
IR_VERSION = 11

ROUNDING = {np.dtype(np.float16): 2.0**-10, np.dtype(np.float32): 2.0**-23, np.dtype(np.float64): 2.0**-52}
"""The relative error of one rounding, twice over."""


SUMS = frozenset((
    "Conv", "ConvTranspose", "MatMul", "Gemm", "Resize", "ReduceSum", "ReduceMean", "AveragePool", "GlobalAveragePool",
    "Einsum", "CumSum", "Sum", "Mean", "LpPool",
))  # fmt: skip
"""Operators whose result is a sum of any number of terms."""


class Step:
    """A node that can be run on float64 values."""

    def __init__(self, node: onnx.NodeProto) -> None:
        self.node = node
        inputs = list(dict.fromkeys(name for name in node.input if name))
        outputs = [name for name in node.output if name]
        graph = helper.make_graph(
            [node],
            "step",
            [helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in inputs],
            [helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in outputs],
        )
        model = onnx.ModelProto()
        model.CopyFrom(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION))
        widen_model(model)
        self._inputs = inputs
        self._evaluator = ReferenceEvaluator(model, new_ops=[*OWN_OPERATORS, Conv, MaxPool, AveragePool])

    @property
    def rounded(self) -> list[str]:
        """The operands that rounding may move; the scales of a Resize are sizes."""
        return self._inputs[:1] if self.node.op_type == "Resize" else self._inputs

    def exact(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The other operands, as they are."""
        return {name: values[name] for name in self._inputs if name not in self.rounded}

    def run(self, values: Mapping[str, Array]) -> list[Array]:
        """The node's outputs. Raises whatever NumPy does when the operands do not fit."""
        with np.errstate(all="ignore"):
            results: Any = self._evaluator.run(None, {name: values[name] for name in self._inputs})
        return [np.asarray(result) for result in results]


def widened(values: Array) -> Array:
    """Floats in float64, everything else as it is."""
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def disturbed(values: Array, dtype: np.dtype[Any], random: np.random.Generator) -> Array:
    """Values off by up to a rounding of the dtype that they have in the model, infinite beyond its range and zero below
    half of its least."""
    if values.dtype.kind != "f" or dtype not in ROUNDING:
        return values
    least = float(np.finfo(dtype).smallest_subnormal) * (values != 0)
    moved = values * (1 + ROUNDING[dtype] * random.uniform(-1, 1, values.shape)) + least * random.uniform(-1, 1)
    moved = np.where(np.abs(moved) < least / 2, np.copysign(0.0, moved), moved)
    return np.where(np.abs(moved) > np.finfo(dtype).max, np.copysign(np.inf, moved), moved)


def signs_open(values: Array, random: np.random.Generator) -> Array:
    """Values whose zeros have any sign: that of a sum hangs on its order, and on whether it has products with zero."""
    if values.dtype.kind != "f":
        return values
    return np.where(values == 0, np.copysign(0.0, random.uniform(-1, 1, values.shape)), values)


def evaluate(
    steps: Sequence[Step],
    known: Mapping[str, Array],
    dtypes: Mapping[str, np.dtype[Any]],
    random: np.random.Generator | None = None,
) -> dict[str, Array]:
    """Every value of a graph in float64, from its inputs and initializers.

    Args:
        steps: the nodes in order.
        known: inputs and initializers by name.
        dtypes: what each value is in the model.
        random: where given, operands and results are disturbed by roundings.
    """
    values = {name: widened(array) for name, array in known.items()}
    for step in steps:
        operands: dict[str, Array] = values
        if random is not None:
            rounded = {n: disturbed(values[n], dtypes[n], random) for n in step.rounded}
            operands = rounded | step.exact(values)
        results = step.run(operands)
        for name, result in zip((n for n in step.node.output if n), results, strict=True):
            if random is not None and step.node.op_type != "Constant":
                result = disturbed(result, dtypes[name], random)
                result = signs_open(result, random) if step.node.op_type in SUMS else result
            values[name] = result
    return values
