"""What an estimator itself answers, for each output of the graph that it was converted to."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

_METHODS: Mapping[str, Sequence[str]] = {
    "probabilities": ("predict_proba", "decision_function"),
    "scores": ("decision_function", "transform", "score_samples"),
    "score_samples": ("score_samples",),
}
"""By the name that a converter gives an output: which method it is, the first that the estimator has."""

_OTHERS = ("predict", "transform")
"""What outputs of other names are: label, variable, GPmean, transformed_column."""


def answers(
    estimator: Any, rows: Any, names: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> list[np.ndarray[Any, Any]] | None:
    """What the estimator answers, an array for each output, in float64 where it computes so. None where it is not known
    which method an output is.

    Args:
        rows: what it is called with.
        names: of the outputs.
        shapes: of the outputs: a converter gives a vector of an estimator a second axis of one.
    """
    methods = [_method(estimator, name) for name in names]
    if any(method is None for method in methods):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows without the names of columns that it was fitted with
        found = [_dense(method(rows)) for method in methods if method is not None]
    fitting = zip(found, shapes, strict=True)
    return [own.reshape(shape) if own.size == math.prod(shape) else own for own, shape in fitting]


def _method(estimator: Any, name: str) -> Callable[[Any], Any] | None:
    if not hasattr(estimator, "get_params"):
        return _of_booster(estimator, name)
    for method in _METHODS.get(name, _OTHERS):
        found = getattr(estimator, method, None)
        if callable(found):
            return found
    return None


def _of_booster(booster: Any, name: str) -> Callable[[Any], Any] | None:
    xgboost: Any = sys.modules.get("xgboost")
    if xgboost is not None and isinstance(booster, xgboost.Booster):
        return (
            None if name != "variable" else lambda rows: booster.predict(xgboost.DMatrix(rows), validate_features=False)
        )
    return booster.predict if name == "variable" else None


def _dense(found: Any) -> np.ndarray[Any, Any]:
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found)
