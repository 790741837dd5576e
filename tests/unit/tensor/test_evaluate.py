"""Single tensors in the interpreter: every operator against NumPy's own, errors exactly where they matter, memory."""

from __future__ import annotations

import math
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from opweld.errors import OpweldError
from opweld.tensor import evaluate
from opweld.tensor.dim import Axis, Symbol, Value, mod
from opweld.tensor.dtype import DType
from opweld.tensor.evaluate import evaluate_tensor, moved_tensor
from opweld.tensor.expr import Expr, binary, cast, const, index, load, reduce, select, unary
from opweld.tensor.program import Tensor
from tests.unit.tensor.programs import BOOL, F32, I64, Array, axes, f32, normal, read


def over(length: int, body: Expr, axis: Axis, **env: Array) -> Array:
    return evaluate_tensor(Tensor("y", body.dtype, (axis,), body, ("Node_1",)), env)


def apply(op: str, *operands: Array) -> Array:
    (i,) = axes(i=len(operands[0]))
    dtype = DType.of_numpy(operands[0].dtype)
    loaded = [read(name, i, dtype=dtype) for name in ("a", "b")[: len(operands)]]
    body = unary(op, loaded[0]) if len(loaded) == 1 else binary(op, loaded[0], loaded[1])
    return over(len(operands[0]), body, i, **dict(zip(("a", "b"), operands, strict=False)))


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 100.0, -100.0, np.inf, -np.inf, np.nan])

SCALAR = {
    "exp": math.exp,
    "tanh": math.tanh,
    "erf": math.erf,
    "atan": math.atan,
    "sin": math.sin,
    "asinh": math.asinh,
    "abs": abs,
    "neg": lambda x: -x,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
}


@pytest.mark.parametrize("op", SCALAR)
def test_unary_on_finite_numbers(op: str) -> None:
    x = np.array([0.0, 1.0, -1.0, 0.5, -0.5, -2.5, 3.5, 0.3])
    expected = np.array([SCALAR[op](value) for value in x.tolist()])
    np.testing.assert_allclose(apply(op, x), expected, rtol=2e-16)


def test_unary_on_special_numbers() -> None:
    inf, nan = np.inf, np.nan
    assert np.array_equal(apply("sigmoid", np.array([inf, -inf, nan, 1e4, -1e4])), [1, 0, nan, 1, 0], equal_nan=True)
    softplus = apply("softplus", np.array([inf, -inf, nan, 1e4, -1e4]))
    assert np.array_equal(softplus, [inf, 0, nan, 1e4, 0], equal_nan=True)
    assert np.array_equal(apply("sign", np.array([inf, -inf, nan, 0.0])), [1, -1, nan, 0], equal_nan=True)
    assert np.array_equal(apply("rsqrt", np.array([4.0, 0.0, inf, -1.0])), [0.5, inf, 0, nan], equal_nan=True)
    assert apply("isnan", SPECIAL).tolist() == [False] * 11 + [True]
    assert apply("isinf", SPECIAL).tolist() == [False] * 9 + [True, True, False]
    assert apply("round", np.array([0.5, 1.5, 2.5, -0.5])).tolist() == [0, 2, 2, 0]


def test_min_and_max_propagate_nan() -> None:
    a, b = np.array([np.nan, 1.0, -np.inf]), np.array([1.0, np.nan, 5.0])
    assert np.array_equal(apply("max", a, b), [np.nan, np.nan, 5], equal_nan=True)
    assert np.array_equal(apply("min", a, b), [np.nan, np.nan, -np.inf], equal_nan=True)


def test_integer_division_truncates_and_mod_follows_the_divisor() -> None:
    a, b = np.array([7, -7, 7, -7, -(2**63)]), np.array([2, 2, -2, -2, -1])
    assert apply("div", a, b).tolist() == [3, -3, -3, 3, -(2**63)]
    assert apply("mod", a[:4], b[:4]).tolist() == [1, 1, -1, -1]
    assert apply("fmod", a[:4], b[:4]).tolist() == [1, -1, 1, -1]


def test_integers_wrap() -> None:
    a = np.array([127, -128, 100], np.int8)
    assert apply("add", a, np.array([1, -1, 100], np.int8)).tolist() == [-128, 127, -56]
    assert apply("neg", a).tolist() == [-127, -128, -100]
    assert apply("pow", np.array([2, -1, 3, 1, -1]), np.array([3, -3, -1, -5, -2])).tolist() == [8, -1, 0, 1, 1]


@pytest.mark.parametrize("op", ["div", "mod", "fmod"])
def test_division_by_zero_is_an_error_of_integers_only(op: str) -> None:
    with pytest.raises(OpweldError, match=r"'y' \(from Node_1\): divides by zero"):
        apply(op, np.array([1, 2]), np.array([1, 0]))
    assert np.isnan(apply(op, np.array([0.0]), np.array([0.0])))[0]


def test_a_side_that_is_not_chosen_may_divide_by_zero_or_read_out_of_range() -> None:
    (i,) = axes(i=4)
    a = read("a", i, dtype=I64)
    body = select(binary("ne", a, const(0, I64)), binary("div", const(12, I64), a), const(-1, I64))
    assert over(4, body, i, a=np.array([0, 3, 0, 5])).tolist() == [-1, 4, -1, 2]
    beyond = load("a", I64, (i.dim + 2,))
    body = select(binary("lt", index(i.dim), const(2, I64)), beyond, const(0, I64))
    assert over(4, body, i, a=np.array([0, 3, 6, 5])).tolist() == [6, 5, 0, 0]


def test_a_load_out_of_range_names_tensor_origin_and_index() -> None:
    (i,) = axes(i=4)
    with pytest.raises(OpweldError, match=r"'y' \(from Node_1\): loads 'a' at index i \+ 1 of dim 0, outside \[0, 4\)"):
        over(4, load("a", F32, (i.dim + 1,)), i, a=normal(4))
    with pytest.raises(OpweldError, match="outside"):
        over(4, load("a", F32, (i.dim - 1,)), i, a=normal(4))


def test_a_run_time_index_out_of_range() -> None:
    (i,) = axes(i=3)
    body = load("a", F32, (Value(read("k", i, dtype=I64), 4).dim,))
    assert over(3, body, i, a=np.arange(4, dtype=np.float32), k=np.array([3, 0, 2])).tolist() == [3, 0, 2]
    for bad in (4, -1):
        with pytest.raises(OpweldError, match="uses an index outside"):
            over(3, body, i, a=normal(4), k=np.array([3, bad, 2]))


def test_a_failed_guard_gives_the_fill_without_looking_at_the_index() -> None:
    (i,) = axes(i=4)
    row = Value(read("k", i, dtype=I64), 4).dim
    body = load("a", F32, (row,), (2 - i.dim,), f32(-1))
    assert over(4, body, i, a=np.arange(4, dtype=np.float32), k=np.array([3, 0, 2, 99])).tolist() == [3, 0, 2, -1]


def test_what_lies_at_steady_strides_is_moved_without_a_copy() -> None:
    w = normal(6, 8)
    i, j = axes(i=4, j=6)
    steady = {
        "transposed": (read("w", j, 2 * i.dim + 1), w[:, 1::2].T),
        "repeated": (read("w", 3, i), np.repeat(w[3, :4][:, None], 6, axis=1)),
    }
    for body, expected in steady.values():
        moved = moved_tensor(Tensor("y", F32, (i, j), body), {"w": w})
        assert np.shares_memory(moved, w) and np.array_equal(moved, expected)
    padded = Tensor("y", F32, (i, j), load("w", F32, (j.dim, i.dim), (2 - i.dim,), f32(0)))
    expected = np.where(np.arange(4)[:, None] <= 2, w.T[:4], 0)
    assert np.array_equal(moved_tensor(padded, {"w": w}), expected)
    with pytest.raises(OpweldError, match="outside"):
        moved_tensor(Tensor("y", F32, (i, j), read("w", j, 3 * i.dim)), {"w": w})


def test_a_fault_in_a_reduction_and_in_a_product_is_found() -> None:
    i, k = axes(i=2, k=3)
    a = load("a", F32, (i.dim, k.dim))
    beyond = load("b", F32, (k.dim + i.dim,))
    for body in (reduce("max", (k,), beyond), reduce("sum", (k,), binary("mul", a, beyond))):
        with pytest.raises(OpweldError, match="loads 'b'"):
            over(2, body, i, a=normal(2, 3), b=normal(3))
        assert over(2, body, i, a=normal(2, 3), b=normal(4)).shape == (2,)


def test_reductions() -> None:
    i, j, k = axes(i=2, j=3, k=4)
    x = normal(4, 3, 2).transpose(2, 1, 0).copy()
    element = read("x", i, j, k)
    for kind, expected in {
        "sum": x.sum((1, 2)),
        "prod": x.prod((1, 2)),
        "max": x.max((1, 2)),
        "min": x.min((1, 2)),
        "argmax": x.reshape(2, -1).argmax(-1),
        "argmin": x.reshape(2, -1).argmin(-1),
    }.items():
        np.testing.assert_allclose(over(2, reduce(kind, (j, k), element), i, x=x), expected, rtol=1e-6)
    # positions count in the order of the axes, which may not be that of the tensor
    swapped = over(2, reduce("argmax", (k, j), element), i, x=x)
    assert swapped.tolist() == x.transpose(0, 2, 1).reshape(2, -1).argmax(-1).tolist()


def test_arg_reductions_of_ties() -> None:
    i, k = axes(i=1, k=4)
    x = np.array([5, 7, 7, 5])
    element = read("x", k, dtype=I64)
    found = {kind: int(over(1, reduce(kind, (k,), element), i, x=x)[0]) for kind in
             ("argmax", "argmax_last", "argmin", "argmin_last")}  # fmt: skip
    assert found == {"argmax": 1, "argmax_last": 2, "argmin": 0, "argmin_last": 3}


def test_reductions_of_nothing_are_neutral() -> None:
    i, k = axes(i=2, k=0)
    for kind, dtype, expected in [
        ("sum", F32, 0), ("prod", F32, 1), ("max", F32, -np.inf), ("min", F32, np.inf),
        ("max", I64, -(2**63)), ("any", BOOL, False), ("all", BOOL, True),
    ]:  # fmt: skip
        body = reduce(kind, (k,), read("x", i, k, dtype=dtype))
        assert over(2, body, i, x=np.zeros((2, 0), dtype.numpy)).tolist() == [expected] * 2
    product = reduce("sum", (k,), binary("mul", read("x", i, k), read("x", i, k)))
    assert over(2, product, i, x=np.zeros((2, 0), np.float32)).tolist() == [0, 0]


def test_a_reduction_repeats_what_does_not_depend_on_its_axis() -> None:
    i, k = axes(i=3, k=5)
    assert over(3, reduce("sum", (k,), read("x", i)), i, x=np.ones(3, np.float32)).tolist() == [5, 5, 5]
    body = reduce("sum", (k,), binary("mul", read("x", i), f32(2)))
    assert over(3, body, i, x=np.ones(3, np.float32)).tolist() == [10, 10, 10]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_types_round_after_each_operation_and_sum_in_float32(dtype: type) -> None:
    x = normal(40, 9).astype(dtype)
    i, k = axes(i=40, k=9)
    element = read("x", i, k, dtype=DType.of_numpy(np.dtype(dtype)))
    total = over(40, reduce("sum", (k,), element), i, x=x)
    assert total.dtype == dtype
    assert np.array_equal(total, x.astype(np.float32).sum(-1).astype(dtype))
    root = over(40, reduce("max", (k,), unary("exp", binary("mul", element, element))), i, x=x)
    square = (x.astype(np.float32) ** 2).astype(dtype)
    assert np.array_equal(root, np.exp(square.astype(np.float32)).astype(dtype).max(-1))


def test_casts() -> None:
    (i,) = axes(i=4)
    x = np.array([1.9, -1.9, 0.0, np.nan], np.float32)
    element = read("x", i)
    assert over(4, cast(element, DType.I32), i, x=x)[:3].tolist() == [1, -1, 0]
    assert over(4, cast(element, BOOL), i, x=x).tolist() == [True, True, False, True]
    k = np.array([300, -1, 256, 5])
    assert over(4, cast(read("k", i, dtype=I64), DType.U8), i, k=k).tolist() == [44, 255, 0, 5]


def test_float64_computes_what_float32_rounds_away() -> None:
    (i,) = axes(i=1)
    body = binary("sub", binary("add", read("x", i), f32(1e8)), f32(1e8))
    tensor = Tensor("y", F32, (i,), body)
    assert evaluate_tensor(tensor, {"x": np.ones(1, np.float32)}).tolist() == [0]
    assert evaluate_tensor(tensor, {"x": np.ones(1)}, float64=True).tolist() == [1]


@pytest.mark.parametrize("block", [1, 100, 1000, 10_000])
def test_blocks_give_what_the_whole_gives(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    i, j, k, m = axes(i=5, j=7, k=6, m=7)
    row = 2 * i.dim + mod(j.dim, 3) - 1
    padded = load("x", F32, (row, k.dim), (row, 9 - row), f32(2))
    largest = reduce("max", (m,), read("y", k, m))
    body = binary("add", reduce("sum", (k,), binary("mul", padded, read("y", k, j))), reduce("sum", (k,), largest))
    tensor = Tensor("z", F32, (i, j), body)
    env: dict[str, Array] = {"x": normal(10, 6), "y": normal(6, 7)}
    whole = evaluate_tensor(tensor, env)
    monkeypatch.setattr(evaluate, "BLOCK_BYTES", block)
    np.testing.assert_allclose(evaluate_tensor(tensor, env), whole, rtol=1e-5)


def test_a_convolution_stays_within_its_memory() -> None:
    """3x3, 256 to 256 channels on 14 x 14: the products alone would be 462 MB."""
    k, y, x = axes(k=256, y=14, x=14)
    c, u, v = axes(c=256, u=3, v=3)
    row, column = y.dim + u.dim - 1, x.dim + v.dim - 1
    pixel = load("x", F32, (c.dim, row, column), (row, 13 - row, column, 13 - column))
    body = reduce("sum", (c, u, v), binary("mul", pixel, read("w", k, c, u, v)))
    env: dict[str, Array] = {"x": normal(256, 14, 14), "w": normal(256, 256, 3, 3)}
    tracemalloc.start()
    evaluate_tensor(Tensor("y", F32, (k, y, x), body), env)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20


def test_symbols_and_missing_ones() -> None:
    n = Symbol("n")
    i = Axis("i", n.dim)
    tensor = Tensor("y", I64, (i,), index(i.dim * n.dim))
    assert evaluate_tensor(tensor, {}, {n: 3}).tolist() == [0, 3, 6]
    with pytest.raises(OpweldError, match="no value for n"):
        evaluate_tensor(tensor, {})


def test_sixty_nested_products_are_computed_once_each() -> None:
    (i,) = axes(i=2)
    x = read("x", i)
    for _ in range(60):
        x = binary("mul", x, x)
    assert over(2, x, i, x=np.array([1.0, 0.5], np.float32)).tolist() == [1, 0]
