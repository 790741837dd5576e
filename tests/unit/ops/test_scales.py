"""Quantised files that something is wrong with: an error or a warning with the node's name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from opweld.errors import ModelError
from opweld.ops.microsoft.domain import MICROSOFT
from tests.unit.ops.one_node import check, make_model, normal, programs_of, run

BYTES, ZERO = np.full((3, 4), 7, np.uint8), np.array(0, np.uint8)


def node(op_type: str, scale: Any, **options: Any) -> onnx.ModelProto:
    """A model of one node with this stored scale; others are 1, zero points 0."""
    found, one = np.asarray(scale, np.float32), np.float32(1)
    operands: dict[str, list[Any]] = {
        "QuantizeLinear": [normal(3, 4), found, np.zeros(found.shape, np.uint8)],
        "DequantizeLinear": [BYTES, found, np.zeros(found.shape, np.uint8)],
        "QLinearMatMul": [BYTES, one, ZERO, BYTES.T, found, ZERO, one, ZERO],
        "QLinearConv": [BYTES[None], found, ZERO, BYTES[:, :3, None], one, ZERO, one, ZERO],
        "QLinearAdd": [BYTES, found, ZERO, BYTES, one, ZERO, one, ZERO],
        "QGemm": [BYTES, one, ZERO, BYTES.T, found, ZERO, None, one, ZERO],
    }
    if op_type in ("QLinearAdd", "QGemm"):
        options["domain"] = MICROSOFT
    model = make_model(op_type, operands[op_type], constant=range(1, 9), **options)
    model.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    return model


OPERATORS = ("QuantizeLinear", "DequantizeLinear", "QLinearMatMul", "QLinearConv", "QLinearAdd", "QGemm")


@pytest.mark.parametrize("op_type", OPERATORS)
@pytest.mark.parametrize("scale", [np.inf, np.nan])
def test_a_scale_that_is_no_number(op_type: str, scale: float) -> None:
    with pytest.raises(ModelError, match=rf"node 'the_{op_type}' \({op_type}\): scale 'x\d' holds {scale}"):
        programs_of(node(op_type, scale))


def test_what_is_divided_by_zero() -> None:
    for scale, options in ((0, {}), ([1, 0, 1, 1], {"axis": 1})):
        with pytest.raises(ModelError, match=r"node 'the_QuantizeLinear'.*holds 0, by which values are divided"):
            programs_of(node("QuantizeLinear", scale, **options))
    one, zero = np.float32(1), np.float32(0)
    operands: list[Any] = [BYTES, one, ZERO, BYTES.T, one, ZERO, zero, ZERO]
    with pytest.raises(ModelError, match=r"node 'the_QLinearMatMul'.*holds 0, by which"):
        programs_of(make_model("QLinearMatMul", operands, constant=range(1, 8)))


@pytest.mark.parametrize(
    ("op_type", "scale", "told"),
    [
        ("DequantizeLinear", 0, "is 0"),
        ("DequantizeLinear", [0, 1, 0, 1], "is 0 in 2 of 4 places"),
        ("QLinearAdd", 0, "is 0"),
    ],
)
def test_what_is_multiplied_by_zero_is_told(op_type: str, scale: Any, told: str) -> None:
    with pytest.warns(RuntimeWarning, match=rf"node 'the_{op_type}' .*scale 'x1' {told}: what it scales is 0"):
        programs_of(node(op_type, scale, **({"axis": 1} if np.ndim(scale) else {})))


def test_blocks_of_zeros_have_a_scale_of_zero() -> None:
    scales = np.array([[0.5, 0], [1, 2]], np.float32)
    check("DequantizeLinear", [np.ones((2, 4), np.int8), scales], constant=(1,), axis=1, block_size=2)


@pytest.mark.parametrize("op_type", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_out_of_range(op_type: str, axis: int) -> None:
    with pytest.raises(ModelError, match=rf"node 'the_{op_type}' .*: axis {axis} is out of range .* rank 2"):
        programs_of(node(op_type, [1, 1, 1, 1], axis=axis))


@pytest.mark.parametrize("op_type", ["QuantizeLinear", "DequantizeLinear"])
def test_more_or_fewer_scales_than_elements_of_the_axis(op_type: str) -> None:
    for count in (0, 3):
        with pytest.raises(ModelError, match=rf"node 'the_{op_type}' .*: {count} and 4 can never be equal"):
            programs_of(node(op_type, np.ones(count), axis=1))


def int4(dims: tuple[int, ...], data: bytes) -> onnx.ModelProto:
    """Stored codes of 4 bits, dequantised."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g () => (float[?, ?] y) <float s = {2}> { [back] y = DequantizeLinear (w, s) }""")
    model.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.INT4, dims=dims, raw_data=data))
    return model


def test_int4_of_odd_length() -> None:
    """The last byte holds one code; the other half of it is nobody's."""
    (found,) = run(programs_of(int4((1, 5), bytes([0x21, 0xF8, 0x37]))), {}).values()
    np.testing.assert_array_equal(found, [[2, 4, -16, -2, 14]])
    for data in (bytes(2), bytes(5)):
        with pytest.raises(ModelError, match=r"tensor 'w' of shape \[1, 5\] has \d bytes of data, which do not fit"):
            programs_of(int4((1, 5), data))


def test_empty_values_are_quantised_to_empty_ones() -> None:
    scale, zero = np.array(0.5, np.float32), np.array(3, np.uint8)
    check("QuantizeLinear", [np.zeros((0, 4), np.float32), scale, zero], constant=(1, 2))
    check("DequantizeLinear", [np.zeros((0, 4), np.uint8), scale, zero], constant=(1, 2))
