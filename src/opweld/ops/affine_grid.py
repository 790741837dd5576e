"""AffineGrid: the positions of a regular grid transformed by a matrix, as input of GridSample."""

from __future__ import annotations

from functools import reduce

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import accumulator, add, count, div, larger, mul, sub, widen
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.known import required_dims
from opweld.ops.operands import describe, require_float, require_rank, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr


@infers("AffineGrid")
def infer_affine_grid(scope: Inference, node: ir.Node) -> list[Fact]:
    """Matrices [N, axes, axes + 1] and sizes (N, C, spatial...) -> [N, spatial..., axes]"""
    theta = require_float(require_rank(scope.fact(required(node, 0)), 3, node, 3), node)
    sizes = required_dims(scope, node, 1, "the sizes of the grid")
    axes = len(sizes) - 2
    if axes not in (2, 3):
        raise ModelError(f"{describe(node)}: a grid of {len(sizes)} sizes is not defined; 4 and 5 are")
    scope.same(theta.shape[0], sizes[0], node, "a matrix for each of the batch")
    scope.same(theta.shape[1], as_dim(axes), node, "a row of the matrix for each spatial axis")
    scope.same(theta.shape[2], as_dim(axes + 1), node, "a column of the matrix for each spatial axis, and one")
    for size in sizes[2:]:
        scope.at_least(size, 1, node, "a spatial axis is not empty")
    return [Fact(theta.dtype, (theta.shape[0], *sizes[2:], as_dim(axes)))]


@lowers("AffineGrid")
def lower_affine_grid(scope: Lowering, node: ir.Node) -> None:
    """A row of the matrix times the homogeneous coordinates of a position, the last axis first."""
    theta = required(node, 0)
    dtype, aligned = accumulator(scope.fact(theta).dtype), bool(attribute(node, "align_corners", 0))
    sizes = scope.fact(node.outputs[0]).shape[1:-1]

    def body(at: Indices) -> Expr:
        batch, *places, row = at
        coordinates = [_coordinate(*axis, dtype, aligned) for axis in zip(places, sizes, strict=True)]
        numbers = [widen(scope.load(theta, (batch, row, as_dim(column)))) for column in range(len(sizes) + 1)]
        return add(reduce(add, map(mul, numbers, reversed(coordinates))), numbers[-1])

    define(scope, node.outputs[0], body)


def _coordinate(place: Dim, size: Dim, dtype: DType, aligned: bool) -> Expr:
    """A coordinate from -1 to 1: of the centre of an element, or, if `aligned`, with the first and last elements at the
    ends. For an axis of one element it is -1, as in ONNX's definition."""
    i, n = count(place, dtype), count(size, dtype)
    if aligned:
        return sub(div(mul(i, 2.0), larger(sub(n, 1.0), 1.0)), 1.0)
    return sub(div(add(mul(i, 2.0), 1.0), n), 1.0)
