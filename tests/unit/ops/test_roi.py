from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opweld
from opweld.errors import ModelError, RunError
from tests.unit.ops.one_node import assert_close, check, feeds_of, make_model, normal, onnxruntime_of, programs_of

REGIONS = np.array([[0, 0, 4, 3], [1.3, 0.7, 5.1, 4.9], [-2, -1, 3, 8], [3, 3, 3, 3], [6.5, 4, 20, 30]], np.float32)
IMAGES = np.array([0, 1, 1, 0, 1], np.int64)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_roi_align(mode: str, coordinates: str, samples: int) -> None:
    options: dict[str, Any] = {"output_height": 2, "output_width": 3, "sampling_ratio": samples}
    options |= {"mode": mode, "coordinate_transformation_mode": coordinates, "spatial_scale": 0.75}
    check("RoiAlign", [normal(2, 3, 5, 6), REGIONS, IMAGES], **options)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("constant", [(), (1, 2)])
def test_a_region_is_sampled_as_often_as_its_size_tells(mode: str, coordinates: str, constant: tuple[int, ...]) -> None:
    options: dict[str, Any] = {"output_height": 2, "output_width": 3, "constant": constant}
    options |= {"mode": mode, "coordinate_transformation_mode": coordinates, "spatial_scale": 0.75}
    arrays = [normal(2, 3, 9, 11), REGIONS * 2 - 1, IMAGES]
    reference = onnxruntime_of("RoiAlign", arrays, **options)
    check("RoiAlign", arrays, reference=reference, **options)
    model = opweld.compile(make_model("RoiAlign", arrays, **options))
    feeds = feeds_of(arrays, constant)
    assert_close(next(iter(model.run(feeds).values())), reference(*arrays)[0], 1e-6, mode)


def test_a_huge_region_costs_what_lies_on_the_image() -> None:
    model = opweld.compile(make_model("RoiAlign", [normal(1, 2, 5, 6), REGIONS[:3], IMAGES[:3] * 0], mode="max"))
    regions = np.array([[-1e9, -1e9, 1e9, 1e9], [0, 0, np.inf, np.nan], [0, 0, 3e38, 1]], np.float32)
    feeds = {"x0": normal(1, 2, 5, 6), "x1": regions, "x2": np.zeros(3, np.int64)}
    assert np.isfinite(next(iter(model.run(feeds).values()))).all()
    with pytest.raises(RunError, match="the_RoiAlign"):
        model.run(feeds | {"x2": np.array([0, 1, 0])})


def test_any_number_of_regions() -> None:
    dims = {0: ("n", 2, "h", "w"), 1: ("r", 4), 2: ("r",)}
    more = [[normal(1, 2, h, w), REGIONS[:r], np.zeros(r, np.int64)] for h, w, r in ((1, 1, 1), (4, 9, 3))]
    check("RoiAlign", [normal(2, 2, 5, 6), REGIONS, IMAGES], dims=dims, more=more, sampling_ratio=2, output_height=2)


def test_what_is_refused() -> None:
    with pytest.raises(ModelError, match="not defined"):
        programs_of(make_model("RoiAlign", [normal(2, 2, 5, 6), REGIONS, IMAGES], mode="median"))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_max_roi_pool(scale: float) -> None:
    regions = np.concatenate([IMAGES[:, None], REGIONS], 1).astype(np.float32)
    options: dict[str, Any] = {"pooled_shape": [2, 3], "spatial_scale": scale}
    arrays = [normal(2, 3, 5, 6), regions]
    check("MaxRoiPool", arrays, reference=onnxruntime_of("MaxRoiPool", arrays, **options), **options)
