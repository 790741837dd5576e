"""Quantised models: right, standard, within a budget, and clear where they cannot be."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import opweld
from opweld.calibration.graph import Graph, attributes_of
from opweld.calibration.windows import WindowMoments, moments_read
from opweld.cli.main import application
from opweld.errors import InputError, OptionError, UnsupportedError
from opweld.frontend import isolated
from opweld.frontend.opset import at_opset
from opweld.quantize.assign import Budget, steps_back
from opweld.quantize.histogram import Histogram
from opweld.quantize.ranges import METHODS, range_of
from opweld.quantize.rounding import rounded_by_channel, rounded_in_order
from opweld.quantize.scales import affine_of
from opweld.quantize.versions import Setting, Version
from opweld.quantize.writing import packed_int4
from opweld.tensor.integer_weights import quantize_blocks, quantize_weights

OPWELD = application()

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


def pair_sums(model: onnx.ModelProto) -> dict[str, int]:
    """The most that two neighbours of what is summed, of one sign, make together, by operator."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    found: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type in ("Conv", "MatMul"):
            codes = values[makers[node.input[1]].input[0]].astype(int)
            summed = np.moveaxis(codes, 1 if node.op_type == "Conv" else 0, 0)
            first, second = summed[0 : len(summed) // 2 * 2 : 2], summed[1::2]
            sums = [np.maximum(s * first, 0) + np.maximum(s * second, 0) for s in (1, -1)]
            found[node.op_type] = max(found.get(node.op_type, 0), int(np.max(sums, initial=0)))
    return found


def test_neighbours_of_a_reduced_range_fit_16_bits_times_any_byte() -> None:
    done, plain = (opweld.quantize(network(), samples(), reduce_range=reduced) for reduced in (True, False))
    assert pair_sums(done.model).keys() == {"Conv", "MatMul"}
    assert max(pair_sums(done.model).values()) <= 128 < max(pair_sums(plain.model).values())
    assert done.error is not None and plain.error is not None and done.error < 2 * plain.error


@pytest.mark.parametrize("precision", ["int8-weights", "int4-weights"])
def test_no_range_is_reduced_of_weights_that_floats_are_multiplied_by(precision: Any) -> None:
    with pytest.raises(OptionError, match="reduced range"):
        opweld.quantize(network(), precision=precision, reduce_range=True)


def test_a_range_is_reduced_as_far_as_neighbours_ask_for() -> None:
    weights = np.array([[100, 60, 30], [-90, 60, 30], [0, 0, 127]], np.float32)
    made = quantize_weights(weights, 1, paired=0)
    np.testing.assert_allclose(made.scales, [100 / 127, 120 / 127, 1], rtol=1e-6)
    assert made.codes[:2, 1].sum() <= 128
    np.testing.assert_array_equal(made.codes[:, 2], [30, 30, 127])


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
    assert {node.precision for node in bound.nodes if node.error is not None} & {"int8-weights", "float"}
    none = opweld.quantize(network(), samples(), max_error=0.0)
    assert {node.precision for node in none.nodes} == {"float"}
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


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([{"x": np.zeros((2, 3, 8, 8), np.float32)}, {"x": np.zeros((2, 3, 9, 8), np.float32)}], "sample 1.*shape"),
        ([{"x": np.zeros((0, 3, 8, 8), np.float32)}], "'x'.*empty|'x'.*no elements"),
        ({"x": np.zeros((2, 3, 8, 8), np.float32)}, "list of such dicts"),
        (({"y": one["x"]} for one in samples()), "'x'"),
        (iter(()), "no samples"),
    ],
)
def test_bad_data_is_refused_before_the_work(data: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("opweld.calibration.prepare"), "optimize", None)
    with pytest.raises(InputError, match=said):
        opweld.quantize(network(), data)


def test_a_folder_is_checked_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("opweld.calibration.prepare"), "optimize", None)
    np.save(tmp_path / "a.npy", samples()[0]["x"])
    np.save(tmp_path / "b.npy", samples()[0]["x"].astype(np.float64))
    with pytest.raises(InputError, match=r"b\.npy: input 'x' is float64, the model takes float32"):
        opweld.quantize(network(), tmp_path)


def test_samples_of_other_shapes() -> None:
    data = [{"x": np.concatenate([one["x"]] * (i + 1))} for i, one in enumerate(samples(3))]
    done = opweld.quantize(network(), data, ranges="minmax")
    assert done.samples == 3 and done.error is not None and 0 < done.error < 0.05


def test_every_fifth_sample_is_kept_apart() -> None:
    data = samples(5)
    done = opweld.quantize(network(), data, ranges="minmax")
    assert (done.samples, done.held_out) == (5, 1)
    assert done.error == pytest.approx(error(done.model, data[4]), rel=1e-3)
    given = opweld.quantize(network(), data[:4], held_out=data[4:], ranges="minmax")
    assert given.model == done.model and (given.samples, given.held_out) == (5, 1)
    few = opweld.quantize(network(), data[:4], ranges="minmax")
    assert few.held_out == 0 and "kept apart" in few.notes[-1]


def test_nothing_is_chosen_by_what_is_held_out() -> None:
    data = samples(6)
    one, other = (opweld.quantize(network(), data[:4], held_out=[apart]) for apart in data[4:])
    assert one.model == other.model and one.error != other.error


def matrices(rows: int = 96) -> tuple[onnx.ModelProto, list[dict[str, Array]]]:
    """A table whose rows a matrix multiplies, and samples in which neighbours are alike, as in trained models."""
    random = np.random.default_rng(5)
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (int64[n] i, float[n, {rows}] x) => (float[n, 7] y, float[n, 16] z) {{
            y = MatMul (x, w)
            z = Gather <axis = 0> (table, i)
        }}""")
    model.graph.initializer.extend([
        numpy_helper.from_array(random.standard_normal((rows, 7)).astype(np.float32), "w"),
        numpy_helper.from_array(random.standard_normal((33, 16)).astype(np.float32), "table"),
    ])  # fmt: skip
    mixed = random.standard_normal((8, rows))
    data = [
        {
            "i": random.integers(0, 33, 64),
            "x": (random.standard_normal((64, 8)) @ mixed).astype(np.float32)
            + random.standard_normal((64, rows)).astype(np.float32) * np.float32(0.1),
        }
        for _ in range(10)
    ]
    return model, data


@pytest.mark.parametrize("precision", ["int8-weights", "int4-weights", "int8"])
def test_rows_that_are_gathered_are_weights(precision: Any) -> None:
    model, data = matrices()
    done = opweld.quantize(model, data, precision=precision, ranges="minmax")
    onnx.checker.check_model(done.model, full_check=True)
    four = precision == "int4-weights"
    stored = [tensor.data_type for tensor in done.model.graph.initializer if tensor.dims == [33, 16]]
    assert stored == [onnx.TensorProto.INT4 if four else onnx.TensorProto.INT8]
    (gather,) = (node for node in done.nodes if node.op == "Gather")
    assert gather.precision == (precision if four else "int8-weights") and gather.error is not None
    exact = numpy_helper.to_array(model.graph.initializer[1])[data[0]["i"]]
    for runtime in (opweld.compile(done.model).run(data[0])["z"], _onnxruntime(done.model, data[0])["z"]):
        assert 0 < np.abs(runtime - exact).max() < (0.4 if four else 0.02)


def _onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return {name: np.asarray(found) for name, found in zip(names, session.run(None, dict(feeds)), strict=True)}


def test_int4_rounded_in_an_order_makes_up_for_itself() -> None:
    model, data = matrices()
    done = opweld.quantize(model, data, precision="int4-weights")
    assert done.rounding == "gptq"
    plain = opweld.quantize(model, precision="int4-weights")
    exact = numpy_helper.to_array(model.graph.initializer[0])

    def lost(made: onnx.ModelProto) -> float:
        (found,) = map(np.asarray, ReferenceEvaluator(made).run(["y"], data[9]))
        return float(np.linalg.norm(found - data[9]["x"] @ exact))

    assert lost(done.model) < 0.6 * lost(plain.model)


def test_int4_of_no_whole_blocks_is_int8() -> None:
    model, data = matrices(rows=45)
    done = opweld.quantize(model, data, precision="int4-weights")
    kinds = {tuple(tensor.dims): tensor.data_type for tensor in done.model.graph.initializer if len(tensor.dims) == 2}
    assert kinds[45, 7] == onnx.TensorProto.INT8 and kinds[33, 16] == onnx.TensorProto.INT4
    assert {node.op: node.precision for node in done.nodes} == {"MatMul": "int8-weights", "Gather": "int4-weights"}


def test_second_moments_beyond_the_limit_are_left_out() -> None:
    graph = Graph(matrices()[0])
    layers = graph.layers()
    assert {(reads.value, reads.axis, reads.window) for reads in moments_read(graph, layers)} == {("x", -1, None)}
    assert not moments_read(graph, layers, limit=4 * 96 * 96 - 1)
    made = rounded_in_order(np.ones((4, 3), np.float32), 0, 2, np.zeros((4, 4), np.float32))
    np.testing.assert_array_equal(made.values(), quantize_blocks(np.ones((4, 3), np.float32), 0, 2).values())


CONVOLUTIONS = {
    "plain": "kernel_shape = [3, 3], pads = [1, 1, 1, 1]",
    "strides and uneven pads": "kernel_shape = [3, 2], strides = [2, 1], dilations = [1, 2], pads = [0, 1, 2, 0]",
    "groups": "kernel_shape = [2, 3], group = 2",
    "depthwise": "kernel_shape = [3, 3], group = 4, pads = [2, 0, 1, 1], strides = [1, 2]",
}
"""Attributes of convolutions of four channels."""


def convolution(attributes: str, smooth: bool = False) -> tuple[Graph, Array]:
    """A convolution of four channels to eight, and a picture, of neighbours that are alike where it is smooth."""
    random = np.random.default_rng(5)
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[2, 4, 9, 10] x) => (float[n, 8, h, w] y) {{ y = Conv <{attributes}> (x, w) }}""")
    given = attributes_of(model.graph.node[0])
    kernel, groups = given["kernel_shape"], given.get("group", 1)
    weights = random.standard_normal((8, 4 // groups, *kernel)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    picture = random.standard_normal((2, 4, 9, 10))
    if smooth:
        picture = 0.05 * picture + random.standard_normal((2, 4, 1, 1))
    return Graph(model), picture.astype(np.float32)


def squares(graph: Graph, picture: Array, weights: Array) -> Array:
    """The sum of the squared results of each channel with other weights, in float64."""
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights.astype(np.float32), "w"))
    (found,) = map(np.asarray, ReferenceEvaluator(model).run(None, {"x": picture}))
    return (found.astype(np.float64) ** 2).sum(axis=(0, 2, 3))


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_second_moments_of_windows_tell_what_weights_add(kind: str) -> None:
    graph, picture = convolution(CONVOLUTIONS[kind])
    (moments,) = moments_read(graph, graph.layers()).values()
    assert isinstance(moments, WindowMoments)
    moments.add(picture)
    weights = graph.array("w")
    taken = weights.reshape(len(moments.sums), -1, moments.sums.shape[-1]).astype(np.float64)
    told = np.einsum("gri,gij,grj->gr", taken, moments.sums, taken).reshape(-1)
    # Sums of 180 float32 products, a few of which cancel.
    np.testing.assert_allclose(told, squares(graph, picture, weights), rtol=1e-4)


def test_few_of_many_windows_are_looked_at_and_fewer_than_one_is_none() -> None:
    graph, _ = convolution(CONVOLUTIONS["groups"])
    (moments,) = moments_read(graph, graph.layers()).values()
    moments.add(np.ones((1, 4, 400, 400), np.float32))
    # Two channels by six places, each of 4,096 windows.
    np.testing.assert_array_equal(moments.sums, np.full((2, 12, 12), 4096))
    moments.add(np.ones((1, 4, 1, 400), np.float32))
    np.testing.assert_array_equal(moments.sums, np.full((2, 12, 12), 4096))


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_int8_rounded_in_an_order_makes_up_for_itself(kind: str) -> None:
    graph, picture = convolution(CONVOLUTIONS[kind], smooth=True)
    (layer,), weights = graph.layers(), graph.array("w")
    (moments,) = moments_read(graph, [layer]).values()
    moments.add(picture)
    nearest = quantize_weights(weights, 0)
    made = rounded_by_channel(weights, nearest, layer.sums, moments.sums)
    assert np.array_equal(made.scales, nearest.scales) and np.abs(made.codes.astype(int)).max() <= 127
    before, after = (squares(graph, picture, one.values() - weights) for one in (nearest, made))
    # No channel is worse, but for what float32 rounds; neighbours that are alike leave little of the error.
    assert (after <= before * 1.001).all() and after.sum() < 0.5 * before.sum()


def test_a_matrix_of_int8_is_rounded_in_an_order_and_zeros_leave_it_as_it_is() -> None:
    random = np.random.default_rng(9)
    read = (random.standard_normal((200, 3)) @ random.standard_normal((3, 24))).astype(np.float32)
    weights = random.standard_normal((24, 6)).astype(np.float32)
    for sums, stored in ((0, weights), (1, np.ascontiguousarray(weights.T))):
        nearest = quantize_weights(stored, 1 - sums)
        made = rounded_by_channel(stored, nearest, sums, read.T @ read)
        before, after = (
            float(np.linalg.norm(read @ (np.moveaxis(one.values(), sums, 0) - weights))) for one in (nearest, made)
        )
        assert after < 0.5 * before
        same = rounded_by_channel(stored, nearest, sums, np.zeros((24, 24), np.float32))
        np.testing.assert_array_equal(same.codes, nearest.codes)


def test_a_metric_bounds_what_the_score_falls() -> None:
    data = samples(5)
    (right,) = (np.asarray(found) for found in ReferenceEvaluator(network()).run(None, data[4]))
    seen: list[int] = []

    def score(answers: Any) -> float:
        seen.append(len(answers))
        return -float(np.abs(answers[0]["y"] - right).max())

    free = opweld.quantize(network(), data, ranges="minmax")
    lost = float(np.abs(opweld.compile(free.model).run(data[4])["y"] - right).max())
    done = opweld.quantize(network(), data, ranges="minmax", metric=score, max_error=lost / 2)
    assert np.abs(opweld.compile(done.model).run(data[4])["y"] - right).max() <= lost / 2
    assert set(seen) == {1} and done.error is not None and free.error is not None and done.error < free.error


def test_the_order_of_going_back_is_error_by_second_saved() -> None:
    weights = quantize_weights(np.ones((2, 2), np.float32), 0)
    versions = {node: Version("int8", weights) for node in (1, 2, 3)}
    narrower = {node: Version("int8-weights", weights) for node in (1, 2, 3)}
    budget = Budget(0.0, lambda _: 1.0, {1: 1.0, 2: 4.0, 3: 0.0}, narrower)
    steps = steps_back(Setting(versions, {}), {1: 0.3, 2: 0.4, 3: 0.001}, budget)
    assert [sorted(step.integer) for step in steps] == [[1, 2, 3], [1, 2], [2], [], [], [], []]
    assert [sorted(step.versions) for step in steps[3:]] == [[1, 2, 3], [1, 2], [2], []]


def test_older_opsets_are_converted_without_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    model.opset_import[0].version = 11
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((24, 4000), np.float32), "large"))
    model.graph.node.append(onnx.helper.make_node("MatMul", ["f", "large"], ["more"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, ["n", 4000]))
    model.producer_name = "someone"
    sizes: list[int] = []
    plain = isolated.convert_version

    def convert(given: onnx.ModelProto, opset: int) -> onnx.ModelProto:
        sizes.append(given.ByteSize())
        return plain(given, opset)

    monkeypatch.setattr(isolated, "convert_version", convert)
    made = at_opset(model, 13)
    assert made.opset_import[0].version == 13 and made.producer_name == "someone"
    assert sizes and max(sizes) < 24 * 4000
    feeds = samples()[0]
    before, after = (ReferenceEvaluator(one).run(None, feeds) for one in (model, made))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_a_bias_whose_steps_are_no_float32_stays_in_float() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[1, 2] x) => (float[1, 2] y) <float[2] b = {1, 2}> { y = Gemm (x, w, b) }""")
    model.graph.initializer.append(numpy_helper.from_array(np.full((2, 2), 1e30, np.float32), "w"))
    done = opweld.quantize(model, [{"x": np.array([[1e8, -1e7]], np.float32)}], ranges="minmax")
    assert onnx.TensorProto.INT32 in {tensor.data_type for tensor in done.model.graph.initializer}
    for tensor in done.model.graph.initializer:
        assert np.isfinite(numpy_helper.to_array(tensor).astype(np.float64)).all()


def test_explain_tells_what_a_node_costs() -> None:
    name = next(
        node.name for node in opweld.quantize(network(), samples(), ranges="minmax").nodes if node.op == "MatMul"
    )
    done = opweld.quantize(network(), samples(), ranges="minmax", keep=[name])
    explained = opweld.explain(done.model)
    told = [(node, node.get("quantised", "")) for node in explained.to_json()["nodes"]]
    nodes = {key: text for node, text in told for key in (node["name"], *node["outputs"])}
    for report in done.nodes:
        if report.op in ("Conv", "MatMul"):
            assert nodes[report.name].startswith(f"{report.precision}; friendliness {report.friendliness}: ")
    assert nodes[name] == "float; friendliness low: stays in float as asked"
    assert "quantised: float; friendliness low" in explained.node(name)


def test_wrong_options() -> None:
    with pytest.raises(OptionError, match="data"):
        opweld.quantize(network())
    with pytest.raises(OptionError, match="max_error"):
        opweld.quantize(network(), samples(), max_error=-1)
    with pytest.raises(OptionError, match="budget"):
        opweld.quantize(network(), precision="int8-weights", max_error=0.1)
    with pytest.raises(OptionError, match="metric needs a budget"):
        opweld.quantize(network(), samples(), metric=lambda _: 0.0)
    with pytest.raises(OptionError, match="held-out"):
        opweld.quantize(network(), precision="int8-weights", held_out=samples())
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
        OPWELD,
        ["quantize", str(tmp_path / "m.onnx"), "--data", str(tmp_path / "data"), "-o", str(out), "--quiet"],
    )
    assert answer.exit_code == 0, answer.output
    assert "MiB" in answer.output and "high" in answer.output
    onnx.checker.check_model(onnx.load(out))


def test_a_channel_whose_bias_widens_its_scale_leaves_the_others_as_they_were_rounded() -> None:
    model = network()
    weights = numpy_helper.to_array(model.graph.initializer[1]).copy()
    weights[0] = 1e-9
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(weights, "w2"))
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.full(6, 50, np.float32), "b2"))
    data = samples(6)
    for sample in data:
        sample["x"] = (0.05 * sample["x"] + sample["x"].mean(axis=(2, 3), keepdims=True) * 8).astype(np.float32)
    made = opweld.quantize(model, data)
    assert made.rounding == "gptq"
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.model.graph.initializer}
    nearest = quantize_weights(weights, 0)
    assert stored["w2_scale"][0] > nearest.scales[0], "its bias has too many steps"
    np.testing.assert_array_equal(stored["w2_scale"][1:], nearest.scales[1:])
    assert (stored["w2_quantized"][1:] != nearest.codes[1:]).any()
