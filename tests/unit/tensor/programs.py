"""Small tensor programs that several tests share, each with feeds and what NumPy says about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from opweld.tensor.dim import Axis, Dim, DimLike, Symbol, Value, as_dim, floordiv, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index, load, reduce, select, unary
from opweld.tensor.program import (
    Constant,
    Guard,
    Input,
    Scan,
    State,
    SymbolSource,
    Tensor,
    TensorProgram,
)

Array = np.ndarray[Any, Any]
F32, I64, BOOL = DType.F32, DType.I64, DType.BOOL


@dataclass(frozen=True)
class Example:
    program: TensorProgram
    feeds: dict[str, Array]
    expected: dict[str, Array]


def shape(*dims: DimLike) -> tuple[Dim, ...]:
    return tuple(map(as_dim, dims))


def axes(**extents: DimLike) -> tuple[Axis, ...]:
    return tuple(Axis(name, extent) for name, extent in extents.items())


def read(tensor: str, *indices: Axis | DimLike, dtype: DType = F32) -> Expr:
    return load(tensor, dtype, tuple(i.dim if isinstance(i, Axis) else as_dim(i) for i in indices))


def stored(name: str, data: Array) -> Constant:
    return Constant(name, DType.of_numpy(data.dtype), data.shape, lambda: data)


def f32(value: float) -> Expr:
    return const(value, F32)


def normal(*sizes: int) -> Array:
    return np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(np.float32)


def convolution() -> Example:
    """3x3, stride 2, padding 1, then Relu."""
    x, w, bias = normal(2, 3, 7, 5), normal(4, 3, 3, 3), normal(4)
    n, k, y, z = axes(n=2, k=4, y=4, z=3)
    c, u, v = axes(c=3, u=3, v=3)
    row, column = 2 * y.dim + u.dim - 1, 2 * z.dim + v.dim - 1
    pixel = load("x", F32, (n.dim, c.dim, row, column), (row, 6 - row, column, 4 - column))
    total = reduce("sum", (c, u, v), binary("mul", pixel, read("w", k, c, u, v)))
    conv = Tensor("conv", F32, (n, k, y, z), binary("add", total, read("bias", k)), ("Conv_0",))
    relu = Tensor("relu", F32, (n, k, y, z), binary("max", read("conv", n, k, y, z), f32(0)), ('Relu "1"',))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    expected = np.einsum("ncyzuv,kcuv->nkyz", windows.astype(np.float64), w) + bias[:, None, None]
    program = TensorProgram(
        "convolution",
        (Input("x", F32, shape(2, 3, 7, 5)),),
        (stored("w", w), stored("bias", bias)),
        (conv, relu),
        (("out", "relu"),),
    )
    return Example(program, {"x": x}, {"out": np.maximum(expected, 0)})


def softmax() -> Example:
    """Over the last axis, with the size of both axes open, as one body."""
    batch, length = Symbol("batch"), Symbol("p2o.length.1")
    b, s, t, u = Axis("b", batch.dim), Axis("s", length.dim), Axis("t", length.dim), Axis("u", length.dim)
    largest = reduce("max", (t,), read("scores", b, t))
    own = unary("exp", binary("sub", read("scores", b, s), largest))
    total = reduce("sum", (u,), unary("exp", binary("sub", read("scores", b, u), largest)))
    program = TensorProgram(
        "softmax",
        (Input("scores", F32, (batch.dim, length.dim)),),
        (),
        (Tensor("softmax", F32, (b, s), binary("div", own, total), ("Softmax_7",)),),
        (("probabilities", "softmax"),),
        (SymbolSource(batch, "scores", 0), SymbolSource(length, "scores", 1, reason="Softmax_7")),
        (Guard("least", 512 - length.dim, "Slice_3 clamps at 512"),),
    )
    x = normal(3, 17)
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return Example(program, {"scores": x}, {"probabilities": e / e.sum(-1, keepdims=True)})


def embedding() -> Example:
    """Rows of a table at run-time indices, masked, and their positions; two heads split off the row."""
    table, ids = normal(11, 6), np.array([[3, 0, 10], [7, 7, 1]])
    b, s, h, d = axes(b=2, s=3, h=2, d=3)
    row = Value(read("ids", b, s, dtype=I64), 11)
    keep = binary("ne", read("ids", b, s, dtype=I64), const(0, I64))
    value = select(keep, load("table", F32, (row.dim, 3 * h.dim + d.dim)), f32(-1.5))
    split = Tensor("heads", F32, (b, h, s, d), value, ("Gather_0", "Where_1"))
    i, j, k = axes(i=2, j=3, k=6)
    back = load("heads", F32, (i.dim, floordiv(k.dim, 3), j.dim, mod(k.dim, 3)))
    merged = binary("add", back, cast(index(j.dim), F32))
    program = TensorProgram(
        "embedding",
        (Input("ids", I64, shape(2, 3)),),
        (stored("table", table),),
        (split, Tensor("merged", F32, (i, j, k), merged)),
        (("rows", "merged"), ("ids again", "ids")),
    )
    rows = np.where((ids != 0)[..., None], table[ids], np.float32(-1.5)) + np.arange(3.0)[:, None]
    return Example(program, {"ids": ids}, {"rows": rows, "ids again": ids})


def recurrence() -> Example:
    """h = tanh(x[t] + h @ r), all of h and the last one."""
    x, r = normal(5, 2, 4), normal(4, 4)
    time, b, n, k = axes(t=5, b=2, n=4, k=4)
    product = reduce("sum", (k,), binary("mul", read("h", b, k), read("r", k, n)))
    step = Tensor("next", F32, (b, n), unary("tanh", binary("add", read("x", time, b, n), product)))
    state = State("h", F32, axes(b=2, n=4), f32(0.25), "next")
    scan = Scan(time, (state,), (step,), (("all", "next"),), (("last", "h"),), ("RNN_0",))
    program = TensorProgram(
        "recurrence",
        (Input("x", F32, shape(5, 2, 4)),),
        (stored("r", r),),
        (scan,),
        (("Y", "all"), ("Y_h", "last")),
    )
    h = np.full((2, 4), 0.25)
    states: list[Array] = []
    for t in range(5):
        h = np.tanh(x[t] + h @ r)
        states.append(h)
    return Example(program, {"x": x}, {"Y": np.stack(states), "Y_h": h})


def normalization() -> Example:
    """LayerNorm as a model spells it, with its constants in tensors of their own and its identities."""
    x, gamma = normal(4, 8), normal(8)
    b, c, k = axes(b=4, c=8, k=8)
    mean = Tensor("mean", F32, (b,), binary("div", reduce("sum", (k,), read("x", b, k)), f32(8)))
    centred = Tensor("centred", F32, (b, c), binary("sub", read("x", b, c), read("mean", b)))
    b2, k2 = axes(b=4, k=8)
    square = binary("pow", read("centred", b2, k2), load("two", F32, ()))
    variance = Tensor("variance", F32, (b2,), binary("div", reduce("sum", (k2,), square), f32(8)))
    b3, c3 = axes(b=4, c=8)
    deviation = unary("sqrt", binary("add", binary("max", read("variance", b3), f32(0)), f32(1e-5)))
    scaled = binary("div", read("centred", b3, c3), deviation)
    normed = Tensor("normed", F32, (b3, c3), binary("mul", scaled, read("scale", c3)))
    b4, c4 = axes(b=4, c=8)
    copy = Tensor("copy", F32, (b4, c4), read("normed", b4, c4), ("Identity_9",))
    (c5,) = axes(c=8)
    scale = Tensor("scale", F32, (c5,), binary("mul", read("gamma", c5), load("two", F32, ())))
    (unused,) = axes(u=8)
    dead = Tensor("dead", F32, (unused,), unary("exp", read("gamma", unused)))
    program = TensorProgram(
        "normalization",
        (Input("x", F32, shape(4, 8)),),
        (stored("gamma", gamma), stored("two", np.array(2, np.float32))),
        (mean, centred, variance, scale, dead, normed, copy),
        (("out", "copy"),),
    )
    wide = x.astype(np.float64)
    centre = wide - wide.mean(-1, keepdims=True)
    expected = centre / np.sqrt((centre**2).mean(-1, keepdims=True) + 1e-5) * gamma * 2
    return Example(program, {"x": x}, {"out": expected})


EXAMPLES: dict[str, Callable[[], Example]] = {
    function.__name__: function for function in (convolution, softmax, embedding, recurrence, normalization)
}
