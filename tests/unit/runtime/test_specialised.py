"""Programs that feed lists to a session: compiled for what is fed, kept, and the oldest forgotten."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import opweld.backend
from opweld.cached import compile_model
from opweld.compile import declaration_of
from opweld.errors import InputError, UnspecifiedError, UnsupportedError
from opweld.interface import Specialisation
from opweld.onnxruntime import InferenceSession
from opweld.options import Options
from opweld.runtime.specialised import MAX_SESSIONS, SpecialisedSessions
from tests.unit.ops.one_node import normal

MODEL = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
g (seq(float[]) xs, optional(float[2]) o, float[N] y, int64 at) => (seq(float[]) ys, bool b, float[N] z) {
    ys = SequenceInsert(xs, y, at)
    b = OptionalHasElement(o)
    z = Neg(y)
}""")


def feeds_of(count: int, at: int = 0, o: bool = False) -> dict[str, Any]:
    xs = [normal(*range(2, 2 + i % 3)) for i in range(count)]
    return {"xs": xs, "o": normal(2) if o else None, "y": normal(3), "at": np.array(at)}


def test_sessions_answer_as_onnxruntime_does() -> None:
    mine = InferenceSession(MODEL.SerializeToString())
    theirs: Any = onnxruntime.InferenceSession(MODEL.SerializeToString())
    for method in ("get_inputs", "get_outputs"):
        found, expected = (getattr(session, method)() for session in (mine, theirs))
        assert [(v.name, v.type, v.shape) for v in found] == [(v.name, v.type, v.shape) for v in expected]
    assert mine.get_modelmeta().graph_name == "g"
    for feeds in (feeds_of(3), feeds_of(3, at=2), feeds_of(1, o=True), feeds_of(0)):
        found, expected = mine.run(None, feeds), theirs.run(None, feeds)
        assert len(found[0]) == len(expected[0])
        for left, right in zip((*found[0], *found[1:]), (*expected[0], *expected[1:]), strict=True):
            np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mine)).run(["z"], feeds_of(2))[0], -normal(3))
    with pytest.raises(InputError, match="'y' is missing"):
        mine.run(None, {name: value for name, value in feeds_of(1).items() if name != "y"})
    with pytest.raises(UnsupportedError, match="io_binding"):
        mine.io_binding()


@pytest.mark.parametrize("declared", ["", "[L]", "[]"])
def test_how_long_a_shape_is_that_is_fed(declared: str) -> None:
    """Each length is a session of its own; the error of a model that is compiled ahead says which option tells it."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[2, 3, 4] x, int64[L] s) => (float y) { y = Reshape(x, s) }""")
    shape = model.graph.input[1].type.tensor_type
    if not declared:
        shape.ClearField("shape")
    elif declared == "[]":
        shape.shape.dim[0].ClearField("dim_param")
    session = InferenceSession(model.SerializeToString())
    x = normal(2, 3, 4)
    for wanted in ([2, 12], [24], [2, -1, 2, 2]):
        np.testing.assert_array_equal(session.run(None, {"x": x, "s": np.array(wanted)})[0], x.reshape(wanted))
    name = "L" if declared == "[L]" else "s_0"
    ranks = {} if declared else {"s": 1}
    with pytest.raises(UnspecifiedError, match=rf"dims=\{{'{name}': N\}} \(--dim {name}=N\)") as refused:
        opweld.compile(model, ranks=ranks)
    assert refused.value.option == "dims"
    compiled = opweld.compile(model, ranks=ranks, dims={name: 2})
    np.testing.assert_array_equal(compiled.run({"x": x, "s": np.array([-1, 6])})["y"], x.reshape(-1, 6))


def test_what_was_compiled_is_kept() -> None:
    compiled: list[Specialisation] = []

    def compile(dims: Mapping[str, int], known: Specialisation) -> Path:
        folder = compile_model(MODEL, Options().specialised(known))
        compiled.append(known)
        return folder

    sessions = SpecialisedSessions(*declaration_of(MODEL), compile)
    first = sessions.session_for(feeds_of(1))
    assert sessions.session_for(feeds_of(1)) is first
    assert compiled == [Specialisation({"xs": 1, "o": None}, {"xs[0]": 0}, {"at": 0})]
    for count in range(2, 2 + MAX_SESSIONS):
        sessions.session_for(feeds_of(count))
    assert len(compiled) == 1 + MAX_SESSIONS
    assert sessions.session_for(feeds_of(2)) is not sessions.session_for(feeds_of(1))
    assert len(compiled) == 2 + MAX_SESSIONS, "the first one was forgotten, the second was not"


def test_the_backend_takes_lists() -> None:
    prepared = opweld.backend.prepare(MODEL)
    feeds = feeds_of(2, at=1)
    ys, b, z = prepared.run(list(feeds.values()))
    for left, right in zip(ys, (feeds["xs"][0], feeds["y"], feeds["xs"][1]), strict=True):
        np.testing.assert_array_equal(left, right)
    assert not b
    np.testing.assert_array_equal(z, -feeds["y"])
    assert opweld.backend.is_compatible(MODEL)
