"""Data and weights that have no range, or one that no float holds: an error or a note with the node's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

import opweld
from opweld.cli.main import application
from opweld.errors import InputError, ModelError, UnsupportedError

Array = np.ndarray[Any, Any]
PRECISIONS = ("int8", "int8-weights", "int4-weights")


def network(first: Array | None = None) -> onnx.ModelProto:
    """Two matrices with a Relu between them."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[n, 32] x) => (float[n, 8] y) {
            [first] h = MatMul (x, w) [act] r = Relu (h) [second] y = MatMul (r, v) }""")
    random = np.random.default_rng(0)
    w = random.standard_normal((32, 16)) if first is None else first
    v = random.standard_normal((16, 8))
    for name, array in (("w", w), ("v", v)):
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return model


def samples(size: float) -> list[dict[str, Array]]:
    return [
        {"x": (np.random.default_rng(i).standard_normal((4, 32)) * size).astype(np.float32)} for i in range(6)
    ]  # fmt: skip


def test_a_range_of_zero_names_the_node_and_what_it_reads() -> None:
    with pytest.raises(UnsupportedError, match="node 'first' stays in float: input 'x' is 0 in all samples"):
        opweld.quantize(network(), samples(0), ranges="minmax")
    done = opweld.quantize(network(np.zeros((32, 16))), samples(1), ranges="minmax")
    assert any("node 'second' stays in float: value 'r' (node 'act') is 0" in note for note in done.notes)
    with pytest.raises(UnsupportedError, match=r"node 'first' stays in float: input 'x' is at most 3.*e-35 in all"):
        opweld.quantize(network(), samples(1e-35), ranges="minmax")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_named_beside_what_a_run_shows(precision: Any, bad: float) -> None:
    with pytest.raises(InputError, match=r"for sample 0.*node 'first' stays in float: 'w' holds NaN or infinity"):
        opweld.quantize(network(np.full((32, 16), bad)), samples(1), precision=precision, ranges="minmax")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_data_at_the_ends_of_float32_leave_scales_that_are_numbers(precision: Any) -> None:
    for size, first in ((1e30, None), (1e-30, np.full((32, 16), 3e38))):
        done = opweld.quantize(network(first), samples(size), precision=precision, ranges="minmax")
        for tensor in done.model.graph.initializer:
            assert np.isfinite(numpy_helper.to_array(tensor).astype(np.float64)).all(), tensor.name
        assert done.error is not None and done.error < 0.3


def test_sums_that_overflow_name_sample_and_node() -> None:
    with pytest.raises(InputError, match=r"value 'r' \(node 'act'\) is NaN or infinite for sample 0"):
        opweld.quantize(network(), samples(1e38), ranges="minmax")


def test_a_model_with_a_bad_scale_is_refused_before_it_is_quantised() -> None:
    model = network()
    model.graph.node.insert(0, onnx.helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantise"))
    model.graph.node.insert(1, onnx.helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="back"))
    model.graph.node[2].input[0] = "d"
    for name, array in (("s", np.float32(np.inf)), ("z", np.uint8(3))):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    with pytest.raises(ModelError, match=r"node 'quantise' \(QuantizeLinear\): scale 's' holds inf"):
        opweld.quantize(model, samples(1), ranges="minmax")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ([], "there are no samples"),
        ([np.full((4, 32), np.nan, np.float32)], "0.npy: input 'x' holds NaN"),
        ([np.zeros((0, 32), np.float32)], "0.npy: input 'x' of shape [0, 32] has no elements"),
    ],
)
def test_the_command_says_which_file(arrays: list[Array], said: str, tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    for i, array in enumerate(arrays):
        np.save(tmp_path / "data" / f"{i}.npy", array)
    command = ["quantize", str(tmp_path / "m.onnx"), "--data", str(tmp_path / "data"), "-o", str(tmp_path / "q.onnx")]
    answer = CliRunner().invoke(application(), command)
    assert answer.exit_code != 0 and not (tmp_path / "q.onnx").exists()
    assert said in " ".join(answer.output.split()) or said in str(answer.exception)
