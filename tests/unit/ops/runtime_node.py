"""One-node models of other domains through front end, lowering and interpreter, against what they mean in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from opweld.tensor.flow import interpret_flow
from opweld.verification.reference import float64_outputs
from tests.unit.ops.one_node import TOLERANCE, Array, Dims, assert_close, feeds_of, flow_of

MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"
VERSIONS = {MICROSOFT: 1, ML: 3}


def runtime_model(
    op_type: str,
    inputs: Sequence[Array | None],
    domain: str,
    *,
    outputs: int = 1,
    constant: Sequence[int] = (),
    dims: Mapping[int, Dims] | None = None,
    absent: Sequence[int] = (),
    version: int | None = None,
    types: Mapping[int, int] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node, named as `one_node.make_model` does. `types` are element types of outputs, else float."""
    names = ["" if array is None else f"x{position}" for position, array in enumerate(inputs)]
    outs = ["" if position in absent else f"y{position}" for position in range(outputs)]
    node = helper.make_node(op_type, names, outs, name=f"the_{op_type}", domain=domain, **attributes)
    present = [(i, array) for i, array in enumerate(inputs) if array is not None]
    fed = [
        helper.make_tensor_value_info(
            f"x{i}", helper.np_dtype_to_tensor_dtype(array.dtype), list((dims or {}).get(i) or array.shape)
        )
        for i, array in present
        if i not in constant
    ]
    stored = [numpy_helper.from_array(array, f"x{i}") for i, array in present if i in constant]
    results = [
        helper.make_tensor_value_info(name, (types or {}).get(position, TensorProto.FLOAT), None)
        for position, name in enumerate(outs)
        if name
    ]
    graph = helper.make_graph([node], "one_node", fed, results, stored)
    imports = [helper.make_opsetid("", 21)]
    if domain:
        imports.append(helper.make_opsetid(domain, version or VERSIONS[domain]))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def check_runtime(
    op_type: str,
    inputs: Sequence[Array | None],
    domain: str = MICROSOFT,
    *,
    more: Sequence[Sequence[Array | None]] = (),
    tolerance: float = TOLERANCE,
    steps: int = 0,
    expected: Sequence[Array] | None = None,
    **options: Any,
) -> None:
    """Compares all outputs with the float64 reference, or the expected ones, for these inputs and, with the same flow,
    for `more` of other sizes. Integers may be `steps` apart, where a float that was rounded lies between two of them.

    Of operators of classical machine learning, of which ONNX's own reference is wrong in most, ONNX Runtime's answers
    are expected. None of them computes with integers of 8 bits, which it saturates on some processors."""
    model = runtime_model(op_type, inputs, domain, **options)
    flow = flow_of(model)
    for arrays in (inputs, *more):
        feeds = feeds_of(arrays, options.get("constant", ()))
        wanted = expected
        if wanted is None:
            wanted = _expected(model, feeds)
        actual = interpret_flow(flow, feeds)
        names = [value.name for value in model.graph.output]
        for name, array in zip(names, wanted, strict=True):
            title = f"{op_type} {name}"
            if steps and actual[name].dtype.kind in "iu":
                assert actual[name].dtype == array.dtype and actual[name].shape == array.shape, title
                apart = np.abs(actual[name].astype(np.int64) - array.astype(np.int64))
                assert int(np.max(apart, initial=0)) <= steps, f"{title}: {apart.max()} steps apart"
                assert float(np.mean(apart > 0)) <= 0.02, f"{title}: {np.mean(apart > 0):.3f} of all are apart"
                continue
            assert_close(actual[name], array, tolerance, title)


def _expected(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    (node,) = model.graph.node
    if node.domain != ML:
        found = float64_outputs(model, feeds)
        return [array.astype(np.float32) if array.dtype == np.float64 else array for array in found]
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feeds))]
