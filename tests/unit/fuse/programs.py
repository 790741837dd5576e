"""Tensor programs made in code: long ones, and random ones."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from opweld.tensor.dim import Axis, Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, const, load, reduce, unary
from opweld.tensor.program import Constant, Input, Item, Tensor, TensorProgram

SIZE = 4
"""Of each axis of each value."""


class Builder:
    """A program of f32 values over one or two axes of `SIZE`, which reads the input `x`. Each tensor is a graph node
    of its own."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.ranks = {"x": 2, "w": 2}

    def tensor(self, rank: int, body: Callable[..., Expr]) -> str:
        """Adds a tensor; the body gets its indices."""
        name = f"t{len(self.items)}"
        axes = tuple(Axis(f"i{p}", as_dim(SIZE)) for p in range(rank))
        self.items.append(Tensor(name, DType.F32, axes, body(*(axis.dim for axis in axes)), (f"Node_{name}",)))
        self.ranks[name] = rank
        return name

    def at(self, name: str, *indices: Dim) -> Expr:
        """The element of a value; a value of one axis is loaded at the first index."""
        return load(name, DType.F32, indices[: self.ranks[name]])

    def map(self, op: str, x: str) -> str:
        """op(x)"""
        return self.tensor(self.ranks[x], lambda *i: unary(op, self.at(x, *i)))

    def pair(self, op: str, x: str, y: str) -> str:
        """op(x, y), one of which may have rows only."""
        return self.tensor(max(self.ranks[x], self.ranks[y]), lambda *i: binary(op, self.at(x, *i), self.at(y, *i)))

    def transpose(self, x: str) -> str:
        """x with its two axes exchanged."""
        return self.tensor(2, lambda i, j: self.at(x, j, i))

    def row(self, kind: str, x: str) -> str:
        """The reduction of each row of x."""
        axis = Axis("r0", as_dim(SIZE))
        return self.tensor(1, lambda i: reduce(kind, (axis,), self.at(x, i, axis.dim)))

    def matmul(self, x: str, y: str = "w") -> str:
        """The matrix product."""
        axis = Axis("r0", as_dim(SIZE))
        return self.tensor(
            2, lambda i, j: reduce("sum", (axis,), binary("mul", self.at(x, i, axis.dim), self.at(y, axis.dim, j)))
        )

    def norm(self, x: str) -> str:
        """x divided by the length of its rows, as a few tensors."""
        length = self.map("sqrt", self.row("sum", self.pair("mul", x, x)))
        above = self.tensor(1, lambda i: binary("add", self.at(length, i), const(1, DType.F32)))
        return self.pair("div", x, above)

    def program(self, *outputs: str) -> TensorProgram:
        """The program with these outputs."""
        size = as_dim(SIZE)
        weight = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
        return TensorProgram(
            "made",
            (Input("x", DType.F32, (size, size)),),
            (Constant("w", DType.F32, (SIZE, SIZE), lambda: weight),),
            tuple(self.items),
            tuple((f"y{position}", name) for position, name in enumerate(outputs)),
        )


def chain(length: int) -> TensorProgram:
    """Elementwise operators one after the other."""
    build, x = Builder(), "x"
    for position in range(length):
        x = build.map(("tanh", "abs", "sigmoid")[position % 3], x)
    return build.program(x)


def layers(length: int) -> TensorProgram:
    """Layers of a normalisation, a product and a residual: seven tensors each, of which two are read twice."""
    build, x = Builder(), "x"
    while len(build.items) < length:
        x = build.pair("add", build.map("tanh", build.matmul(build.norm(x))), x)
    return build.program(x)


def random_program(seed: int, length: int = 25) -> TensorProgram:
    """A program of all sorts of tensors that read what came before, the last ones most; some are outputs."""
    chance, build = random.Random(seed), Builder()

    def some(rank: int | None = None) -> str:
        names = [name for name, own in build.ranks.items() if rank in (None, own) and name != "w"]
        return chance.choice(names[-4:] if chance.random() < 0.7 else names)

    for _ in range(length):
        kind = chance.choice(("map", "map", "pair", "pair", "pair", "row", "matmul", "transpose"))
        if kind == "map":
            build.map(chance.choice(("tanh", "neg", "sigmoid")), some())
        elif kind == "pair":
            build.pair(chance.choice(("add", "sub", "max")), some(), some())
        elif kind == "row":
            build.row(chance.choice(("sum", "max")), some(2))
        elif kind == "matmul":
            build.matmul(build.map("sigmoid", some(2)), chance.choice(("w", some(2))))
        else:
            build.transpose(some(2))
    names = [item.name for item in build.items if isinstance(item, Tensor)]
    return build.program(*dict.fromkeys((*chance.sample(names, 2), names[-1])))
