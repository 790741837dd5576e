"""Quantised models: right, standard, within a budget, and clear where they cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import opweld
from opweld.cli.main import app
from opweld.errors import InputError, OptionError, UnsupportedError
from opweld.quantize.histogram import Histogram
from opweld.quantize.ranges import METHODS, range_of
from opweld.quantize.scales import affine_of, quantize_blocks, quantize_weights
from opweld.quantize.writing import packed_int4

Array = NDArray[Any]


def network() -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, MaxPool, Conv, Flatten, MatMul."""
    random = np.random.default_rng(7)

    def stored(name: str, *shape: int) -> onnx.TensorProto:
        values = random.standard_normal(shape) / np.sqrt(max(1, int(np.prod(shape[1:]))))
        return numpy_helper.from_array(values.astype(np.float32), name)

    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[n, 3, 8, 8] x) => (float[n, 5] y) {
            a = Conv <pads = [1, 1, 1, 1]> (x, w1)
            b = BatchNormalization (a, gamma, beta, mean, var)
            c = Relu (b)
            d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)
            e = Conv (d, w2, b2)
            f = Flatten (e)
            y = MatMul (f, w3)
        }""")
    tensors = [stored("w1", 4, 3, 3, 3), stored("w2", 6, 4, 3, 3), stored("b2", 6), stored("w3", 24, 5)]
    tensors += [stored(name, 4) for name in ("gamma", "beta", "mean")]
    tensors.append(numpy_helper.from_array(np.array([0.5, 1, 2, 3], np.float32), "var"))
    model.graph.initializer.extend(tensors)
    return model


def samples(count: int = 4) -> list[dict[str, Array]]:
    random = np.random.default_rng(3)
    return [{"x": random.standard_normal((2, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


def error(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> float:
    (got,), (right,) = (map(np.asarray, ReferenceEvaluator(m).run(None, dict(feeds))) for m in (model, network()))
    return float(np.linalg.norm(got - right) / np.linalg.norm(right))


def test_a_quantised_model_is_standard_and_near_by_the_reference() -> None:
    done = opweld.quantize(network(), samples())
    onnx.checker.check_model(done.model, full_check=True)
    stored = {tensor.name: tensor.data_type for tensor in done.model.graph.initializer}
    kinds = [
        stored[node.input[0]]
        for node in done.model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in stored
    ]
    assert kinds.count(onnx.TensorProto.INT8) == 3 and kinds.count(onnx.TensorProto.INT32) == 2
    assert "BatchNormalization" not in {node.op_type for node in done.model.graph.node}
    (feeds, *_) = samples()
    assert done.error is not None and 0 < done.error < 0.05
    assert 0 < error(done.model, feeds) < 0.05


def test_pooling_shares_the_scale_of_what_it_reads() -> None:
    nodes = opweld.quantize(network(), samples()).model.graph.node
    makers = {name: node for node in nodes for name in node.output}
    (pool,) = (node for node in nodes if node.op_type == "MaxPool")
    (after,) = (node for node in nodes if node.op_type == "QuantizeLinear" and node.input[0] == pool.output[0])
    before = makers[pool.input[0]]
    assert before.op_type == "DequantizeLinear"
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in opweld.quantize(
        network(), samples()).model.graph.initializer}  # fmt: skip
    assert values[before.input[1]] == values[after.input[1]] and values[before.input[2]] == values[after.input[2]]


@pytest.mark.parametrize("precision", ["int8-weights", "int4-weights"])
def test_weights_alone_need_no_data(precision: Any) -> None:
    done = opweld.quantize(network(), precision=precision)
    onnx.checker.check_model(done.model, full_check=True)
    assert done.error is None
    assert not any(node.op_type == "QuantizeLinear" for node in done.model.graph.node)
    (feeds, *_) = samples()
    (got,) = opweld.compile(done.model).run(feeds).values()
    (right,) = opweld.compile(network()).run(feeds).values()
    assert 0 < np.linalg.norm(got - right) / np.linalg.norm(right) < (0.03 if precision == "int8-weights" else 0.2)


def test_a_budget_keeps_nodes_in_float() -> None:
    free = opweld.quantize(network(), samples())
    assert free.error is not None
    bound = opweld.quantize(network(), samples(), max_error=free.error / 2)
    assert bound.error is not None and bound.error <= free.error / 2
    layers = [node for node in bound.nodes if node.error is not None]
    assert {node.precision for node in layers} >= {"float"}
    none = opweld.quantize(network(), samples(), max_error=0.0)
    assert not any(node.op_type == "QuantizeLinear" for node in none.model.graph.node)


def test_a_node_that_is_to_stay_stays() -> None:
    name = next(node.name for node in opweld.quantize(network(), samples()).nodes if node.op == "MatMul")
    kept = opweld.quantize(network(), samples(), keep=[name])
    assert next(node.precision for node in kept.nodes if node.name == name) == "float"


def test_a_histogram_does_not_depend_on_the_order_and_does_not_grow() -> None:
    random = np.random.default_rng(1)
    parts = [random.standard_normal(1000).astype(np.float32) * size for size in (0.01, 1, 100)]
    there, back = Histogram(), Histogram()
    for part in parts:
        there.add(part)
    for part in reversed(parts):
        back.add(part)
    np.testing.assert_array_equal(there.counts, back.counts)
    assert there.counts.sum() == 3000 and there.nbytes == Histogram().nbytes
    assert (there.low, there.high) == (min(map(np.min, parts)), max(map(np.max, parts)))
    for method in METHODS:
        low, high = range_of(there, method)
        assert there.low <= low < 0 < high <= there.high


def test_a_range_by_error_cuts_off_an_outlier() -> None:
    histogram = Histogram()
    histogram.add(np.append(np.random.default_rng(1).standard_normal(1_000_000), 40.0).astype(np.float32))
    assert range_of(histogram, "minmax")[1] == 40
    assert range_of(histogram, "mse")[1] < 20 and range_of(histogram, "percentile")[1] < 5


def test_zero_is_a_code_and_an_empty_range_has_none() -> None:
    affine = affine_of(-1.0, 3.0, "uint8")
    assert affine is not None and 0 <= affine.zero_point <= 255
    assert affine_of(0.0, 0.0, "int8") is None


def test_weights_of_zeros_and_odd_lengths() -> None:
    made = quantize_weights(np.array([[0.0, 0.0], [1.0, -0.5]], np.float32), 0)
    assert (made.codes[0] == 0).all() and (made.scales > 0).all()
    weights = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    blocks = quantize_blocks(weights, 0, 2)
    assert blocks.scales.shape == (3, 3) and np.abs(blocks.values() - weights).max() < 0.3
    assert packed_int4(np.array([1, -2, 7], np.int8)) == bytes([0xE1, 0x07])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "no samples"),
        ([{"z": np.zeros(1)}], "'x'"),
        ([{"x": np.zeros((2, 3, 8, 8), np.float64)}], "float64"),
        ([{"x": np.zeros((2, 3, 8, 9), np.float32)}], "shape"),
        ([{"x": np.full((2, 3, 8, 8), np.nan, np.float32)}], "sample 0"),
    ],
)
def test_bad_data(data: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        opweld.quantize(network(), data)


def test_wrong_options() -> None:
    with pytest.raises(OptionError, match="data"):
        opweld.quantize(network())
    with pytest.raises(OptionError, match="max_error"):
        opweld.quantize(network(), samples(), max_error=-1)
    with pytest.raises(OptionError, match="budget"):
        opweld.quantize(network(), precision="int8-weights", max_error=0.1)
    with pytest.raises(OptionError, match="'nowhere'"):
        opweld.quantize(network(), samples(), keep=["nowhere"])


def test_values_that_are_always_zero_leave_nothing() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[2] x) => (float[2] y) <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul (x, w) }""")
    with pytest.raises(UnsupportedError, match="nothing"):
        opweld.quantize(model, [{"x": np.zeros(2, np.float32)}])


def test_the_command(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    for i, sample in enumerate(samples()):
        np.savez(tmp_path / "data" / f"{i}.npz", x=sample["x"])
    out = tmp_path / "q.onnx"
    answer = CliRunner().invoke(
        app, ["quantize", str(tmp_path / "m.onnx"), "--data", str(tmp_path / "data"), "-o", str(out), "--quiet"]
    )
    assert answer.exit_code == 0, answer.output
    assert "MiB" in answer.output and "high" in answer.output
    onnx.checker.check_model(onnx.load(out))
