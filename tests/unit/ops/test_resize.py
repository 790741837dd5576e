from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.errors import ModelError, UnsupportedError
from opweld.tensor.dim import Symbol
from tests.unit.ops.one_node import check, make_model, normal, onnxruntime_of, programs_of

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
        check("Resize", arrays, reference=onnxruntime_of("Resize", arrays, **options), **options)


@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 1), (4, 4), (8, 8), (3, 9), (13, 2)])
def test_by_size(coordinates: str, mode: str, sizes: tuple[int, int]) -> None:
    arrays = sized(normal(1, 2, 4, 5), 1, 2, *sizes)
    options: dict[str, Any] = {"constant": (3,), "mode": mode, "coordinate_transformation_mode": coordinates}
    check("Resize", arrays, tolerance=1e-5, reference=onnxruntime_of("Resize", arrays, **options), **options)


@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scale", [2.0, 0.5, 1.5, 0.6, 1.3])
def test_interpolation_by_scale(coordinates: str, mode: str, scale: float) -> None:
    arrays = scaled(normal(1, 3, 10, 7), 1, 1, scale, 2.0)
    options: dict[str, Any] = {"constant": (1, 2), "mode": mode, "coordinate_transformation_mode": coordinates}
    check("Resize", arrays, tolerance=1e-5, reference=onnxruntime_of("Resize", arrays, **options), **options)


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


def test_what_is_not_there_yet_is_refused() -> None:
    inputs = scaled(normal(1, 1, 4, 4), 1, 1, 2, 2)
    with pytest.raises(UnsupportedError, match="antialias"):
        programs_of(make_model("Resize", inputs, constant=(1, 2), mode="linear", antialias=1))
    with pytest.raises(UnsupportedError, match="tf_crop_and_resize"):
        programs_of(make_model("Resize", inputs, constant=(1, 2), coordinate_transformation_mode="tf_crop_and_resize"))
    with pytest.raises(UnsupportedError, match="scales"):
        programs_of(make_model("Resize", inputs, constant=(1,)))
    with pytest.raises(ModelError, match="neither"):
        programs_of(make_model("Resize", [normal(1, 1, 4)]))
