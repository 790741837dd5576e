"""Resize by scales that are fed, against the same node of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.errors import AssumptionError, ModelError
from opweld.ops.resample import intended_ratio
from opweld.tensor.flow import Flow, interpret_flow
from tests.unit.ops.one_node import check, feeds_of, float64_of, flow_of, make_model, normal

MODES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]


def scaled(x: Any, *scales: float) -> list[Any]:
    return [x, None, np.array(scales, np.float32)]


def check_fed(x: Any, *scales: tuple[float, ...], tolerance: float = 1e-5, **options: Any) -> Flow:
    """One compiled flow, and ONNX Runtime, for each of these scales."""
    arrays = [scaled(x, *given) for given in scales]
    reference = float64_of("Resize", arrays[0], **options)
    check("Resize", arrays[0], more=arrays[1:], reference=reference, tolerance=tolerance, **options)
    return flow_of(make_model("Resize", arrays[0], **options))


@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(coordinates: str, rounding: str) -> None:
    scales = [(1, 1, s, t) for s, t in ((2, 3), (0.5, 1.5), (1, 2.5), (3, 1))]
    options: dict[str, Any] = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    check_fed(normal(1, 2, 4, 7), *scales, mode="nearest", **options)


@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_interpolation(coordinates: str, mode: str) -> None:
    scales = [(1, 1, s, 2) for s in (2, 0.5, 1.5, 0.6, 1.3, 1)]
    flow = check_fed(normal(1, 3, 10, 7), *scales, mode=mode, coordinate_transformation_mode=coordinates)
    assert [len(segment.programs) for segment in flow.segments] == [1, 3]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_channels_and_batch_are_scaled_as_well(mode: str) -> None:
    x = normal(2, 3, 4)
    arrays = [scaled(x, *scales) for scales in ((1, 2, 2), (2, 1, 1.5), (1.5, 2, 0.5), (1, 1, 1))]
    check("Resize", arrays[0], more=arrays[1:], mode=mode, tolerance=1e-5)


def test_cubic_in_four_axes() -> None:
    """256 elements are too many to be mixed at once."""
    arrays = scaled(normal(2, 3, 4, 3), 2, 1.5, 0.5, 2)
    check("Resize", arrays, mode="cubic", tolerance=1e-5)
    check("Resize", arrays, mode="cubic", constant=(2,), tolerance=1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("outside", [0, 1])
def test_antialias(mode: str, outside: int) -> None:
    scales = [(1, 1, s, t) for s, t in ((0.6, 0.8), (0.5, 2), (0.25, 1))]
    check_fed(normal(1, 2, 8, 10), *scales, mode=mode, antialias=1, exclude_outside=outside, opset=19)


def test_weights_of_outside_elements_excluded() -> None:
    options: dict[str, Any] = {"exclude_outside": 1, "cubic_coeff_a": -0.5, "mode": "cubic"}
    check_fed(normal(1, 1, 4, 5), (1, 1, 0.8, 2), (1, 1, 2, 0.8), **options)


def test_some_axes_of_dynamic_sizes() -> None:
    def arrays(height: int, width: int, *scales: float) -> list[Any]:
        return scaled(normal(1, 2, height, width), *scales)

    more = [arrays(1, 1, 2, 3), arrays(6, 3, 0.5, 1.5)]
    for mode in ("nearest", "linear"):
        check("Resize", arrays(4, 5, 3, 2), dims={0: (1, 2, "H", "W")}, more=more, axes=[3, 2], mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(mode: str) -> None:
    x = normal(1, 2, 3, 4)
    arrays = [[x, np.array([1, 1, *scales], np.float32)] for scales in ((2, 3), (1, 1.5))]
    reference = float64_of("Upsample", arrays[0], opset=9, mode=mode)
    check("Upsample", arrays[0], more=arrays[1:], opset=9, mode=mode, reference=reference)


def test_sizes_follow_from_the_fractions_that_scales_stand_for() -> None:
    """That a fed scale stands for what the same constant does, to the last element."""
    scales = [1.3, 0.7, 1 / 3, 2 / 3, 100.3, 7.77, 0.001, 1.0000001, 0.123456789, 997 / 1000, 999 / 998, 255.5]
    flow = flow_of(make_model("Resize", scaled(normal(1000), 1.0), mode="nearest"))
    for scale in scales:
        fed = interpret_flow(flow, feeds_of(scaled(normal(1000), scale), ()))["y0"]
        known = flow_of(make_model("Resize", scaled(normal(1000), scale), constant=(2,), mode="nearest"))
        np.testing.assert_array_equal(fed, interpret_flow(known, {"x0": normal(1000)})["y0"])
    assert intended_ratio(float(np.float32(100.3))).denominator == 10


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, 1e30, 0.1])
def test_scales_that_are_none_are_refused(scale: float) -> None:
    flow = flow_of(make_model("Resize", scaled(normal(4), 1.0), mode="nearest"))
    with pytest.raises(AssumptionError, match=r"scales must be positive|must have an output"):
        interpret_flow(flow, feeds_of(scaled(normal(4), scale), ()))


def test_scales_that_do_not_match_the_axes_are_refused() -> None:
    with pytest.raises(ModelError, match="a scale for each axis"):
        flow_of(make_model("Resize", scaled(normal(1, 4), 2.0), mode="nearest"))
