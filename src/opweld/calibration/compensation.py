"""Weights that are settled input by input: what settling one adds to the results, the inputs after it make up for.

GPTQ and SparseGPT (Frantar et al., 2022 and 2023): the squared error of a layer's results is a quadratic form of the
weights' errors, whose matrix is the second moments of what the layer reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Numbers = NDArray[np.float64]

DAMPING = 0.01
"""What is added to the second moments' diagonal, as a part of its mean: few samples leave them without an inverse."""

PANEL = 128
"""Inputs whose settling is made up for at once in all after them; a multiple of a block of weights."""


def inverse(moments: NDArray[np.float32]) -> Numbers | None:
    """Of damped second moments [..., inputs, inputs]; None where they have none. Where all are 0, that of 1."""
    full = moments.astype(np.float64)
    diagonal = np.diagonal(full, axis1=-2, axis2=-1)
    if not np.isfinite(full).all() or not diagonal.any():
        return None
    mean = diagonal.mean(axis=-1, keepdims=True)
    places = range(full.shape[-1])
    full[..., places, places] += np.where(mean > 0, DAMPING * mean, 1.0)
    try:
        return np.linalg.inv(full).astype(np.float64)
    except np.linalg.LinAlgError:
        return None


def inverse_factor(moments: NDArray[np.float32]) -> Numbers | None:
    """The upper factor of Cholesky of the moments' inverse."""
    found = inverse(moments)
    try:
        return None if found is None else np.linalg.cholesky(found).swapaxes(-2, -1).astype(np.float64)
    except np.linalg.LinAlgError:
        return None


def settle_in_order(left: Numbers, factor: Numbers, settled: Callable[[int], Numbers]) -> None:
    """Settles weights [..., inputs, results], in place; the factor is [..., inputs, inputs].

    `settled` answers what the weights of an input become; those of it and the inputs after it, as far as the end of
    its panel, have made up for the inputs before it when it is called."""
    *stack, length, results = left.shape
    for first in range(0, length, PANEL):
        last = min(first + PANEL, length)
        wrong = np.zeros((*stack, last - first, results))
        for i in range(first, last):
            made = settled(i)
            one = (left[..., i, :] - made) / factor[..., i, i, None]
            wrong[..., i - first, :] = one
            left[..., i + 1 : last, :] -= factor[..., i, i + 1 : last, None] * one[..., None, :]
            left[..., i, :] = made
        left[..., last:, :] -= factor[..., first:last, last:].swapaxes(-2, -1) @ wrong


def squared_errors(wrong: Array, moments: NDArray[np.float32]) -> Numbers:
    """Of a layer's results, each of them [..., results], whose weights [..., inputs, results] are wrong by so much."""
    return (wrong * (moments @ wrong)).sum(axis=-2, dtype=np.float64)
