"""Operators of all opsets: what their schemas say by default, and what becomes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import opweld
from opweld.frontend.evaluator import evaluator
from opweld.frontend.older import DEFAULTS
from opweld.ops.registry import OPSET

Array = NDArray[Any]

CONVERTED = {
    "Softmax": {"axis"}, "LogSoftmax": {"axis"}, "Hardmax": {"axis"},  # along other axes: see the tests below
    "Split": {"axis"}, "GridSample": {"mode"}, "DFT": {"axis"}, "Pad": {"value"}, "Dropout": {"ratio", "is_test"},
    "BatchNormalization": {"is_test", "spatial"},
    "GRU": {"direction", "output_sequence"},  # "foward", which no model can mean
    "LSTM": {"output_sequence"}, "RNN": {"output_sequence"},
}  # fmt: skip
"""By operator, the attributes with other defaults, or none, in older opsets that onnx's converter takes care of."""

BROADCAST = {"broadcast"}
"""What operators of two operands, and Gemm, say before opset 7; `frontend.aligned` is about it."""


def default(attribute: Any) -> Any:
    stated = attribute.default_value
    return helper.get_attribute_value(stated) if stated.type else None


def changed_defaults() -> dict[str, dict[str, set[Any]]]:
    """By operator and attribute, the defaults of older opsets that are not the one of today."""
    found: dict[str, dict[str, set[Any]]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain or schema.since_version > OPSET:
            continue
        try:
            newest = onnx.defs.get_schema(schema.name, OPSET).attributes
        except onnx.defs.SchemaError:
            continue
        for name, attribute in schema.attributes.items():
            now = default(newest[name]) if name in newest else None
            before = default(attribute)
            if before is not None and before != now:
                found.setdefault(schema.name, {}).setdefault(name, set()).add(before)
    return found


def test_every_default_that_changed_is_known() -> None:
    """A new onnx may bring others: then either the converter knows them, or `DEFAULTS` must."""
    for operator, attributes in changed_defaults().items():
        stated = DEFAULTS.get(operator, (0, {}))[1]
        for name, values in attributes.items():
            if name in stated:
                assert values == {np.float32(stated[name]).item()}, (operator, name)
            else:
                assert name in CONVERTED.get(operator, BROADCAST), (operator, name, values)


def model_of(operator: str, opset: int, shape: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def compiled(model: onnx.ModelProto, x: Array) -> Array:
    return opweld.compile(model, level="none").run({"x": x})["y"]


def evaluated(model: onnx.ModelProto, x: Array) -> Array:
    outputs: Any = evaluator(model).run(None, {"x": x})
    return np.asarray(outputs[0])


def same(model: onnx.ModelProto, x: Array, expected: Array) -> None:
    """Asserts that compiled code and the evaluator give what is expected."""
    np.testing.assert_allclose(compiled(model, x), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(evaluated(model, x), expected, rtol=1e-5, atol=1e-6)


X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def along(x: Array, operator: str) -> Array:
    """Rows of two axes."""
    e = np.exp(x - x.max(1, keepdims=True))
    if operator == "Hardmax":
        return np.eye(x.shape[1], dtype=np.float32)[x.argmax(1)]
    soft = e / e.sum(1, keepdims=True)
    return np.log(soft) if operator == "LogSoftmax" else soft


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize(("opset", "axis"), [(1, None), (12, None), (11, 0), (11, 2), (12, -1), (12, -2), (13, 1)])
def test_all_axes_from_one_on(operator: str, opset: int, axis: int | None) -> None:
    model = model_of(operator, opset, X.shape, **({} if axis is None else {"axis": axis}))
    first = 1 if axis is None else axis % 3
    if opset >= 13:
        rows = np.moveaxis(X, first, 2)
        expected = np.moveaxis(along(rows.reshape(-1, rows.shape[2]), operator).reshape(rows.shape), 2, first)
    else:
        expected = along(X.reshape(int(np.prod(X.shape[:first])), -1), operator).reshape(X.shape)
    same(model, X, expected)


def test_hardmax_of_symbolic_sizes() -> None:
    model = model_of("Hardmax", 11, X.shape)
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[1].dim_param = "n"
    run = opweld.compile(model, level="none")
    for count in (3, 5):
        x = np.random.default_rng(count).standard_normal((2, count, 4)).astype(np.float32)
        np.testing.assert_array_equal(run.run({"x": x})["y"], along(x.reshape(2, -1), "Hardmax").reshape(x.shape))


@pytest.mark.parametrize("opset", [1, 6])
def test_selu_of_opset_1(opset: int) -> None:
    alpha, gamma = (1.6732, 1.0507) if opset == 1 else (1.67326319217681884765625, 1.05070102214813232421875)
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    expected = gamma * np.where(x > 0, x, alpha * np.expm1(x.astype(np.float64)))
    model = model_of("Selu", opset, x.shape)
    np.testing.assert_allclose(compiled(model, x), expected, rtol=2e-6)
    np.testing.assert_allclose(evaluated(model, x), expected, rtol=2e-6)
    given = model_of("Selu", opset, x.shape, alpha=2.0)
    np.testing.assert_allclose(compiled(given, x)[0, 0], gamma * 2 * np.expm1(-3.0), rtol=2e-6)


DEFAULT_ACTIVATIONS = {
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "LeakyRelu": lambda x: np.where(x < 0, 0.01 * x, x),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
}


@pytest.mark.parametrize("operator", DEFAULT_ACTIVATIONS)
@pytest.mark.parametrize("opset", [1, 6, 16, 22])
def test_activations_without_attributes(operator: str, opset: int) -> None:
    x = np.linspace(-4, 4, 12, dtype=np.float32).reshape(3, 4)
    same(model_of(operator, opset, x.shape), x, DEFAULT_ACTIVATIONS[operator](x.astype(np.float64)))


@pytest.mark.parametrize(("opset", "largest"), [(6, 3.4028234663852886e38), (10, 3.4028234663852886e38), (11, np.inf)])
def test_infinity_that_nothing_bounds(opset: int, largest: float) -> None:
    x = np.array([np.inf, -np.inf, 1, np.nan], np.float32)
    model = model_of("Clip", opset, x.shape)
    expected = np.array([largest, -largest, 1, np.nan], np.float32)
    np.testing.assert_array_equal(compiled(model, x), expected)
    np.testing.assert_array_equal(evaluated(model, x), expected)


def resized(scale: float, mode: str, x: Array, opset: int = 10) -> onnx.ModelProto:
    scales = onnx.numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), "s")
    node = helper.make_node("Resize", ["x", "s"], ["y"], mode=mode)
    values = [helper.make_tensor_value_info("x", 1, x.shape), helper.make_tensor_value_info("y", 1, [None] * 4)]
    graph = helper.make_graph([node], "g", values[:1], values[1:], [scales])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize(
    ("scale", "size", "expected"),
    [
        (0.6, 4, [0, 2]),  # ONNX's own test of opset 10
        (0.7, 6, [0, 2, 3, 5]),  # 0, 1.43, 2.86, 4.29
        (0.5, 6, [0, 2, 4]),
        (1.5, 4, [0, 0, 1, 2, 2, 3]),
        (2.0, 2, [0, 0, 1, 1]),
    ],
)
def test_the_nearest_of_opset_10(scale: float, size: int, expected: list[int]) -> None:
    """Up where the axis gets shorter, else down."""
    x = np.arange(2 * size * size, dtype=np.float32).reshape(1, 2, size, size)
    same(resized(scale, "nearest", x), x, x[:, :, expected][..., expected])


def test_linear_of_opset_10() -> None:
    x = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4) ** 2
    places = np.minimum(np.arange(8) / 2, 3)
    low = np.floor(places).astype(int)
    high, part = np.minimum(low + 1, 3), (places - low).astype(np.float32)
    rows = x[:, :, low] * (1 - part)[:, None] + x[:, :, high] * part[:, None]
    same(resized(2.0, "linear", x), x, rows[..., low] * (1 - part) + rows[..., high] * part)


def test_all_channels_are_neighbours() -> None:
    """ONNX's evaluator of LRN looks at as many channels as there are images."""
    x = np.random.default_rng(1).standard_normal((1, 5, 2, 2)).astype(np.float32)
    squares = np.stack([np.square(x[:, max(0, c - 1) : c + 2]).sum(1) for c in range(5)], 1)
    same(model_of("LRN", 13, x.shape, size=3, alpha=0.5), x, x / (1 + 0.5 / 3 * squares) ** 0.75)


@pytest.mark.parametrize("opset", [6, 10])
@pytest.mark.parametrize("bounds", [{"min": 0.5}, {"max": 6.0}, {"min": 0.1, "max": 6.0}, {}])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_bounds_that_are_attributes_are_float32(opset: int, bounds: dict[str, float], dtype: Any) -> None:
    """Rounded to the input's type: to float16 the largest float32 is infinity, and of float64 it clips what is more."""
    with np.errstate(over="ignore"):
        x = np.array([-np.inf, -1e300, -60000, 0.25, 7, 1e300, np.inf, np.nan]).astype(dtype)
        low, high = (np.float32(bounds.get(name, end)).astype(dtype) for name, end in DEFAULTS["Clip"][1].items())
    model = model_of("Clip", opset, x.shape, **bounds)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    expected = np.clip(x, low, high)
    np.testing.assert_array_equal(compiled(model, x), expected, strict=True)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(evaluated(model, x), expected, strict=True)
