"""Values that a compiled model keeps in memory, read while it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opweld.cli.traced import report_first_bad, traced
from opweld.experiments import traced as experiment
from opweld.options import Options
from opweld.tensor.expr import binary, const, loads
from opweld.tile.member import KernelBody, ReductionMember
from opweld.tile.tile import Statement, Store, map_statements
from opweld.verification import intermediates
from opweld.verification.compare import Comparison
from opweld.verification.intermediates import Intermediate
from opweld.verification.reference import float64_values, own_values


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    shape: list[int | str],
    weights: dict[str, Any],
    kind: int = TensorProto.FLOAT,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def perceptron(path: Path) -> Path:
    """softmax(relu(x @ w1 + b1) @ w2 + b2) of any batch."""
    random = np.random.default_rng(0)
    shapes = {"w1": (40, 48), "b1": (48,), "w2": (48, 24), "b2": (24,)}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="product1"),
        helper.make_node("Add", ["a", "b1"], ["b"], name="bias1"),
        helper.make_node("Relu", ["b"], ["c"], name="relu1"),
        helper.make_node("MatMul", ["c", "w2"], ["d"], name="product2"),
        helper.make_node("Add", ["d", "b2"], ["e"], name="bias2"),
        helper.make_node("Softmax", ["e"], ["y"], axis=1, name="softmax"),
    ]
    weights = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return save(path, nodes, ["batch", 40], weights)


APART = ("fuse.block",)
"""Small products after one another would be one kernel."""


def values(model: Path, level: str = "all", **dims: int) -> dict[str, Intermediate]:
    trace = traced(model, Options(level=level, threads=2, disable=APART), {}, dims, 0)
    return {value.name: value for value in trace.values}


@pytest.mark.parametrize("batch", [1, 7])
def test_what_is_fused_is_nowhere_and_what_is_left_is_right(batch: int, tmp_path: Path) -> None:
    model = perceptron(tmp_path / "m.onnx")
    fused = values(model, batch=batch)
    assert "c" in fused and not {"a", "b"} & set(fused)
    assert fused["c"].nodes == ("product1", "bias1", "relu1")
    every = values(model, "none", batch=batch)
    assert list(every) == ["a", "b", "c", "d", "e", "y"], "in the order of the graph"
    for value in (*fused.values(), *every.values()):
        assert value.comparison.shape[0] == batch
        assert value.comparison.passed and value.comparison.error < 1e-5
        assert not value.jumps


def test_values_are_read_wherever_they_lie(tmp_path: Path) -> None:
    """Channels innermost, with padding around them, as a part of a whole, in the place of another."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1], name="conv1"),
        helper.make_node("Relu", ["a"], ["b"], name="relu1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], name="conv2"),
        helper.make_node("Sigmoid", ["c"], ["d"], name="sigmoid"),
        helper.make_node("Concat", ["b", "d"], ["e"], axis=1, name="join"),
        helper.make_node("Conv", ["e", "w3"], ["f"], name="conv3"),
        helper.make_node("Exp", ["f"], ["y"], name="exp"),
    ]
    shapes = {"w1": (12, 3, 3, 3), "w2": (20, 12, 3, 3), "w3": (8, 32, 1, 1)}
    weights = {name: random.standard_normal(shape, np.float32) * 0.1 for name, shape in shapes.items()}
    model = save(tmp_path / "m.onnx", nodes, [2, 3, 9, 11], {k: v.astype(np.float32) for k, v in weights.items()})
    for level in ("none", "basic", "all"):
        found = values(model, level)
        assert len(found) >= 3
        for value in found.values():
            assert value.comparison.passed, (level, value.name, value.comparison.problem)


def test_the_error_begins_where_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    realise = ReductionMember.realise

    def change(statement: Statement) -> Statement:
        if not isinstance(statement, Store):
            return statement
        return replace(statement, value=binary("mul", statement.value, const(1.01, statement.value.dtype)))

    def wrong(self: ReductionMember, schedule: Any, target: Any) -> KernelBody:
        made = realise(self, schedule, target)
        second = any("w2" in node.tensor for node in loads(self.nest.body))
        return replace(made, body=map_statements(made.body, change)) if second else made

    monkeypatch.setattr(ReductionMember, "realise", wrong)
    found = values(perceptron(tmp_path / "m.onnx"), batch=5)
    assert [name for name, value in found.items() if value.jumps] == ["e"]
    assert found["c"].comparison.passed and not found["e"].comparison.passed and not found["y"].comparison.passed
    assert found["y"].before == found["e"].comparison.error
    assert [name for name, value in found.items() if value.wrong] == ["e", "y"]


def first_bad(model: Path, capsys: pytest.CaptureFixture[str]) -> str:
    import typer

    try:
        report_first_bad(model, Options(threads=1, disable=APART), {}, {}, 0, None)
    except typer.Exit as done:
        assert done.exit_code == 1
    return capsys.readouterr().out


def test_the_node_of_the_first_infinity_is_named_through_a_fusion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("Add", ["a", "many"], ["b"], name="add"),
        helper.make_node("Exp", ["b"], ["c"], name="exp"),
        helper.make_node("Sub", ["c", "c"], ["y"], name="difference"),
    ]
    model = save(tmp_path / "m.onnx", nodes, [4, 8], {"many": np.float32(100)})
    assert "c (node exp): 32 elements are NaN or infinite" in first_bad(model, capsys)


def test_a_bad_index_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Add", ["x", "far"], ["i"], name="add"),
        helper.make_node("Gather", ["table", "i"], ["g"], name="lookup"),
        helper.make_node("Exp", ["g"], ["y"], name="exp"),
    ]
    weights = {"far": np.array([100], np.int64), "table": np.ones((5, 3), np.float32)}
    said = first_bad(save(tmp_path / "m.onnx", nodes, [4], weights, TensorProto.INT64), capsys)
    assert said.startswith("lookup: an index is out of range")


def test_a_nan_that_is_the_models_own_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("Neg", ["a"], ["b"], name="negative"),
        helper.make_node("Sqrt", ["b"], ["c"], name="root"),
        helper.make_node("MatMul", ["c", "w"], ["y"], name="product"),
    ]
    model = save(tmp_path / "m.onnx", nodes, [4, 8], {"w": np.ones((8, 3), np.float32)})
    said = first_bad(model, capsys)
    assert "none is NaN or infinite where float64 has numbers" in said
    assert "c (node root): 32 elements are NaN in float64 too" in said


def test_a_fault_of_fusion_alone_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product divides by zero where its bias is computed with it."""
    realise = ReductionMember.realise

    def change(statement: Statement) -> Statement:
        if not isinstance(statement, Store):
            return statement
        return replace(statement, value=binary("div", statement.value, const(0.0, statement.value.dtype)))

    def wrong(self: ReductionMember, schedule: Any, target: Any) -> KernelBody:
        made = realise(self, schedule, target)
        fused = len({node.tensor for node in loads(self.nest.body)}) > 2
        return replace(made, body=map_statements(made.body, change)) if fused else made

    monkeypatch.setattr(ReductionMember, "realise", wrong)
    said = first_bad(perceptron(tmp_path / "m.onnx"), capsys)
    assert "c (node relu1)" in said
    assert "at level none nothing is bad: `opweld bisect` names the decision" in said


@pytest.mark.parametrize("swapped", [False, True])
def test_a_whole_is_read_when_all_of_its_parts_are_there(swapped: bool, tmp_path: Path) -> None:
    """One part is copied at once, the other is written into its place after a chain of products."""
    random = np.random.default_rng(0)
    parts = ["x", "c"][:: -1 if swapped else 1]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product1"),
        helper.make_node("MatMul", ["a", "w"], ["b"], name="product2"),
        helper.make_node("MatMul", ["b", "w"], ["c"], name="product3"),
        helper.make_node("Concat", parts, ["d"], axis=1, name="join"),
        helper.make_node("MatMul", ["d", "v"], ["y"], name="product4"),
    ]
    shapes = {"w": (24, 24), "v": (48, 8)}
    weights = {name: random.standard_normal(shape, np.float32) / np.float32(5) for name, shape in shapes.items()}
    found = values(save(tmp_path / "m.onnx", nodes, ["n", 24], weights), n=6)
    assert list(found) == ["a", "b", "c", "d", "y"]
    for value in found.values():
        assert value.comparison.passed, value.comparison.problem


def test_segments_that_data_tells_are_looked_at_too(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="first"),
        helper.make_node("ReduceSum", ["r"], ["total"], name="total", keepdims=0),
        helper.make_node("NonZero", ["r"], ["found"], name="found"),
        helper.make_node("Cast", ["found"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Softmax", ["f"], ["s"], name="soft"),
        helper.make_node("Mul", ["s", "total"], ["y"], name="last"),
    ]
    found = values(save(tmp_path / "m.onnx", nodes, ["n"], {}), n=50)
    assert {"total", "y"} <= found.keys()
    assert all(value.comparison.passed for value in found.values())


def judged(name: str, error: float, *, output: bool = False, spoilt: int = 0, shown: bool = True) -> Intermediate:
    comparison = Comparison(name, "float32", (2,), 1.0, error, None, 1e-5, (0,), "" if error <= 1e-5 else "off")
    return Intermediate(name, "n", ("n",), comparison, 0.0, spoilt, is_output=output, shown=shown)


def test_what_no_output_shows_is_told_and_is_no_verdict_against_right_outputs() -> None:
    assert judged("a", 1e-7).verdict == "right"
    assert judged("a", 1e-3).verdict == "wrong"
    assert judged("a", 1e-3, shown=False).verdict == "unseen"
    assert judged("a", 1e-3, spoilt=1, shown=False).verdict == "wrong"
    assert judged("y", 1e-3, output=True, shown=False).verdict == "wrong"


def test_an_error_that_every_output_hides_is_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The product is off by a hundredth, and the sign of large numbers shows nothing of it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Softmax", ["a"], ["s"], axis=1, name="softmax"),
        helper.make_node("ArgMax", ["s"], ["y"], axis=1, keepdims=0, name="most"),
    ]
    weights = {"w": np.eye(40, 24, dtype=np.float32) * 100}
    path = save(tmp_path / "m.onnx", nodes, ["batch", 40], weights)
    graph = onnx.load(path)
    graph.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    onnx.save(graph, path)
    exact = intermediates.compare

    def off(name: str, array: Any, right: Any, *others: Any, **more: Any) -> Comparison:
        return exact(name, array * 1.01 if name == "s" else array, right, *others, **more)

    monkeypatch.setattr(intermediates, "compare", off)
    found = values(path, "none", batch=5)
    assert (found["s"].verdict, found["y"].verdict) == ("unseen", "right")
    assert not any(value.wrong for value in found.values())


@pytest.mark.parametrize("peer", [0.0, 0.3])
def test_a_peer_that_is_off_by_more_than_rounding_excuses_nothing(
    peer: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ONNX Runtime's int8 is without VNNI: four times its error would be the tolerance. The reference in the model's
    own precision stands in, and is computed only where something is off."""
    model = perceptron(tmp_path / "m.onnx")
    exact, asked, wrong = intermediates.compare, list[str](), [False]

    def off(name: str, array: Any, right: Any, *others: Any, **more: Any) -> Comparison:
        return exact(name, array * 1.2 if wrong[0] and name == "c" else array, right, *others, **more)

    def saturated(model: Path, fed: Any, names: list[str]) -> dict[str, Any]:
        right = float64_values(model, fed)
        return {name: right[name] * (1 - peer) for name in names}

    def own(model: Path, fed: Any) -> dict[str, Any]:
        asked.append(model.name)
        return own_values(model, fed)

    monkeypatch.setattr(intermediates, "compare", off)
    monkeypatch.setattr(experiment, "onnxruntime_values", saturated)
    monkeypatch.setattr(experiment, "own_values", own)
    assert all(value.comparison.passed for value in values(model, batch=3).values())
    wrong[0] = True
    found = values(model, batch=3)
    assert found["c"].verdict == "unseen" and found["c"].comparison.peer_error == pytest.approx(peer, abs=1e-6)
    assert asked == (["m.onnx"] if peer else [])
