from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.errors import ModelError, UnsupportedError
from tests.unit.ops.one_node import check, make_model, normal, onnxruntime_of, programs_of

REGIONS = np.array([[0, 0, 4, 3], [1.3, 0.7, 5.1, 4.9], [-2, -1, 3, 8], [3, 3, 3, 3], [6.5, 4, 20, 30]], np.float32)
IMAGES = np.array([0, 1, 1, 0, 1], np.int64)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_roi_align(mode: str, coordinates: str, samples: int) -> None:
    options: dict[str, Any] = {"output_height": 2, "output_width": 3, "sampling_ratio": samples}
    options |= {"mode": mode, "coordinate_transformation_mode": coordinates, "spatial_scale": 0.75}
    check("RoiAlign", [normal(2, 3, 5, 6), REGIONS, IMAGES], **options)


def test_any_number_of_regions() -> None:
    dims = {0: ("n", 2, "h", "w"), 1: ("r", 4), 2: ("r",)}
    more = [[normal(1, 2, h, w), REGIONS[:r], np.zeros(r, np.int64)] for h, w, r in ((1, 1, 1), (4, 9, 3))]
    check("RoiAlign", [normal(2, 2, 5, 6), REGIONS, IMAGES], dims=dims, more=more, sampling_ratio=2, output_height=2)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="sampling_ratio"):
        programs_of(make_model("RoiAlign", [normal(2, 2, 5, 6), REGIONS, IMAGES]))
    with pytest.raises(ModelError, match="not defined"):
        programs_of(make_model("RoiAlign", [normal(2, 2, 5, 6), REGIONS, IMAGES], mode="median"))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_max_roi_pool(scale: float) -> None:
    regions = np.concatenate([IMAGES[:, None], REGIONS], 1).astype(np.float32)
    options: dict[str, Any] = {"pooled_shape": [2, 3], "spatial_scale": scale}
    arrays = [normal(2, 3, 5, 6), regions]
    check("MaxRoiPool", arrays, reference=onnxruntime_of("MaxRoiPool", arrays, **options), **options)
