from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.errors import ModelError, UnsupportedError
from tests.unit.ops.one_node import check, make_model, programs_of

POOL: dict[str, Any] = {
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 3, 5, 6],
    "ngram_counts": [0, 4, 10],
    "ngram_indexes": [0, 1, 2, 3, 4, 7, 5, 6],
    "min_gram_length": 1,
    "max_gram_length": 3,
}
ROWS = np.array([[1, 1, 3, 3, 3, 7, 5, 6, 7, 8], [8, 6, 7, 3, 5, 6, 8, 4, 5, 6]], np.int64)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("skips", [0, 2, 20])
@pytest.mark.parametrize("lengths", [(1, 3), (2, 2), (3, 3), (1, 1)])
def test_counts(lengths: tuple[int, int], skips: int, dtype: Any) -> None:
    options: dict[str, Any] = POOL | {
        "min_gram_length": lengths[0],
        "max_gram_length": lengths[1],
        "max_skip_count": skips,
    }
    rows = ROWS.astype(dtype)
    check("TfIdfVectorizer", [rows], mode="TF", **options)
    check("TfIdfVectorizer", [rows], mode="TF", dims={0: ["n", "c"]}, more=[[rows[:, :2]], [rows[:1, :1]]], **options)


@pytest.mark.parametrize("mode", ["IDF", "TFIDF"])
def test_weights(mode: str) -> None:
    weights = [float(n) for n in range(2, 10)]
    check("TfIdfVectorizer", [ROWS], mode=mode, weights=weights, max_skip_count=1, **POOL)
    check("TfIdfVectorizer", [ROWS[0]], mode=mode, weights=weights, max_skip_count=0, **POOL)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"ngram_counts": [0, 4, 20]}, ModelError, "are no n-grams of 2"),
        ({"ngram_counts": [0, 4, 9]}, ModelError, "are no n-grams of 2"),
        ({"ngram_indexes": [0, 1]}, ModelError, "2 places for 8 n-grams"),
        ({"ngram_indexes": [0, 1, 2, 3, 4, 5, 6, 10**9]}, UnsupportedError, "leave most unused"),
        ({"weights": [1.0]}, ModelError, "1 weights for 8 n-grams"),
        ({"mode": "XX"}, ModelError, "mode must be"),
    ],
)
def test_bad_pools_are_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    options: dict[str, Any] = {"mode": "TF", "max_skip_count": 0} | POOL | changes
    with pytest.raises(error, match=message):
        programs_of(make_model("TfIdfVectorizer", [ROWS], **options))
