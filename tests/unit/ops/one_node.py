"""One-node models through front end, lowering and interpreter, against the ONNX reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from opweld import lower
from opweld.frontend import explore
from opweld.frontend import onnx as onnx_frontend
from opweld.frontend.graph import graph_of
from opweld.tensor.flow import LAST, Flow, Segment, interpret_flow
from opweld.tensor.program import TensorProgram
from opweld.tensor.verify import verify
from opweld.verification.reference import float64_outputs

Array = np.ndarray[Any, Any]
Dims = Sequence[int | str]

TOLERANCE = 3e-6
"""Largest error, as a part of the reference's largest magnitude, of fp32 results."""


def make_model(
    op_type: str,
    inputs: Sequence[Array | None],
    outputs: int = 1,
    constant: Sequence[int] = (),
    dims: Mapping[int, Dims] | None = None,
    opset: int = 23,
    absent: Sequence[int] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node. Inputs are named x0, x1, ...; those in `constant` are initializers; `dims` declares dynamic
    shapes; outputs are y0, y1, ..., without those in `absent`."""
    names = ["" if array is None else f"x{position}" for position, array in enumerate(inputs)]
    outs = ["" if position in absent else f"y{position}" for position in range(outputs)]
    node = helper.make_node(op_type, names, outs, name=f"the_{op_type}", **attributes)
    fed = [
        helper.make_tensor_value_info(
            f"x{position}",
            helper.np_dtype_to_tensor_dtype(array.dtype),
            list((dims or {}).get(position) or array.shape),
        )
        for position, array in enumerate(inputs)
        if array is not None and position not in constant
    ]
    stored = [
        numpy_helper.from_array(array, f"x{position}")
        for position, array in enumerate(inputs)
        if array is not None and position in constant
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outs if name]
    for result in results:
        result.ClearField("type")
    graph = helper.make_graph([node], "one_node", fed, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def flow_of(model: onnx.ModelProto) -> Flow:
    """The segments of a model as verified tensor programs."""
    flow = lower.to_flow(explore.segments(graph_of(onnx_frontend.load(model))))
    for segment in flow.segments:
        for program in segment.programs:
            verify(program)
    return flow


def programs_of(model: onnx.ModelProto) -> list[TensorProgram]:
    """All variants of a model of one segment."""
    (segment,) = flow_of(model).segments
    return list(segment.programs)


def run(programs: Sequence[TensorProgram], feeds: Mapping[str, Array], float64: bool = False) -> dict[str, Array]:
    """The outputs of the first variant that these feeds fit."""
    outputs = tuple((name, name) for name, _ in programs[0].outputs)
    segment = Segment(tuple(programs), (LAST,) * len(programs))
    return interpret_flow(Flow(tuple(feeds), outputs, (segment,)), feeds, float64)


def feeds_of(inputs: Sequence[Array | None], constant: Sequence[int]) -> dict[str, Array]:
    return {f"x{i}": array for i, array in enumerate(inputs) if array is not None and i not in constant}


def check(
    op_type: str,
    inputs: Sequence[Array | None],
    *,
    outputs: int = 1,
    constant: Sequence[int] = (),
    dims: Mapping[int, Dims] | None = None,
    more: Sequence[Sequence[Array | None]] = (),
    reference: Callable[..., Any] | None = None,
    tolerance: float = TOLERANCE,
    absent: Sequence[int] = (),
    **attributes: Any,
) -> list[TensorProgram]:
    """Compares all outputs for these inputs and, with the same flow, for `more` inputs of other sizes.

    `reference` replaces the reference evaluator where that is wrong or cannot do it: a function of the arrays that
    gives one array or a tuple of them. Returns the variants of the first segment."""
    model = make_model(op_type, inputs, outputs, constant, dims, absent=absent, **attributes)
    flow = flow_of(model)
    for arrays in (inputs, *more):
        feeds = feeds_of(arrays, constant)
        if reference is None:
            with np.errstate(all="ignore"):
                expected = ReferenceEvaluator(model).run(None, feeds)
        else:
            given = reference(*arrays)
            expected = list(given) if isinstance(given, tuple) else [given]
        actual = interpret_flow(flow, feeds)
        names = [f"y{position}" for position in range(outputs) if position not in absent]
        for name, wanted in zip(names, expected, strict=True):
            assert_close(actual[name], np.asarray(wanted), tolerance, f"{op_type} {name}")
    return list(flow.segments[0].programs)


def float64_of(op_type: str, inputs: Sequence[Array | None], **options: Any) -> Callable[..., Any]:
    """A reference for `check`: the model in float64, by what `frontend.reference` says that an operator means."""
    constant = options.get("constant", ())
    options.setdefault("opset", 19)
    model = make_model(op_type, inputs, **options)

    def reference(*arrays: Array | None) -> Any:
        found = float64_outputs(model, feeds_of(arrays, constant))
        dtype = next(array.dtype for array in arrays if array is not None)
        return tuple(array.astype(dtype) if array.dtype.kind == "f" else array for array in found)

    return reference


def onnxruntime_of(op_type: str, inputs: Sequence[Array | None], **options: Any) -> Callable[..., Any]:
    """A reference for `check`: ONNX Runtime, where the reference evaluator departs from the specification."""
    import onnxruntime

    constant = options.get("constant", ())
    options.setdefault("opset", 19)
    model = make_model(op_type, inputs, **options)
    for output in model.graph.output:
        output.type.tensor_type.elem_type = TensorProto.FLOAT
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda *arrays: tuple(session.run(None, feeds_of(arrays, constant)))


def assert_close(actual: Array, wanted: Array, tolerance: float, title: str) -> None:
    """Equal shape and dtype; equal integers, NaNs and infinities; floats within the tolerance of the largest one."""
    assert actual.shape == wanted.shape, f"{title}: shape {actual.shape}, expected {wanted.shape}"
    assert actual.dtype == wanted.dtype, f"{title}: dtype {actual.dtype}, expected {wanted.dtype}"
    if actual.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, wanted, title)
        return
    a, w = actual.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(w), f"{title}: NaN")
    np.testing.assert_array_equal(np.where(np.isinf(a), a, 0), np.where(np.isinf(w), w, 0), f"{title}: infinity")
    finite = np.isfinite(w)
    scale = max(float(np.max(np.abs(w[finite]), initial=0.0)), 1e-6)
    error = float(np.max(np.abs(a[finite] - w[finite]), initial=0.0)) / scale
    assert error <= tolerance, f"{title}: error {error:.3g} of scale, tolerance {tolerance:.3g}"


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Normally distributed numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def special() -> Array:
    """Floats that formulas get wrong: NaN, infinities, signed zeros, halves, the tiny and the huge."""
    values = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        1e-30,
        -1e-30,
        1e30,
        -1e30,
        88.0,
        -88.0,
        1,
        -1,
    ]
    return np.array(values, np.float32)


def integers(*shape: int, low: int = -7, high: int = 8, dtype: Any = np.int64, seed: int = 0) -> Array:
    """Uniformly distributed integers of [low, high)."""
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)
