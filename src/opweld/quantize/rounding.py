"""Rounding of weights to int4 in an order: what rounding an input's weights adds, the inputs after it make up for.

GPTQ (Frantar et al., 2022): the squared error of a layer's results is a quadratic form of the weights' errors, whose
matrix is the second moments of what the layer reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.tensor.integer_weights import Weights, block_scales, quantize_blocks

Array = NDArray[Any]

DAMPING = 0.01
"""What is added to the second moments' diagonal, as a part of its mean: few samples leave them without an inverse."""

PANEL = 128
"""Inputs whose rounding is made up for at once in all after them; a multiple of a block."""


def rounded_in_order(weights: Array, axis: int, block: int, moments: NDArray[np.float32]) -> Weights:
    """Codes of int4 as `quantize_blocks` gives them, of a matrix whose inputs lie along `axis`; those of
    `quantize_blocks` where they have the smaller error, or the moments have no inverse."""
    nearest = quantize_blocks(weights, axis, block)
    moved = np.ascontiguousarray(np.moveaxis(weights, axis, 0)).astype(np.float64)
    factor = _factor(moments)
    if factor is None:
        return nearest
    codes, scales = _rounded(moved.copy(), block, factor)
    codes, scales = np.moveaxis(codes, 0, axis), np.moveaxis(scales, 0, axis)
    made = Weights(np.ascontiguousarray(codes), np.ascontiguousarray(scales), axis, block)
    errors = [_error(np.moveaxis(one.values(), axis, 0) - moved, moments) for one in (nearest, made)]
    return made if errors[1] < errors[0] else nearest


def _factor(moments: NDArray[np.float32]) -> NDArray[np.float64] | None:
    """The upper factor of Cholesky of the moments' inverse."""
    full = moments.astype(np.float64)
    diagonal = np.diagonal(full)
    if not np.isfinite(full).all() or not diagonal.any():
        return None
    full[np.diag_indices_from(full)] += DAMPING * diagonal.mean()
    try:
        return np.linalg.cholesky(np.linalg.inv(full)).T.astype(np.float64)
    except np.linalg.LinAlgError:
        return None


def _rounded(
    left: NDArray[np.float64], block: int, factor: NDArray[np.float64]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Codes and scales of weights [inputs, results], which are changed."""
    length = len(left)
    codes = np.zeros(left.shape, np.int8)
    scales: list[NDArray[np.float64]] = []
    for first in range(0, length, PANEL):
        last = min(first + PANEL, length)
        wrong = np.zeros((last - first, left.shape[1]))
        for i in range(first, last):
            if i % block == 0:
                scales.append(block_scales(left[i : min(i + block, length)].T))
            scale = scales[-1]
            codes[i] = (left[i] / scale).round().clip(-8, 7)
            wrong[i - first] = (left[i] - codes[i] * scale) / factor[i, i]
            left[i:last] -= np.outer(factor[i, i:last], wrong[i - first])
        left[last:] -= factor[first:last, last:].T @ wrong
    return codes, np.stack(scales).astype(np.float32)


def _error(wrong: Array, moments: NDArray[np.float32]) -> float:
    return float((wrong * (moments @ wrong)).sum())
