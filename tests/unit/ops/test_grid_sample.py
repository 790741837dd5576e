from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.ops.one_node import check, float64_of, normal


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample(mode: str, padding: str, aligned: int) -> None:
    """Positions well outside of the image, too."""
    options: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": aligned, "opset": 20}
    arrays = [normal(2, 3, 5, 6), (normal(2, 4, 3, 2) * 1.5).astype(np.float32)]
    check("GridSample", arrays, reference=float64_of("GridSample", arrays, **options), **options)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_volumes(mode: str, padding: str) -> None:
    options: dict[str, Any] = {"mode": mode, "padding_mode": padding, "opset": 20}
    arrays = [normal(1, 2, 3, 4, 5), (normal(1, 2, 2, 3, 3) * 1.2).astype(np.float32)]
    dims = {0: ["n", 2, "d", "h", "w"], 1: ["n", "a", "b", "c", 3]}
    check("GridSample", arrays, dims=dims, reference=float64_of("GridSample", arrays, **options), **options)
