from __future__ import annotations

import numpy as np
import pytest

from opweld.errors import ModelError
from tests.unit.ops.one_node import check, make_model, normal, programs_of


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [1, 2, -2])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_tensor_scatter(mode: str, axis: int, length: int) -> None:
    shape = [2, 5, 6, 3]
    shape[axis] = length
    starts = np.array([2, 1 if mode == "linear" else 4], np.int64)
    check("TensorScatter", [normal(2, 5, 6, 3), normal(*shape, seed=1), starts], mode=mode, axis=axis, opset=24)


def test_from_the_start() -> None:
    check("TensorScatter", [normal(2, 4, 3), normal(2, 2, 3, seed=1)], opset=24)


def test_any_sizes() -> None:
    def arrays(batch: int, size: int, length: int) -> list[np.ndarray]:
        starts = np.arange(batch, dtype=np.int64) % (size - length + 1)
        return [normal(batch, size, 3), normal(batch, length, 3, seed=1), starts]

    dims = {0: ("b", "n", 3), 1: ("b", "m", 3), 2: ("b",)}
    check("TensorScatter", arrays(2, 5, 2), dims=dims, more=[arrays(1, 1, 1), arrays(3, 7, 7)], opset=24)


def test_a_block_that_does_not_fit() -> None:
    with pytest.raises(ModelError, match="fits into the cache"):
        programs_of(make_model("TensorScatter", [normal(2, 3, 4), normal(2, 5, 4)], opset=24))
