"""What estimators are fitted with, the same in every run: few rows, and what their columns are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

ROWS, FEATURES, CLASSES = 120, 6, 3

TEXTS = (
    "the cat sat on the mat",
    "a dog barked at the cat",
    "dogs and cats are animals",
    "the market fell by ten points",
    "shares of the company rose",
    "investors sold their shares",
)


@dataclass(frozen=True)
class Data:
    """Rows [ROWS, FEATURES] of float32, and what is told of each: a class, whether it is of the first, a number."""

    rows: np.ndarray[Any, Any]
    classes: np.ndarray[Any, Any]
    binary: np.ndarray[Any, Any]
    numbers: np.ndarray[Any, Any]


@cache
def data(*, positive: bool = False) -> Data:
    """Classes and numbers depend on the first columns; `positive` rows have no number below zero."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    rows = np.abs(rows) if positive else rows
    numbers = rows[:, 0] * 2.0 + rows[:, 1] ** 2 + 0.1 * rng.standard_normal(ROWS)
    classes = np.digitize(numbers, np.quantile(numbers, [1 / 3, 2 / 3]))
    return Data(rows, classes, (classes > 0).astype(np.int64), numbers)


def table() -> Any:
    """A DataFrame of numbers, integers and texts."""
    import pandas

    rng = np.random.default_rng(1)
    return pandas.DataFrame(
        {
            "age": rng.uniform(18, 80, ROWS),
            "fare": np.where(rng.random(ROWS) < 0.1, np.nan, rng.uniform(1, 100, ROWS)),
            "deck": rng.integers(0, 5, ROWS),
            "port": rng.choice(["Cherbourg", "Queenstown", "Southampton"], ROWS),
            "sex": rng.choice(["female", "male"], ROWS),
        }
    )
