from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.errors import ModelError, UnsupportedError
from opweld.tensor.dim import Symbol
from tests.unit.ops.one_node import check, float64_of, make_model, normal, programs_of

MODES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
EMPTY = np.array([], np.float32)


def scaled(x: Any, *scales: float) -> list[Any]:
    return [x, EMPTY, np.array(scales, np.float32)]


def sized(x: Any, *sizes: int) -> list[Any]:
    return [x, None, None, np.array(sizes, np.int64)]


@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("scale", [1.0, 2.0, 3.0, 0.5, 1.5, 2.5])
def test_nearest_by_scale(coordinates: str, rounding: str, scale: float) -> None:
    for size in (1, 4, 7):
        if int(size * scale) == 0:
            continue
        arrays = scaled(normal(1, 2, size), 1, 1, scale)
        options: dict[str, Any] = {
            "constant": (1, 2),
            "mode": "nearest",
            "coordinate_transformation_mode": coordinates,
            "nearest_mode": rounding,
        }
        check("Resize", arrays, reference=float64_of("Resize", arrays, **options), **options)


@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 1), (4, 4), (8, 8), (3, 9), (13, 2)])
def test_by_size(coordinates: str, mode: str, sizes: tuple[int, int]) -> None:
    arrays = sized(normal(1, 2, 4, 5), 1, 2, *sizes)
    options: dict[str, Any] = {"constant": (3,), "mode": mode, "coordinate_transformation_mode": coordinates}
    check("Resize", arrays, tolerance=1e-5, reference=float64_of("Resize", arrays, **options), **options)


@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scale", [2.0, 0.5, 1.5, 0.6, 1.3])
def test_interpolation_by_scale(coordinates: str, mode: str, scale: float) -> None:
    arrays = scaled(normal(1, 3, 10, 7), 1, 1, scale, 2.0)
    options: dict[str, Any] = {"constant": (1, 2), "mode": mode, "coordinate_transformation_mode": coordinates}
    check("Resize", arrays, tolerance=1e-5, reference=float64_of("Resize", arrays, **options), **options)


@pytest.mark.parametrize(("op_type", "opset"), [("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_corners_of_old_opsets(op_type: str, opset: int, mode: str) -> None:
    arrays = [normal(1, 2, 5, 4), np.array([1, 1, 1.6, 2.5], np.float32)]
    options: dict[str, Any] = {"constant": (1,), "opset": opset, "mode": mode}
    check(op_type, arrays, reference=float64_of(op_type, arrays, **options), **options)


def test_linear_in_three_axes() -> None:
    check("Resize", scaled(normal(1, 2, 3, 4, 5), 1, 1, 2, 2, 2), constant=(1, 2), mode="linear", tolerance=1e-5)


def test_cubic_coefficient() -> None:
    check(
        "Resize",
        scaled(normal(1, 1, 4, 4), 1, 1, 2, 2),
        constant=(1, 2),
        mode="cubic",
        cubic_coeff_a=-0.5,
        tolerance=1e-5,
    )


def test_some_axes() -> None:
    inputs = [normal(1, 2, 4, 5), None, np.array([2.0, 3.0], np.float32)]
    check("Resize", inputs, constant=(2,), axes=[3, 2], mode="nearest")


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_kept_aspect_ratio(policy: str) -> None:
    inputs = sized(normal(1, 1, 4, 6), 7, 8)
    check("Resize", inputs, constant=(3,), axes=[2, 3], keep_aspect_ratio_policy=policy, mode="nearest")


@pytest.mark.parametrize("scale", [2, 4, 8])
def test_dynamic_integer_scale_stays_a_polynomial(scale: int) -> None:
    def arrays(h: int, w: int) -> list[Any]:
        return scaled(normal(1, 2, h, w), 1, 1, scale, scale)

    (program,) = check(
        "Resize",
        arrays(3, 4),
        constant=(1, 2),
        dims={0: (1, 2, "H", "W")},
        more=[arrays(1, 1), arrays(5, 7)],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    shape = program.shape_of(program.outputs[0][1])
    assert all(isinstance(atom, Symbol) for dim in shape for monomial, _ in dim.terms for atom in monomial)


def test_dynamic_halving() -> None:
    def arrays(h: int) -> list[Any]:
        return scaled(normal(1, 2, h), 1, 1, 0.5)

    check(
        "Resize",
        arrays(8),
        constant=(1, 2),
        dims={0: (1, 2, "L")},
        more=[arrays(7), arrays(2)],
        mode="linear",
        tolerance=1e-5,
    )


def test_dynamic_size() -> None:
    def arrays(h: int) -> list[Any]:
        return sized(normal(1, 2, h), 1, 2, 6)

    check(
        "Resize",
        arrays(8),
        constant=(3,),
        dims={0: (1, 2, "L")},
        more=[arrays(7), arrays(1), arrays(6)],
        mode="linear",
        tolerance=1e-5,
    )


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_kept_aspect_ratio_of_fed_sizes(policy: str) -> None:
    """Which axis decides is a variant of its own."""

    def arrays(h: int, w: int, *sizes: int) -> list[Any]:
        return sized(normal(1, 1, h, w), *sizes)

    programs = check(
        "Resize",
        arrays(4, 6, 7, 8),
        dims={0: (1, 1, "H", "W")},
        more=[arrays(4, 6, 8, 7), arrays(5, 5, 10, 10), arrays(3, 8, 1, 9)],
        axes=[2, 3],
        keep_aspect_ratio_policy=policy,
        mode="nearest",
    )
    assert len(programs) == 2


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (3, 9), (13, 5)])
@pytest.mark.parametrize("outside", [0, 1])
def test_antialias(mode: str, sizes: tuple[int, int], outside: int) -> None:
    arrays = sized(normal(1, 2, 7, 9), 1, 2, *sizes)
    options: dict[str, Any] = {"antialias": 1, "exclude_outside": outside, "opset": 19}
    check("Resize", arrays, constant=(3,), mode=mode, tolerance=1e-5, **options)


def test_antialias_of_a_dynamic_size() -> None:
    def arrays(w: int) -> list[Any]:
        return sized(normal(1, 1, 2, w), 1, 1, 2, 4)

    more = [arrays(4), arrays(3), arrays(1), arrays(23)]
    dims = {0: (1, 1, 2, "W")}
    check("Resize", arrays(9), constant=(3,), dims=dims, more=more, mode="linear", antialias=1, tolerance=1e-5)


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
def test_weights_of_outside_elements_excluded(coordinates: str) -> None:
    arrays = scaled(normal(1, 1, 4, 5), 1, 1, 0.8, 2.0)
    options: dict[str, Any] = {"exclude_outside": 1, "cubic_coeff_a": -0.5, "mode": "cubic", "constant": (1, 2)}
    options["coordinate_transformation_mode"] = coordinates
    check("Resize", arrays, tolerance=1e-5, reference=float64_of("Resize", arrays, **options), **options)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(3, 3), (1, 4), (6, 1)])
def test_crop(mode: str, sizes: tuple[int, int]) -> None:
    """Of a region that is fed, and that reaches beyond the input."""
    roi = np.array([0.35, 0.6, 0.62, 1.25], np.float32)
    arrays = [normal(1, 2, 4, 5), roi, None, np.array(sizes, np.int64)]
    options: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize", "axes": [2, 3]}
    check("Resize", arrays, constant=(3,), mode=mode, extrapolation_value=10.0, tolerance=1e-5, **options)


def test_crop_of_half_precision() -> None:
    roi = np.array([0, 0, 0.25, 0.1, 1, 1, 0.75, 0.9], np.float32)
    arrays = [normal(1, 2, 4, 5, dtype=np.float16), roi, None, np.array([1, 2, 3, 3], np.int64)]
    mode = "tf_crop_and_resize"
    check("Resize", arrays, constant=(3,), mode="linear", coordinate_transformation_mode=mode, tolerance=2e-3)


def test_what_is_not_there_yet_is_refused() -> None:
    inputs = scaled(normal(1, 1, 4, 4), 1, 1, 2, 2)
    with pytest.raises(UnsupportedError, match="by scales"):
        programs_of(make_model("Resize", inputs, constant=(1, 2), coordinate_transformation_mode="tf_crop_and_resize"))
    with pytest.raises(ModelError, match="crops each axis"):
        arrays = sized(normal(1, 1, 4), 1, 1, 2)
        arrays[1] = np.array([0.0, 1.0], np.float32)
        programs_of(make_model("Resize", arrays, constant=(3,), coordinate_transformation_mode="tf_crop_and_resize"))
    with pytest.raises(ModelError, match="neither"):
        programs_of(make_model("Resize", [normal(1, 1, 4)]))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_an_infinity_touches_its_neighbours_alone(mode: str) -> None:
    """Of the reference too, which mixes elements by weights."""
    x = normal(1, 1, 9)
    x[0, 0, 1] = np.inf
    arrays = sized(x, 1, 1, 27)
    reference = float64_of("Resize", arrays, constant=(3,), mode=mode)
    (found,) = reference(*arrays)
    assert np.isfinite(found[..., 15:]).all() and not np.isfinite(found[..., 4])
