"""What an estimator takes: the columns of its rows, as inputs of a graph, and back from feeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from opweld.errors import InputError, ModelError, UnsupportedError
from opweld.foreign import is_of

Kind: TypeAlias = Literal["matrix", "columns", "texts"]

MATRIX = "X"
"""The input of an estimator that takes one array."""

_GIVE_ROWS = "give it rows as it was fitted with: opweld.compile(estimator, X[:1])"


@dataclass(frozen=True)
class Columns:
    """The inputs of an estimator.

    Attributes:
        kind: how the estimator is called: with one matrix, with a DataFrame of these columns, or with a list of texts.
        dtypes: of each input by name: a name of NumPy's, or "str".
        width: the number of columns of a matrix, 1 of all else.
    """

    kind: Kind
    dtypes: Mapping[str, str]
    width: int = 1

    def rows(self, feeds: Mapping[str, Any]) -> Any:
        """The rows that the estimator itself is called with, from feeds by name."""
        if self.kind == "matrix":
            return feeds[MATRIX]
        if self.kind == "texts":
            return np.asarray(feeds[MATRIX]).ravel().tolist()
        pandas: Any = import_module("pandas")
        return pandas.DataFrame({name: np.asarray(feeds[name])[:, 0] for name in self.dtypes})


def fitted_columns(estimator: Any) -> Columns:
    """The columns of an estimator of which no rows are given: one float32 matrix. Raises ModelError where only rows
    tell."""
    width = _width(estimator)
    if width is None:
        raise ModelError(f"{type(estimator).__name__} does not say how many columns it takes; {_GIVE_ROWS}")
    return Columns("matrix", {MATRIX: "float32"}, width)


def _width(estimator: Any) -> int | None:
    for name in ("num_features", "num_feature"):  # of boosters
        if callable(getattr(estimator, name, None)):
            return int(getattr(estimator, name)())
    try:
        return int(estimator.n_features_in_)
    except AttributeError:
        return None


def example_columns(rows: Any) -> Columns:
    """The columns of rows: an array of two axes, a DataFrame, arrays by name, or a list of texts.

    Raises UnsupportedError for sparse rows, InputError for what is none of these."""
    given: Any = rows
    if isinstance(given, tuple) and len(cast("tuple[Any, ...]", given)) == 1:  # as modules are given theirs
        return example_columns(cast("tuple[Any]", given)[0])
    if hasattr(rows, "toarray"):
        raise UnsupportedError(
            "the example rows are a sparse matrix, and compiled code takes dense arrays: give it X.toarray()"
        )
    if isinstance(rows, Mapping) or is_of(rows, "pandas", "DataFrame"):
        columns = cast("Mapping[Any, Any]", rows)  # a DataFrame has keys, and a Series by each
        return Columns("columns", {str(name): _dtype(str(name), np.asarray(columns[name])) for name in columns})
    array: np.ndarray[Any, Any] = np.asarray(rows)
    if array.ndim == 1 and _is_text(array):
        return Columns("texts", {MATRIX: "str"})
    if array.ndim != 2:
        raise InputError(
            f"the example rows are {type(rows).__name__} of {array.ndim} axes; expected an array of two axes, rows and "
            "columns, a DataFrame, a dict of arrays by column, or a list of texts"
        )
    return Columns("matrix", {MATRIX: _dtype(MATRIX, array)}, array.shape[1])


def _is_text(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind in "UST" or (
        array.dtype.kind == "O" and any(isinstance(own, str) for own in array.ravel()[:100].tolist())
    )


def _dtype(name: str, array: np.ndarray[Any, Any]) -> str:
    """The dtype of an input. Raises InputError for one that has no numbers and no texts, or both."""
    if array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
        return array.dtype.name
    if _is_text(array):
        if mixed := [own for own in array.ravel().tolist() if not isinstance(own, str | bytes)]:
            raise InputError(
                f"column {name!r} holds texts and {type(mixed[0]).__name__}; give the rows as a DataFrame whose "
                "columns have one type each"
            )
        return "str"
    raise InputError(f"column {name!r} is of dtype {array.dtype}; expected numbers or texts")
