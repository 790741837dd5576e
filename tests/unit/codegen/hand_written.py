"""Tile programs written by hand: the kernels that schedules make, in small."""

from __future__ import annotations

from opweld.tensor.dim import Axis, Dim, as_dim, ceildiv
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index, load, substitute, unary
from opweld.tile.tile import (
    Accumulate,
    Buffer,
    Collapse,
    Declare,
    Kernel,
    Let,
    Loop,
    Statement,
    Store,
    Tile,
)

F32 = DType.F32


def f32(value: float) -> Expr:
    return const(value, F32)


def get(name: str, offset: Dim | int, guards: tuple[Dim, ...] = (), fill: Expr | None = None) -> Expr:
    return load(name, F32, (as_dim(offset),), guards, fill)


def named(name: str, dtype: DType = F32) -> Expr:
    return load(name, dtype, ())


def add(x: Expr, y: Expr) -> Expr:
    return binary("add", x, y)


def sub(x: Expr, y: Expr) -> Expr:
    return binary("sub", x, y)


def mul(x: Expr, y: Expr) -> Expr:
    return binary("mul", x, y)


def gemm(m: Dim | int, n: int, k: Dim | int, rows: int = 8, width: int = 32, sizes: tuple = ()) -> Kernel:
    """C[m, n] = relu(A[m, k] @ B[k, n] + bias[n]); B packed as [n / width][k][width], zero beyond n."""
    m, k = as_dim(m), as_dim(k)
    n_tile, m_tile = Axis("nt", ceildiv(n, width)), Axis("mt", ceildiv(m, rows))
    row, lane, kk = Axis("m", rows), Axis("n", width), Axis("k", k)
    mm = m_tile.dim * rows + row.dim
    nn = n_tile.dim * width + lane.dim
    product = mul(get("A", mm * k + kk.dim), get("B", (n_tile.dim * k + kk.dim) * width + lane.dim))
    value = binary("max", f32(0), add(named("acc"), get("bias", nn)))
    inner: tuple[Statement, ...] = (
        Declare("acc", F32, (row, lane), f32(0)),
        Loop(kk, (Accumulate("acc", "sum", product),)),
        Store("C", mm * n + nn, value),
    )
    rows_tile = Tile(row, "row", m_tile.dim * rows, inner, m)
    body = (Tile(lane, "lane", n_tile.dim * width, (rows_tile,), as_dim(n)),)
    buffers = (
        Buffer("A", F32, "read"),
        Buffer("B", F32, "read"),
        Buffer("bias", F32, "read"),
        Buffer("C", F32, "write"),
    )
    return Kernel("gemm", buffers, sizes, (n_tile, m_tile), body)


def layernorm(rows: Dim | int, columns: Dim | int, width: int = 32, sizes: tuple = ()) -> Kernel:
    """y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta over the last axis."""
    rows, columns = as_dim(rows), as_dim(columns)
    r = Axis("r", rows)

    def over(value: Expr, name: str, kind: str, lane: Axis) -> tuple[Statement, ...]:
        chunk = Axis("c", ceildiv(columns, width))
        start = 0.0 if kind == "sum" else float("-inf")
        return (
            Declare(name, F32, (lane,), f32(start)),
            Loop(
                chunk,
                (
                    Tile(
                        lane,
                        "lane",
                        chunk.dim * width,
                        (Accumulate(name, kind, value_at(value, lane, chunk)),),
                        columns,
                    ),
                ),
            ),
            Collapse(name, kind),
        )

    place = Axis("place", columns)

    def value_at(value: Expr, lane: Axis, chunk: Axis) -> Expr:
        return substitute(value, {place: chunk.dim * width + lane.dim})

    x = get("x", r.dim * columns + place.dim)
    count = unary("reciprocal", binary("add", f32(0), load_size(columns)))
    lane1, lane2, lane3, chunk3 = (
        Axis("l", width),
        Axis("l", width),
        Axis("l", width),
        Axis("c", ceildiv(columns, width)),
    )
    centred = sub(x, named("mean"))
    out = add(mul(mul(centred, named("scale")), get("gamma", place.dim)), get("beta", place.dim))
    last = Store("y", r.dim * columns + chunk3.dim * width + lane3.dim, value_at(out, lane3, chunk3))
    body: tuple[Statement, ...] = (
        *over(x, "sum", "sum", lane1),
        Let("mean", mul(named("sum"), count)),
        *over(mul(centred, centred), "square", "sum", lane2),
        Let("scale", unary("rsqrt", add(mul(named("square"), count), f32(1e-5)))),
        Loop(chunk3, (Tile(lane3, "lane", chunk3.dim * width, (last,), columns),)),
    )
    buffers = (
        Buffer("x", F32, "read"),
        Buffer("gamma", F32, "read"),
        Buffer("beta", F32, "read"),
        Buffer("y", F32, "write"),
    )
    return Kernel("layernorm", buffers, sizes, (r,), body)


def load_size(dim: Dim) -> Expr:
    return cast(index(dim), F32)


def conv3x3(h: int, w: int, ci: int, co: int, rows: int = 8, width: int = 32) -> Kernel:
    """Y[h, w, co] = sum X[h + ky - 1, w + kx - 1, ci] * W[co / width][ky][kx][ci][width], zero outside."""
    n_tile, y = Axis("nt", ceildiv(co, width)), Axis("y", h)
    x_tile = Axis("xt", ceildiv(w, rows))
    row, lane = Axis("x", rows), Axis("n", width)
    ky, kx, c = Axis("ky", 3), Axis("kx", 3), Axis("c", ci)
    xx = x_tile.dim * rows + row.dim
    iy, ix = y.dim + ky.dim - 1, xx + kx.dim - 1
    source = get("X", (iy * w + ix) * ci + c.dim, (iy, h - 1 - iy, ix, w - 1 - ix))
    weight = get("W", (((n_tile.dim * 3 + ky.dim) * 3 + kx.dim) * ci + c.dim) * width + lane.dim)
    nn = n_tile.dim * width + lane.dim
    inner: tuple[Statement, ...] = (
        Declare("acc", F32, (row, lane), f32(0)),
        Loop(ky, (Loop(kx, (Loop(c, (Accumulate("acc", "sum", mul(source, weight)),)),)),)),
        Store("Y", (y.dim * w + xx) * co + nn, named("acc")),
    )
    body = (
        Tile(lane, "lane", n_tile.dim * width, (Tile(row, "row", x_tile.dim * rows, inner, as_dim(w)),), as_dim(co)),
    )
    buffers = (Buffer("X", F32, "read"), Buffer("W", F32, "read"), Buffer("Y", F32, "write"))
    return Kernel("conv", buffers, (), (n_tile, y, x_tile), body)
