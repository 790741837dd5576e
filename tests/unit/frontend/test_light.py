"""Files read without their weights say the same as protobuf's own reading, or are left to it."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opweld.errors import DamagedModelError, ModelError
from opweld.frontend.external import external_extent
from opweld.frontend.light import LARGE_BYTES, read_light
from opweld.frontend.onnx import load, load_file
from tests.unit.frontend.models import model_of, node
from tests.unit.ops.one_node import normal

LARGE = normal(128, 64)
assert LARGE.nbytes > LARGE_BYTES


def stored() -> onnx.ModelProto:
    """Large weights as initializers, in a Constant and in the body of an If; small ones beside them."""
    inner = helper.make_graph(
        [node("Constant", [], "c", value=numpy_helper.from_array(LARGE + 2)), node("MatMul", ["x", "c"], "z")],
        "body",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    nodes = [
        node("Constant", [], "k", value=numpy_helper.from_array(LARGE + 1)),
        node("MatMul", ["x", "w"], "a"),
        node("MatMul", ["x", "k"], "b"),
        node("If", ["which"], "d", then_branch=inner, else_branch=inner),
        node("Sum", ["a", "b", "d", "bias"], "y"),
    ]
    return model_of(
        nodes,
        {"x": [2, 128], "which": []},
        ["y"],
        {"w": LARGE, "bias": normal(64)},
        kinds={"which": TensorProto.BOOL},
    )


def in_place(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """The model with the bytes that its tensors refer to."""
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        attributes = [attribute for one in graph.node for attribute in one.attribute]
        graphs += [attribute.g for attribute in attributes if attribute.HasField("g")]
        for tensor in (*graph.initializer, *(a.t for a in attributes if a.HasField("t"))):
            if tensor.data_location == TensorProto.EXTERNAL:
                extent = external_extent(tensor, path)
                tensor.raw_data = path.read_bytes()[extent.offset : extent.offset + extent.length]
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
    return model


def test_only_large_tensors_are_left_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(stored(), path)
    light = read_light(path)
    assert light is not None and light.ByteSize() < LARGE_BYTES
    assert light.graph.initializer[1].HasField("raw_data")
    assert in_place(light, path) == stored()


def test_weights_are_read_from_the_file_and_it_is_no_external_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(stored(), path)
    loaded = load_file(path)
    value = loaded.model.graph.initializers["w"].const_value
    assert value is not None and not loaded.external
    np.testing.assert_array_equal(value.numpy(), LARGE)


@pytest.mark.parametrize("name", ["a\\b.onnx", "a\nb.onnx", "\udcff.onnx"])
def test_a_file_whose_name_external_data_may_not_have_is_read_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(stored().SerializeToString())
    assert read_light(path) is None
    assert "w" in load(path).graph.initializers


def test_two_versions_of_the_bytes_of_a_tensor_are_left_to_protobuf(tmp_path: Path) -> None:
    model = stored()
    other = TensorProto(raw_data=normal(128, 64).tobytes())
    tensor = model.graph.initializer[0].SerializeToString() + other.SerializeToString()
    del model.graph.initializer[:]
    twice = onnx.GraphProto.FromString(model.graph.SerializeToString()).SerializeToString()
    graph = twice + b"\x2a" + varint(len(tensor)) + tensor
    model.ClearField("graph")
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString() + b"\x3a" + varint(len(graph)) + graph)
    assert read_light(path) is None


def varint(value: int) -> bytes:
    parts = [(value >> shift) & 0x7F | 0x80 for shift in (0, 7)]
    return bytes([*parts, value >> 14])


def test_a_file_that_ends_early_is_reported_as_damaged(tmp_path: Path) -> None:
    data = stored().SerializeToString()
    path = tmp_path / "model.onnx"
    for size in (len(data) - 1, len(data) // 2, LARGE_BYTES):
        path.write_bytes(data[:size])
        assert read_light(path) is None
        with pytest.raises(DamagedModelError):
            load(path)


def test_a_file_that_changes_after_it_was_opened_is_refused_when_weights_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(stored(), path)
    value = load(path).graph.initializers["w"].const_value
    assert value is not None
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(ModelError, match="has changed"):
        value.numpy()
    path.unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        value.numpy()


def test_external_tensors_of_less_than_a_byte_are_unpacked(tmp_path: Path) -> None:
    numbers = np.arange(-8, 7).reshape(3, 5).astype(ml_dtypes.int4)
    tensor = numpy_helper.from_array(numbers, "w")
    (tmp_path / "weights.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    model = model_of([node("DequantizeLinear", ["w", "s"], "y")], {"x": [1]}, ["y"], {"s": normal(1)[0]})
    model.graph.initializer.append(tensor)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    value = load(path).graph.initializers["w"].const_value
    assert value is not None
    np.testing.assert_array_equal(value.numpy().astype(np.int8), numbers.astype(np.int8))
