"""Conversions by the tables of ONNX's Cast, and everything that moves codes without looking into them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from opweld.errors import ModelError, UnsupportedError
from opweld.tensor.dtype import DType
from tests.unit.ops.one_node import check, make_model, normal, programs_of, run

CODES = [dtype for dtype in DType if dtype.is_storage_only]
SATURATED = [DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ]
INF, NAN = np.inf, np.nan


def every(dtype: DType, *shape: int) -> np.ndarray:
    """Every code of a type, or as many as the shape wants."""
    count = int(np.prod(shape)) if shape else 1 << dtype.bits
    codes = np.arange(count) % (1 << dtype.bits)
    return codes.astype(np.uint8).view(dtype.numpy).reshape(shape or (count,))


def numbers(limit: float) -> np.ndarray:
    """Numbers within a limit and beyond it, the halves that are rounded to even, zeros, NaN and infinities."""
    inside = np.concatenate([np.linspace(-1.2 * limit, 1.2 * limit, 241), limit * 2.0 ** -np.arange(0, 24)])
    return np.concatenate([inside, [0.0, -0.0, NAN, INF, -INF, 1e-30, 1e30, -1e30]]).astype(np.float32)


def cast(x: np.ndarray, dtype: DType, **attributes: Any) -> np.ndarray:
    return run(programs_of(make_model("Cast", [x], opset=25, to=dtype.onnx, **attributes)), {"x0": x})["y0"]


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("dtype", SATURATED)
def test_floats_to_float8_and_back(dtype: DType, saturate: int) -> None:
    for source in (np.float32, np.float16, ml_dtypes.bfloat16):
        with np.errstate(over="ignore"):
            x = numbers(dtype.greatest).astype(source)
        check("Cast", [x], to=dtype.onnx, saturate=saturate)
        check("CastLike", [x, np.zeros(1, dtype.numpy)], saturate=saturate)
        check("Cast", [every(dtype)], to=DType.of_numpy(np.dtype(source)).onnx)


@pytest.mark.parametrize(
    ("dtype", "saturated", "beyond"),
    [
        (DType.F8E4M3FN, [448, -448, 448, -448], [NAN, NAN, NAN, NAN]),
        (DType.F8E4M3FNUZ, [240, -240, 240, -240], [NAN, NAN, NAN, NAN]),
        (DType.F8E5M2, [57344, -57344, 57344, -57344], [INF, -INF, INF, -INF]),
        (DType.F8E5M2FNUZ, [57344, -57344, 57344, -57344], [NAN, NAN, NAN, NAN]),
    ],
)
def test_the_tables_of_float8(dtype: DType, saturated: list[float], beyond: list[float]) -> None:
    x = np.array([INF, -INF, 1e6, -1e6, 0.0, -0.0, NAN], np.float32)
    np.testing.assert_array_equal(cast(x, dtype).astype(np.float32), [*saturated, 0, 0, NAN])
    whole = cast(x, dtype, saturate=0).astype(np.float32)
    np.testing.assert_array_equal(whole, [*beyond, 0, 0, NAN])
    assert np.signbit(whole[5]) == (not dtype.short.endswith("fnuz"))


def test_the_tables_of_float8e8m0() -> None:
    least, greatest = 2.0**-127, 2.0**127
    x = np.array([0, NAN, INF, 1.5 * greatest, least / 4, 1.0, 1.4, 1.5, 1.6, 4.1, least, 1.25 * least], np.float32)
    up = [least, NAN, greatest, greatest, least, 1, 2, 2, 2, 8, least, 2 * least]
    down = [least, NAN, greatest, greatest, least, 1, 1, 1, 1, 4, least, least]
    nearest = [least, NAN, greatest, greatest, least, 1, 1, 2, 2, 4, least, least]
    outside = np.isin(np.arange(12), [0, 1, 2, 3, 4])
    for mode, expected in (("up", up), ("down", down), ("nearest", nearest)):
        np.testing.assert_array_equal(
            cast(x, DType.F8E8M0, round_mode=mode).astype(np.float32), np.array(expected, np.float32)
        )
        kept = cast(x, DType.F8E8M0, round_mode=mode, saturate=0).astype(np.float32)
        np.testing.assert_array_equal(kept, np.where(outside, NAN, np.array(expected, np.float32)))
    np.testing.assert_array_equal(cast(np.array([3, 8]), DType.F8E8M0).astype(np.float32), [4, 8])


def test_float8e8m0_of_every_float16_is_what_the_reference_says() -> None:
    every_half = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16)
    for mode in ("up", "down", "nearest"):
        expected = onnx.numpy_helper.to_float8e8m0(every_half, round_mode=mode)
        assert cast(every_half, DType.F8E8M0, round_mode=mode).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [dtype for dtype in CODES if dtype.is_integer])
def test_small_integers(dtype: DType) -> None:
    for source in (np.float32, np.float16, np.int32, np.int8):
        check("Cast", [np.arange(-20, 20).astype(source)], to=dtype.onnx)
    for target in (np.float32, ml_dtypes.bfloat16, np.int64, np.uint8, np.bool_):
        check("Cast", [every(dtype)], to=DType.of_numpy(np.dtype(target)).onnx)


def test_float4() -> None:
    x = numbers(6)
    check("Cast", [x[~np.isnan(x)]], to=DType.F4E2M1.onnx)
    assert cast(np.array([NAN, -NAN], np.float32), DType.F4E2M1).astype(np.float32).tolist() == [0, 0]
    check("Cast", [every(DType.F4E2M1)], to=DType.I32.onnx)


def test_one_code_of_another() -> None:
    np.testing.assert_array_equal(cast(every(DType.I4), DType.U4).view(np.uint8), np.arange(16))
    floats = cast(every(DType.F8E5M2)[:0x7C], DType.F8E4M3FN).astype(np.float32)
    with np.errstate(invalid="ignore"):
        expected = np.clip(every(DType.F8E5M2)[:0x7C].astype(np.float32), -448, 448).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(floats, expected.astype(np.float32))
    infinity = np.array([INF], ml_dtypes.float8_e5m2)
    assert cast(infinity, DType.F8E5M2).astype(np.float32).tolist() == [57344]
    assert cast(infinity, DType.F8E5M2, saturate=0).astype(np.float32).tolist() == [INF]


def test_bits() -> None:
    x = normal(3, 4)
    for target in (DType.I32, DType.U32, DType.F32):
        found = run(programs_of(make_model("BitCast", [x], opset=26, to=target.onnx)), {"x0": x})["y0"]
        assert found.dtype == target.numpy
        assert found.tobytes() == x.tobytes()
    four = every(DType.I4)
    found = run(programs_of(make_model("BitCast", [four], opset=26, to=DType.F4E2M1.onnx)), {"x0": four})["y0"]
    assert found.tobytes() == four.tobytes()
    with pytest.raises(ModelError, match=r"i4 of 4 bits .* u8"):
        programs_of(make_model("BitCast", [four], opset=26, to=DType.U8.onnx))
    with pytest.raises(UnsupportedError, match="element type 14 is not supported"):
        programs_of(make_model("BitCast", [normal(2).astype(np.float64)], opset=26, to=onnx.TensorProto.COMPLEX64))


def test_round_mode_is_checked() -> None:
    with pytest.raises(ModelError, match="round_mode must be up, down or nearest, got 'odd'"):
        programs_of(make_model("Cast", [normal(2)], opset=25, to=DType.F8E8M0.onnx, round_mode="odd"))


@pytest.mark.parametrize("constant", [(), (0,)])
@pytest.mark.parametrize("dtype", CODES)
def test_codes_are_moved(dtype: DType, constant: tuple[int, ...]) -> None:
    """Constants of an odd number of elements too, which a file packs."""
    x = every(dtype, 3, 1, 5)

    def moved(op_type: str, *others: np.ndarray, expected: np.ndarray, **attributes: Any) -> None:
        held = (*constant, *range(1, len(others) + 1))
        model = make_model(op_type, [x, *others], constant=held, opset=25, **attributes)
        found = run(programs_of(model), {} if constant else {"x0": x})["y0"]
        assert (found.dtype, found.shape) == (x.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes(), op_type

    moved("Identity", expected=x)
    moved("Reshape", np.array([5, 3]), expected=x.reshape(5, 3))
    moved("Squeeze", np.array([1]), expected=x[:, 0])
    moved("Unsqueeze", np.array([0]), expected=x[None])
    moved("Flatten", expected=x.reshape(3, 5))
    moved("Transpose", perm=[2, 0, 1], expected=x.transpose(2, 0, 1).copy())
    one = np.array(1, dtype.numpy)
    padded = np.full((3, 1, 7), one)
    padded[:, :, 1:6] = x
    moved("Pad", np.array([0, 0, 1, 0, 0, 1]), one, expected=padded)


@pytest.mark.parametrize("dtype", CODES)
def test_codes_in_the_int32_field_of_a_tensor(dtype: DType) -> None:
    x = every(dtype, 5)
    model = make_model("Identity", [x], constant=(0,), opset=25)
    values = x.view(np.uint8).tolist() if dtype.bits == 8 else x.astype(np.float32).tolist()
    if dtype.bits == 8:
        stored = onnx.TensorProto(name="x0", dims=[5], data_type=dtype.onnx, int32_data=values)
    else:
        stored = onnx.helper.make_tensor("x0", dtype.onnx, [5], values)
    assert stored.int32_data
    model.graph.initializer[0].CopyFrom(stored)
    assert run(programs_of(model), {})["y0"].tobytes() == x.tobytes()
    model.graph.initializer[0].int32_data.pop()
    with pytest.raises(ModelError, match="elements in int32_data"):
        programs_of(model)


@pytest.mark.parametrize("dtype", CODES)
def test_codes_of_a_shape(dtype: DType) -> None:
    fill = onnx.numpy_helper.from_array(np.ones(1, dtype.numpy))
    shape = np.array([2, 3])
    model = make_model("ConstantOfShape", [shape], constant=(0,), opset=25, value=fill)
    found = run(programs_of(model), {})["y0"]
    np.testing.assert_array_equal(found.view(np.uint8), np.ones((2, 3), dtype.numpy).view(np.uint8))


@pytest.mark.parametrize("dtype", SATURATED)
def test_float8_that_is_no_number(dtype: DType) -> None:
    x = every(dtype)
    check("IsNaN", [x], reference=lambda x: np.isnan(x.astype(np.float32)))
    check("IsInf", [x], reference=lambda x: np.isinf(x.astype(np.float32)))


def test_arithmetic_of_codes_is_no_operator() -> None:
    x = every(DType.F8E4M3FN)
    with pytest.raises(ModelError, match="must not be f8e4m3fn"):
        programs_of(make_model("Add", [x, x]))


def test_what_is_cast_keeps_its_shape_beside_what_it_is_cast_like() -> None:
    """Sizes are known elements of both, and only those of the first are cast."""
    size, like = np.array(3, np.int32), np.array([7], np.int64)
    check("CastLike", [size, like], constant=(0, 1))
