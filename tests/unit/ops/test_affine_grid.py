from __future__ import annotations

import numpy as np
import pytest

from opweld.errors import ModelError
from tests.unit.ops.one_node import check, float64_of, normal


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("sizes", [(1, 3, 4, 5), (2, 3, 4, 5), (2, 1, 3, 4, 5)])
def test_affine_grid(sizes: tuple[int, ...], aligned: int) -> None:
    """A batch of one too, which ONNX's definition by other operators does not survive."""
    axes = len(sizes) - 2
    arrays = [normal(sizes[0], axes, axes + 1), np.array(sizes)]
    reference = float64_of("AffineGrid", arrays, constant=[1], opset=20, align_corners=aligned)
    check("AffineGrid", arrays, constant=[1], opset=20, align_corners=aligned, reference=reference)


def test_the_batch_may_vary() -> None:
    more = [[normal(n, 2, 3), np.array([n, 3, 5, 7])] for n in (1, 4)]
    check("AffineGrid", [normal(2, 2, 3), np.array([2, 3, 4, 6])], dims={0: ["n", 2, 3]}, more=more, opset=20)


@pytest.mark.parametrize(("theta", "sizes", "why"), [
    ((2, 2, 4), (2, 3, 4, 5), "a column of the matrix"),
    ((2, 3, 4), (2, 3, 4, 5), "a row of the matrix"),
    ((1, 2, 3), (2, 3, 4, 5), "a matrix for each"),
    ((2, 2, 3), (2, 3, 4), "not defined"),
    ((2, 2, 3), (2, 3, 0, 5), "not empty"),
])  # fmt: skip
def test_refused(theta: tuple[int, ...], sizes: tuple[int, ...], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        check("AffineGrid", [normal(*theta), np.array(sizes)], constant=[1], opset=20)
