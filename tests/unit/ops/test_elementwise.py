from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

from opweld.errors import ModelError
from tests.unit.ops.one_node import check, integers, make_model, normal, programs_of, special

EVERYWHERE = [
    "Abs Ceil Cos Erf Exp Floor IsNaN IsInf Neg Reciprocal Relu Round Sigmoid Sign Sin Softplus Softsign Tan Tanh Atan "
    "Sinh Cosh Asinh Gelu HardSwish HardSigmoid LeakyRelu Elu Selu Celu ThresholdedRelu Mish Shrink"
][0].split()


@pytest.mark.parametrize("op_type", EVERYWHERE)
def test_unary(op_type: str) -> None:
    check(op_type, [normal(3, 5) * 3])


@pytest.mark.parametrize("op_type", ["Acos", "Asin", "Atanh", "Log", "Sqrt"])
def test_unary_of_the_unit_interval(op_type: str) -> None:
    check(op_type, [np.linspace(0.01, 0.99, 11, dtype=np.float32)])


def test_acosh() -> None:
    check("Acosh", [np.linspace(1, 9, 11, dtype=np.float32)])


@pytest.mark.parametrize(
    "op_type", ["Abs", "Ceil", "Floor", "IsNaN", "IsInf", "Neg", "Relu", "Round", "Sign", "Tanh", "Log", "Sqrt"]
)
def test_unary_of_special_values(op_type: str) -> None:
    check(op_type, [special()])


@pytest.mark.parametrize(
    ("op_type", "values"),
    [
        ("Sigmoid", {np.nan: np.nan, np.inf: 1, -np.inf: 0}),
        ("Gelu", {np.nan: np.nan, np.inf: np.inf}),
        ("Elu", {np.nan: np.nan, np.inf: np.inf, -np.inf: -1}),
        ("Celu", {np.nan: np.nan, np.inf: np.inf, -np.inf: -1}),
        ("Selu", {np.nan: np.nan, np.inf: np.inf, -np.inf: -1.0507009873554805 * 1.6732632423543772}),
        ("LeakyRelu", {np.nan: np.nan, np.inf: np.inf, -np.inf: -np.inf}),
        ("HardSigmoid", {np.nan: np.nan, np.inf: 1, -np.inf: 0}),
        ("Softplus", {np.nan: np.nan, np.inf: np.inf, -np.inf: 0, 1000.0: 1000.0, -1000.0: 0}),
        ("Mish", {np.nan: np.nan, np.inf: np.inf, 1000.0: 1000.0}),
    ],
)
def test_limits(op_type: str, values: dict[float, float]) -> None:
    x, y = np.array(list(values), np.float32), np.array(list(values.values()), np.float32)
    check(op_type, [x], reference=lambda _: y)


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("LeakyRelu", {"alpha": 0.3}),
        ("Elu", {"alpha": 0.7}),
        ("Celu", {"alpha": 0.7}),
        ("Selu", {"alpha": 1.1, "gamma": 2.0}),
        ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.4}),
        ("ThresholdedRelu", {"alpha": 0.5}),
        ("Gelu", {"approximate": "tanh"}),
        ("Shrink", {"lambd": 0.4, "bias": 0.1}),
        ("IsInf", {"detect_negative": 0}),
        ("IsInf", {"detect_positive": 0}),
        ("IsInf", {"detect_negative": 0, "detect_positive": 0}),
    ],
)
def test_attributes(op_type: str, attributes: dict[str, Any]) -> None:
    x = special() if op_type == "IsInf" else normal(4, 7)
    check(op_type, [x], **attributes)


BROADCASTS = [
    ((3, 5), (3, 5)),
    ((3, 5), (5,)),
    ((1,), (3, 5)),
    ((3, 1), (1, 5)),
    ((), (2, 3)),
    ((2, 1, 5), (3, 1)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize("shapes", BROADCASTS)
@pytest.mark.parametrize(
    "op_type", ["Add", "Sub", "Mul", "Div", "Less", "GreaterOrEqual", "Equal", "Greater", "LessOrEqual"]
)
def test_pairs(op_type: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check(op_type, [normal(*shapes[0], seed=1), normal(*shapes[1], seed=2)])


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Less", "GreaterOrEqual", "Equal", "Max", "Min"])
def test_pairs_of_special_values(op_type: str) -> None:
    check(op_type, [special()[:, None], special()[None, :]])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8, np.uint8])
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Less", "Equal", "Max", "Min"])
def test_pairs_of_integers(op_type: str, dtype: Any) -> None:
    check(op_type, [integers(3, 5, low=0, dtype=dtype), integers(3, 5, low=1, dtype=dtype, seed=1)])


def test_integer_division_truncates() -> None:
    a, b = np.array([7, -7, 7, -7, 0], np.int32), np.array([2, 2, -2, -2, 3], np.int32)
    check("Div", [a, b], reference=lambda *_: np.array([3, -3, -3, 3, 0], np.int32))


def test_remainders() -> None:
    a, b = np.array([7, -7, 7, -7, 0], np.int64), np.array([3, 3, -3, -3, 3], np.int64)
    check("Mod", [a, b], reference=lambda *_: np.array([1, 2, -2, -1, 0], np.int64))
    check("Mod", [a, b], fmod=1, reference=lambda *_: np.array([1, -1, 1, -1, 0], np.int64))
    check("Mod", [normal(9) * 5, normal(9, seed=1)], fmod=1)


@pytest.mark.parametrize("op_type", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 5, 16, 17, 40])
def test_variadic(op_type: str, count: int) -> None:
    shapes = [(3, 1), (1, 5), (5,), (), (3, 5)] * 8
    functions: dict[str, Any] = {"Max": np.maximum, "Min": np.minimum, "Sum": np.add, "Mean": np.add}

    def reference(*x: Any) -> Any:
        total = reduce(functions[op_type], x)
        return (total / len(x)).astype(np.float32) if op_type == "Mean" else total

    check(op_type, [normal(*shape, seed=seed) for seed, shape in enumerate(shapes[:count])], reference=reference)


@pytest.mark.parametrize("op_type", ["And", "Or", "Xor", "Equal"])
def test_truths(op_type: str) -> None:
    check(op_type, [normal(3, 5) > 0, normal(5, seed=1) > 0])


def test_not() -> None:
    check("Not", [normal(7) > 0])


@pytest.mark.parametrize("op_type", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bits(op_type: str) -> None:
    check(op_type, [integers(3, 5, dtype=np.int32), integers(3, 5, dtype=np.int32, seed=1)])
    check("BitwiseNot", [integers(3, 5, dtype=np.int16)])


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts(direction: str) -> None:
    check(
        "BitShift",
        [integers(9, low=0, high=99, dtype=np.uint8), integers(9, low=0, high=7, dtype=np.uint8)],
        direction=direction,
    )


@pytest.mark.parametrize("exponent", [-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.5])
@pytest.mark.parametrize("constant", [(), (1,)])
def test_power(exponent: float, constant: tuple[int, ...]) -> None:
    base = np.abs(normal(3, 5)) + 0.1
    check("Pow", [base, np.array(exponent, np.float32)], constant=constant)


def test_power_of_mixed_types() -> None:
    check("Pow", [normal(5), np.array([2, 3, 0, 1, 2], np.int64)])
    check("Pow", [np.array([1, 2, 3], np.int32), np.array([2.0, 0.5, 3.0], np.float32)])
    check("Pow", [np.array([1, 2, 3], np.int64), np.array([2, 5, 3], np.int64)])


def test_where() -> None:
    check("Where", [normal(3, 1) > 0, normal(3, 5, seed=1), normal(5, seed=2)])
    check("Where", [np.array([True, False]), np.array([1, 2]), np.array([np.int64(5)])])


@pytest.mark.parametrize("limits", [(-0.5, 0.5), (None, 0.5), (-0.5, None), (None, None), (1.0, -1.0)])
@pytest.mark.parametrize("constant", [(), (1, 2)])
def test_clip(limits: tuple[float | None, float | None], constant: tuple[int, ...]) -> None:
    low, high = (None if limit is None else np.array(limit, np.float32) for limit in limits)

    def reference(x: Any, *_: Any) -> Any:
        y = x if low is None else np.maximum(x, low)
        return y if high is None else np.minimum(y, high)

    check("Clip", [np.concatenate([normal(20), special()]), low, high], constant=constant, reference=reference)


def test_a_limit_may_have_an_axis_of_one_element() -> None:
    def reference(x: Any, low: Any, high: Any) -> Any:
        return np.clip(x, low, high)

    x, low, high = normal(2, 20), np.array([-0.5], np.float32), np.array(0.5, np.float32)
    for constant in ((), (1, 2)):
        check("Clip", [x, low, high], constant=constant, reference=reference)
    with pytest.raises(ModelError, match="the_Clip"):
        programs_of(make_model("Clip", [x, normal(20), high]))


def test_prelu() -> None:
    check("PRelu", [normal(2, 3, 4), normal(3, 1, seed=1)])


CASTS = [
    (np.float32, np.int32),
    (np.float32, np.bool_),
    (np.float32, np.float64),
    (np.float32, np.float16),
    (np.int64, np.float32),
    (np.int64, np.int32),
    (np.int64, np.bool_),
    (np.bool_, np.float32),
    (np.bool_, np.int64),
    (np.uint8, np.float32),
    (np.float16, np.float32),
]


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_cast(source: Any, target: Any) -> None:
    x = (normal(4, 5) * 3).astype(source)
    check("Cast", [x], to=_code(target))
    check("CastLike", [x, np.zeros(1, target)])


def _code(dtype: Any) -> int:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def test_dynamic_dims_are_one_program() -> None:
    def arrays(n: int, m: int) -> list[Any]:
        return [normal(n, m), normal(m, seed=1)]

    programs = check("Add", arrays(2, 3), dims={0: ("N", "M"), 1: ("M",)}, more=[arrays(1, 1), arrays(7, 13)])
    assert len(programs) == 1


def test_dims_that_must_agree_become_an_assumption() -> None:
    def arrays(n: int) -> list[Any]:
        return [normal(n, 3), normal(n, 3, seed=1)]

    check("Mul", arrays(2), dims={0: ("A", 3), 1: ("B", 3)}, more=[arrays(1), arrays(5)])


def test_dims_that_cannot_agree_are_refused() -> None:
    with pytest.raises(ModelError, match="the_Add"):
        programs_of(make_model("Add", [normal(3), normal(4)]))


def test_types_that_do_not_agree_are_refused() -> None:
    with pytest.raises(ModelError, match="one element type"):
        programs_of(make_model("Add", [normal(3), integers(3)]))


def test_half_precision() -> None:
    check("Gelu", [normal(64, dtype=np.float16)], tolerance=2e-3)
    check("Add", [normal(64, dtype=np.float16), normal(64, dtype=np.float16, seed=1)], tolerance=1e-3)
