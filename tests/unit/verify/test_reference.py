from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opweld.errors import UnsupportedError
from opweld.verification import check as checks
from opweld.verification.check import check_outputs
from opweld.verification.compare import relative_error
from opweld.verification.reference import float64_outputs, onnxruntime_outputs


def model(nodes: list[onnx.NodeProto], path: Path, **weights: Any) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


THIRD = np.array([1 / 3], np.float32)


def test_the_reference_is_computed_in_float64(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value_float=1.5),
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Cast", ["a"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    x = np.array([1e-7, 3], np.float32)
    (y,) = float64_outputs(model(nodes, tmp_path / "m.onnx", w=THIRD), {"x": x})
    assert y.dtype == np.float64
    assert np.array_equal(y, x.astype(np.float64) * THIRD.astype(np.float64) + 1.5)


def test_subgraphs_are_widened_too(tmp_path: Path) -> None:
    branch = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["z"])],
        "t",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n"])],
    )
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    (y,) = float64_outputs(model(nodes, tmp_path / "m.onnx", w=THIRD, c=np.array(True)), {"x": THIRD})
    assert y.dtype == np.float64
    assert y[0] == float(THIRD[0]) ** 2


def test_an_unknown_operator_is_refused(tmp_path: Path) -> None:
    path = model([helper.make_node("Nonsense", ["x"], ["y"], domain="nowhere")], tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="no float64 reference"):
        float64_outputs(path, {"x": THIRD})


def test_right_and_wrong_outputs_are_told_apart(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = model([helper.make_node("Exp", ["x"], ["y"])], tmp_path / "m.onnx")
    feeds = {"x": np.linspace(-3, 3, 50, dtype=np.float32)}
    (y,) = onnxruntime_outputs(path, feeds)
    check = check_outputs(path, feeds, ["y"], [y])
    assert check.reference == "float64"
    assert check.passed
    assert 0 < check.error < 1e-6
    wrong = y.copy()
    wrong[7] *= 1.01
    assert not check_outputs(path, feeds, ["y"], [wrong]).passed


def image_model(path: Path, opset: int, node: onnx.NodeProto, shape: tuple[int, ...], **weights: Any) -> Path:
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


@pytest.mark.parametrize("opset", [9, 14])
@pytest.mark.parametrize("rank", [3, 4])
def test_operators_that_onnx_has_wrong_are_right(opset: int, rank: int, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 2, *[5] * (rank - 2)), np.float32)
    weights = {name: random.uniform(0.5, 2, 2).astype(np.float32) for name in ("s", "b", "m", "v")}
    batch = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], momentum=0.9)
    pool = helper.make_node("GlobalMaxPool", ["x"], ["y"])
    for node, constants in ((batch, weights), (pool, {})):
        path = image_model(tmp_path / "m.onnx", opset, node, x.shape, **constants)
        (right,), (plain,) = float64_outputs(path, {"x": x}), onnxruntime_outputs(path, {"x": x})
        assert right.dtype == np.float64
        assert relative_error(plain, right)[0] < 1e-6


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 1], "pads": [1, 0, 0, 1], "output_padding": [1, 0]},
        {"strides": [2, 3], "dilations": [2, 1], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 3], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 2], "output_shape": [9, 10]},
    ],
    ids=str,
)
def test_groups_of_a_transposed_convolution(attributes: dict[str, Any], tmp_path: Path) -> None:
    """Two of a batch, two channels a group, a bias of its own for each."""
    pytest.importorskip("onnxruntime")
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 4, 5, 4), np.float32)
    weights = {"w": random.standard_normal((4, 3, 3, 4), np.float32), "b": random.standard_normal(6, np.float32)}
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], group=2, **attributes)
    path = image_model(tmp_path / "m.onnx", 17, node, x.shape, **weights)
    (right,), (plain,) = float64_outputs(path, {"x": x}), onnxruntime_outputs(path, {"x": x})
    assert right.shape == plain.shape
    assert relative_error(plain, right)[0] < 1e-6


def exponential(path: Path) -> tuple[Path, dict[str, Any], Any]:
    """A model, what it is fed, and its answer."""
    feeds = {"x": np.linspace(-3, 3, 50, dtype=np.float32)}
    return model([helper.make_node("Exp", ["x"], ["y"])], path / "m.onnx"), feeds, np.exp(feeds["x"])


def answering(factor: float, dtype: type = np.float32) -> Any:
    """Another runtime, or a reference, that is off by a factor."""

    def outputs(model: Path, feeds: Any, **_: Any) -> list[Any]:
        return [(array * factor).astype(dtype) for array in float64_outputs(model, feeds)]

    return outputs


def test_a_runtime_that_disagrees_with_float64_excuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ONNX Runtime does of sums of 8-bit products, on processors without an instruction for them."""
    path, feeds, y = exponential(tmp_path)
    monkeypatch.setattr(checks, "onnxruntime_outputs", answering(1.12))
    check = check_outputs(path, feeds, ["y"], [y])
    (found,) = check.comparisons
    assert (check.reference, found.verdict) == ("float64", "right")
    assert found.peer_error == pytest.approx(0.12) and found.tolerance < 1e-4
    assert len(check.notes) == 1 and "'y'" in check.notes[0]
    assert [c.verdict for c in check_outputs(path, feeds, ["y"], [y * np.float32(1.001)]).comparisons] == ["wrong"]


def test_who_agrees_with_the_runtime_alone_is_not_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference may be the one that is wrong."""
    path, feeds, y = exponential(tmp_path)
    monkeypatch.setattr(checks, "onnxruntime_outputs", answering(1))
    monkeypatch.setattr(checks, "float64_outputs", answering(2, np.float64))
    check = check_outputs(path, feeds, ["y"], [y])
    assert check.passed and [c.verdict for c in check.comparisons] == ["agrees"]
    assert [c.verdict for c in check_outputs(path, feeds, ["y"], [y * np.float32(1.001)]).comparisons] == ["wrong"]


def test_where_another_runtime_judges_alone_nothing_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise UnsupportedError("no float64 reference for this model")

    path, feeds, y = exponential(tmp_path)
    monkeypatch.setattr(checks, "onnxruntime_outputs", answering(1))
    monkeypatch.setattr(checks, "float64_outputs", refuse)
    for factor, verdict in ((1, "agrees"), (1.1, "differs")):
        check = check_outputs(path, feeds, ["y"], [y * np.float32(factor)])
        assert check.passed == (factor == 1) and check.reference == "ONNX Runtime, unoptimised"
        assert [c.to_json()["verdict"] for c in check.comparisons] == [verdict]


def test_rounding_that_decides_is_told_by_the_model_in_its_own_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halves of a step: float32 finds them to be halves, and float64 a little more or less."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    step = np.float32(0.1)
    path = model(nodes, tmp_path / "m.onnx", s=np.array(step))
    x = (step * np.arange(0.5, 250)).astype(np.float32)
    feeds = {"x": x}
    y = (np.rint(x / step) * step).astype(np.float32)
    (right,) = float64_outputs(path, feeds)
    assert 1e-4 < relative_error(y, right)[0] < 1e-2
    monkeypatch.setattr(checks, "onnxruntime_outputs", answering(1.5))
    assert [c.verdict for c in check_outputs(path, feeds, ["y"], [y]).comparisons] == ["right"]


@pytest.mark.parametrize("opset", [10, 13, 19, 23])
def test_quantised_models_of_old_opsets_have_a_reference(opset: int, tmp_path: Path) -> None:
    axis: dict[str, Any] = {"axis": 1} if opset > 10 else {}
    scales = np.array([0.5, 0.25, 2], np.float32) if axis else np.array(0.3, np.float32)
    zeros = np.array([3, 0, 7], np.uint8) if axis else np.array(3, np.uint8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **axis),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **axis),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3])],
        [numpy_helper.from_array(scales, "s"), numpy_helper.from_array(zeros, "z")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), tmp_path / "m")
    x = (np.arange(12).reshape(4, 3) * 1.3).astype(np.float32)
    (y,) = float64_outputs(tmp_path / "m", {"x": x})
    s = scales.astype(np.float64)
    np.testing.assert_array_equal(y, np.rint(x.astype(np.float64) / s) * s)


def test_negative_pads_crop(tmp_path: Path) -> None:
    nodes = [helper.make_node("Pad", ["x", "pads", "value"], ["y"])]
    path = model(nodes, tmp_path / "m.onnx", pads=np.array([-1, 2]), value=np.array(7, np.float32))
    (y,) = float64_outputs(path, {"x": np.array([1, 2, 3], np.float32)})
    assert y.tolist() == [2, 3, 7, 7]


def test_erf_is_computed_in_float64(tmp_path: Path) -> None:
    path = model([helper.make_node("Erf", ["x"], ["y"])], tmp_path / "m.onnx")
    (y,) = float64_outputs(path, {"x": np.array([1 / 3], np.float32)})
    assert y[0] == math.erf(float(np.float32(1 / 3)))


def test_cubic_weights_are_computed_in_float64(tmp_path: Path) -> None:
    nodes = [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="cubic")]
    path = model(nodes, tmp_path / "m.onnx", sizes=np.array([7]))
    (y,) = float64_outputs(path, {"x": np.array([1, 0, 0], np.float32)})
    d = 1 - (0.5 * 3 / 7 - 0.5)  # from the first place to the second element; the other taps see the first one
    assert abs(y[0] - (1 + 0.75 * (((d - 5) * d + 8) * d - 4))) < 1e-15


def test_corners_are_those_of_the_result(tmp_path: Path) -> None:
    """A length of 2.5 is one of 2, whose last element is the last one."""
    attributes = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], **attributes)]
    path = model(nodes, tmp_path / "m.onnx", scales=np.array([0.5], np.float32))
    (y,) = float64_outputs(path, {"x": np.array([1, 2, 3, 4, 9], np.float32)})
    assert y.tolist() == [1, 9]


def test_what_the_evaluator_met_first_is_told_on_one_line() -> None:
    """Of a node in the body of a loop, not of the loop."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20]> outer (float[N] x) => (float[N] y) {
            trips = Constant <value_int = 2> ()
            go = Constant <value = bool {1}> ()
            y = Loop (trips, go, x) <body = inner (int64 i, bool c, float[N] s) => (bool d, float[N] t) {
                d = Identity (c)
                shape = Constant <value_ints = [7, 7]> ()
                t = Reshape (s, shape)
            }>
        }""")
    with pytest.raises(UnsupportedError) as found:
        float64_outputs(model, {"x": np.zeros(3, np.float32)})
    assert "cannot reshape" in str(found.value)
    assert "\n" not in str(found.value) and len(str(found.value)) < 260
