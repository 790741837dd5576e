"""Compressed models: standard, near, smaller, kept where they are faster alone, and clear where they cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from typer.testing import CliRunner

import opweld
from opweld.cli.main import application
from opweld.compress.report import Compressed
from opweld.errors import InputError, OptionError, UnsupportedError
from tests.unit.compress.conftest import Measure
from tests.unit.compress.models import EXCITED, network, samples

Array = NDArray[Any]
OPWELD = application()

pytestmark = pytest.mark.usefixtures("measured")


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return [np.asarray(found) for found in session.run(None, dict(feeds))]


def layers(done: Compressed) -> dict[str, Any]:
    return {layer.op: layer for layer in done.layers}


def test_layers_become_two_that_another_runtime_loads() -> None:
    done = opweld.compress(network(), samples())
    onnx.checker.check_model(done.model, full_check=True)
    assert {op: layer.amount for op, layer in layers(done).items()} == {
        "Conv": f"rank {EXCITED} of 48", "MatMul": f"rank {EXCITED} of 96", "Gemm": f"rank {EXCITED} of 80",
    }  # fmt: skip
    assert [node.op_type for node in done.model.graph.node] == ["Conv", "Conv", "MatMul", "MatMul", "MatMul", "Gemm"]
    assert done.size_after < done.size_before / 2 and done.flops[1] < done.flops[0] / 2
    assert 0 < done.error <= 0.01 and done.held_out == 1
    feeds = samples(1, seed=5)[0]
    for got, right in zip(by_onnxruntime(done.model, feeds), by_onnxruntime(network(), feeds), strict=True):
        assert np.linalg.norm(got - right) <= 0.01 * np.linalg.norm(right)


def test_what_is_not_faster_stays_as_it_is_and_says_so(measured: list[Measure]) -> None:
    measured.append(lambda _, after: 1.0 if [node.op_type for node in after.graph.node] == ["Conv", "Conv"] else 2.0)
    done = opweld.compress(network(), samples())
    kept = layers(done)
    assert not kept["Conv"].methods and "measures 1000.0 us, not 1000.0: no faster" in kept["Conv"].reason
    assert kept["MatMul"].methods == kept["Gemm"].methods == ("low-rank",)


def test_a_model_that_is_not_faster_as_a_whole_is_as_it_was(measured: list[Measure]) -> None:
    measured.append(lambda before, _: 0.9 if len(before.graph.node) > 1 else 2.0)
    done = opweld.compress(network(), samples())
    assert [node.op_type for node in done.model.graph.node] == ["Conv", "MatMul", "Gemm"] and done.error < 1e-6
    assert {layer.reason for layer in done.layers} == {"the whole model does not measure faster"}
    assert "nothing is kept" in done.notes[-1] and done.measured is None
    bytes_alone = opweld.compress(network(), samples(), without_speedup=True)
    assert bytes_alone.size_after < bytes_alone.size_before / 2


def test_a_budget_bounds_the_error_that_is_held_out() -> None:
    none = opweld.compress(network(), samples(), max_error=0.0)
    assert all(not layer.methods and "alone moves the outputs" in layer.reason for layer in none.layers)
    data = samples()
    other = [{name: np.random.default_rng(9).standard_normal(a.shape, np.float32) for name, a in data[0].items()}]
    far = opweld.compress(network(), data, held_out=other)
    assert far.error <= 0.01
    assert [layer.reason for layer in far.layers if not layer.methods]
    assert all(layer.methods or "for the budget" in layer.reason for layer in far.layers)


def test_a_metric_bounds_what_the_score_falls() -> None:
    seen: list[int] = []

    def score(answers: Any) -> float:
        seen.append(len(answers))
        return -float(np.abs(answers[0]["y"]).max())

    done = opweld.compress(network(), samples(), metric=score, max_error=1e-3)
    assert done.scores is not None and done.scores[0] - done.scores[1] <= 1e-3 and set(seen) == {1}
    assert done.to_json()["scores"]["before"] == done.scores[0]


def test_layers_that_cannot_change_are_named() -> None:
    model = network()
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.full((96, 112), np.nan, np.float32), "w2"))
    with pytest.raises(InputError, match=r"'[hy]'.*NaN"):
        opweld.compress(model, samples())
    done = opweld.compress(network(), samples(), keep=["a", "y"])
    kept = layers(done)
    assert kept["Conv"].reason == kept["Gemm"].reason == "stays as asked" and kept["MatMul"].methods == ("low-rank",)


def test_matrices_of_one_row_and_shared_weights_and_zeros() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[n, 1] x, float[n, 32] z) => (float[n, 8] a, float[n, 1] b, float[n, 32] c, float[n, 32] e) {
            a = MatMul (x, row)
            b = MatMul (z, column)
            c1 = MatMul (z, shared)
            c = MatMul (c1, shared)
            d = Sub (z, z)
            e = MatMul (d, own)
        }""")
    random = np.random.default_rng(0)
    for name, shape in (("row", (1, 8)), ("column", (32, 1)), ("shared", (32, 32)), ("own", (32, 32))):
        model.graph.initializer.append(numpy_helper.from_array(random.standard_normal(shape, np.float32), name))
    data = [{"x": random.standard_normal((3, 1), np.float32), "z": random.standard_normal((3, 32), np.float32)}]
    done = opweld.compress(model, data, methods=["low-rank"])
    reasons = {layer.name: layer.reason for layer in done.layers}
    assert reasons["a"] == "no rank of a 1 x 8 matrix has fewer weights"
    assert reasons["b"] == "no rank of a 32 x 1 matrix has fewer weights"
    assert reasons["c1"] == reasons["c"] == "its weights 'shared' are read by other nodes too"
    assert done.measured is None and "no sample was kept apart" in done.notes[0]


def test_squares_beyond_float32_are_told() -> None:
    data = [{"x": sample["x"], "z": np.float32(1e18) * sample["z"]} for sample in samples()]
    done = opweld.compress(network(), [*data, *data], methods=["low-rank"])
    large = [layer for layer in done.layers if layer.op != "Conv"]
    assert all("beyond float32" in layer.reason for layer in large) and layers(done)["Conv"].methods


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_error": -1.0}, "max_error"),
        ({"methods": ["wavelets"]}, "'wavelets'"),
        ({"methods": []}, "methods is empty"),
        ({"keep": ["nowhere"]}, "'nowhere'"),
        ({"random": 3}, "choose one"),
        ({"data": None}, "give samples"),
    ],
)
def test_wrong_options(options: dict[str, Any], said: str) -> None:
    given: Any = {"data": samples(), **options}
    with pytest.raises(OptionError, match=said):
        opweld.compress(network(), **given)


def test_bad_data_and_models_without_layers() -> None:
    with pytest.raises(InputError, match="no samples"):
        opweld.compress(network(), [])
    with pytest.raises(InputError, match=r"sample 0.*'z'"):
        opweld.compress(network(), [{"x": samples()[0]["x"]}])
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[2] x) => (float[2] y) { y = Relu (x) }""")
    with pytest.raises(UnsupportedError, match="no layer can be made smaller"):
        opweld.compress(model, [{"x": np.zeros(2, np.float32)}])


def test_the_command(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    for i, sample in enumerate(samples()):
        np.savez(tmp_path / "data" / f"{i}.npz", x=sample["x"], z=sample["z"])
    out = tmp_path / "c.onnx"
    answer = CliRunner().invoke(
        OPWELD,
        ["compress", str(tmp_path / "m.onnx"), "--data", str(tmp_path / "data"), "-o", str(out), "--quiet",
         "--json", str(tmp_path / "layers.json")],
    )  # fmt: skip
    assert answer.exit_code == 0, answer.output
    assert "3 of 3 layers changed" in answer.output and f"rank {EXCITED} of 96" in answer.output
    onnx.checker.check_model(onnx.load(out))
    assert '"low-rank"' in (tmp_path / "layers.json").read_text()
