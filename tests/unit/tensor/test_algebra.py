"""Each rule of the scalar algebra, and the near misses that it must leave alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opweld.tensor.algebra import lossless, simplify
from opweld.tensor.dim import Axis, Symbol, Value, floordiv, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, bitcast, cast, const, index, load, reduce, select, unary
from tests.unit.tensor.programs import BOOL, F32, I64, axes, f32, read

I = Axis("i", 8)  # noqa: E741
TWO = Axis("two", 2)
X, Y = read("x", I), read("y", I)
N = read("n", I, dtype=I64)
B, C = read("b", I, dtype=BOOL), read("c", I, dtype=BOOL)
INF = math.inf


def i64(value: int) -> Expr:
    return const(value, I64)


def truth(value: bool) -> Expr:
    return const(value, BOOL)


def op(name: str, *operands: Expr) -> Expr:
    return unary(name, *operands) if len(operands) == 1 else binary(name, *operands)


POSITIVE = op("exp", X)


def parts(at: int, first: int, second: int, last: bool = False) -> Expr:
    """t[i + first] where i < at, t[i + second] elsewhere: along the last axis, or one before it."""
    rest = () if last else (I.dim,)
    x, y = (load("t", F32, (I.dim + moved, *rest)) for moved in (first, second))
    return select(binary("ge", index(at - 1 - I.dim), i64(0)), x, y)


RULES = {
    "x + -0.0": (op("add", X, f32(-0.0)), X),
    "e^x + 0.0": (op("add", POSITIVE, f32(0.0)), POSITIVE),
    "n + 0": (op("add", i64(0), N), N),
    "x + -y": (op("add", X, op("neg", Y)), op("sub", X, Y)),
    "x - 0.0": (op("sub", X, f32(0.0)), X),
    "x - -y": (op("sub", X, op("neg", Y)), op("add", X, Y)),
    "n - n": (op("sub", N, N), i64(0)),
    "1 * x": (op("mul", f32(1), X), X),
    "x * -1": (op("mul", X, f32(-1)), op("neg", X)),
    "-x * 3": (op("mul", op("neg", X), f32(3)), op("mul", X, f32(-3))),
    "n * 0": (op("mul", N, i64(0)), i64(0)),
    "n * 2 * 3": (op("mul", op("mul", N, i64(2)), i64(3)), op("mul", N, i64(6))),
    "x / 1": (op("div", X, f32(1)), X),
    "x / 8": (op("div", X, f32(8)), op("mul", X, f32(0.125))),
    "x / -0.5": (op("div", X, f32(-0.5)), op("mul", X, f32(-2))),
    "1 / x": (op("div", f32(1), X), op("reciprocal", X)),
    "1 / sqrt(x)": (op("div", f32(1), op("sqrt", X)), op("rsqrt", X)),
    "x ^ 2": (op("pow", X, f32(2)), op("mul", X, X)),
    "x ^ 0": (op("pow", X, f32(0)), f32(1)),
    "x ^ -1": (op("pow", X, f32(-1)), op("reciprocal", X)),
    "(e^x) ^ 0.5": (op("pow", POSITIVE, f32(0.5)), op("sqrt", POSITIVE)),
    "(x * x + 1e-5) ^ -0.5": (
        op("pow", op("add", op("mul", X, X), f32(1e-5)), f32(-0.5)),
        op("rsqrt", op("add", op("mul", X, X), f32(1e-5))),
    ),
    "--x": (op("neg", op("neg", X)), X),
    "not not b": (op("not", op("not", B)), B),
    "not x == y": (op("not", op("eq", X, Y)), op("ne", X, Y)),
    "not n < 3": (op("not", op("lt", N, i64(3))), op("ge", N, i64(3))),
    "| |x| |": (op("abs", op("abs", X)), op("abs", X)),
    "|-x|": (op("abs", op("neg", X)), op("abs", X)),
    "|x * x|": (op("abs", op("mul", X, X)), op("mul", X, X)),
    "max(x, x)": (op("max", X, X), X),
    "max(x, -inf)": (op("max", X, f32(-INF)), X),
    "min(x, inf)": (op("min", X, f32(INF)), X),
    "relu(relu(x))": (op("max", op("max", X, f32(0)), f32(0)), op("max", X, f32(0))),
    "relu(sigmoid(x))": (op("max", op("sigmoid", X), f32(0)), op("sigmoid", X)),
    "min(min(x, 6), 4)": (op("min", op("min", X, f32(6)), f32(4)), op("min", X, f32(4))),
    "max(min(x, 6), 0)": (op("max", op("min", X, f32(6)), f32(0)), op("min", op("max", X, f32(0)), f32(6))),
    "clip(clip(x, 0, 6), -1, 9)": (
        op("max", op("min", op("min", op("max", X, f32(0)), f32(6)), f32(9)), f32(-1)),
        op("min", op("max", X, f32(0)), f32(6)),
    ),
    "b and true": (op("and", B, truth(True)), B),
    "false and b": (op("and", truth(False), B), truth(False)),
    "b or true": (op("or", B, truth(True)), truth(True)),
    "b xor true": (op("xor", B, truth(True)), op("not", B)),
    "n == n": (op("eq", N, N), truth(True)),
    "i < 8": (op("lt", index(I.dim), i64(8)), truth(True)),
    "i == -1": (op("eq", index(I.dim), i64(-1)), truth(False)),
    "i / 3": (op("div", index(I.dim), i64(3)), index(floordiv(I.dim, 3))),
    "i mod 3": (op("mod", index(I.dim), i64(3)), index(mod(I.dim, 3))),
    "min(i, 9)": (op("min", index(I.dim), i64(9)), index(I.dim)),
    "f32(f64(x))": (cast(cast(X, DType.F64), F32), X),
    "i64(i32(b))": (cast(cast(B, DType.I32), I64), cast(B, I64)),
    "if not b": (select(op("not", B), X, Y), select(B, Y, X)),
    "b if b else c": (select(B, truth(True), truth(False)), B),
    "false if b else true": (select(B, truth(False), truth(True)), op("not", B)),
    "if b then (if b then x else y) else y": (select(B, select(B, X, Y), Y), select(B, X, Y)),
    "roll": (parts(6, 2, -6), load("t", F32, (mod(I.dim + 2, 8), I.dim))),
    "both of two": (
        select(binary("ge", index(-TWO.dim), i64(0)), load("t", F32, (I.dim * 0,)), load("t", F32, (I.dim * 0 + 1,))),
        load("t", F32, (TWO.dim,)),
    ),
    "what came first again": (parts(6, 0, -6), load("t", F32, (mod(I.dim, 6), I.dim))),
    "literals": (op("mul", op("add", f32(1.5), f32(2)), op("neg", f32(2))), f32(-7)),
    "literal left": (op("gt", f32(3), X), op("lt", X, f32(3))),
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    before, after = RULES[name]
    assert simplify(before) is after, f"{simplify(before)} instead of {after}"
    assert simplify(after) is after


SAME = {
    "x + 0.0": op("add", X, f32(0.0)),  # -0.0 + 0.0 is 0.0
    "x - -0.0": op("sub", X, f32(-0.0)),
    "x - x": op("sub", X, X),  # infinity
    "x * 0": op("mul", X, f32(0)),
    "x / 3": op("div", X, f32(3)),  # 1 / 3 is rounded
    "x == x": op("eq", X, X),  # NaN
    "not x < y": op("not", op("lt", X, Y)),
    "(x + 1e8) + 1": op("add", op("add", X, f32(1e8)), f32(1)),
    "(x * 3) * 5": op("mul", op("mul", X, f32(3)), f32(5)),
    "min(max(x, 3), 1)": op("min", op("max", X, f32(3)), f32(1)),  # NaN stays NaN
    "max(x, nan)": op("max", X, f32(math.nan)),
    "f32(f16(x))": cast(cast(X, DType.F16), F32),
    "i64(i8(n))": cast(cast(N, DType.I8), I64),
    "n / 0": op("div", i64(3), i64(0)),
    "n / n": op("div", N, N),
    "-(x - y)": op("neg", op("sub", X, Y)),
    "x / 2^-1074": op("div", cast(X, DType.F64), const(5e-324, DType.F64)),
    "i < 7": op("lt", index(I.dim), i64(7)),
    "b xor c": op("xor", B, C),
    "the second of two, and the first": select(
        binary("ge", index(-TWO.dim), i64(0)), load("t", F32, (I.dim * 0 + 1,)), load("t", F32, (I.dim * 0,))
    ),
    "parts that are cut elsewhere": parts(5, 2, -6),
    "parts that would wrap twice": parts(3, 0, -3),
    "a roll of the last axis": parts(6, 2, -6, last=True),
    "a roll of two values": select(
        binary("ge", index(5 - I.dim), i64(0)), load("t", F32, (I.dim + 2, I.dim)), load("u", F32, (I.dim - 6, I.dim))
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_left_alone(name: str) -> None:
    assert simplify(SAME[name]) is SAME[name]


def test_square_root_by_pow_keeps_minus_infinity_and_zero() -> None:
    simplified = simplify(op("pow", X, f32(0.5)))
    expected = select(op("eq", X, f32(-INF)), f32(INF), op("sqrt", op("add", X, f32(0.0))))
    assert simplified is expected


def test_literals_are_rounded_once() -> None:
    third = op("div", f32(1), f32(3))
    assert simplify(op("mul", third, f32(3))) is f32(1)
    # two roundings: 0.1f + 0.2f rounded, minus 0.3f, is not the float64 difference
    difference = op("sub", op("add", f32(0.1), f32(0.2)), f32(0.3))
    literals = [float(x.value) for x in (f32(0.1), f32(0.2), f32(0.3))]  # type: ignore[attr-defined]
    assert simplify(difference) is f32(literals[0] + literals[1] - literals[2])


def test_a_folded_node_that_others_use_keeps_its_own_rounding() -> None:
    third = op("div", f32(1), f32(3))
    both = op("add", op("mul", third, f32(3)), op("mul", X, third))
    assert simplify(both) is op("add", op("mul", X, f32(1 / 3)), f32(1))


def test_explicit_narrowing_rounds() -> None:
    wide = op("mul", cast(cast(f32(0.1), DType.F16), F32), f32(1024))
    half = float(const(0.1, DType.F16).value)  # type: ignore[attr-defined]
    assert simplify(wide) is f32(half * 1024)


def test_rules_reach_into_run_time_indices() -> None:
    before = load("x", F32, (Value(op("add", N, i64(0)), 8).dim,))
    assert simplify(before) is load("x", F32, (Value(N, 8).dim,))


def test_reductions() -> None:
    j, k = axes(j=3, k=4)
    x = read("z", j, k)
    assert simplify(reduce("sum", (j,), reduce("sum", (k,), x))) is reduce("sum", (j, k), x)
    mixed = reduce("sum", (j,), reduce("max", (k,), x))
    assert simplify(mixed) is mixed
    assert simplify(reduce("max", (j, k), read("z", j))) is reduce("max", (j,), read("z", j))
    assert simplify(reduce("max", (Axis("e", 0),), read("z", j))) is f32(-INF)
    assert simplify(reduce("max", (Axis("s", Symbol("s").dim),), X)) is X


def test_lossless_is_what_numpy_says_of_all_values() -> None:
    integers = [dtype for dtype in DType if dtype.is_integer and dtype.bits <= 16]
    for source in (*integers, DType.BOOL):
        limits = (0, 1) if source is DType.BOOL else source.limits
        values = np.arange(limits[0], limits[1] + 1).astype(source.numpy)
        for target in DType:
            with np.errstate(all="ignore"):
                there = values.astype(np.float32 if target.is_float else np.int64).astype(target.numpy)
                kept = np.array_equal(there.astype(np.float64), values.astype(np.float64))
            assert lossless(source, target) == kept, (source, target)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (DType.F16, DType.BF16, False), (DType.BF16, DType.F16, False), (DType.BF16, F32, True),
        (F32, DType.F64, True), (DType.F64, F32, False), (DType.I32, DType.F64, True), (DType.I32, F32, False),
        (I64, DType.F64, False), (DType.U32, I64, True), (DType.U64, I64, False), (F32, I64, False),
    ],
)  # fmt: skip
def test_lossless_of_wide_types(source: DType, target: DType, expected: bool) -> None:
    assert lossless(source, target) is expected


def test_lossless_of_codes_is_what_ml_dtypes_says_of_all() -> None:
    for source in (dtype for dtype in DType if dtype.is_storage_only and dtype.is_float):
        values = np.arange(1 << source.bits, dtype=np.uint8).view(source.numpy).astype(np.float64)
        for target in (DType.F64, DType.F32, DType.F16, DType.BF16):
            with np.errstate(all="ignore"):
                kept = np.array_equal(values.astype(target.numpy).astype(np.float64), values, equal_nan=True)
            assert lossless(source, target) == kept, (source, target)
        assert not any(lossless(source, DType.of_short(short)) for short in ("i8", "i64", "b8", "u4"))


def test_a_rounding_between_two_casts_stays() -> None:
    code = cast(cast(X, DType.F8E4M3FN), F32)
    assert simplify(code) is code
    assert simplify(cast(cast(read("q", I, dtype=DType.I4), DType.I32), F32)) is cast(read("q", I, dtype=DType.I4), F32)
    assert simplify(cast(cast(f32(1.3), DType.F8E4M3FN), F32)) is f32(1.25)
    assert simplify(cast(cast(i64(-9), DType.I4), I64)) is i64(7)


def test_bits_of_bits_are_bits() -> None:
    bits = bitcast(X, DType.I32)
    assert bitcast(bits, F32) is X
    assert bitcast(bits, DType.U32) is bitcast(X, DType.U32)
    assert simplify(bits) is bits


def test_depth_and_sharing_cost_nothing() -> None:
    x = X
    for _ in range(60):
        x = op("mul", x, x)
    assert simplify(x) is x
    chain = X
    for _ in range(3000):
        chain = op("neg", op("tanh", chain))
    assert simplify(op("neg", op("neg", chain))) is chain


@pytest.mark.parametrize(
    ("kind", "dtype", "wanted"),
    [("sum", F32, 0.0), ("prod", F32, 1.0), ("max", F32, -INF), ("min", I64, 2**63 - 1), ("argmax", F32, 0)],
)
def test_a_reduction_over_nothing_is_its_neutral_element(kind: str, dtype: DType, wanted: float) -> None:
    full, empty = axes(a=3, b=0)
    result = simplify(reduce(kind, (full, empty), read("z", full, empty, dtype=dtype)))
    assert result is const(wanted, result.dtype)
