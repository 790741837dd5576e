"""Which models take calls together, found out when they are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

import opweld
from opweld.errors import OptionError
from opweld.options import available_cores
from opweld.runtime.session import Session
from opweld.serve.inference.examined import Examined, examined
from opweld.serve.inference.model import Array
from opweld.serve.inference.settings import Padding, Settings
from opweld.serve.inference.tensors import Tensors
from tests.unit.serve.inference.small import graph, plus

SETTINGS = Settings(max_batch=4)


def found(model: onnx.ModelProto | Path, settings: Settings = SETTINGS) -> Examined:
    session = Session(opweld.compile(model).path)
    return examined(session, Tensors(session), settings)


def test_rows_that_do_not_depend_on_each_other() -> None:
    told = found(plus(1))
    assert told.rows is not None and told.rows.most == 4 and not told.reason
    assert {(size, threads) for _, size, threads in told.seconds} == {
        (size, threads) for size in (1, 2, 4) for threads in told.threads
    }
    assert told.threads[0] == 1 and told.threads[-1] <= available_cores()


def test_each_size_is_timed_once_with_each_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[tuple[int, int]] = []

    def times(tensors: Tensors, feeds: Mapping[str, Array], threads: int) -> float:
        timed.append((len(feeds["x"]), threads))
        return 1e-3 / threads

    monkeypatch.setattr("opweld.serve.inference.examined.available_cores", lambda: 4)
    monkeypatch.setattr("opweld.serve.inference.examined._timed", times)
    told = found(plus(1))
    assert told.threads == (1, 2, 4)
    assert sorted(timed) == [(rows, threads) for rows in (1, 2, 4) for threads in (1, 2, 4)]
    assert {(size, threads): seconds for (_, size, threads), seconds in told.seconds.items()} == {
        (rows, threads): 1e-3 / threads for rows, threads in timed
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(float[2, 3] x) => (float[2, 3] y) { y = Add(x, x) }", "first dim of its input 'x' is not free"),
        ("(float[N, 3] x, float[M, 3] z) => (float[K, 3] y) { y = Concat<axis=0>(x, z) }", "have different names"),
        ("(float[N, 3] x) => (float[3] y) { y = ReduceSum<keepdims=0>(x, a) }", "output 'y' has no row for each row"),
        ("(float[N, 3] x) => (float[N, 3] y) { y = CumSum(x, zero) }", "a row of its output 'y' depends on other rows"),
        ("(float[N] x) => (int64[1, K] y) { y = NonZero(x) }", "what it does depends on data"),
    ],
)
def test_others_say_why_they_do_not(text: str, reason: str) -> None:
    model = graph(text)
    model.graph.initializer.append(onnx.helper.make_tensor("a", onnx.TensorProto.INT64, [1], [0]))
    model.graph.initializer.append(onnx.helper.make_tensor("zero", onnx.TensorProto.INT64, [], [0]))
    told = found(model)
    assert told.rows is None and reason in told.reason


@pytest.mark.parametrize("other", ["float r", "float[2] r"])
def test_inputs_whose_rows_are_fixed_are_fed_whole(other: str) -> None:
    told = found(graph(f"(float[N, 2] x, {other}) => (float[N, 2] y) {{ y = Mul(x, r) }}"))
    assert "first dim of its input 'r' is not free" in told.reason
    assert {(kind, size) for kind, size, _ in told.seconds} == {(None, 1)}


def test_who_wants_no_batches_has_none() -> None:
    assert found(plus(1), replace(SETTINGS, max_batch=1)).reason == "max_batch is 1"


MASKED = graph(
    """(float[N, L] x, float[N, L] mask) => (float[N, L] scaled, float[N] sum) {
        a = Constant<value_ints = [1]>()
        scaled = Mul(x, mask)
        sum = ReduceSum<keepdims=0>(scaled, a)
    }"""
)


def test_lengths_are_padded_where_answers_stay() -> None:
    pad = Padding("L", {"x": 7, "mask": 0})
    told = found(MASKED, replace(SETTINGS, pad=pad))
    assert told.rows is not None
    assert (told.rows.padded, told.rows.cut) == ({"x": 1, "mask": 1}, {0: 1})
    for wrong, words in (
        (Padding("M", pad.values), "no input has 'M' behind its first dim; there are L"),
        (Padding("L", {"x": 7}), "expected a value for each of x, mask, got x"),
        (Padding("L", {"x": 7, "mask": 1}), "output 'sum' of a call changes where it is padded"),
    ):
        with pytest.raises(OptionError, match=words):
            found(MASKED, replace(SETTINGS, pad=wrong))
