from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.errors import AssumptionError
from tests.unit.ops.one_node import check, integers, normal, run

K = np.array([3], np.int64)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_top_k(axis: int, largest: int) -> None:
    options: dict[str, Any] = {"axis": axis, "largest": largest}
    check("TopK", [normal(4, 5, 6), K], outputs=2, constant=(1,), **options)
    check("TopK", [normal(4, 5, 6), K], outputs=2, dims={0: ["n", 5, "m"]}, more=[[normal(7, 5, 9), K]], **options)


def test_ties_go_to_the_lower_index() -> None:
    x = integers(6, 40) % 5
    for largest in (0, 1):
        order = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :3]
        expected = (np.take_along_axis(x, order, 1), order)
        check("TopK", [x, K], outputs=2, constant=(1,), reference=lambda *_, e=expected: e, largest=largest)


def test_infinities_and_nan() -> None:
    x = np.array([[1, np.inf, np.nan, -np.inf, 0, -0.0, np.nan]], np.float32)
    expected = (x[:, [2, 6, 1]], np.array([[2, 6, 1]]))
    check("TopK", [x, K], outputs=2, constant=(1,), reference=lambda *_: expected)


def test_k_is_fed() -> None:
    check("TopK", [normal(2, 8), K], outputs=2, more=[[normal(2, 8), np.array([8], np.int64)]])


def test_k_is_one_number_where_nothing_says_so() -> None:
    programs = check(
        "TopK", [normal(5), np.array([2])], outputs=2, dims={0: ["n"], 1: ["K"]}, more=[[normal(7), np.array([7])]]
    )
    with pytest.raises(AssumptionError, match="x1"):
        run(programs, {"x0": normal(5), "x1": np.array([2, 2])})
