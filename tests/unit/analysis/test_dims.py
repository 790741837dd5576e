"""The names by which sizes are shown and given are the model's, where these tell its dims apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld.accounts import account_of
from opweld.analysis.costs import fed_sizes

X: Any = np.zeros((2, 3, 50), np.float32)


@pytest.mark.parametrize(
    ("batch", "length", "sizes"),
    [
        ("batch", "length", {"batch": 2, "length": 50}),
        ("?", "?", {"x_0": 2, "x_2": 50}),
        ("?", "length", {"?": 2, "length": 50}),
    ],
)
def test_a_name_of_several_dims_is_none(batch: str, length: str, sizes: dict[str, int]) -> None:
    """Some exporters call all that they do not know `?`."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3, 4] x) => (y) { y = Exp(x) }'
    )
    for position, name in ((0, batch), (2, length)):
        model.graph.input[0].type.tensor_type.shape.dim[position].dim_param = name
    compiled = opweld.compile(model)
    assert fed_sizes(account_of(compiled.path).record, {"x": X}) == sizes
    np.testing.assert_array_equal(compiled.run({"x": X})["y"], np.ones_like(X))
