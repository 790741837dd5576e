"""Random tile programs: generated code and interpreter agree, and no access leaves its buffer."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from opweld.tensor.dim import Axis, Dim, Symbol, Value, as_dim, ceildiv, floordiv, maximum, minimum, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, at_least_zero, binary, cast, const, index, load, select, unary
from opweld.tile.tile import Accumulate, Buffer, Collapse, Declare, Kernel, Let, Loop, Statement, Store, Tile
from tests.unit.codegen.hand_written import F32, f32
from tests.unit.codegen.test_kernels import check

COUNT = 100  # elements of every buffer that is read
N = Symbol("n")


class Maker:
    """Makes expressions over axes whose values stay below 60."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: list[tuple[str, DType]] = []

    def place(self, axes: list[Dim]) -> Dim:
        """An index in [0, COUNT), of many shapes."""
        r = self.random
        a, b = r.choice(axes), r.choice(axes)
        found = r.choice(
            [
                a,
                a + r.randrange(20),
                a + b,
                59 - a,
                mod(a * r.randrange(1, 5) + b, r.randrange(2, 60)),
                floordiv(a + 3 * b, r.randrange(2, 9)) * 3,
                minimum(a, r.randrange(60)) + maximum(b - 20, 0),
                as_dim(r.randrange(COUNT)),
            ]
        )
        if r.random() < 0.15:
            picked = Value(load("at", DType.I64, (mod(found, COUNT),)), 80).dim
            return picked + r.randrange(20)
        return mod(found, COUNT) if not found.constant else found

    def loaded(self, axes: list[Dim]) -> Expr:
        r = self.random
        place = self.place(axes)
        if r.random() < 0.4:
            shift = r.randrange(50)
            guards = (place - shift, *((70 - place,) if r.random() < 0.5 else ()))
            return load("x", F32, (place - shift,), guards, f32(r.choice([0, 0, -1.5])))
        return load(r.choice("xy"), F32, (place,))

    def condition(self, axes: list[Dim], depth: int) -> Expr:
        r = self.random
        if r.random() < 0.5:
            return at_least_zero(r.choice(axes) - r.randrange(40))
        other = self.value(axes, depth - 1)
        return binary(r.choice(["lt", "ge"]), other, f32(r.choice([0.371, -0.123])))  # where rounding decides nothing

    def value(self, axes: list[Dim], depth: int) -> Expr:
        r = self.random
        if depth <= 0 or r.random() < 0.1:
            choice = r.randrange(8)
            if self.names and choice < 3:
                name, dtype = r.choice(self.names)
                return load(name, dtype, ())
            if choice == 3:
                return f32(r.choice([0.5, -2, 3]))
            if choice == 4:
                return cast(index(r.choice(axes) * 2 - 7), F32)
            return self.loaded(axes)
        choice = r.randrange(9)
        if choice < 5:
            op = r.choice(["add", "sub", "mul", "max", "min"])
            return binary(op, self.value(axes, depth - 1), self.value(axes, depth - 1))
        if choice == 5:
            return unary(r.choice(["neg", "abs", "tanh"]), self.value(axes, depth - 1))
        if choice == 6:
            number = cast(unary("round", unary("tanh", self.value(axes, depth - 1))), DType.I32)
            return cast(binary("add", number, const(3, DType.I32)), F32)
        return select(self.condition(axes, depth), self.value(axes, depth - 1), self.value(axes, depth - 1))


def random_kernel(seed: int) -> Kernel:
    """A grid of rows and of columns; row and lane tiles with tails; sums in an inner loop, or over the lanes."""
    maker = Maker(seed)
    r = maker.random
    symbolic = r.random() < 0.4
    rows, columns = r.randrange(1, 12), r.randrange(1, 60)
    limit = N.dim if symbolic else as_dim(columns)
    width, height = r.choice([16, 32, 48]), r.choice([1, 2, 3, 5])
    block, tile = Axis("b", ceildiv(rows, height)), Axis("t", ceildiv(limit, width))
    row, lane, k = Axis("r", height), Axis("l", width), Axis("k", r.randrange(1, 6))
    i, j = block.dim * height + row.dim, tile.dim * width + lane.dim
    body: list[Statement] = []
    axes = [i, j]
    if r.random() < 0.7:
        kind = r.choice(["sum", "max", "min"])
        start = {"sum": 0.0, "max": -9.0, "min": 9.0}[kind]
        inner: list[Statement] = []
        if r.random() < 0.3:
            inner.append(Let("term", maker.value([*axes, k.dim], 1)))
            maker.names.append(("term", F32))
        inner.append(Accumulate("total", kind, maker.value([*axes, k.dim], 2)))
        maker.names.clear()
        body.append(Declare("total", F32, (row, lane), f32(start)))
        body.append(Loop(k, tuple(inner)))
        maker.names.append(("total", F32))
    if r.random() < 0.5:
        body.append(Let("mean", maker.value(r.choice([[i], axes]), 2)))
        maker.names.append(("mean", F32))
    guards = (j - 3,) if r.random() < 0.2 else ()
    offset = r.choice([i * 60 + j, j * 12 + i, i * 60 + 59 - j])
    body.append(Store("out", offset, maker.value(axes, 3), guards))
    order = r.random() < 0.5
    inside: tuple[Statement, ...] = tuple(body)
    if order:
        tiles = (
            Tile(lane, "lane", tile.dim * width, (Tile(row, "row", block.dim * height, inside, as_dim(rows)),), limit),
        )
    else:
        tiles = (
            Tile(row, "row", block.dim * height, (Tile(lane, "lane", tile.dim * width, inside, limit),), as_dim(rows)),
        )
    reads = (Buffer("x", F32, "read"), Buffer("y", F32, "read"), Buffer("at", DType.I64, "read"))
    sizes = (N,) if symbolic else ()
    return Kernel("random", (*reads, Buffer("out", F32, "write")), sizes, (block, tile), tiles)


def rowwise_kernel(seed: int) -> Kernel:
    """Several reductions over the lanes of a row, each using the ones before."""
    maker = Maker(seed)
    r = maker.random
    rows, columns, width = r.randrange(1, 5), r.randrange(1, 60), r.choice([16, 32, 64])
    limit = N.dim if r.random() < 0.4 else as_dim(columns)
    i = Axis("i", rows)
    body: list[Statement] = []
    for number in range(r.randrange(1, 4)):
        name, kind = f"a{number}", r.choice(["sum", "max", "min"])
        lane, chunk = Axis("l", width), Axis("c", ceildiv(limit, width))
        j = chunk.dim * width + lane.dim
        term = Accumulate(name, kind, maker.value([i.dim, j], 2))
        body.append(Declare(name, F32, (lane,), f32({"sum": 0.0, "max": -9.0, "min": 9.0}[kind])))
        body.append(Loop(chunk, (Tile(lane, "lane", chunk.dim * width, (term,), limit),)))
        body.append(Collapse(name, kind))
        maker.names.append((name, F32))
    body.append(Store("out", i.dim, maker.value([i.dim], 2)))
    reads = (Buffer("x", F32, "read"), Buffer("y", F32, "read"), Buffer("at", DType.I64, "read"))
    sizes = (N,) if limit is N.dim else ()
    return Kernel("rowwise", (*reads, Buffer("out", F32, "write")), sizes, (i,), tuple(body))


def run(kernel: Kernel, seed: int) -> None:
    sizes = {N: random.Random(seed).choice([1, 15, 16, 37, 48, 60])} if kernel.sizes else {}
    at = np.random.default_rng(seed).integers(0, 80, COUNT)
    given: dict[str, Any] = {"at": at}
    counts = {"x": COUNT, "y": COUNT, "at": COUNT, "out": 60 * 12}
    lanes = ((16,), (8,), (4,))[seed % 3]
    check(kernel, counts, sizes, lanes, given, tolerance=2e-4)


@pytest.mark.parametrize("seed", range(24))
def test_random_maps_and_contractions(seed: int) -> None:
    run(random_kernel(seed), seed)


@pytest.mark.parametrize("seed", range(12))
def test_random_rows(seed: int) -> None:
    run(rowwise_kernel(seed), seed)
