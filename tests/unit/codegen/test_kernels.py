"""Generated kernels against the element-by-element interpreter, in every vector length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from opweld.tensor.dim import Axis, Dim, Symbol, Value, as_dim, ceildiv, floordiv, maximum, minimum, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, at_least_zero, binary, bitcast, cast, const, index, load, lookup, select, unary
from opweld.tensor.semantics import apply_cast
from opweld.tile.check import check_kernel
from opweld.tile.parse import parse_kernel
from opweld.tile.tile import Accumulate, Buffer, Collapse, Declare, Kernel, Let, Loop, Scratch, Store, Tile
from tests.unit.codegen.compiled import Runner, aligned, fenced
from tests.unit.codegen.hand_written import F32, add, conv3x3, f32, gemm, get, layernorm, mul, named, sub
from tests.unit.codegen.interpreted import BadIndexError, DivisionByZeroError, interpret

LANES = (16, 8, 4)
N, M = Symbol("n"), Symbol("m")


def fill(dtype: DType, count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed + count)
    array = aligned((count,), dtype.numpy)
    if dtype.is_float:
        array[...] = random.standard_normal(count).astype(dtype.numpy)
    elif dtype is DType.BOOL:
        array[...] = random.random(count) < 0.5
    else:
        low, high = dtype.limits
        array[...] = random.integers(max(low, -100), min(high + 1, 100), count)
    return array


def check(
    kernel: Kernel,
    counts: Mapping[str, int],
    sizes: Mapping[Symbol, int] | None = None,
    lanes: tuple[int, ...] = LANES,
    given: Mapping[str, Any] | None = None,
    tolerance: float = 2e-5,
) -> dict[str, np.ndarray[Any, Any]]:
    """Runs a kernel in every vector length, in uneven ranges, between inaccessible pages; compares all
    buffers with the interpreter's."""
    start: dict[str, np.ndarray[Any, Any]] = {}
    for seed, buffer in enumerate(kernel.buffers):
        start[buffer.name] = fill(buffer.dtype, counts[buffer.name], seed)
        if given and buffer.name in given:
            start[buffer.name][...] = np.asarray(given[buffer.name]).reshape(-1)
    expected = {name: array.copy() for name, array in start.items()}
    failure = 0
    try:
        interpret(kernel, expected, sizes or {})
    except BadIndexError:
        failure = 1
    except DivisionByZeroError:
        failure = 2
    actual: dict[str, np.ndarray[Any, Any]] = {}
    for width in lanes:
        actual = {}
        for name, array in start.items():
            actual[name] = fenced(array, at_end=width != 8)
        error = Runner(kernel, width)(actual, sizes, (0.0, 0.3, 0.7, 1.0))
        assert error == failure, width
        if failure:
            continue
        for name, array in expected.items():
            if not DType.of_numpy(array.dtype).is_float:
                np.testing.assert_array_equal(actual[name], array, f"{name}, {width} lanes")
            else:
                wide, exact = actual[name].astype(np.float64), array.astype(np.float64)
                np.testing.assert_allclose(wide, exact, tolerance, tolerance, err_msg=f"{name}, {width} lanes")
    return actual


def map_kernel(
    value: Any, total: Dim | int, reads: tuple[Buffer, ...], dtype: DType = F32, width: int = 16, sizes: Any = ()
) -> Kernel:
    """out[i] = value(i) for all i below total."""
    total = as_dim(total)
    tile, lane = Axis("t", ceildiv(total, width)), Axis("l", width)
    place = tile.dim * width + lane.dim
    body = (Tile(lane, "lane", tile.dim * width, (Store("out", place, value(place)),), total),)
    return Kernel("map", (*reads, Buffer("out", dtype, "write")), sizes, (tile,), body)


@pytest.mark.parametrize(("m", "n", "k"), [(16, 64, 8), (13, 40, 5), (1, 1, 1), (9, 33, 20)])
def test_gemm(m: int, n: int, k: int) -> None:
    counts = {"A": m * k, "B": -(-n // 32) * k * 32, "bias": n, "C": m * n}
    check(gemm(m, n, k), counts)


@pytest.mark.parametrize("m", [1, 7, 8, 14, 29])
def test_gemm_with_a_symbolic_number_of_rows(m: int) -> None:
    counts = {"A": m * 6, "B": 2 * 6 * 32, "bias": 40, "C": m * 40}
    check(gemm(M.dim, 40, 6, rows=14, sizes=(M,)), counts, {M: m})


@pytest.mark.parametrize(("h", "w", "ci", "co"), [(5, 9, 3, 33), (1, 1, 1, 1), (3, 8, 20, 32)])
def test_convolution_reads_zeros_outside(h: int, w: int, ci: int, co: int) -> None:
    counts = {"X": h * w * ci, "W": -(-co // 32) * 9 * ci * 32, "Y": h * w * co}
    check(conv3x3(h, w, ci, co), counts)


@pytest.mark.parametrize(("r", "c"), [(3, 64), (2, 77), (4, 5), (1, 1)])
def test_layernorm(r: int, c: int) -> None:
    check(layernorm(r, c), {"x": r * c, "gamma": c, "beta": c, "y": r * c}, tolerance=1e-4)


@pytest.mark.parametrize("c", [1, 15, 16, 33, 64, 77])
def test_layernorm_with_symbolic_columns(c: int) -> None:
    kernel = layernorm(M.dim, N.dim, sizes=(M, N))
    check(kernel, {"x": 3 * c, "gamma": c, "beta": c, "y": 3 * c}, {M: 3, N: c}, tolerance=1e-4)


def softmax(rows: int, columns: int, width: int = 32) -> Kernel:
    r = Axis("r", rows)
    limit = as_dim(columns)

    def place(lane: Axis, chunk: Axis) -> Dim:
        return r.dim * columns + chunk.dim * width + lane.dim

    def chunks() -> tuple[Axis, Axis]:
        return Axis("l", width), Axis("c", ceildiv(columns, width))

    (l1, c1), (l2, c2), (l3, c3) = chunks(), chunks(), chunks()
    body = (
        Declare("max", F32, (l1,), f32(float("-inf"))),
        Loop(c1, (Tile(l1, "lane", c1.dim * width, (Accumulate("max", "max", get("x", place(l1, c1))),), limit),)),
        Collapse("max", "max"),
        Declare("sum", F32, (l2,), f32(0)),
        Loop(
            c2,
            (
                Tile(
                    l2,
                    "lane",
                    c2.dim * width,
                    (
                        Let("e", unary("exp", sub(get("x", place(l2, c2)), named("max")))),
                        Store("tmp", c2.dim * width + l2.dim, named("e")),
                        Accumulate("sum", "sum", named("e")),
                    ),
                    limit,
                ),
            ),
        ),
        Collapse("sum", "sum"),
        Let("scale", binary("div", f32(1), named("sum"))),
        Loop(
            c3,
            (
                Tile(
                    l3,
                    "lane",
                    c3.dim * width,
                    (Store("y", place(l3, c3), mul(get("tmp", c3.dim * width + l3.dim), named("scale"))),),
                    limit,
                ),
            ),
        ),
    )
    scratch = (Scratch("tmp", F32, as_dim(columns)),)
    return Kernel("softmax", (Buffer("x", F32, "read"), Buffer("y", F32, "write")), (), (r,), body, scratch)


@pytest.mark.parametrize("columns", [1, 31, 32, 100])
def test_softmax_with_scratch(columns: int) -> None:
    out = check(softmax(5, columns), {"x": 5 * columns, "y": 5 * columns})
    np.testing.assert_allclose(out["y"].reshape(5, columns).sum(1), 1, 1e-5)


def test_maximum_propagates_nan() -> None:
    x = np.zeros((5, 33), np.float32)
    x[2, 32] = np.nan
    out = check(softmax(5, 33), {"x": 5 * 33, "y": 5 * 33}, given={"x": x})
    assert np.isnan(out["y"].reshape(5, 33)[2]).all()
    assert not np.isnan(out["y"].reshape(5, 33)[[0, 1, 3, 4]]).any()


def reduction(kind: str, dtype: DType, total: int, result: DType | None = None) -> Kernel:
    """out[r] = kind of x[r, :]"""
    r, lane, chunk = Axis("r", 3), Axis("l", 32), Axis("c", ceildiv(total, 32))
    result = result or dtype
    neutral = {"sum": 0, "prod": 1, "any": 0, "all": 1}
    start = neutral.get(kind)
    if start is None and not kind.startswith("arg"):
        limits = np.iinfo(dtype.numpy) if dtype.is_integer else np.finfo(np.float32)
        start = limits.min if kind == "max" else limits.max
    here = chunk.dim * 32 + lane.dim
    item = Accumulate("best", kind, load("x", dtype, (r.dim * total + here,)), here if kind.startswith("arg") else None)
    body = (
        Declare("best", result, (lane,), const(float(start or 0) if result.is_float else int(start or 0), result)),
        Loop(chunk, (Tile(lane, "lane", chunk.dim * 32, (item,), as_dim(total)),)),
        Collapse("best", kind),
        Store("out", r.dim, load("best", result, ())),
    )
    return Kernel(kind, (Buffer("x", dtype, "read"), Buffer("out", result, "write")), (), (r,), body)


@pytest.mark.parametrize("total", [1, 32, 45])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.I32, DType.I64, DType.U8, DType.I8])
def test_reductions(kind: str, dtype: DType, total: int) -> None:
    check(reduction(kind, dtype, total), {"x": 3 * total, "out": 3}, lanes=(16, 4) if total == 45 else (16,))


@pytest.mark.parametrize("kind", ["any", "all"])
def test_logical_reductions(kind: str) -> None:
    for x in (np.zeros((3, 45), bool), np.ones((3, 45), bool), np.eye(3, 45, 42, dtype=bool)):
        check(reduction(kind, DType.BOOL, 45), {"x": 3 * 45, "out": 3}, given={"x": x})


@pytest.mark.parametrize("kind", ["argmax", "argmin", "argmax_last", "argmin_last"])
@pytest.mark.parametrize("total", [1, 31, 70])
def test_positions_of_extremes(kind: str, total: int) -> None:
    x = np.random.default_rng(total).integers(0, 3, (3, total)).astype(np.float32)
    x[1] = -np.inf if "max" in kind else np.inf
    x[2, total // 2] = np.nan
    check(reduction(kind, F32, total, DType.I64), {"x": 3 * total, "out": 3}, given={"x": x})
    check(
        reduction(kind, DType.I32, total, DType.I64),
        {"x": 3 * total, "out": 3},
        given={"x": np.nan_to_num(x).clip(-5, 5)},
    )


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (5, 37), (1, 3), (33, 2)])
@pytest.mark.parametrize("across", [False, True])
def test_transposing_copy(rows: int, columns: int, across: bool) -> None:
    """Strided loads with contiguous stores, and the other way round."""
    tile, lane, row = Axis("t", ceildiv(columns, 16)), Axis("l", 16), Axis("r", 4)
    block = Axis("b", ceildiv(rows, 4))
    i, j = block.dim * 4 + row.dim, tile.dim * 16 + lane.dim
    source, target = (i * columns + j, j * rows + i) if across else (j * rows + i, i * columns + j)
    store = Store("out", target, get("x", source))
    body = (
        Tile(lane, "lane", tile.dim * 16, (Tile(row, "row", block.dim * 4, (store,), as_dim(rows)),), as_dim(columns)),
    )
    kernel = Kernel("copy", (Buffer("x", F32, "read"), Buffer("out", F32, "write")), (), (tile, block), body)
    check(kernel, {"x": rows * columns, "out": rows * columns})


@pytest.mark.parametrize(("total", "height"), [(32, 8), (32, 12), (29, 8), (25, 4), (24, 8)])
def test_tiles_that_begin_beyond_their_limit_are_empty(total: int, height: int) -> None:
    """Blocks of 24 rows in tiles: of the last block, which is shorter, some tiles have no row at all."""
    block, tile, row, lane = (
        Axis("b", ceildiv(total, 24)),
        Axis("t", ceildiv(24, height)),
        Axis("r", height),
        Axis("l", 16),
    )
    here = tile.dim * height + row.dim
    place = (block.dim * 24 + here) * 16 + lane.dim
    inner = Tile(lane, "lane", as_dim(0), (Store("out", place, mul(get("x", place), f32(2.0))),))
    rows = Tile(row, "row", tile.dim * height, (inner,), minimum(24, total - block.dim * 24))
    kernel = Kernel(
        "blocks", (Buffer("x", F32, "read"), Buffer("out", F32, "write")), (), (block,), (Loop(tile, (rows,)),)
    )
    check(kernel, {"x": total * 16, "out": total * 16})


def test_depthwise_with_channels_in_lanes() -> None:
    h, w, c = 5, 7, 37
    y, tile, block = Axis("y", h), Axis("t", ceildiv(c, 16)), Axis("b", ceildiv(w, 4))
    lane, row, ky, kx = Axis("l", 16), Axis("x", 4), Axis("ky", 3), Axis("kx", 3)
    cc, xx = tile.dim * 16 + lane.dim, block.dim * 4 + row.dim
    iy, ix = y.dim + ky.dim - 1, xx + kx.dim - 1
    source = get("x", (iy * w + ix) * c + cc, (iy, h - 1 - iy, ix, w - 1 - ix))
    weight = get("k", (ky.dim * 3 + kx.dim) * c + cc)
    inner = (
        Declare("acc", F32, (row, lane), get("bias", cc)),
        Loop(ky, (Loop(kx, (Accumulate("acc", "sum", mul(source, weight)),)),)),
        Store("out", (y.dim * w + xx) * c + cc, named("acc")),
    )
    body = (Tile(lane, "lane", tile.dim * 16, (Tile(row, "row", block.dim * 4, inner, as_dim(w)),), as_dim(c)),)
    reads = (Buffer("x", F32, "read"), Buffer("k", F32, "read"), Buffer("bias", F32, "read"))
    kernel = Kernel("depthwise", (*reads, Buffer("out", F32, "write")), (), (tile, y, block), body)
    check(kernel, {"x": h * w * c, "k": 9 * c, "bias": c, "out": h * w * c})


def test_rows_of_flattened_pixels_divide() -> None:
    h, w, c = 5, 7, 16
    block, row, lane, kx = Axis("b", ceildiv(h * w, 6)), Axis("p", 6), Axis("l", 16), Axis("kx", 3)
    p = block.dim * 6 + row.dim
    y, x = floordiv(p, w), mod(p, w) + kx.dim - 1
    source = get("x", (y * w + x) * c + lane.dim, (x, w - 1 - x))
    inner = (
        Declare("acc", F32, (row, lane), f32(0)),
        Loop(kx, (Accumulate("acc", "sum", source),)),
        Store("out", p * c + lane.dim, named("acc")),
    )
    body = (Tile(lane, "lane", as_dim(0), (Tile(row, "row", block.dim * 6, inner, as_dim(h * w)),)),)
    kernel = Kernel("window", (Buffer("x", F32, "read"), Buffer("out", F32, "write")), (), (block,), body)
    check(kernel, {"x": h * w * c, "out": h * w * c})


def test_lanes_of_flattened_pixels_divide() -> None:
    h, w = 5, 7

    def value(i: Dim) -> Expr:
        x, y = mod(i, w) - 1, floordiv(i, w)
        return get("x", y * w + x, (x,), f32(-3))

    check(map_kernel(value, h * w, (Buffer("x", F32, "read"),)), {"x": h * w, "out": h * w})


def test_reversed_and_clamped_indices() -> None:
    def value(i: Dim) -> Expr:
        return add(get("x", 36 - i), get("x", minimum(maximum(i - 3, 0), 20)))

    check(map_kernel(value, 37, (Buffer("x", F32, "read"),)), {"x": 37, "out": 37})


def test_padding_in_lanes_fills_and_stays_inside() -> None:
    def value(i: Dim) -> Expr:
        return get("x", i - 5, (i - 5, 5 + 20 - 1 - i), f32(-7.5))

    check(map_kernel(value, 37, (Buffer("x", F32, "read"),)), {"x": 20, "out": 37})


@pytest.mark.parametrize("extent", [40, 39])
def test_gather_by_lane(extent: int) -> None:
    """Index 39 is used: an extent of 39 makes it an error."""
    indices = np.random.default_rng(1).integers(0, 40, 37)
    indices[36] = 39

    def value(i: Dim) -> Expr:
        return get("x", Value(load("at", DType.I64, (i,)), extent).dim)

    kernel = map_kernel(value, 37, (Buffer("at", DType.I64, "read"), Buffer("x", F32, "read")))
    check(kernel, {"at": 37, "x": 40, "out": 37}, given={"at": indices})


@pytest.mark.parametrize("bad", [None, -11, 10])
def test_gather_of_rows(bad: int | None) -> None:
    """Negative indices count from the end."""
    indices = np.array([3, 0, -1, 9, -10, 5], np.int32)
    if bad is not None:
        indices[4] = bad
    r, tile, lane = Axis("r", 6), Axis("t", 2), Axis("l", 16)
    raw = cast(load("at", DType.I32, (r.dim,)), DType.I64)
    ten, zero = const(10, DType.I64), const(0, DType.I64)
    row = Value(select(binary("lt", raw, zero), binary("add", raw, ten), raw), 10).dim
    cc = tile.dim * 16 + lane.dim
    body = (Tile(lane, "lane", tile.dim * 16, (Store("out", r.dim * 20 + cc, get("x", row * 20 + cc)),), as_dim(20)),)
    buffers = (Buffer("at", DType.I32, "read"), Buffer("x", F32, "read"), Buffer("out", F32, "write"))
    check(Kernel("gather", buffers, (), (r, tile), body), {"at": 6, "x": 200, "out": 120}, given={"at": indices})


def test_concat_along_rows_and_along_lanes() -> None:
    """A select of loads evaluates the chosen side only: the other is out of bounds."""
    r, tile, lane = Axis("r", 7), Axis("t", 2), Axis("l", 16)
    cc = tile.dim * 16 + lane.dim
    below = select(at_least_zero(3 - r.dim), get("a", r.dim * 20 + cc), get("b", (r.dim - 4) * 20 + cc))
    right = select(at_least_zero(10 - cc), get("c", cc), unary("exp", get("d", cc - 11)))
    value = add(below, right)
    body = (Tile(lane, "lane", tile.dim * 16, (Store("out", r.dim * 20 + cc, value),), as_dim(20)),)
    names = "abcd"
    buffers = (*(Buffer(name, F32, "read") for name in names), Buffer("out", F32, "write"))
    check(Kernel("concat", buffers, (), (r, tile), body), {"a": 80, "b": 60, "c": 11, "d": 9, "out": 140})


def test_select_of_what_is_loaded_anyway() -> None:
    """The sides stop being worth a branch while the expression is written."""
    i = Axis("i", 9)
    x, y = get("x", i.dim), get("y", i.dim)
    body = (
        Let("c", get("z", i.dim)),
        Store("out", i.dim, add(add(x, y), select(binary("lt", named("c"), f32(0)), x, y))),
    )
    buffers = (*(Buffer(name, F32, "read") for name in "xyz"), Buffer("out", F32, "write"))
    check(Kernel("chosen", buffers, (), (i,), body), {"x": 9, "y": 9, "z": 9, "out": 9})


def test_select_in_lanes_over_checked_indices() -> None:
    """Only lanes that choose a side are checked on it."""

    def value(i: Dim) -> Expr:
        here = load("at", DType.I64, (i,))
        usable = binary("ge", here, const(0, DType.I64))
        return select(usable, get("x", Value(here, 8).dim), get("y", i))

    kernel = map_kernel(
        value, 37, (Buffer("at", DType.I64, "read"), Buffer("x", F32, "read"), Buffer("y", F32, "read"))
    )
    counts = {"at": 37, "x": 8, "y": 37, "out": 37}
    check(kernel, counts, given={"at": np.random.default_rng(3).integers(-3, 8, 37)})
    check(kernel, counts, given={"at": np.full(37, -5)})


@pytest.mark.parametrize("divisor", [3, 0])
def test_integer_division(divisor: int) -> None:
    y = np.random.default_rng(2).integers(1, 9, 37).astype(np.int32) * np.where(np.arange(37) % 2, 1, -1)
    y[20] = divisor

    def value(i: Dim) -> Expr:
        x, z = load("x", DType.I32, (i,)), load("y", DType.I32, (i,))
        return binary("add", binary("div", x, z), binary("mul", binary("mod", x, z), binary("fmod", x, z)))

    kernel = map_kernel(value, 37, (Buffer("x", DType.I32, "read"), Buffer("y", DType.I32, "read")), DType.I32)
    check(kernel, {"x": 37, "y": 37, "out": 37}, given={"y": y})


FLOAT_UNARY = [
    "neg",
    "abs",
    "exp",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "tanh",
    "sigmoid",
    "erf",
    "floor",
    "ceil",
    "round",
    "sign",
]


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_unary_operators(dtype: DType) -> None:
    for op in FLOAT_UNARY:

        def value(i: Dim, op: str = op) -> Expr:
            x = load("x", dtype, (i,))
            return unary(op, unary("abs", x) if op in ("sqrt", "rsqrt") else x)

        check(map_kernel(value, 21, (Buffer("x", dtype, "read"),), dtype), {"x": 21, "out": 21}, lanes=(16,))


@pytest.mark.parametrize("dtype", [DType.F32, DType.I64, DType.I32, DType.U8, DType.I8, DType.F64, DType.I16])
def test_binary_operators(dtype: DType) -> None:
    ops = ["add", "sub", "mul", "min", "max"] + ([] if dtype.is_float else ["bitand", "bitor", "bitxor"])
    for op in ops:

        def value(i: Dim, op: str = op) -> Expr:
            return binary(op, load("x", dtype, (i,)), binary("mul", load("y", dtype, (36 - i,)), const(3, dtype)))

        kernel = map_kernel(value, 37, (Buffer("x", dtype, "read"), Buffer("y", dtype, "read")), dtype)
        check(kernel, {"x": 37, "y": 37, "out": 37}, lanes=(16,))


@pytest.mark.parametrize("dtype", [DType.F32, DType.I64, DType.I32, DType.U8, DType.BOOL])
def test_comparisons_and_logic(dtype: DType) -> None:
    ops = ["eq", "ne"] if dtype is DType.BOOL else ["eq", "ne", "lt", "le", "gt", "ge"]

    def value(i: Dim) -> Expr:
        x, y = load("x", dtype, (i,)), load("y", dtype, (36 - i,))
        total = binary(ops[0], x, y)
        for number, op in enumerate(ops[1:]):
            total = binary(("and", "or", "xor")[number % 3], total, unary("not", binary(op, x, y)))
        return total

    kernel = map_kernel(value, 37, (Buffer("x", dtype, "read"), Buffer("y", dtype, "read")), DType.BOOL)
    check(kernel, {"x": 37, "y": 37, "out": 37}, lanes=(16, 4))


CODES = [dtype for dtype in DType if dtype.is_storage_only]


def _stores(values: Callable[[Dim], list[Expr]], *reads: Buffer) -> Kernel:
    """One kernel that stores 21 elements of each value in a buffer of its own: out0, out1, ..."""
    block, lane = Axis("t", 2), Axis("l", 16)
    place = block.dim * 16 + lane.dim
    buffers = [Buffer(f"out{i}", value.dtype, "write") for i, value in enumerate(values(place))]
    stores = tuple(Store(f"out{i}", place, value) for i, value in enumerate(values(place)))
    return Kernel("stores", (*reads, *buffers), (), (block,), (Tile(lane, "lane", block.dim * 16, stores, as_dim(21)),))


def _outputs(kernel: Kernel) -> dict[str, np.ndarray[Any, Any]]:
    return {buffer.name: aligned((21,), buffer.dtype.numpy) for buffer in kernel.buffers if buffer.role == "write"}


@pytest.mark.parametrize("source", [DType.F32, DType.I64, DType.BOOL, DType.F16, DType.BF16, DType.U8])
def test_casts(source: DType) -> None:
    halves = (DType.F16, DType.BF16)

    def value(i: Dim, target: DType) -> Expr:
        x = load("x", source, (i,))
        return cast(unary("abs", x) if source.is_signed else x, target)

    for targets in (halves, [dtype for dtype in DType if not dtype.is_storage_only and dtype not in halves]):
        kernel = _stores(
            lambda i, targets=targets: [value(i, target) for target in targets], Buffer("x", source, "read")
        )
        narrow = targets is halves or source in halves
        check(kernel, {b.name: 21 for b in kernel.buffers}, lanes=(16, 4), tolerance=1e-2 if narrow else 1e-6)


@pytest.mark.parametrize("source", list(DType))
def test_casts_from_and_to_codes(source: DType) -> None:
    targets = list(DType) if source.is_storage_only else CODES
    x = fill(source, 21)
    if source.is_float:  # other floats are undefined as integers
        x[...] = np.minimum(np.abs(np.nan_to_num(x.astype(np.float64), nan=1.0)), 100).astype(source.numpy)
    kernel = _stores(
        lambda place: [cast(load("x", source, (place,)), target) for target in targets], Buffer("x", source, "read")
    )
    for width in (16, 4):
        arrays = {"x": x, **_outputs(kernel)}
        assert Runner(kernel, width)(arrays) == 0
        for i, target in enumerate(targets):
            with np.errstate(all="ignore"):
                expected = apply_cast(x, target.numpy)
            assert arrays[f"out{i}"].tobytes() == expected.tobytes(), f"to {target!r}, {width} lanes"


def test_literals_of_codes() -> None:
    numbers = {d: (1, float("nan"), float("inf")) if d.is_float else (1, *d.limits) for d in CODES}
    pairs = [(dtype, number) for dtype, each in numbers.items() for number in each]
    kernel = _stores(lambda _: [const(number, dtype) for dtype, number in pairs])
    arrays = _outputs(kernel)
    assert Runner(kernel, 16)(arrays) == 0
    for i, (dtype, number) in enumerate(pairs):
        with np.errstate(all="ignore"):
            assert arrays[f"out{i}"].tobytes() == np.full(21, number, dtype.numpy).tobytes(), (dtype, number)


def _next_of_its_size(dtype: DType) -> DType:
    """Another type of as many bits, a different one for each."""
    others = [other for other in DType if other.bits == dtype.bits and other is not DType.BOOL]
    return others[(others.index(dtype) + 1) % len(others)]


@pytest.mark.parametrize("source", [dtype for dtype in DType if dtype is not DType.BOOL])
def test_bits(source: DType) -> None:
    target = _next_of_its_size(source)
    kernel = map_kernel(lambda i: bitcast(load("x", source, (i,)), target), 21, (Buffer("x", source, "read"),), target)
    x = (np.arange(21) * 700 % (1 << min(source.bits, 15))).astype(f"u{source.bytes}").view(source.numpy)
    for width in (16, 4):
        arrays = {"x": x, "out": aligned((21,), target.numpy)}
        assert Runner(kernel, width)(arrays) == 0
        assert arrays["out"].tobytes() == x.tobytes()


def test_truth_as_bits() -> None:
    def value(i: Dim) -> Expr:
        return bitcast(binary("gt", load("x", F32, (i,)), f32(0)), DType.U8)

    filled = check(map_kernel(value, 21, (Buffer("x", F32, "read"),), DType.U8), {"x": 21, "out": 21}, lanes=(16, 4))
    np.testing.assert_array_equal(filled["out"], filled["x"] > 0)


def test_strided_and_gathered_memory_of_every_type() -> None:
    for dtype in (*(dtype for dtype in DType if not dtype.is_storage_only), DType.F8E4M3FN):

        def value(i: Dim, dtype: DType = dtype) -> Expr:
            near = load("x", dtype, (i * 2,))
            far = load("x", dtype, (Value(load("at", DType.I64, (i,)), 80).dim,))
            return select(binary("eq", index(mod(i, 2)), const(0, DType.I64)), near, far)

        kernel = map_kernel(value, 37, (Buffer("at", DType.I64, "read"), Buffer("x", dtype, "read")), dtype)
        at = np.random.default_rng(5).integers(0, 80, 37)
        check(kernel, {"at": 37, "x": 80, "out": 37}, given={"at": at}, lanes=(16, 8), tolerance=1e-6)


def test_stores_under_guards_and_scattered() -> None:
    tile, lane = Axis("t", 3), Axis("l", 16)
    i = tile.dim * 16 + lane.dim
    body = (
        Tile(
            lane,
            "lane",
            tile.dim * 16,
            (
                Store("out", i, get("x", i), (i - 3, 30 - i)),
                Store("far", i * 2, get("x", i), (tile.dim - 1,)),
                Store("mixed", mod(i * 7, 37), get("x", i)),
            ),
            as_dim(37),
        ),
    )
    writes = tuple(Buffer(name, F32, "write") for name in ("out", "far", "mixed"))
    kernel = Kernel("stores", (Buffer("x", F32, "read"), *writes), (), (tile,), body)
    check(kernel, {"x": 37, "out": 37, "far": 80, "mixed": 37})


def test_recurrence_in_place_with_scratch() -> None:
    """A serial grid: h = tanh(x[t] + W h), states kept in an update buffer, new ones in scratch first."""
    steps, width = 4, 20
    t = Axis("t", steps)
    a, b, k = Axis("l", 32), Axis("l", 32), Axis("k", width)
    hidden = mul(get("W", k.dim * width + a.dim), get("h", k.dim))
    body = (
        Tile(
            a,
            "lane",
            as_dim(0),
            (
                Declare("acc", F32, (a,), get("x", t.dim * width + a.dim)),
                Loop(k, (Accumulate("acc", "sum", hidden),)),
                Store("new", a.dim, unary("tanh", named("acc"))),
            ),
            as_dim(width),
        ),
        Tile(
            b,
            "lane",
            as_dim(0),
            (Store("h", b.dim, get("new", b.dim)), Store("y", t.dim * width + b.dim, get("h", b.dim))),
            as_dim(width),
        ),
    )
    buffers = (
        Buffer("x", F32, "read"),
        Buffer("W", F32, "read"),
        Buffer("h", F32, "update"),
        Buffer("y", F32, "write"),
    )
    kernel = Kernel("rnn", buffers, (), (t,), body, (Scratch("new", F32, as_dim(width)),))
    check(kernel, {"x": steps * width, "W": width * width, "h": width, "y": steps * width})


def test_triangular_loops_are_written_row_by_row() -> None:
    """A loop whose bound depends on the row."""
    row, lane, k = Axis("r", 4), Axis("l", 16), Axis("k", 10)
    value = get("x", k.dim * 16 + lane.dim)
    body = (
        Tile(
            lane,
            "lane",
            as_dim(0),
            (
                Tile(
                    row,
                    "row",
                    as_dim(0),
                    (
                        Declare("acc", F32, (row, lane), f32(0)),
                        Loop(k, (Accumulate("acc", "sum", value),), upper=row.dim + 2),
                        Store("out", row.dim * 16 + lane.dim, named("acc")),
                    ),
                ),
            ),
        ),
    )
    kernel = Kernel("triangle", (Buffer("x", F32, "read"), Buffer("out", F32, "write")), (), (Axis("g", 1),), body)
    check(kernel, {"x": 160, "out": 64})


@pytest.mark.parametrize("n", [1, 16, 20, 33, 64])
def test_map_with_symbolic_size_and_run_time_shape_values(n: int) -> None:
    def value(i: Dim) -> Expr:
        return mul(cast(index(i * 3 + N.dim), F32), get("x", mod(i, N.dim)))

    kernel = map_kernel(value, N.dim, (Buffer("x", F32, "read"),), width=48, sizes=(N,))
    check(kernel, {"x": n, "out": n}, {N: n}, lanes=(16, 8))


@pytest.mark.parametrize("count", [5, 64, 256, 301])
def test_functions_of_a_byte(count: int) -> None:
    """Of every byte, in full vectors and in a partial one; two tables in one kernel."""
    table = bytes((7 * x + 3) % 256 for x in range(256))

    def value(i: Dim) -> Expr:
        return lookup(table, lookup(bytes(reversed(table)), load("x", DType.U8, (i,))))

    kernel = map_kernel(value, count, (Buffer("x", DType.U8, "read"),), DType.U8)
    check(kernel, {"x": count, "out": count}, given={"x": np.arange(count) % 256})


MATRIX = """kernel
read b0 {x}
read b1 {y}
write b2 i32
grid g0: 2
lane l0: {width} at 0
  row r0: {height} at {height}*g0 below {rows}
    acc matrix a0 i32<l0, r0> = 0
    loop k0: 2
      loop k1: 24 unroll 12
        sum a0 = dot4({product})
    store b2[{width}*{height}*g0 + l0 + {width}*r0] = a0
"""


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("height", "vectors", "rows"), [(32, 2, 64), (32, 2, 41), (48, 1, 67), (16, 3, 25), (12, 4, 24)]
)
def test_sums_in_a_matrix_unit(height: int, vectors: int, rows: int, swapped: bool) -> None:
    """By AMX where the machine has it, by its portable body elsewhere: the same integers, and no row beyond the last
    is read or written."""
    width = 16 * vectors
    x, y = f"b0[48*{height}*g0 + 24*k0 + k1 + 48*r0]:i32", f"b1[24*{width}*k0 + {width}*k1 + l0]:i32"
    product = f"{y}, {x}" if swapped else f"{x}, {y}"
    types = {"x": "i8", "y": "u8"} if swapped else {"x": "u8", "y": "i8"}
    kernel = parse_kernel(MATRIX.format(width=width, height=height, rows=rows, product=product, **types))
    check_kernel(kernel, 16)
    random = np.random.default_rng(rows)
    low, high = (-128, 127, np.int8), (0, 255, np.uint8)
    words = [(rows, 48, 4), (48, width, 4)]
    parts = [
        random.integers(least, most, shape, endpoint=True).astype(dtype)
        for shape, (least, most, dtype) in zip(words, (low, high) if swapped else (high, low), strict=True)
    ]
    expected = np.einsum("rkb,klb->rl", *(part.astype(np.int32) for part in parts))
    for at_end in (False, True):
        arrays = {f"b{number}": fenced(part.reshape(-1), at_end) for number, part in enumerate(parts)}
        arrays["b2"] = fenced(np.zeros(rows * width, np.int32), at_end)
        assert Runner(kernel, 16)(arrays, parts=(0.0, 0.5, 1.0)) == 0
        np.testing.assert_array_equal(arrays["b2"].reshape(rows, width), expected)
