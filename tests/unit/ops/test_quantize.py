from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from opweld.errors import ModelError
from opweld.ops.quantize import QUANTIZED
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Reduce, walk
from opweld.tensor.program import Tensor, TensorProgram
from tests.unit.ops.one_node import check, make_model, normal, programs_of


def small(dtype: type[np.integer[Any]], *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(sum(shape)).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def scale(*values: float) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantize_and_back(dtype: type[np.integer[Any]]) -> None:
    zero = np.array(3, dtype)
    check("QuantizeLinear", [normal(4, 5) * 40, scale(0.25), zero], dims={0: ["n", 5]})
    check("DequantizeLinear", [small(dtype, 4, 5), scale(0.25), zero], constant=(1, 2))


def test_scales_along_an_axis() -> None:
    scales, zeros = scale(0.1, 2.0, 7.5), np.array([0, 100, 255], np.uint8)
    for axis, shape in ((0, (3, 4)), (1, (2, 3, 4)), (-1, (5, 3))):
        check("QuantizeLinear", [normal(*shape) * 90, scales, zeros], constant=(1, 2), axis=axis)
        check("DequantizeLinear", [small(np.uint8, *shape), scales, zeros], axis=axis)


def test_a_single_scale_may_have_an_axis() -> None:
    one, zero = np.array([0.25], np.float32), np.array([3], np.uint8)
    check("QuantizeLinear", [normal(4, 5) * 40, one, zero])
    check("DequantizeLinear", [small(np.uint8, 4, 5), one, zero])
    operands = [small(np.uint8, 3, 7), one, zero, small(np.uint8, 7, 2), one, zero, np.array([9.0], np.float32), zero]
    check("QLinearMatMul", operands)


def test_blocks() -> None:
    scales = np.abs(normal(3, 2)) + np.float32(0.5)
    zeros = small(np.int8, 3, 2)
    check("QuantizeLinear", [normal(3, 8) * 90, scales, zeros], axis=1, block_size=4)
    check("DequantizeLinear", [small(np.int8, 3, 8), scales, zeros], axis=1, block_size=4)


def test_halves_are_rounded_to_even_and_ends_cut_off() -> None:
    x = np.array([-0.5, 0.5, 1.5, 2.5, 254.5, 300, -7], np.float32)
    check("QuantizeLinear", [x, scale(1.0)])
    check("QuantizeLinear", [x, scale(1.0), np.array(0, np.int8)])


def test_no_zero_point() -> None:
    check("DequantizeLinear", [small(np.int32, 3, 4), scale(1e-6)])


def codes(dtype: DType, *shape: int) -> np.ndarray:
    """Codes of finite numbers."""
    numbers = normal(*shape, seed=1) * (3 if dtype.is_float else dtype.limits[1])
    if dtype.is_integer:
        numbers = np.clip(numbers, *dtype.limits)
    return numbers.astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [dtype for dtype in QUANTIZED if dtype.is_storage_only])
def test_codes_and_back(dtype: DType) -> None:
    x, zero = normal(4, 5) * 40, np.array(0 if dtype.is_float else 1, dtype.numpy)
    check("QuantizeLinear", [x, scale(0.25), zero], dims={0: ["n", 5]}, opset=25)
    check("QuantizeLinear", [x, scale(4.0)], output_dtype=dtype.onnx, opset=25)
    for axis, scales in ((0, scale(0.1, 2.0, 7.5, 0.5)), (-1, scale(1.0, 3.0, 0.2, 9.0, 40.0))):
        zeros = np.zeros(len(scales), dtype.numpy)
        check("QuantizeLinear", [x, scales, zeros], constant=(1, 2), axis=axis, opset=25)
        check("DequantizeLinear", [codes(dtype, 4, 5), scales, zeros], axis=axis, opset=25)
    zeros = None if dtype.is_float else codes(dtype, 4, 3)
    blocks = np.abs(normal(4, 3)) + np.float32(0.5)  # the last block of two is one element
    check("QuantizeLinear", [x, blocks, zeros], axis=1, block_size=2, output_dtype=dtype.onnx, opset=25)
    check("DequantizeLinear", [codes(dtype, 4, 5), blocks, zeros], axis=1, block_size=2, opset=25)


@pytest.mark.parametrize("dtype", [DType.F8E4M3FN, DType.F8E5M2])
def test_float8_beyond_its_range(dtype: DType) -> None:
    x = np.array([1e6, -1e6, np.inf, -np.inf, np.nan, 3.3], np.float32)
    for saturate in (0, 1):
        check("QuantizeLinear", [x, scale(1.0)], output_dtype=dtype.onnx, saturate=saturate, opset=25)


def test_the_precision_of_the_division() -> None:
    x, wide = normal(40) * 50, np.float32(0.37)
    for precision in (DType.F32, DType.F16):
        half = np.array(wide, precision.numpy)
        expected = np.clip(np.rint(x.astype(precision.numpy) / half), -128, 127).astype(np.int8)
        check("QuantizeLinear", [x, np.array(wide), np.array(0, np.int8)], precision=precision.onnx, opset=25,
              reference=lambda *_, wanted=expected: wanted)  # fmt: skip
    powers = np.array([0.25, 2.0], ml_dtypes.float8_e8m0fnu)
    expected = np.clip(np.rint(x.reshape(20, 2) / powers.astype(np.float32)), 0, 255).astype(np.uint8)
    operands = [x.reshape(20, 2), powers, np.zeros(2, np.uint8)]
    check("QuantizeLinear", operands, opset=25, reference=lambda *_: expected)
    whole = np.array([-7, 7, 5, -5], np.int32)
    check("QuantizeLinear", [whole, np.array(2, np.int32), np.array(0, np.int8)],
          reference=lambda *_: np.array([-4, 4, 2, -2], np.int8))  # fmt: skip


def test_the_type_of_what_is_dequantized() -> None:
    x, powers = codes(DType.F4E2M1, 3, 8), np.array([[0.5, 4.0]] * 3, ml_dtypes.float8_e8m0fnu)
    expected = x.astype(np.float32) * np.repeat(powers.astype(np.float32), 4, 1)
    for dtype in (DType.F32, DType.F16, DType.BF16):
        options: dict[str, Any] = {"axis": 1, "block_size": 4, "output_dtype": dtype.onnx, "opset": 25}
        check("DequantizeLinear", [x, powers], reference=lambda *_, d=dtype: expected.astype(d.numpy), **options)
    check("DequantizeLinear", [small(np.int8, 3, 4), scale(0.5)], output_dtype=DType.F16.onnx, opset=25)
    with pytest.raises(ModelError, match="output_dtype must be float, float16 or bfloat16, not f8e8m0"):
        programs_of(make_model("DequantizeLinear", [x, powers], axis=1, block_size=4, opset=25))


def test_scales_and_zero_points_that_do_not_fit() -> None:
    x, scales = normal(3, 8), np.ones((3, 2), np.float32)
    for shape, block, message in (
        ((3, 3), 4, "can never be equal"), ((2, 2), 4, "can never be equal"), ((3, 2), -4, "must be positive"),
    ):  # fmt: skip
        with pytest.raises(ModelError, match=message):
            programs_of(make_model("QuantizeLinear", [x, np.ones(shape, np.float32)], axis=1, block_size=block))
    with pytest.raises(ModelError, match="the zero point has rank 1, the scale rank 2"):
        programs_of(make_model("QuantizeLinear", [x, scales, np.zeros(3, np.int8)], axis=1, block_size=4))
    with pytest.raises(ModelError, match="output_dtype is u8, but the zero point is i8"):
        programs_of(make_model("QuantizeLinear", [x, scale(1.0), np.array(0, np.int8)], output_dtype=DType.U8.onnx))
    with pytest.raises(ModelError, match="precision must be a float type"):
        programs_of(make_model("QuantizeLinear", [x, scale(1.0)], precision=DType.I8.onnx))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2fnuz])
def test_qlinear_matmul_of_float8(dtype: type) -> None:
    a, b = normal(5, 7).astype(dtype), normal(7, 6).astype(dtype)
    zero = np.array(0, dtype)
    product = a.astype(np.float32) @ b.astype(np.float32) * np.float32(0.5)
    check("QLinearMatMul", [a, scale(0.5), zero, b, scale(2.0), zero, scale(2.0), zero],
          reference=lambda *_: product.astype(dtype))  # fmt: skip


@pytest.mark.parametrize("depth", [7, 300])
@pytest.mark.parametrize("zeros", [(), (12, 240)])
def test_matmul_integer(depth: int, zeros: tuple[int, ...]) -> None:
    a, b = small(np.uint8, 2, 5, depth), small(np.uint8, depth, 6)
    check("MatMulInteger", [a, b, *(np.array(zero, np.uint8) for zero in zeros)], dims={0: [2, "m", depth]})


def sum_dtypes(programs: Sequence[TensorProgram]) -> set[DType]:
    """What the sums of a program are made in."""
    bodies = [item.body for item in programs[0].items if isinstance(item, Tensor)]
    return {node.dtype for node in walk(*bodies) if isinstance(node, Reduce)}


@pytest.mark.parametrize(("most", "dtype"), [(1, DType.F32), (0, DType.F32), (-1, DType.F64)])
def test_stored_weights_tell_what_holds_their_sums(most: int, dtype: DType) -> None:
    """All products of 255 with a column add up to at most 2 ** 24; beyond it, fp32 would lose the last bit."""
    depth, whole = 1000, (1 << 24) // 255
    b = np.full((depth, 2), whole // depth, np.int8)
    b[: whole - most - int(b[:, 0].sum()), 0] += 1
    a = np.full((3, depth), 255, np.uint8)
    assert int(b[:, 0].sum()) == whole - most
    zeros = (np.array(0, np.uint8), np.array(0, np.int8))
    assert sum_dtypes(check("MatMulInteger", [a, b], constant=(1,))) == {dtype}
    assert sum_dtypes(check("MatMulInteger", [a, b, *zeros], constant=(1, 2, 3))) == {dtype}
    assert sum_dtypes(check("MatMulInteger", [a, b, *zeros], constant=(2, 3))) == {DType.F64}, "weights are fed"


def test_zero_points_count_in_what_holds_the_sums() -> None:
    a, b = small(np.uint8, 3, 300), np.zeros((300, 2), np.int8)
    assert sum_dtypes(check("MatMulInteger", [a, b], constant=(1,))) == {DType.F32}
    far, near = np.array([0, -128], np.int8), np.array([100, 3], np.int8)
    options: dict[str, Any] = {"constant": (1, 2, 3)}
    assert sum_dtypes(check("MatMulInteger", [a, b + np.int8(100), np.array(0, np.uint8), far], **options)) == {
        DType.F64
    }
    assert sum_dtypes(check("MatMulInteger", [a, b + np.int8(100), np.array(0, np.uint8), near], **options)) == {
        DType.F32
    }
    assert sum_dtypes(check("MatMulInteger", [a, b, np.array(0, np.uint8), np.array(3, np.int8)], constant=(1,))) == {
        DType.F32
    }
    w = small(np.int8, 4, 80, 3, 3) // np.int8(4)
    assert sum_dtypes(check("ConvInteger", [small(np.uint8, 1, 80, 5, 5), w], constant=(1,))) == {DType.F32}


def test_matmul_integer_by_row_and_column() -> None:
    a, b = small(np.uint8, 5, 7), small(np.int8, 7, 3)
    check("MatMulInteger", [a, b, np.array(9, np.uint8), small(np.int8, 3)], constant=(1, 3))


@pytest.mark.parametrize("depth", [7, 400])
def test_qlinear_matmul(depth: int) -> None:
    a, b = small(np.uint8, 2, 5, depth), small(np.int8, depth, 6)
    operands = [a, scale(0.02), np.array(110, np.uint8), b, scale(0.03), np.array(-4, np.int8)]
    operands += [scale(0.9), np.array(128, np.uint8)]
    check("QLinearMatMul", operands, constant=(1, 2, 3, 4, 5, 6, 7))


@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 1, 1, 1], "strides": [2, 1]}, {"group": 2}])
def test_convolutions(attributes: dict[str, Any]) -> None:
    x, w = small(np.uint8, 1, 4, 6, 5), small(np.int8, 6, 4 // attributes.get("group", 1), 3, 3)
    bias = np.arange(6, dtype=np.int32) * 100
    operands = [x, scale(0.02), np.array(110, np.uint8), w, scale(*(0.01 * np.arange(1, 7))), np.zeros(6, np.int8)]
    operands += [scale(0.7), np.array(30, np.uint8), bias]
    options: dict[str, Any] = {"constant": tuple(range(1, 9)), **attributes}
    check("QLinearConv", operands, **options)
    unsigned = [x, small(np.uint8, *w.shape), np.array(110, np.uint8)]
    check("ConvInteger", unsigned, **attributes)


def test_steps_are_found_at_run_time() -> None:
    options: dict[str, Any] = {"outputs": 3, "dims": {0: ["n", 5]}}
    for x in (normal(4, 5), np.abs(normal(3, 5)) + 1, -np.abs(normal(3, 5)) - 1):
        check("DynamicQuantizeLinear", [x], **options)
    zeros = np.zeros((2, 5), np.uint8)
    check(
        "DynamicQuantizeLinear",
        [np.zeros((2, 5), np.float32)],
        reference=lambda _: (zeros, np.float32(1), np.uint8(0)),
        **options,
    )
