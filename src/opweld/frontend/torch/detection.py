"""Operators of torchvision that detectors call: boxes that overlap, and regions of feature maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import Builder, Value
from opweld.frontend.torch.rows import operator
from opweld.tensor.dtype import DType


@operator("torchvision", "nms.default")
def nms(b: Builder, dets: Value, scores: Value, iou_threshold: float) -> Value:
    """The boxes [n, 4] (x, y, x, y) that overlap none of a higher score by more than this, highest score first: [kept].

    NonMaxSuppression drops scores that are no numbers or -inf, and takes a box whose corners are in another order for
    the one between them; torchvision keeps the former, NaN first, and finds the latter to overlap nothing, as a box
    without an area does."""
    if b.dtype_of(dets) is not DType.F32:
        raise UnsupportedError(f"node {b.name!r}: boxes of {b.dtype_of(dets)} are not supported, only of float32")
    low, high = (_columns(b, dets, *ends) for ends in ((0, 2), (2, 4)))
    boxes = b.op("Concat", low, b.op("Max", low, high), axis=-1)
    lowest = b.constant(float(np.finfo(np.float32).min), DType.F32)
    unknown = b.op("IsNaN", scores, dtype=DType.BOOL)
    kept_scores = b.op("Where", unknown, b.constant(math.inf, DType.F32), b.op("Max", scores, lowest), dtype=DType.F32)
    found = b.op(
        "NonMaxSuppression",
        b.op("Unsqueeze", boxes, b.constant([0], DType.I64)),
        b.op("Unsqueeze", kept_scores, b.constant([0, 1], DType.I64)),
        b.ints([b.sizes(scores)[0]]),
        b.constant([iou_threshold], DType.F32),
        dtype=DType.I64,
    )
    return b.op("Gather", found, b.constant(2, DType.I64), axis=1)  # after batch and class


@operator("torchvision", "roi_align.default")
def roi_align(
    b: Builder,
    x: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: Any,
    pooled_width: Any,
    sampling_ratio: int,
    aligned: bool,
) -> Value:
    """Regions [k, 5] (image, x, y, x, y) of feature maps [n, c, h, w], each resampled to one size: [k, c, ph, pw]."""
    image = b.op("Gather", rois, b.constant(0, DType.I64), axis=1)
    return b.op(
        "RoiAlign",
        x,
        _columns(b, rois, 1, 5),
        b.cast(image, DType.I64),
        spatial_scale=spatial_scale,
        output_height=b.static(pooled_height, "the height of what is pooled"),
        output_width=b.static(pooled_width, "the width of what is pooled"),
        sampling_ratio=max(sampling_ratio, 0),
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )


def _columns(b: Builder, x: Value, start: int, end: int) -> Value:
    """Some columns of a matrix."""
    return b.op("Slice", x, *(b.constant([number], DType.I64) for number in (start, end, 1)))
