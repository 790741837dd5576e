from __future__ import annotations

import numpy as np
import pytest

from opweld.errors import OpweldError
from tests.unit.ops.one_node import check, integers, normal

REDUCTIONS = ["none", "add", "mul", "min", "max"]


def _distinct(*shape: int, extent: int, axis: int) -> np.ndarray:
    """Indices that name every element of a line at most once."""
    random = np.random.default_rng(3)
    lines = np.argsort(random.random((*np.delete(shape, axis), extent)), -1)[..., : shape[axis]]
    return np.moveaxis(lines, -1, axis).astype(np.int64)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(axis: int, reduction: str) -> None:
    data, updates = normal(5, 6, 7), normal(3, 4, 2, seed=1)
    indices = _distinct(3, 4, 2, extent=data.shape[axis], axis=axis)
    indices[0] -= data.shape[axis]
    check("ScatterElements", [data, indices, updates], axis=axis, reduction=reduction)


@pytest.mark.parametrize("reduction", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, np.uint8, np.int16])
def test_updates_that_meet_are_combined(dtype: type, reduction: str) -> None:
    data, updates = integers(4, 3, low=0, high=5).astype(dtype), integers(9, 3, low=0, high=3).astype(dtype)
    indices = integers(9, 1, low=-4, high=4)
    check("ScatterND", [data, indices, updates], reduction=reduction)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd(depth: int) -> None:
    data = normal(7, 5, 6)
    flat = np.random.default_rng(0).permutation(int(np.prod(data.shape[:depth])))[:6]
    indices = np.stack(np.unravel_index(flat, data.shape[:depth]), -1).reshape(2, 3, depth).astype(np.int64)
    updates = normal(2, 3, *data.shape[depth:], seed=1)
    check("ScatterND", [data, indices, updates])


def test_symbolic_sizes() -> None:
    def inputs(n: int, m: int) -> list[np.ndarray]:
        return [normal(n, 4), integers(m, 1, low=-n, high=n), normal(m, 4, seed=2)]

    dims = {0: ["n", 4], 1: ["m", 1], 2: ["m", 4]}
    check("ScatterND", inputs(6, 3), dims=dims, more=[inputs(1, 1), inputs(17, 40)], reduction="add")


def test_no_updates() -> None:
    check("ScatterND", [normal(4, 5), np.zeros((0, 1), np.int64), np.zeros((0, 5), np.float32)])


@pytest.mark.parametrize("bad", [5, -6])
def test_an_index_beside_the_data_is_told(bad: int) -> None:
    """Also where the place would be one of another row."""
    indices = np.array([[0, 1], [bad, 2]], np.int64)
    with pytest.raises(OpweldError, match="out of range"):
        check("ScatterElements", [normal(2, 5), indices, normal(2, 2)], axis=1, reference=lambda *_: 0)


def test_max_unpool() -> None:
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
    places = np.array([[[[5, 7], [13, 15]]]], np.int64)
    check("MaxUnpool", [x, places], kernel_shape=[2, 2], strides=[2, 2])
    wanted = np.zeros((1, 1, 5, 5), np.float32)
    wanted[0, 0, [1, 1, 3, 3], [1, 3, 1, 3]] = [1, 2, 3, 4]
    size = np.array([1, 1, 5, 5], np.int64)
    check(
        "MaxUnpool",
        [x, places, size],
        constant=(2,),
        kernel_shape=[2, 2],
        strides=[2, 2],
        reference=lambda *_: wanted,
    )
