from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tests.unit.ops.one_node import Array, check, integers, normal


def _sparse(*shape: int, dtype: type = np.float32) -> Array:
    return (integers(*shape, low=-2, high=3) // 2).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.uint8])
def test_non_zero(dtype: type) -> None:
    check("NonZero", [_sparse(3, 4, 5, dtype=dtype)], dims={0: ["n", 4, "m"]}, more=[[_sparse(1, 4, 9, dtype=dtype)]])


def test_non_zero_of_nothing() -> None:
    check("NonZero", [np.zeros((3, 4), np.float32)], more=[[np.ones((3, 4), np.float32)]])
    check("NonZero", [np.zeros((0, 4), np.float32)])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress(axis: int | None) -> None:
    condition = np.array([True, False, True])
    options: dict[str, Any] = {} if axis is None else {"axis": axis}
    check("Compress", [normal(4, 3, 5), condition], more=[[normal(4, 3, 5), np.array([False] * 3)]], **options)


def _unique(x: Array, axis: int | None, in_order: int) -> tuple[Array, ...]:
    """The reference evaluator forgets the axis where the order is that of appearance."""
    found, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    order = np.arange(len(first)) if in_order else np.argsort(first)
    values = found[order] if axis is None else np.take(found, order, axis)
    return values, first[order], np.argsort(order)[inverse.reshape(-1)], counts[order]


@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -2])
def test_unique(axis: int | None, in_order: int) -> None:
    options: dict[str, Any] = {"sorted": in_order} if axis is None else {"axis": axis, "sorted": in_order}
    more = [[integers(6, 5, low=0, high=2, seed=seed).astype(np.float32)] for seed in range(3)]
    reference = functools.partial(_unique, axis=axis, in_order=in_order)
    x = integers(6, 5, low=0, high=2).astype(np.float32)
    check("Unique", [x], outputs=4, more=more, reference=reference, **options)


def test_unique_of_integers_and_nothing() -> None:
    check("Unique", [integers(40)], outputs=4)
    check("Unique", [np.array([7], np.int32)], outputs=4)


def _boxes(batches: int, count: int, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    corner = random.random((batches, count, 2)).astype(np.float32)
    return np.concatenate([corner, corner + 0.3 * random.random((batches, count, 2)).astype(np.float32)], -1)


@pytest.mark.parametrize("centred", [0, 1])
def test_suppression(centred: int) -> None:
    numbers = [np.array([n], np.int64) for n in (0, 3, 100)]
    for most in numbers:
        boxes, scores = _boxes(2, 30), np.random.default_rng(1).random((2, 3, 30)).astype(np.float32)
        thresholds = [np.array([0.3], np.float32), np.array([0.4], np.float32)]
        check("NonMaxSuppression", [boxes, scores, most, *thresholds], constant=(2,), center_point_box=centred)
        check("NonMaxSuppression", [boxes, scores, most, *thresholds], center_point_box=centred)
