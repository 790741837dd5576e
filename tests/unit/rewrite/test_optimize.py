"""`opweld optimize` and `opweld.optimize`: files in, files out, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data
from typer.testing import CliRunner

import opweld
from opweld.cli.main import application
from opweld.errors import ModelError, OptionError
from opweld.rewrite.optimize import LATER, RULES
from opweld.rewrite.passes import branches, dead, fold, merge
from opweld.rules import REWRITES
from opweld.tensor.intern import current
from opweld.verification.reference import float64_outputs
from tests.unit.rewrite.rewritten import model_of, normal

OPWELD = application()

RUN = CliRunner()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    weights = {"w": normal(6, 4, 3, 3), "k": normal(6, 1, 1)}
    model = model_of(
        "g (float[n, 4, 7, 8] x) => (float[n, 6, 5, 6] y) { a = Identity(x) c = Conv(a, w) y = Add(c, k) }", weights
    )
    model.producer_name, model.doc_string = "somebody", "something"
    model.metadata_props.add(key="author", value="me")
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return path


def test_a_file_becomes_a_smaller_one(written: Path) -> None:
    out = written.with_name("smaller.onnx")
    answer = RUN.invoke(OPWELD, ["optimize", str(written), "-o", str(out)])
    assert answer.exit_code == 0, answer.output
    assert "all nodes" in answer.output
    assert "rewrite.bias" in answer.output
    assert out.stat().st_size < written.stat().st_size
    made, before = onnx.load(out), onnx.load(written)
    assert [node.op_type for node in made.graph.node] == ["Conv"]
    assert (made.producer_name, made.doc_string) == ("somebody", "something")
    assert {entry.key: entry.value for entry in made.metadata_props}["author"] == "me"
    assert made.opset_import[0].version == before.opset_import[0].version
    feeds = {"x": normal(2, 4, 7, 8)}
    np.testing.assert_allclose(float64_outputs(made, feeds)[0], float64_outputs(before, feeds)[0], atol=1e-6)


def test_what_is_said_as_json(written: Path) -> None:
    out = written.with_name("smaller.onnx")
    answer = RUN.invoke(OPWELD, ["optimize", str(written), "-o", str(out), "--json", "-", "--disable", "rewrite.bias"])
    told = json.loads(answer.output)
    assert told["nodes"] == {"before": 3, "after": 2}
    assert told["operators"]["Identity"] == [1, 0]
    assert [d["taken"] for d in told["decisions"] if d["rule"] == "rewrite.bias"] == ["as written"]


def test_tensors_beside_the_file_stay_beside_it(written: Path) -> None:
    model = onnx.load(written)
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    apart = written.with_name("apart.onnx")
    onnx.save(model, apart)
    folder = written.parent / "elsewhere"
    folder.mkdir()
    answer = RUN.invoke(OPWELD, ["optimize", str(apart), "-o", str(folder / "out.onnx")])
    assert answer.exit_code == 0, answer.output
    assert sorted(file.name for file in folder.iterdir()) == ["out.onnx", "out.onnx.data"]
    assert [node.op_type for node in onnx.load(folder / "out.onnx").graph.node] == ["Conv"]


def test_what_cannot_be_is_refused_and_nothing_is_lost(written: Path, tmp_path: Path) -> None:
    before = written.read_bytes()
    for arguments, words in (
        ([str(written), "-o", str(written)], "is the model itself"),
        ([str(written), "-o", str(tmp_path / "no" / "folder.onnx")], "no such folder"),
        (
            [str(written), "-o", str(tmp_path / "o.onnx"), "--disable", "rewrite.bais"],
            "nearest first, are rewrite.bias",
        ),
        ([str(written), "-o", str(tmp_path / "o.onnx"), "--for", "tensorrt"], "expected any or onnxruntime"),
        ([str(tmp_path / "absent.onnx"), "-o", str(tmp_path / "o.onnx")], "cannot be read"),
    ):
        with pytest.raises(opweld.OpweldError, match=words):
            RUN.invoke(OPWELD, ["optimize", *arguments], catch_exceptions=False)
    assert written.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx"]


def test_the_library_takes_what_compile_takes(written: Path) -> None:
    model = onnx.load(written)
    for source in (written, str(written), written.read_bytes(), model):
        assert [node.op_type for node in opweld.optimize(source).graph.node] == ["Conv"]
    assert len(model.graph.node) == 3, "the original is left as it is"
    assert len(opweld.optimize(model, level="none").graph.node) == 3
    with pytest.raises(OptionError):
        opweld.optimize(model, level="most")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelError):
        opweld.optimize(b"nonsense")


def test_every_rule_is_in_the_table_of_decisions() -> None:
    passes = {branches.NAME, fold.NAME, merge.NODES, merge.TENSORS, dead.NAME}
    assert {rule.name for rules in (RULES, *LATER) for rule in rules} | passes == set(REWRITES)


def test_operators_that_nobody_knows_are_left_alone() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        g (float[n] x) => (float[n] y) { a = Identity(x) b = own.Thing(a) c = Identity(b) y = Neg(c) }""")
    made = opweld.optimize(model)
    assert [node.op_type for node in made.graph.node] == ["Thing", "Neg"]


def test_what_the_checker_said_before_it_may_say_again(tmp_path: Path) -> None:
    """ONNX's inference of shapes knows no OneHot of a single index, which its runtimes know."""
    text = "g (float[3] x) => (float[4] y) { i = ReduceMax<keepdims = 0>(x) j = Cast<to = 7>(i) y = OneHot(j, d, v) }"
    model = model_of(text, {"d": np.array(4), "v": np.array([0, 1], np.float32)})
    with pytest.raises(onnx.shape_inference.InferenceError):
        onnx.checker.check_model(model, full_check=True)
    onnx.save(model, tmp_path / "model.onnx")
    answer = RUN.invoke(OPWELD, ["optimize", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "made.onnx")])
    assert answer.exit_code == 0, answer.output


def test_outputs_that_are_absent_stay_so() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[3, 2, 4] x, float[1, 20, 4] w, float[1, 20, 5] r) => (float[1, 2, 5] y) {
            a = Identity(x) , y = LSTM<hidden_size = 5>(a, w, r) }""".replace(" , y", ' "", y')
    )
    made = opweld.optimize(model)
    assert [list(node.output) for node in made.graph.node] == [["", "y"]]


def test_a_model_that_was_not_whole_is_written_all_the_same(tmp_path: Path) -> None:
    """Its output declares no shape, which ONNX's checker wants and its runtimes do not."""
    model = model_of("g (float[3] x) => (float[3] y) { a = Identity(x) y = Relu(a) }")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "model.onnx")
    answer = RUN.invoke(OPWELD, ["optimize", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "made.onnx")])
    assert answer.exit_code == 0, answer.output
    made = onnx.load(tmp_path / "made.onnx")
    assert [(node.op_type, node.name) for node in made.graph.node] == [("Relu", "")]
    assert (tmp_path / "made.onnx").stat().st_size <= (tmp_path / "model.onnx").stat().st_size


def test_memory_does_not_grow_with_models() -> None:
    """What inference makes of sizes is gone with the call: of fifty models, each with sizes of its own."""

    def kept() -> int:
        tables = current.get()
        return sum(len(getattr(tables, name)) for name in tables.__slots__ if name != "count")

    before = kept()
    for at in range(50):
        text = f"g (float[n{at}, 4] x) => (float[p, 4] y) {{ a = Identity(x) y = Concat<axis = 0>(a, x, a) }}"
        opweld.optimize(model_of(text))
    assert kept() == before
