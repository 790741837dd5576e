"""What a compiled estimator answers beside what the estimator itself does."""

from __future__ import annotations

from typing import Any

import numpy as np

import opweld
from opweld.frontend.estimators.answers import answers

RTOL = 1e-5
"""Of the largest number of an answer: the graph computes in float32 what an estimator computes in float64."""


def feeds_of(model: opweld.Model, rows: Any) -> dict[str, Any]:
    """Rows as the inputs of a compiled estimator: one array, or a column each."""
    names = [info.name for info in model.inputs]
    if names == ["X"]:
        return {"X": rows}
    return {name: rows[[name]].to_numpy() for name in names}


def wrong(model: opweld.Model, estimator: Any, rows: Any, rtol: float = RTOL) -> str:
    """The first answer that is not the estimator's, in words; empty where all are."""
    names = [info.name for info in model.outputs]
    found = model.session.run_values(feeds_of(model, rows))
    right = answers(estimator, rows, names, [own.shape for own in found])
    if right is None:
        return f"nobody knows what {', '.join(names)} should be"
    for name, own, expected in zip(names, found, right, strict=True):
        if own.shape != expected.shape:
            return f"{name} is of shape {own.shape}, expected {expected.shape}"
        if own.dtype.kind != "f":
            if (own != expected).any():
                return f"{name}: {int((own != expected).sum())} of {own.size} differ"
            continue
        off, scale = np.abs(own - expected), max(float(np.abs(expected).max()), 1e-30)
        if not (off <= rtol * scale).all():
            return f"{name} is off by {off.max() / scale:.1e} of its scale"
    return ""
