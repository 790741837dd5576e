from __future__ import annotations

import numpy as np
import pytest

from tests.unit.ops.one_node import check, normal


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (3, 4, 4), (2, 3, 3, 3), (2, 1, 1), (2, 0, 0)])
def test_det(shape: tuple[int, ...]) -> None:
    check("Det", [normal(*shape)], reference=lambda x: np.linalg.det(x.astype(np.float64)).astype(np.float32))


def test_zeros_on_the_diagonal() -> None:
    """Pivots are found further down, and a matrix without any has the determinant zero."""
    swapped = np.array([[0, 2, 1], [3, 0, 0], [0, 1, 4]], np.float32)
    singular = np.array([[0, 2, 1], [0, 1, 0], [0, 1, 4]], np.float32)
    check("Det", [np.stack([swapped, singular])])


def test_any_size() -> None:
    more = [[normal(*shape)] for shape in ((1, 1, 1), (3, 2, 2), (1, 7, 7))]
    check("Det", [normal(2, 3, 3)], dims={0: ("b", "n", "n")}, more=more, tolerance=1e-5)
