"""Columns of a dataset as inputs and outputs of a model: what is read, what is refused, and how that is said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opweld
from opweld.errors import InputError, OptionError, UnsupportedError
from opweld.runtime.session import Session
from tests.unit.ray.models import PAIRS, ROWS, write_model

pytest.importorskip("pyarrow")

from opweld.ray.columns import Columns
from opweld.ray.predictor import Predictor
from opweld.serve.inference.tensors import Tensors


class Here:
    """A shipment that has arrived."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def open(self, threads: int) -> Session:
        return self.session


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return opweld.compile(write_model(ROWS, tmp_path_factory.mktemp("rows"))).session


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return opweld.compile(write_model(PAIRS, tmp_path_factory.mktemp("pairs"))).session


def predictor(session: Session, **asked: Any) -> Predictor:
    return Predictor(Here(session), Columns.of(Tensors(session), **asked), 1)  # pyright: ignore[reportArgumentType]


X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.maximum(X @ np.array([[1, 2], [3, 4], [5, 6]], np.float32), 0)


def test_columns_by_other_names(rows: Session) -> None:
    made = predictor(rows, inputs={"x": "a"}, outputs={"y": "b"})({"a": X, "id": np.arange(4)})
    assert list(made) == ["a", "id", "b"]
    assert np.array_equal(made["b"], Y)


def test_columns_that_do_not_stay(rows: Session) -> None:
    made = predictor(rows, keep=["id"])({"x": X, "id": np.arange(4)})
    assert list(made) == ["id", "y"]


def test_rows_that_are_lists_are_stacked(rows: Session) -> None:
    column = np.empty(4, object)
    column[:] = list(X)
    assert np.array_equal(predictor(rows)({"x": column})["y"], Y)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_model_of_a_fixed_number_of_rows_runs_until_all_are_done(pairs: Session, count: int) -> None:
    x = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
    made = predictor(pairs, feeds={"s": 2}, outputs={"y": "y"})({"x": x})
    assert np.array_equal(made["y"], x * 2)


def test_an_output_that_has_no_rows_is_named(rows: Session, pairs: Session) -> None:
    with pytest.raises(UnsupportedError, match=r"output 'total' has the shape \[3\] for 2 rows.*leave it out"):
        predictor(pairs, feeds={"s": 2})({"x": X[:2]})


RAGGED = np.empty(2, object)
RAGGED[:] = [np.zeros(2, np.float32), np.zeros(3, np.float32)]
NULLS = np.empty(2, object)
NULLS[:] = [np.zeros(3, np.float32), None]

UNFIT: dict[str, tuple[Mapping[str, Any], str]] = {
    "missing": ({"z": X}, r"input 'x' is read from the column 'x', and there is none; the columns are 'z'"),
    "of another type": ({"x": X.astype(np.float64)}, r"column 'x' is float64, and input 'x' takes float32; convert"),
    "of strings": ({"x": np.array(["a", "b"], object)}, r"column 'x' is <U1, and input 'x' takes float32"),
    "ragged": ({"x": RAGGED}, r"column 'x' is ragged: .* \[2\] and \[3\].*pad them before"),
    "with nulls": ({"x": NULLS}, r"column 'x' holds NoneType in row 1 of a batch.*dataset.filter"),
    "of another shape": ({"x": X[:, :2]}, r"expected shape \[batch, 3\], got \[4, 2\]; .*'x' from 'x'"),
    "that an output replaces": ({"x": X, "y": Y}, r"output 'y' would replace the column 'y'; name another"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_column_that_does_not_fit_is_named(rows: Session, case: str) -> None:
    batch, message = UNFIT[case]
    with pytest.raises(InputError, match=message):
        predictor(rows)(dict(batch))


ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown input": ({"inputs": {"q": "x"}}, "inputs names 'q', which is not an input of the model; it has 'x'"),
    "an unknown output": ({"outputs": {"q": "x"}}, "outputs names 'q', which is not an output"),
    "an unknown feed": ({"feeds": {"q": 1}}, "feeds names 'q', which is not an input"),
    "a column and a feed": ({"inputs": {"x": "x"}, "feeds": {"x": 1}}, "both name 'x'"),
    "a column twice": ({"outputs": {"y": "id"}, "keep": ["id"]}, "the column 'id' would be written twice"),
}


@pytest.mark.parametrize("case", ASKED)
def test_what_a_model_does_not_have_is_refused(rows: Session, case: str) -> None:
    asked, message = ASKED[case]
    with pytest.raises(OptionError, match=message):
        Columns.of(Tensors(rows), **asked)


def test_strings(tmp_path: Path) -> None:
    text = 'm (string[batch] t) => (bool[batch] y) <string[1] w = {"yes"}> { y = Equal(t, w) }'
    session = opweld.compile(write_model(text, tmp_path)).session
    made = predictor(session)({"t": np.array(["yes", "no"], object)})
    assert made["y"].tolist() == [True, False]
    with pytest.raises(InputError, match="column 't' holds NoneType, and input 't' takes strings"):
        predictor(session)({"t": np.array(["yes", None], object)})


def test_each_tensor_of_a_sequence_is_a_column(tmp_path: Path) -> None:
    text = "m (float[batch] x) => (seq(float[batch]) y) { z = Neg(x) y = SequenceConstruct(x, z) }"
    session = opweld.compile(write_model(text, tmp_path)).session
    x = np.arange(3, dtype=np.float32)
    made = predictor(session, outputs={"y[1]": "negative"})({"x": x})
    assert list(made) == ["x", "negative"] and np.array_equal(made["negative"], -x)
