"""The operators of torchvision that detectors call, in Python, for where the package lacks its own or is absent."""

from __future__ import annotations

import torch


def define_operators() -> None:
    """Defines torchvision::nms and torchvision::roi_align, unless they are there."""
    if not _exists("nms"):
        torch.library.define("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch.library.impl("torchvision::nms", "cpu", _nms)
        torch.library.register_fake("torchvision::nms", _nms_fake)
    if not _exists("roi_align"):
        torch.library.define(
            "torchvision::roi_align",
            "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
            "int sampling_ratio, bool aligned) -> Tensor",
        )
        torch.library.impl("torchvision::roi_align", "cpu", _roi_align)
        torch.library.register_fake("torchvision::roi_align", _roi_align_fake)


def _exists(name: str) -> bool:
    return hasattr(torch.ops.torchvision, name)


def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """The boxes [n, 4] that overlap none of a higher score by more than this, highest score first: int64 [kept]."""
    order = scores.sort(descending=True, stable=True).indices
    found = boxes[order]
    area = (found[:, 2:] - found[:, :2]).prod(1)
    low, high = torch.maximum(found[:, None, :2], found[:, :2]), torch.minimum(found[:, None, 2:], found[:, 2:])
    shared = (high - low).clamp_min(0).prod(2)
    overlaps = shared / (area[:, None] + area - shared) > iou_threshold
    kept = torch.ones(len(found), dtype=torch.bool)
    for place in range(len(found)):
        if kept[place]:
            kept[place + 1 :] &= ~overlaps[place, place + 1 :]
    return order[kept]


def _nms_fake(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _roi_align(
    x: torch.Tensor, rois: torch.Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> torch.Tensor:
    """Regions [k, 5] (image, x, y, x, y) of [n, c, h, w] as means of samples: [k, c, height, width]."""
    made = x.new_zeros((len(rois), x.shape[1], height, width))
    for own, region in zip(made, rois, strict=True):
        corners = region[1:] * scale - 0.5 * aligned
        extent = corners[2:] - corners[:2]
        extent = extent if aligned else extent.clamp_min(1)
        rows, columns = (
            _taps(float(corners[axis]), float(extent[axis]), bins, ratio, x.shape[3 - axis]).to(x.dtype)
            for axis, bins in ((1, height), (0, width))
        )
        own.copy_(rows @ x[int(region[0])] @ columns.T)
    return made


def _taps(start: float, extent: float, bins: int, ratio: int, size: int) -> torch.Tensor:
    """What each of so many elements adds to each bin along an axis: [bins, size]."""
    made = torch.zeros(bins, size, dtype=torch.float64)
    samples = ratio if ratio > 0 else max(-(-extent // bins), 0)
    for place in range(bins):
        for sample in range(int(samples)):
            at = start + place * extent / bins + (sample + 0.5) * extent / bins / samples
            if not -1 <= at <= size:
                continue
            at = min(max(at, 0), size - 1)
            first = min(int(at), size - 1)
            made[place, first] += (1 - at + first) / samples
            made[place, min(first + 1, size - 1)] += (at - first) / samples
    return made


def _roi_align_fake(
    x: torch.Tensor, rois: torch.Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> torch.Tensor:
    return x.new_empty((rois.shape[0], x.shape[1], height, width))
