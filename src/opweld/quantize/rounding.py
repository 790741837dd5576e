"""Rounding of weights in an order: what rounding an input's weights adds, the inputs after it make up for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.calibration.compensation import inverse_factor, settle_in_order, squared_errors
from opweld.tensor.integer_weights import Weights, block_scales, quantize_blocks

Array = NDArray[Any]


def rounded_in_order(weights: Array, axis: int, block: int, moments: NDArray[np.float32]) -> Weights:
    """Codes of int4 as `quantize_blocks` gives them, of a matrix whose inputs lie along `axis`; those of
    `quantize_blocks` where they have the smaller error, or the moments have no inverse."""
    nearest = quantize_blocks(weights, axis, block)
    moved = np.ascontiguousarray(np.moveaxis(weights, axis, 0)).astype(np.float64)
    factor = inverse_factor(moments)
    if factor is None:
        return nearest
    codes, scales = _rounded(moved.copy(), block, factor)
    codes, scales = np.moveaxis(codes, 0, axis), np.moveaxis(scales, 0, axis)
    made = Weights(np.ascontiguousarray(codes), np.ascontiguousarray(scales), axis, block)
    errors = [squared_errors(np.moveaxis(one.values(), axis, 0) - moved, moments).sum() for one in (nearest, made)]
    return made if errors[1] < errors[0] else nearest


def rounded_by_channel(weights: Array, nearest: Weights, sums: int | None, moments: NDArray[np.float32]) -> Weights:
    """Codes of int8 with the scales of `nearest`, those of each channel that has the smaller error so, the others as
    they are in `nearest`.

    `weights`: of a matrix whose inputs lie along the axis `sums`, or, where that is None, of a convolution [results,
    channels of a group, ...]. `moments`: [groups, inputs, inputs], or of a matrix [inputs, inputs]."""
    factor = inverse_factor(moments)
    if factor is None or nearest.axis is None:
        return nearest
    groups = 1 if sums is not None else len(moments)

    def inputs_first(array: Array) -> Array:
        """[groups, inputs, results]"""
        return np.moveaxis(array, sums, 0)[None] if sums is not None else (
            array.reshape(groups, len(array) // groups, -1).swapaxes(1, 2)
        )  # fmt: skip

    exact, scales = inputs_first(weights).astype(np.float64), nearest.scales.astype(np.float64).reshape(groups, -1)
    before, left = inputs_first(nearest.codes), exact.copy()
    codes = np.zeros(left.shape, np.int8)

    def settled(i: int) -> NDArray[np.float64]:
        codes[:, i] = (left[:, i] / scales).round().clip(-127, 127)
        return codes[:, i] * scales

    settle_in_order(left, factor.reshape(groups, *factor.shape[-2:]), settled)
    was, now = (squared_errors(one * scales[:, None] - exact, moments) for one in (before, codes))
    chosen = np.where((now < was)[:, None], codes, before)
    back = np.moveaxis(chosen[0], 0, sums) if sums is not None else chosen.swapaxes(1, 2).reshape(weights.shape)
    return Weights(np.ascontiguousarray(back), nearest.scales, nearest.axis)


def _rounded(
    left: NDArray[np.float64], block: int, factor: NDArray[np.float64]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Codes and scales of weights [inputs, results], which are changed."""
    codes = np.zeros(left.shape, np.int8)
    scales: list[NDArray[np.float64]] = []

    def settled(i: int) -> NDArray[np.float64]:
        if i % block == 0:
            scales.append(block_scales(left[i : i + block].T))
        codes[i] = (left[i] / scales[-1]).round().clip(-8, 7)
        return codes[i] * scales[-1]

    settle_in_order(left, factor, settled)
    return codes, np.stack(scales).astype(np.float32)
