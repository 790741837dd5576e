"""What an estimator itself answers, for each output of the graph that it was converted to."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opweld.foreign import is_of
from opweld.frontend.estimators.quiet import without_warnings

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
        names: of the outputs; `probabilities[0]` and so on of one that is a list.
        shapes: of the outputs: a converter gives a vector of an estimator a second axis of one.
    """
    found: list[np.ndarray[Any, Any]] = []
    with without_warnings():  # of rows without the names of columns that it was fitted with
        for name, shape in zip(names, shapes, strict=True):
            own = _answer(estimator, rows, name, shape)
            if own is None:
                return None
            found.append(own)
    return found


def _answer(estimator: Any, rows: Any, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
    """The answer of the first method whose size fits, as an RFE predicts and transforms, else of the first one."""
    plain, _, place = name.removesuffix("]").partition("[")
    made: list[np.ndarray[Any, Any]] = []
    for method in _methods(estimator, plain):
        answer = method(rows)
        own = _dense(answer[int(place)] if place else answer)
        if own.size == math.prod(shape):
            return own.reshape(shape)
        made.append(own)
    return made[0] if made else None


def _methods(estimator: Any, name: str) -> list[Callable[[Any], Any]]:
    if not hasattr(estimator, "get_params"):
        return _of_booster(estimator, name)
    found = (getattr(estimator, method, None) for method in _METHODS.get(name, _OTHERS))
    return [method for method in found if callable(method)]


def _of_booster(booster: Any, name: str) -> list[Callable[[Any], Any]]:
    """Those of a booster, which has one method: its answers are numbers, or probabilities of classes."""
    xgboost: Any = sys.modules.get("xgboost")
    is_xgboost = is_of(booster, "xgboost", "Booster")

    def predict(rows: Any) -> np.ndarray[Any, Any]:
        if is_xgboost:
            return booster.predict(xgboost.DMatrix(rows), validate_features=False)
        return booster.predict(rows)

    def probabilities(rows: Any) -> np.ndarray[Any, Any]:
        found = predict(rows)  # of two classes that of the second only
        return np.stack([1 - found, found], 1) if found.ndim == 1 else found

    methods: Mapping[str, Callable[[Any], Any]] = {
        "variable": predict,
        "probabilities": probabilities,
        "label": lambda rows: probabilities(rows).argmax(1),
    }
    return [methods[name]] if name in methods else []


def _dense(found: Any) -> np.ndarray[Any, Any]:
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found)
