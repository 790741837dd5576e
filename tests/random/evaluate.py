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

from opweld.frontend.evaluator import evaluator, widen_model
from opweld.frontend.reference.recurrent import dynamic_lstm
from tests.random.windows import AveragePool, Conv, ConvInteger, MaxPool, QLinearConv

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

WITHIN = frozenset(("DynamicQuantizeLSTM", "DynamicQuantizeMatMul"))
"""Operators of floats that round to codes on the way."""

APPROXIMATED = 5
"""Roundings by which an activation may be off: what tests/unit/runtime_math allow tanh."""


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
        domains = [helper.make_opsetid("", OPSET)] + [helper.make_opsetid(node.domain, 1)] * bool(node.domain)
        model.CopyFrom(helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION))
        widen_model(model)
        self._inputs = inputs
        self._evaluator = evaluator(model, (Conv, ConvInteger, QLinearConv, MaxPool, AveragePool))

    @property
    def rounded(self) -> list[str]:
        """The operands that rounding may move; the scales of a Resize are sizes."""
        return self._inputs[:1] if self.node.op_type == "Resize" else self._inputs

    def exact(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The other operands, as they are."""
        return {name: values[name] for name in self._inputs if name not in self.rounded}

    def magnitudes(self, values: Mapping[str, Array]) -> list[Array]:
        """Of a sum: the same of the magnitudes of what is summed."""
        return self.run(
            {name: np.abs(a) if name in self.rounded and a.dtype.kind == "f" else a for name, a in values.items()}
        )

    def run(self, values: Mapping[str, Array]) -> list[Array]:
        """The node's outputs. Raises whatever NumPy does when the operands do not fit."""
        with np.errstate(all="ignore"):
            results: Any = self._evaluator.run(None, {name: values[name] for name in self._inputs})
        return [np.asarray(result) for result in results]

    def run_narrow(
        self, values: Mapping[str, Array], dtypes: Mapping[str, np.dtype[Any]], random: np.random.Generator | None
    ) -> list[Array]:
        """The node's outputs in float64, computed in the dtypes of the model. With `random`, each result inside of a
        recurrence is off by some roundings: a state of -1 and 1 has its zero point at a tie, at each step again, and no
        disturbance of operands moves that where the state is saturated."""
        narrow = {n: values[n].astype(dtypes[n]) if values[n].dtype.kind == "f" else values[n] for n in self._inputs}
        if random is None or self.node.op_type != "DynamicQuantizeLSTM":
            return [widened(result) for result in self.run(narrow)]
        operands: list[Any] = [narrow[name] if name else None for name in self.node.input]
        attributes = {a.name: helper.get_attribute_value(a) for a in self.node.attribute}
        texts = {name: text.decode() for name, text in attributes.items() if isinstance(text, bytes)}

        def result(x: Array) -> Array:
            return disturbed(x, x.dtype, random, APPROXIMATED).astype(x.dtype)

        with np.errstate(all="ignore"):
            outputs = dynamic_lstm(*operands, **{**attributes, **texts}, result=result)
        return [widened(output) for output, name in zip(outputs, self.node.output, strict=False) if name]


def widened(values: Array) -> Array:
    """Floats in float64, everything else as it is."""
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def disturbed(values: Array, dtype: np.dtype[Any], random: np.random.Generator, roundings: float = 1) -> Array:
    """Values off by up to so many roundings of the dtype that they have in the model, infinite beyond its range and
    zero below half of its least."""
    if values.dtype.kind != "f" or dtype not in ROUNDING:
        return values
    least = float(np.finfo(dtype).smallest_subnormal)
    moved = values * (1 + roundings * ROUNDING[dtype] * random.uniform(-1, 1, values.shape)) + least * random.uniform(
        -1, 1
    )
    moved = np.where(np.abs(moved) < least / 2, np.copysign(0.0, moved), moved)
    # A zero is exact, and keeps its sign.
    moved = np.where(values == 0, values, moved)
    return np.where(np.abs(moved) > np.finfo(dtype).max, np.copysign(np.inf, moved), moved)


def nearest(values: Array, dtype: np.dtype[Any]) -> Array:
    """Values rounded to the dtype that they have in the model."""
    if values.dtype.kind != "f" or dtype not in ROUNDING:
        return values
    with np.errstate(all="ignore"):
        return values.astype(dtype).astype(np.float64)


def accumulated(result: Array, terms: Array, dtype: np.dtype[Any], random: np.random.Generator) -> Array:
    """A sum off by up to a rounding of all its terms together: partial sums are rounded too, in whichever order they
    are made. `terms` is the sum of their magnitudes; those of 16 bits are added up in float32."""
    if result.dtype.kind != "f" or dtype not in ROUNDING:
        return result
    rounding = min(ROUNDING[dtype], ROUNDING[np.dtype(np.float32)]) / 2
    return result + np.nan_to_num(np.abs(terms) * rounding * random.uniform(-1, 1, result.shape), posinf=0, neginf=0)


def nothing_times_nan(step: Step, operands: Mapping[str, Array], result: Array, random: np.random.Generator) -> Array:
    """A Resize, NaN by chance where a neighbour may be no number: whoever mixes it in with weight zero gets NaN."""
    (x,) = step.rounded
    near = ~np.isfinite(operands[x])
    if not near.any():
        return result
    for axis in range(near.ndim):
        padded = np.pad(near, [(int(a == axis),) * 2 for a in range(near.ndim)])
        near = np.logical_or.reduce([padded.take(range(at, at + near.shape[axis]), axis) for at in range(3)])
    (touched,) = step.run({**operands, x: near.astype(np.float64)})
    return np.where((touched != 0) & (random.random(result.shape) < 0.5), np.nan, result)


def signs_open(values: Array, random: np.random.Generator) -> Array:
    """Values whose zeros have any sign: that of a sum depends on its order, and on whether it has products with
    zero."""
    if values.dtype.kind != "f":
        return values
    return np.where(values == 0, np.copysign(0.0, random.uniform(-1, 1, values.shape)), values)


def evaluate(
    steps: Sequence[Step],
    known: Mapping[str, Array],
    dtypes: Mapping[str, np.dtype[Any]],
    random: np.random.Generator | None = None,
    *,
    rounded_once: bool = False,
    answered: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Every value of a graph in float64, from its inputs and initializers.

    Args:
        steps: the nodes in order.
        known: inputs and initializers by name.
        dtypes: what each value is in the model.
        random: where given, operands and results are disturbed by roundings.
        rounded_once: results are rounded to what they are in the model, and nothing else happens to them.
        answered: values that nodes read as they are here, whatever is computed for them.
    """
    values = {name: widened(array) for name, array in known.items()}
    found = dict(values)
    read_as = {name: widened(array) for name, array in (answered or {}).items()}
    for step in steps:
        operands: dict[str, Array] = values
        if random is not None:
            rounded = {n: disturbed(values[n], dtypes[n], random) for n in step.rounded}
            operands = rounded | step.exact(values)
        narrow = step.node.op_type in WITHIN and (random is not None or rounded_once)
        results = step.run_narrow(operands, dtypes, random) if narrow else step.run(operands)
        sums = random is not None and step.node.op_type in SUMS
        terms = step.magnitudes(operands) if sums else results
        for name, result, term in zip((n for n in step.node.output if n), results, terms, strict=True):
            if random is not None and step.node.op_type != "Constant":
                result = accumulated(result, term, dtypes[name], random) if sums else result
                if step.node.op_type == "Resize" and result.dtype.kind == "f":
                    result = nothing_times_nan(step, operands, result, random)
                result = disturbed(result, dtypes[name], random)
                result = signs_open(result, random) if sums else result
            found[name] = nearest(result, dtypes[name]) if rounded_once else result
            values[name] = read_as.get(name, found[name])
    return found
