"""torchvision's operators of detectors, against what they are in Python, with the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import opweld
from tests.pytorch.function import Function
from tests.pytorch.torchvision_operators import define_operators

pytestmark = pytest.mark.usefixtures("interpreter")

INF, NAN = float("inf"), float("nan")


def boxes(count: int) -> Tensor:
    """Boxes [count, 4] of which many overlap."""
    rng = np.random.default_rng(3)
    corner, extent = rng.uniform(0, 12, (count, 2)), rng.uniform(2, 9, (count, 2))
    return torch.from_numpy(np.concatenate([corner, corner + extent], 1).astype(np.float32))


def answer(function: Function, *inputs: Tensor) -> Tensor:
    model = opweld.compile(function.eval(), inputs, target="interpret")
    fed = {info.name: tensor.numpy() for info, tensor in zip(model.inputs, inputs, strict=True)}
    (found,) = model.run(fed).values()
    return torch.from_numpy(np.array(found))


def suppressed(dets: Tensor, scores: Tensor) -> Tensor:
    return torch.ops.torchvision.nms(dets, scores, 0.3)


@pytest.fixture(autouse=True)
def _operators() -> None:
    define_operators()


@pytest.mark.parametrize("odd", [(), (0.5, -INF, NAN, 0.5)])
def test_boxes_that_overlap_a_better_one_are_dropped(odd: tuple[float, ...]) -> None:
    dets = boxes(24)
    dets[3], dets[4] = dets[3][[2, 1, 0, 3]], dets[4][[2, 3, 0, 1]]  # corners in another order
    scores = torch.linspace(1, 2, 24).sin()
    scores[: len(odd)] = torch.tensor(odd)
    found = answer(Function(suppressed), dets, scores)
    assert 2 < len(found) < 24
    assert torch.equal(found, suppressed(dets, scores))


def test_how_many_are_kept_is_a_size_of_what_follows() -> None:
    dets, scores = boxes(24), torch.linspace(1, 2, 24).cos()
    function = Function(lambda d, s: d[suppressed(d, s)[:5]] * 2)
    torch.testing.assert_close(answer(function, dets, scores), function(dets, scores))


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [2, -1])
def test_regions_are_means_of_samples(aligned: bool, ratio: int) -> None:
    maps = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 9, 11), np.float32))
    image = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    rois = torch.cat([image, torch.cat([boxes(3), torch.tensor([[4.0, 4.0, 3.0, 4.2]])])], 1)
    function = Function(lambda x, r: torch.ops.torchvision.roi_align(x, r, 0.6, 3, 2, ratio, aligned))
    torch.testing.assert_close(answer(function, maps, rois), function(maps, rois), rtol=1e-5, atol=1e-5)
