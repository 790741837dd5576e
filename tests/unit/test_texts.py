"""Strings: moved, compared and looked up by their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import opweld
from opweld.errors import InputError, UnsupportedError

FRUIT = np.array([["apple", "pear"], ["fig", "apple"]], object)
BOTH = 'opset_import: ["": 19, "ai.onnx.ml": 3]'


def model(graph: str) -> onnx.ModelProto:
    return parser.parse_model(f"<ir_version: 8, {BOTH}>\n{graph}")


def check(graph: str, **feeds: Any) -> list[Any]:
    """All outputs, which are those of ONNX Runtime."""
    proto = model(graph)
    mine = opweld.InferenceSession(proto.SerializeToString())
    theirs: Any = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for method in ("get_inputs", "get_outputs"):
        found, expected = (getattr(session, method)() for session in (mine, theirs))
        assert [(v.name, v.type) for v in found] == [(v.name, v.type) for v in expected]
    found, expected = mine.run(None, feeds), theirs.run(None, feeds)
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == right.dtype and left.shape == right.shape
        np.testing.assert_array_equal(left, right)
    return found


def test_labels_of_classes() -> None:
    graph = """g (float[N, 2] x) => (string[N] label, float[N, 3] scores) {
        label, scores = ai.onnx.ml.LinearClassifier <
            coefficients = [1.0, 0.0, 0.0, 1.0, -1.0, -1.0], intercepts = [0.0, 0.1, 0.2],
            classlabels_strings = ["red", "green", "blue"], post_transform = "NONE"> (x)
    }"""
    (label, _) = check(graph, x=np.array([[3, 1], [1, 3], [-3, -3], [0, 0]], np.float32))
    assert label.tolist() == ["red", "green", "blue", "blue"]


def test_encoders() -> None:
    check(
        """g (string[N, 2] x) => (int64[N, 2] y, string[N, 2] z, string[N, 2] w) {
            y = ai.onnx.ml.LabelEncoder <
                keys_strings = ["pear", "apple"], values_int64s = [7, 8], default_int64 = 3> (x)
            z = ai.onnx.ml.LabelEncoder <keys_int64s = [7, 3], values_strings = ["seven", "pear"]> (y)
            w = ai.onnx.ml.LabelEncoder <keys_strings = ["seven"], values_strings = ["7"], default_string = "none"> (z)
        }""",
        x=FRUIT,
    )


def test_moves_and_comparisons() -> None:
    found = check(
        """g (string[N, 2] x, bool[2, 1] c)
            => (string[2, N] t, bool[N, 2] same, string[2, 2] chosen, string[3] fixed, int64[2] s)
        <string[1] word = {"fig"}, string[3] names = {"a", "b", "fig"}> {
            t = Transpose (x)
            same = Equal (x, word)
            chosen = Where (c, t, word)
            fixed = Identity (names)
            s = Shape (x)
        }""",
        x=FRUIT,
        c=np.array([[True], [False]]),
    )
    assert found[0].tolist() == [["apple", "fig"], ["pear", "apple"]]
    gather = model("g (string[N, 2] x, int64[1] i) => (string[1, 2] row) { row = Gather (x, i) }")
    # ONNX Runtime gives the first string of the row, and an empty one.
    assert opweld.compile(gather).run({"x": FRUIT, "i": np.array([1])})["row"].tolist() == [["fig", "apple"]]


def test_strings_that_the_model_does_not_know() -> None:
    graph = "g (string[N] x, string[N] y) => (bool[N] same, string[N] z) { same = Equal (x, y) z = Identity (x) }"
    same, _ = check(graph, x=np.array(["u", "v"], object), y=np.array(["u", "w"], object))
    assert same.tolist() == [True, False]
    compiled = opweld.compile(model(graph))
    fed: list[Any] = [np.array(["u", "ä"]), np.array([b"u", "ä".encode()], object), ["u", "ä"]]
    for strings in fed:
        assert compiled.run({"x": strings, "y": strings})["z"].tolist() == ["u", "ä"]
    with pytest.raises(InputError, match=r"'x': expected an array of strings, got float64"):
        compiled.run({"x": np.array([1.5, 2.5]), "y": FRUIT[0]})
    with pytest.raises(InputError, match=r"'x': expected strings, got NoneType"):
        compiled.run({"x": np.array(["a", None], object), "y": FRUIT[0]})


@pytest.mark.parametrize(
    "node",
    [
        "y = Cast <to = 1> (x)",
        "y = StringNormalizer (x)",
        'y = ai.onnx.ml.TfIdfVectorizer <mode = "TF"> (x)',
        "y, p = Unique (x)",
        "y = If (c) <then_branch = t () => (z) { z = Identity (x) }, else_branch = e () => (z) { z = Identity (x) }>",
    ],
)
def test_what_reads_letters_is_refused(node: str) -> None:
    with pytest.raises(UnsupportedError, match="its use of strings is not supported"):
        opweld.compile(model(f"g (string[N] x, bool c) => (float[N] y) {{ {node} }}"))


def test_strings_are_followed_in_whatever_order_nodes_are_written() -> None:
    proto = model("g (string[N] x) => (float[N] y) { s = Identity (x) y = Cast <to = 1> (s) }")
    proto.graph.node.reverse()
    with pytest.raises(UnsupportedError, match="its use of strings is not supported"):
        opweld.compile(proto)
