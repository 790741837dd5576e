"""Importing what is built on torchvision, where that was built for another torch and lacks its operators."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch


def imported(name: str) -> Any:
    """A package, whether torchvision finds its operators or not. Of those that its models call, the non-maximum
    suppression of detection is then written in Python here, and torchvision itself writes roi_align so."""
    with _without_operators():
        package = importlib.import_module(name)
    if name == "torchvision" and not package.extension._has_ops():
        torch.library.define("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch.library.impl("torchvision::nms", "cpu", _nms)
        torch.library.register_fake("torchvision::nms", package._meta_registrations.meta_nms)
        package.ops.boxes._assert_has_ops = lambda: None
    return package


@contextmanager
def _without_operators() -> Generator[None]:
    """What torchvision says of the shapes of operators that do not exist is not heard."""
    register = torch.library.register_fake

    def registered(operator: Any, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(operator, str) and operator.startswith("torchvision::"):
            return lambda function: function  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]
        return register(operator, *arguments, **keywords)

    torch.library.register_fake = registered
    try:
        yield
    finally:
        torch.library.register_fake = register


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
