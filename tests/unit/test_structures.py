"""Inputs and outputs that are no tensors: sequences and optionals, compiled and run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import opweld
from opweld.cli.main import application
from opweld.errors import InputError, ModelError, OptionError, UnspecifiedError, UnsupportedError
from tests.unit.ops.one_node import normal

OPWELD = application()

HEAD = '<ir_version: 10, opset_import: ["": 23]>'


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(f"{HEAD} g {text}")


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            same(mine, theirs)
    elif expected is None:
        assert found is None
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def check(text: str, feeds: Mapping[str, Any], **options: Any) -> opweld.Model:
    """Compiles, runs, and compares with ONNX's own evaluator."""
    proto = model_of(text)
    model = opweld.compile(proto, **options)
    expected = ReferenceEvaluator(proto).run(None, dict(feeds))
    found = model.run(feeds)
    assert list(found) == [value.name for value in proto.graph.output]
    for mine, theirs in zip(found.values(), expected, strict=True):
        same(mine, theirs)
    return model


SUMS = """(seq(float[N, 3]) xs, float[3] y) => (seq(float[N, 3]) ys, float[M, 3] all) {
    ys = SequenceMap <body = b (float[N, 3] x, float[3] w) => (float[N, 3] z) { z = Add(x, w) }> (xs, y)
    all = ConcatFromSequence <axis = 0> (ys)
}"""


def test_a_list_in_and_a_list_out() -> None:
    feeds = {"xs": [normal(n, 3) for n in (4, 1, 2)], "y": normal(3)}
    model = check(SUMS, feeds, lengths={"xs": 3})
    assert [info.name for info in model.inputs] == ["xs[0]", "xs[1]", "xs[2]", "y"]
    assert [info.name for info in model.outputs] == ["ys[0]", "ys[1]", "ys[2]", "all"]
    same(model.run({"xs[0]": feeds["xs"][0], "xs[1]": feeds["xs"][1], "xs[2]": feeds["xs"][2], "y": feeds["y"]})["ys"],
         [x + feeds["y"] for x in feeds["xs"]])  # fmt: skip


def test_another_structure_is_refused() -> None:
    x, y = normal(2, 3), normal(3)
    model = opweld.compile(model_of(SUMS), lengths={"xs": 2})
    with pytest.raises(InputError, match=r"compiled for a list of 2, but 3 are fed; .*lengths={'xs': 3}"):
        model.run({"xs": [x, x, x], "y": y})
    with pytest.raises(InputError, match="expected a list of 2 arrays, got ndarray"):
        model.run({"xs": x, "y": y})
    with pytest.raises(InputError, match="'ys' is not an input"):
        model.run({"xs": [x, x], "y": y, "ys": y})
    with pytest.raises(InputError, match=r"'xs\[0\]' is missing"):
        model.run({"y": y})


def test_what_must_be_said() -> None:
    with pytest.raises(UnspecifiedError, match=r"'xs' is a sequence.*lengths=.*--length") as raised:
        opweld.compile(model_of(SUMS))
    assert (raised.value.option, raised.value.name) == ("lengths", "xs")
    with pytest.raises(OptionError, match="no input 'ys' that is a sequence"):
        opweld.compile(model_of(SUMS), lengths={"xs": 1, "ys": 1})
    with pytest.raises(OptionError, match="always present"):
        opweld.compile(model_of(SUMS), lengths={"xs": None})
    with pytest.raises(UnspecifiedError, match=r"'xs\[1\]' has no declared rank") as raised:
        opweld.compile(model_of("(seq(float[]) xs) => (seq(float[]) ys) { ys = Identity(xs) }"),
                       lengths={"xs": 2}, ranks={"xs[0]": 1})  # fmt: skip
    assert (raised.value.option, raised.value.name) == ("ranks", "xs[1]")


def test_ranks_that_nobody_declares() -> None:
    xs = [normal(2, 3), normal(4), np.float32(3)]
    text = "(seq(float[]) xs, float[] y) => (seq(float[]) ys, float[] z) { ys = Identity(xs) z = Neg(y) }"
    ranks = {"xs[0]": 2, "xs[1]": 1, "xs[2]": 0, "y": 2}
    check(text, {"xs": xs, "y": normal(2, 2)}, lengths={"xs": 3}, ranks=ranks)


OPTIONALS = """(optional(float[2]) x, optional(seq(float[2])) xs) => (bool a, bool b, optional(seq(float[2])) ys) {
    a = OptionalHasElement(x)
    b = OptionalHasElement(xs)
    ys = Identity(xs)
}"""


@pytest.mark.parametrize("x", [None, 1])
@pytest.mark.parametrize("xs", [None, 0, 2])
def test_optionals(x: int | None, xs: int | None) -> None:
    feeds = {"x": None if x is None else normal(2), "xs": None if xs is None else [normal(2)] * xs}
    found = opweld.compile(model_of(OPTIONALS), lengths={"x": x, "xs": xs}).run(feeds)
    assert [bool(found[name]) for name in "ab"] == [x is not None, xs is not None]
    same(found["ys"], feeds["xs"])


def test_an_optional_of_another_structure() -> None:
    model = opweld.compile(model_of(OPTIONALS), lengths={"x": 0, "xs": 1})
    assert [bool(model.run({"xs": [normal(2)]})[name]) for name in "ab"] == [False, True]
    with pytest.raises(InputError, match=r"empty optional; .*lengths={'x': 1}"):
        model.run({"x": normal(2), "xs": [normal(2)]})
    with pytest.raises(InputError, match="expected a list of 1 arrays, got NoneType"):
        model.run({"x": None, "xs": None})
    with pytest.raises(OptionError, match="0 or 1"):
        opweld.compile(model_of(OPTIONALS), lengths={"x": 2, "xs": 1})


def test_pieces_of_a_tensor() -> None:
    text = """(float[7, 4] x, int64[2] sizes) => (seq(float[A, 4]) rows, seq(float[7]) columns, seq(float[B, 4]) two) {
        n = Constant <value_int = 3> ()
        rows = SplitToSequence <axis = 0> (x, n)
        columns = SplitToSequence <axis = -1, keepdims = 0> (x)
        two = SplitToSequence (x, sizes)
    }"""
    check(text, {"x": normal(7, 4), "sizes": np.array([5, 2])})


def test_positions_that_are_fed() -> None:
    """Taking a tensor out compiles for any position; what puts one in is made for one."""
    xs = [normal(n) for n in (3, 1, 2)]
    text = "(seq(float[N]) xs, int64 at) => (float[M] y) { x = SequenceAt(xs, at) y = Neg(x) }"
    for at in (0, 2, -1):
        model = check(text, {"xs": xs, "at": np.array(at)}, lengths={"xs": 3})
    with pytest.raises(opweld.OpweldError, match="index"):
        model.run({"xs": xs, "at": np.array(3)})
    text = "(seq(float[N]) xs, float[M] x, int64[1] at) => (seq(float[N]) ys) { ys = SequenceInsert(xs, x, at) }"
    feeds = {"xs": xs, "x": normal(5), "at": np.array([1])}
    with pytest.raises(UnspecifiedError, match="constants") as raised:
        opweld.compile(model_of(text), lengths={"xs": 3})
    assert (raised.value.option, raised.value.name) == ("constants", "at")
    model = check(text, feeds, lengths={"xs": 3}, constants={"at": [1]})
    with pytest.raises(InputError, match="'at' is a constant"):
        model.run(feeds | {"at": np.array([2])})


def test_a_saved_model(tmp_path: Any) -> None:
    x, y = normal(2, 3), normal(3)
    path = opweld.compile(model_of(SUMS), lengths={"xs": 2}).save(tmp_path / "sums.opweld")
    same(opweld.load(path).run({"xs": [x, x], "y": y})["ys"], [x + y, x + y])


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [3, 5, 9]}, {"classlabels_strings": ["a", "b", "c"]}])
def test_probabilities_by_label(labels: dict[str, Any]) -> None:
    """As skl2onnx writes classifiers; ONNX Runtime's answer has keys and numbers of the same Python types."""
    ort = pytest.importorskip("onnxruntime")
    nodes = [
        helper.make_node(
            "LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", coefficients=normal(12).tolist(),
            intercepts=[0.1, 0.2, 0.3], classlabels_ints=[3, 5, 9], post_transform="SOFTMAX",
        ),
        helper.make_node("ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml", **labels),
    ]  # fmt: skip
    key = onnx.TensorProto.INT64 if "classlabels_int64s" in labels else onnx.TensorProto.STRING
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, []))
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["n"]),
            helper.make_value_info("probabilities", helper.make_sequence_type_proto(kind)),
        ],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=8)
    x = normal(5, 4)
    label, expected = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    found = opweld.compile(proto).run({"x": x})
    np.testing.assert_array_equal(found["label"], label)
    for mine, theirs in zip(found["probabilities"], expected, strict=True):
        assert [(key, type(value)) for key, value in mine.items()] == [(key, type(v)) for key, v in theirs.items()]
        np.testing.assert_allclose(list(mine.values()), list(theirs.values()), rtol=1e-5)


BRANCHES = """(bool c, float[2] x, seq(float[2]) xs) => (seq(float[2]) ys, float[2] z) {
    ys, z = If (c) <
        then_branch = t () => (seq(float[2]) a, float[2] p) { n = Neg(x) a = SequenceConstruct(x, n) p = Exp(x) },
        else_branch = e () => (seq(float[2]) b, float[2] q) { b = Identity(xs) q = Identity(x) }
    >
}"""


@pytest.mark.parametrize("c", [False, True])
def test_branches(c: bool) -> None:
    """Of lists of one length any condition will do, else it must be known."""
    feeds = {"c": np.array(c), "x": normal(2), "xs": [normal(2, seed=1), normal(2, seed=2)]}
    check(BRANCHES, feeds, lengths={"xs": 2})
    feeds["xs"] = feeds["xs"][:1]
    with pytest.raises(UnspecifiedError) as raised:
        opweld.compile(model_of(BRANCHES), lengths={"xs": 1})
    assert (raised.value.option, raised.value.name) == ("constants", "c")
    check(BRANCHES, feeds, lengths={"xs": 1}, constants={"c": c})


@pytest.mark.parametrize("trips", [1, 4])
def test_a_loop_that_makes_a_list(trips: int) -> None:
    text = """(int64 trips, float[3] x, seq(float[3]) xs) => (seq(float[3]) ys, float[3] sum, float[T, 3] sums) {
        c = Constant <value = bool {1}> ()
        ys, sum, sums = Loop (trips, c, xs, x) <body = b (int64 i, bool go, seq(float[3]) s, float[3] v)
            => (bool more, seq(float[3]) grown, float[3] w, float[3] out) {
            more = Identity(go)
            f = Cast <to = 1> (i)
            w = Add(v, f)
            grown = SequenceInsert(s, w)
            out = Identity(w)
        }>
    }"""
    feeds = {"trips": np.array(trips), "x": normal(3), "xs": [normal(3)]}
    check(text, feeds, lengths={"xs": 1}, constants={"trips": trips})
    with pytest.raises(UnspecifiedError) as raised:
        opweld.compile(model_of(text), lengths={"xs": 1})
    assert raised.value.name == "trips"


def test_a_list_that_only_running_tells_is_refused() -> None:
    text = """(float[3] x) => (seq(float[3]) ys) {
        z = Constant <value_float = 0.0> ()
        s = ReduceSum <keepdims = 0> (x)
        c = Greater(s, z)
        ys = If (c) <
            then_branch = t () => (seq(float[3]) a) { a = SequenceConstruct(x, x) },
            else_branch = e () => (seq(float[3]) b) { b = SequenceConstruct(x) }
        >
    }"""
    with pytest.raises(
        UnsupportedError, match="condition 'c' determines the contents of a sequence; it must be a constant"
    ):
        opweld.compile(model_of(text))


def test_verification() -> None:
    """Of random inputs, and of given ones, against the model itself."""
    model = opweld.compile(model_of(SUMS), lengths={"xs": 2})
    for feeds in (None, {"xs": [normal(2, 3), normal(5, 3)], "y": normal(3)}):
        check = model.verify(feeds)
        assert check.passed
        assert check.reference == "float64"
        assert [c.name for c in check.comparisons] == ["ys[0]", "ys[1]", "all"]
    assert opweld.compile(model_of(OPTIONALS), lengths={"x": 1, "xs": 2}).verify().passed


def test_the_command_line(tmp_path: Any) -> None:
    path = tmp_path / "sums.onnx"
    path.write_bytes(model_of(SUMS).SerializeToString())
    runner = CliRunner()
    for command in (["run", "--output", str(tmp_path)], ["verify"], ["compile", "-o", str(tmp_path / "a.opweld")]):
        result = runner.invoke(OPWELD, [command[0], str(path), *command[1:], "--length", "xs=2"])
        assert result.exit_code == 0, result.output
    assert sorted(file.name for file in tmp_path.glob("*.npy")) == ["0-ys_0_.npy", "1-ys_1_.npy", "2-all.npy"]
    assert isinstance(runner.invoke(OPWELD, ["run", str(path), "--length", "xs=two"]).exception, OptionError)


def test_bodies_that_do_not_fit_are_refused() -> None:
    known: dict[str, Any] = {"lengths": {"xs": 1}, "constants": {"c": True}}
    crowded, hollow = model_of(BRANCHES), model_of(BRANCHES)
    crowded.graph.node[0].attribute[0].g.input.add().CopyFrom(crowded.graph.input[1])
    hollow.graph.node[0].attribute[0].g.output[1].name = "x"
    with pytest.raises(ModelError, match="body has 1 inputs, expected 0"):
        opweld.compile(crowded, **known)
    with pytest.raises(ModelError, match="not defined in it"):
        opweld.compile(hollow, **known)
