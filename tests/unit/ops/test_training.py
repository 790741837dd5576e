from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import opweld
from opweld.errors import ModelError
from tests.unit.ops.one_node import Array, make_model, normal

STATES = {"Adagrad": 1, "Adam": 2, "Momentum": 1}
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("Adagrad", {"norm_coefficient": 0.01, "decay_factor": 0.1, "epsilon": 1e-5}),
    ("Adam", {"norm_coefficient": 0.01, "norm_coefficient_post": 0.1, "alpha": 0.8, "beta": 0.9}),
    ("Momentum", {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.5, "mode": "standard"}),
    ("Momentum", {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.5, "mode": "nesterov"}),
]


def _model(op_type: str, inputs: list[Array], outputs: int, **attributes: Any) -> onnx.ModelProto:
    model = make_model(op_type, inputs, outputs, **attributes)
    model.graph.node[0].domain = "ai.onnx.preview.training"
    model.opset_import.append(helper.make_opsetid("ai.onnx.preview.training", 1))
    return model


@pytest.mark.parametrize("steps", [0, 5])
@pytest.mark.parametrize(("op_type", "options"), OPTIONS)
def test_a_step(op_type: str, options: dict[str, Any], steps: int) -> None:
    tensors = [np.abs(normal(*shape)) for _ in range(2 + STATES[op_type]) for shape in ((2, 3), (4,))]
    inputs = [np.array(0.1, np.float32), np.array(steps, np.int64), *tensors]
    model = _model(op_type, inputs, 2 * (1 + STATES[op_type]), **options)
    feeds = {f"x{position}": array for position, array in enumerate(inputs)}
    found = opweld.compile(model).run(feeds)
    for y, expected in zip(found.values(), ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(y, np.asarray(expected), rtol=2e-6)


def test_inputs_that_are_no_columns_are_refused() -> None:
    inputs = [np.float32(1.0), np.int64(0), normal(2), normal(2), normal(2), normal(2)]
    with pytest.raises(ModelError, match="expected R, T and 3 inputs and 2 outputs for each parameter"):
        opweld.compile(_model("Adagrad", [np.asarray(array) for array in inputs], 2))
