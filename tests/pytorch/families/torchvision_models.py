"""Of each family of torchvision its smallest model: classification, segmentation, detection, video and flow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tests.pytorch.families.family import Family, Inputs, pictures
from tests.pytorch.families.packages import imported

_DETECTION = "torchvision.models.detection."
_VIDEO = "torchvision.models.video."
_CLIPS = {"resnet": (8, 64, 64), "swin": (8, 64, 64)}
"""Frames and sides of clips, where a model takes small ones."""
_SCORE = 0.005
"""What a box has to score: random weights find each of 91 classes as likely as another."""


def families() -> Iterator[Family]:
    """A family is a module of torchvision.models."""
    package = imported("torchvision").models
    found: dict[str, list[str]] = {}
    for name in package.list_models():
        module = str(package.get_model_builder(name).__module__)
        found.setdefault(module, []).append(name)
    for module, names in found.items():
        if module.startswith(_DETECTION + "_") or "quantization" in module:
            continue

        def make(names: Sequence[str] = names, module: str = module) -> tuple[torch.nn.Module, list[Inputs]]:
            return _made(package, names, module)

        yield Family("torchvision", module.removeprefix("torchvision.models."), make)


def _made(package: Any, names: Sequence[str], module: str) -> tuple[torch.nn.Module, list[Inputs]]:
    if module.endswith(".mvit"):
        return _small_mvit(package), [{"x": torch.randn(batch, 3, 4, 32, 32)} for batch in (2, 3)]
    options = {"weights": None}
    if module.startswith((_DETECTION, "torchvision.models.segmentation.")):
        options["weights_backbone"] = None
    sized: list[tuple[int, str]] = []
    for name in names:
        with torch.device("meta"):
            sized.append((sum(p.numel() for p in package.get_model(name, **options).parameters()), name))
    model = package.get_model(min(sized)[1], **options).eval()
    if module.startswith(_DETECTION):
        for own in model.modules():
            if hasattr(own, "score_thresh"):
                own.score_thresh = _SCORE
        return model, [{"images": [torch.rand(3, *shape) for _ in range(2)]} for shape in ((96, 96), (96, 128))]
    if module.startswith(_VIDEO):
        sides = next((own for kind, own in _CLIPS.items() if kind in module), (16, 224, 224))
        return model, pictures(model, (3, *sides))
    if "raft" in module:
        shapes = ((1, 3, 128, 128), (1, 3, 128, 160))
        names, updates = ("image1", "image2"), {"num_flow_updates": 3}
        return model, [{**{name: torch.rand(*shape) for name in names}, **updates} for shape in shapes]
    side = 299 if "inception" in module else 64 if "segmentation" in module else 224
    return model, pictures(model, (3, side, side))


def _small_mvit(package: Any) -> torch.nn.Module:
    """MViT of four blocks, for the published ones take clips of one size alone."""
    video = package.video.mvit
    strides = ([1, 1, 1], [1, 2, 2], [1, 1, 1], [1, 2, 2])
    widths, three = (16, 16, 32, 32, 64), [3, 3, 3]
    blocks = [
        video.MSBlockConfig(1 << (number // 2), *widths[number : number + 2], three, three, stride, [1, 2, 2])
        for number, stride in enumerate(strides)
    ]
    kept = {"residual_pool": True, "residual_with_cls_embed": False, "rel_pos_embed": True, "proj_after_attn": True}
    return video.MViT((32, 32), 4, blocks, num_classes=10, **kept).eval()
