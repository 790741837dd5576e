"""What is counted of known architectures is what is published of them."""

from __future__ import annotations

import pytest

import opweld
from benchmarks.zoo.fetch import path

PUBLISHED = {
    # torchvision's page of pre-trained models: parameters, and GFLOPS that count a multiply-add as one
    "resnet50": (25_557_032, 4.09),
    "resnet50-raw": (25_557_032, 4.09),
    "mobilenetv2": (3_504_872, 0.30),
    "mobilenetv2-raw": (3_504_872, 0.30),
    "convnext-tiny": (28_589_128, 4.46),
    "convnext-tiny-raw": (28_589_128, 4.46),
    "vit-base": (86_567_656, 17.56),
    "vit-base-raw": (86_567_656, 17.56),
    # its card: 110 M; TinyBERT's table 1: 22.5 B operations at 128 tokens, a multiply-add two
    "bert-base": (109_482_240, 11.25),
    "bert-base-raw": (109_482_240, 11.25),
}

TOLERANCE = 0.02
"""Of both. Statistics of BatchNormalizations are stored too, but are gone where they were folded."""


@pytest.mark.models
@pytest.mark.parametrize("name", PUBLISHED)
def test_totals_are_the_published_ones(name: str) -> None:
    parameters, giga = PUBLISHED[name]
    found = opweld.analyze(path(name))
    assert found.parameters == pytest.approx(parameters, rel=TOLERANCE)
    assert found.before.amounts.macs.value == pytest.approx(giga * 1e9, rel=TOLERANCE)
    # What is fused is not computed twice; of ViT's last layer, only the row that is classified is computed.
    assert found.after.amounts.macs.value <= found.before.amounts.macs.value
    assert found.after.amounts.read.value < found.before.amounts.read.value
    assert found.after.launches < found.before.launches
