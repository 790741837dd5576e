"""Small models, sound and hostile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dims = Sequence[Any]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Dims],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
    opset: int = 23,
    kinds: Mapping[str, int] | None = None,
    ir_version: int = 10,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model; inputs are float unless `kinds` says otherwise, outputs declare no shape."""
    fed = [
        helper.make_tensor_value_info(name, (kinds or {}).get(name, TensorProto.FLOAT), list(dims))
        for name, dims in inputs.items()
    ]
    results = [
        helper.make_tensor_value_info(name, (kinds or {}).get(name, TensorProto.FLOAT), None) for name in outputs
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", fed, results, stored)
    domains = {function.domain for function in functions}
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, functions=list(functions))


def node(op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    """A node of one output, called after it."""
    return helper.make_node(op_type, list(inputs), [output], name=f"make_{output}", **attributes)
