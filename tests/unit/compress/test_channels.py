"""Channels removed between two layers: only where each goes its way alone, and others make up for them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

import opweld
from opweld.calibration.graph import Graph
from opweld.calibration.shaped import Shaped
from opweld.compress.chains import Chain, chain_of
from opweld.compress.channels import cuts
from opweld.compress.matrix import as_matrix, dense_layers

Array = NDArray[Any]


def model_of(text: str, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    random = np.random.default_rng(4)
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>\n' + text)
    for name, shape in shapes.items():
        array = random.standard_normal(shape, np.float32) / np.float32(4)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def doubled(model: onnx.ModelProto, axis: int, *names: str) -> onnx.ModelProto:
    """The second half of these tensors' channels is the first."""
    for tensor in model.graph.initializer:
        if tensor.name in names:
            array = numpy_helper.to_array(tensor)
            place = axis if array.ndim > 1 else 0
            half = np.split(array, 2, place)[0]
            tensor.CopyFrom(numpy_helper.from_array(np.concatenate([half, half], place), tensor.name))
    return model


def pictures() -> onnx.ModelProto:
    """A convolution, a depthwise one and one of one tap, whose 64 channels are 32 twice."""
    model = model_of(
        """g (float[n, 3, 8, 8] x) => (float[n, 16, 3, 3] y) <float low = {0}, float high = {6}> {
            a = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
            b = Clip (a, low, high)
            c = Conv <group = 64, strides = [2, 2]> (b, deep, b2)
            d = PRelu (c, slope)
            y = Conv (d, w3, b3)
        }""",
        w1=(64, 3, 3, 3), b1=(64,), deep=(64, 1, 3, 3), b2=(64,), slope=(64, 1, 1), w3=(16, 64, 1, 1), b3=(16,),
    )  # fmt: skip
    return doubled(model, 0, "w1", "b1", "deep", "b2", "slope")


def rows() -> onnx.ModelProto:
    """Three linear layers with an activation in many nodes between, whose hidden channels are half as many twice."""
    model = model_of(
        """g (float[n, t, 24] x) => (float[n, t, 16] y) <float half = {0.5}, float root = {1.4142}, float one = {1}> {
            h = MatMul (x, w1)
            a = Add (h, b1)
            q = Div (a, root)
            e = Erf (q)
            p = Add (e, one)
            m = Mul (a, p)
            g1 = Mul (m, half)
            k = MatMul (g1, w2)
            c = Add (b2, k)
            r = Relu (c)
            y = MatMul (r, w3)
        }""",
        w1=(24, 64), b1=(64,), w2=(64, 96), b2=(1, 1, 96), w3=(96, 16),
    )  # fmt: skip
    return doubled(model, -1, "w1", "b1", "w2", "b2")


def inputs_of(model: onnx.ModelProto, count: int) -> list[dict[str, Array]]:
    random = np.random.default_rng(6)
    shape = (2, 3, 8, 8) if len(model.graph.input[0].type.tensor_type.shape.dim) == 4 else (2, 20, 24)
    return [{"x": random.standard_normal(shape, np.float32)} for _ in range(count)]


def answer(model: onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    return np.asarray(found)


@pytest.mark.parametrize(("make", "kept"), [(pictures, ["32 of 64"]), (rows, ["32 of 64", "48 of 96"])])
@pytest.mark.usefixtures("measured")
def test_channels_that_others_stand_for_are_removed(make: Callable[[], onnx.ModelProto], kept: list[str]) -> None:
    model = make()
    done = opweld.compress(model, inputs_of(model, 30), methods=["channels"], max_error=0.03)
    onnx.checker.check_model(done.model, full_check=True)
    told = [layer.amount for layer in done.layers]
    assert [part for amount in told for part in amount.split(", ") if part.endswith("channels")] == [
        f"{part} channels" for part in kept
    ]
    assert done.layers[-1].amount == f"{kept[-1]} inputs"
    assert done.flops[1] <= 0.55 * done.flops[0] and 0 < done.error <= 0.03
    feeds = inputs_of(model, 31)[30]
    right = answer(model, feeds)
    assert np.linalg.norm(answer(done.model, feeds) - right) <= 0.03 * np.linalg.norm(right)


def test_dead_channels_go_first_and_others_make_up_for_the_rest() -> None:
    graph = Graph(rows())
    layers = {layer.node: layer for layer in dense_layers(graph)}
    chain = chain_of(graph, layers[0], layers)
    assert isinstance(chain, Chain)
    weights = as_matrix(chain.consumers[0], graph.array("w2"))
    random = np.random.default_rng(8)
    read = random.standard_normal((500, 48)) @ random.standard_normal((48, 64)) + random.standard_normal((500, 64)) / 3
    read[:, [5, 7, 60]] = 0
    moments = {chain.consumers[0].node: (read.T @ read).astype(np.float32)}
    found = cuts(graph, chain, moments)
    (free,) = (cut for cut in found if cut.amount == "61 of 64 channels")
    assert not as_matrix(chain.consumers[0], free.weights(graph)[chain.consumers[0].node])[[5, 7, 60]].any()
    assert np.linalg.norm(read @ (weights - as_matrix(chain.consumers[0], free.weights(graph)[7]))) < 1e-3
    (half,) = (cut for cut in found if cut.amount == "32 of 64 channels")
    made = as_matrix(chain.consumers[0], half.weights(graph)[7])
    kept = made.any(axis=1)
    lost = np.linalg.norm(read @ (weights - made))
    assert kept.sum() == 32 and lost < 0.7 * np.linalg.norm(read[:, ~kept] @ weights[~kept])
    least = np.linalg.lstsq(read[:, kept], read @ weights, rcond=None)[0]
    assert lost < 1.1 * np.linalg.norm(read @ weights - read[:, kept] @ least)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ("h = MatMul (x, w) s = Softmax (h) y = MatMul (s, v)", "its channels meet in node 's' (Softmax)"),
        ("h = MatMul (x, w) r = Relu (h) y = Add (r, x)", "its channels meet in node 'y' (Add)"),
        ("h = MatMul (x, w) y = Relu (h)", "its channels are those of the output 'y'"),
        ("h = MatMul (x, w) r = Relu (h) s = ReduceMean (r) z = Relu(r) t = MatMul (z, v) y = Add (t, s)",
         "its channels meet in node 's' (ReduceMean)"),
        ("h = MatMul (x, w) y = MatMul (x, h)", "its channels meet in node 'y' (MatMul)"),
        ("h = MatMul (x, w) r = Add (h, wide) y = MatMul (r, v)", "its channels meet in node 'r' (Add)"),
        ("h = MatMul (x, w) y = Relu (x)", "no layer reads its channels"),
    ],
)  # fmt: skip
def test_channels_that_do_not_go_alone_stay(nodes: str, why: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[16, 16] x) => (float[16, 16] y) {{ {nodes} }}""")
    for name, shape in (("w", (16, 16)), ("v", (16, 16)), ("wide", (16, 1, 2))):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    for node in model.graph.node:
        node.name = node.output[0]
    graph = Graph(model)
    layers = {layer.node: layer for layer in dense_layers(graph)}
    assert chain_of(graph, layers[0], layers) == why


@pytest.mark.usefixtures("measured")
def test_what_is_written_is_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rows()
    for tensor in model.graph.initializer:
        if tensor.name == "b2":
            array = numpy_helper.to_array(tensor).copy()
            array[..., :40] = -100  # which Relu makes 0
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    data = inputs_of(model, 6)
    made: list[onnx.ModelProto] = []

    class Far(Shaped):
        """Answers that are off, unless the last layer is as it was."""

        def __init__(self, model: onnx.ModelProto, progress: Any) -> None:
            super().__init__(model, progress)
            made.append(model)
            assert len(made) < 9, "the same is written again and again"
            self._off = np.float32(1e-3 * ([96, 16] not in [tensor.dims for tensor in model.graph.initializer]))

        def run(self, feeds: Any) -> dict[str, Any]:
            return {name: array + self._off for name, array in super().run(feeds).items()}

    monkeypatch.setattr(importlib.import_module("opweld.compress.compress"), "Shaped", Far)
    done = opweld.compress(model, data, methods=["channels"], max_error=1e-5)
    assert done.error == 0 and not any(layer.methods for layer in done.layers)
    assert "as it is written" in done.layers[1].reason
