"""The bytes of a model's file, written without putting them together first."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from opweld.rewrite.file import LARGE, checkable, pieces, serialized, without_large
from opweld.rewrite.optimize import optimize_model
from opweld.rewrite.write import message
from tests.unit.rewrite.rewritten import model_of, normal

TEXT = "g (float[n, 300] x) => (float[n, 4] y) { h = MatMul(x, w) s = Relu(h) y = MatMul(s, v) }"


@pytest.mark.parametrize("columns", [4, 100, 2_000])
def test_the_file_holds_the_model(columns: int) -> None:
    """Lengths of one to four bytes."""
    proto = model_of(TEXT, {"w": normal(300, columns), "v": normal(columns, 4)})
    proto.producer_name = "somebody"
    proto.graph.initializer[0].doc_string = "weights"
    model = ir.serde.deserialize_model(proto)
    small, large = without_large(model)
    assert set(large) == {t.name for t in proto.graph.initializer if len(t.raw_data) > LARGE}
    onnx.checker.check_model(checkable(small, large), full_check=True)
    read = onnx.ModelProto.FromString(b"".join(pieces(small, large)))
    assert set(model.graph.initializers) == {"w", "v"}, "the model is as it was"
    found = {tensor.name: tensor for tensor in read.graph.initializer}
    for tensor in proto.graph.initializer:
        assert found[tensor.name].doc_string == tensor.doc_string
        np.testing.assert_array_equal(numpy_helper.to_array(found[tensor.name]), numpy_helper.to_array(tensor))
    whole = serialized(model)
    for kept in (read, whole):
        del kept.graph.initializer[:], kept.graph.value_info[:]
    assert read == whole


def test_what_is_unchanged_gets_no_larger() -> None:
    proto = model_of(TEXT, {"w": normal(300, 4), "v": normal(4, 4)})
    proto.opset_import[0].ClearField("domain")
    assert message(optimize_model(proto)).ByteSize() <= proto.ByteSize()
