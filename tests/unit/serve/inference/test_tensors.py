"""Models of other things than tensors of numbers, as a server feeds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld.errors import UnsupportedError
from opweld.runtime.session import Session
from opweld.serve.inference.model import TensorSpec
from opweld.serve.inference.tensors import Tensors
from tests.unit.serve.inference.small import graph

TEXT = np.dtype(object)
F32, I64 = np.dtype(np.float32), np.dtype(np.int64)


def tensors(model: onnx.ModelProto, **options: Any) -> Tensors:
    return Tensors(Session(opweld.compile(model, **options).path))


def test_strings() -> None:
    model = tensors(
        graph(
            """(string[N] x) => (int64[N] y, string[N] z) {
                y = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_int64s = [1, 2], default_int64 = 0> (x)
                z = Identity(x)
            }"""
        )
    )
    assert model.inputs == [TensorSpec("x", TEXT, ("N",))]
    assert model.outputs == [TensorSpec("y", I64, ("N",)), TensorSpec("z", TEXT, ("N",))]
    number, text = model.run({"x": np.array(["b", b"new"], object)})
    assert number.tolist() == [2, 0] and text.tolist() == ["b", "new"]


def test_a_dim_that_is_declared_as_less_than_0_is_free() -> None:
    declared = graph("(float[N, 2] x) => (float[N, 2] y) { y = Neg(x) }")
    declared.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    (spec,) = tensors(declared).inputs
    assert spec.shape == ("", 2)
    assert spec.fits((5, 2)) and not spec.fits((5, 3)) and not spec.fits((5,))


def test_strings_that_the_model_does_not_know() -> None:
    model = tensors(graph("(string[N] x) => (string[N] z) { z = Identity(x) }"))
    assert model.run({"x": np.array(["ä"], object)})[0].tolist() == ["ä"]


def test_sequences() -> None:
    model = tensors(
        graph("(seq(float[N]) xs) => (seq(float[N]) ys, float[M] all) {"
              " ys = Identity(xs) all = ConcatFromSequence<axis = 0>(xs) }"),
        lengths={"xs": 2},
    )  # fmt: skip
    assert [spec.name for spec in model.inputs] == ["xs[0]", "xs[1]"]
    assert [spec.name for spec in model.outputs] == ["ys[0]", "ys[1]", "all"]
    found = model.run({"xs[0]": np.ones(2, np.float32), "xs[1]": np.zeros(1, np.float32)})
    assert [one.tolist() for one in found] == [[1, 1], [0], [1, 1, 0]]


def test_maps() -> None:
    model = tensors(
        graph("""(float[N, 2] x) => (seq(map(string, float)) y) {
            y = ai.onnx.ml.ZipMap<classlabels_strings = ["a", "b"]>(x)
        }""")
    )
    (spec,) = model.outputs
    x = np.array([[1, 2]], np.float32)
    assert spec.dtype == F32 and model.run({"x": x})[0].tolist() == [[1, 2]]


def test_states_are_refused(tmp_path: Path) -> None:
    model = graph(
        "(float[2] past, float[2] x) => (float[2] present, float[2] y) { present = Add(past, x) y = Identity(present) }"
    )
    with pytest.raises(UnsupportedError, match=r"keeps 'past' from one call to the next.*compile it without states"):
        tensors(model, states={"past": "present"})
