"""Acme's operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.operators import (
    DType,
    Expr,
    Fact,
    Indices,
    Inference,
    Lowering,
    Node,
    UnsupportedError,
    add,
    computes,
    define,
    describe,
    div,
    infers,
    kernel,
    lowers,
    mul,
    product,
    require_float,
    require_rank,
    require_same_dtype,
    required,
    square,
    unary,
)

DOMAIN = "com.acme"


@infers("Snake", domain=DOMAIN)
def infer_snake(scope: Inference, node: Node) -> list[Fact]:
    """The fact of x [N, C, ...]; alpha is [C]. See Ziyin et al., Neural Networks Fail to Learn Periodic Functions."""
    x = require_rank(require_float(scope.fact(required(node, 0)), node), 2, node)
    alpha = require_rank(scope.fact(required(node, 1)), 1, node, 1)
    scope.same(alpha.shape[0], x.shape[1], node, "alpha has an element for each channel")
    return [Fact(require_same_dtype((x, alpha), node), x.shape)]


@lowers("Snake", domain=DOMAIN)
def lower_snake(scope: Lowering, node: Node) -> None:
    """x + sin(alpha * x)^2 / alpha"""

    def body(at: Indices) -> Expr:
        x, alpha = scope.load(required(node, 0), at), scope.load(required(node, 1), at[1:2])
        return add(x, div(square(unary("sin", mul(alpha, x))), alpha))

    define(scope, node.outputs[0], body)


@computes("Snake", domain=DOMAIN)
def compute_snake(x: NDArray[Any], alpha: NDArray[Any]) -> NDArray[Any]:
    """The same in NumPy."""
    alpha = alpha.reshape(-1, *(1,) * (x.ndim - 2))
    return x + np.sin(alpha * x) ** 2 / alpha


@kernel(
    "acme_median",
    source=Path(__file__).with_name("median.c").read_text(encoding="utf-8"),
    parts=lambda numbers: (numbers[0], 1),
    work=lambda numbers: numbers[0] * 8,
    scratch=lambda numbers: ((DType.F32, numbers[0]),),
)
def median(x: NDArray[Any], y: NDArray[Any], n: int) -> None:
    """The lower of the two in the middle of a row, where it has an even number of elements."""
    y[0] = np.sort(x)[(n - 1) // 2]


@infers("Median", domain=DOMAIN)
def infer_median(scope: Inference, node: Node) -> list[Fact]:
    """x [..., N] of float32 -> [...]"""
    x = require_rank(scope.fact(required(node, 0)), 1, node)
    if x.dtype is not DType.F32:
        raise UnsupportedError(f"{describe(node)}: a median is taken of float32, not of {x.dtype!r}")
    scope.at_least(x.shape[-1], 1, node, "a row has elements")
    return [Fact(x.dtype, x.shape[:-1])]


@lowers("Median", domain=DOMAIN)
def lower_median(scope: Lowering, node: Node) -> None:
    """No expression says which element is in the middle: a kernel does."""
    x, y = required(node, 0), node.outputs[0]
    *rows, n = scope.fact(x).shape
    (made,) = scope.extern("acme_median", [scope.tensor(x)], [(DType.F32, tuple(rows))], [n], product(rows))
    scope.alias(y, made)


@computes("Median", domain=DOMAIN)
def compute_median(x: NDArray[Any]) -> NDArray[Any]:
    """The same in NumPy."""
    return np.asarray(np.sort(x, axis=-1)[..., (x.shape[-1] - 1) // 2])
