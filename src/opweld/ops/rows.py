"""A value as rows that are reduced one by one: the elements of a row, and statistics of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opweld import ir
from opweld.ops.arithmetic import add, count, div, square, sub, widen
from opweld.ops.emitted import Body, Emitted, Indices, emit
from opweld.ops.registry import Lowering, fresh_axes
from opweld.tensor.dim import Dim, product
from opweld.tensor.expr import Expr, reduce, unary


@dataclass(frozen=True)
class Centred:
    """The mean and the variance of each row, and each element minus the mean of its row."""

    mean: Emitted
    variance: Emitted
    deviation: Emitted


@dataclass(frozen=True)
class Rows:
    """`element` is the value at its own indices, converted to the accumulator's dtype. `outer` are the sizes of the
    axes that index a row, `inner` those within a row; `join` gives an element's indices, `row` the row of an
    element."""

    scope: Lowering
    shape: tuple[Dim, ...]
    outer: tuple[Dim, ...]
    inner: tuple[Dim, ...]
    element: Body
    join: Callable[[Indices, Indices], Indices]
    row: Callable[[Indices], Indices]

    @property
    def extent(self) -> Dim:
        """Number of elements of a row."""
        return product(self.inner)

    def total(self, kind: str, term: Body, hint: str) -> Emitted:
        """Emits the reduction of each row of a function of an element's indices."""

        def body(outer: Indices) -> Expr:
            axes = fresh_axes(self.inner, "r")
            return reduce(kind, axes, term(self.join(outer, tuple(axis.dim for axis in axes))))

        return emit(self.scope, self.outer, body, hint)

    def per_row(self, body: Body, hint: str) -> Emitted:
        """Emits a tensor with one element for each row."""
        return emit(self.scope, self.outer, body, hint)

    def per_element(self, body: Body, hint: str) -> Emitted:
        """Emits a tensor of the value's shape."""
        return emit(self.scope, self.shape, body, hint)

    def mean(self, term: Body, hint: str) -> Emitted:
        """Emits the mean of each row of a function of an element's indices."""
        total = self.total("sum", term, f"{hint}_total")
        return self.per_row(lambda row: div(total.at(row), count(self.extent, total.dtype)), hint)

    def centred(self) -> Centred:
        """Emits the mean and the variance of each row, and each element minus the mean.

        A sum of elements that are all large is rounded accordingly. So the mean is computed twice: of the elements,
        then of their differences from the first one, in the pass that sums the squares of those."""
        near = self.mean(self.element, "near")
        offset = self.per_element(lambda i: sub(self.element(i), near.at(self.row(i))), "offset")
        rest = self.mean(offset.at, "rest")
        squares = self.mean_square(offset.at)
        deviation = self.per_element(lambda i: sub(offset.at(i), rest.at(self.row(i))), "deviation")
        return Centred(
            self.per_row(lambda row: add(near.at(row), rest.at(row)), "mean"),
            self.per_row(lambda row: sub(squares.at(row), square(rest.at(row))), "variance"),
            deviation,
        )

    def mean_square(self, term: Body) -> Emitted:
        """Emits the mean of the square of a function of an element's indices."""
        return self.mean(lambda i: square(term(i)), "squares")

    def inverse_root(self, variance: Emitted, epsilon: float) -> Emitted:
        """Emits 1 / sqrt(variance + epsilon) of each row."""
        return self.per_row(lambda row: unary("rsqrt", add(variance.at(row), epsilon)), "inverse")


def rows_along(scope: Lowering, value: ir.Value, axes: Sequence[int]) -> Rows:
    """The rows of a value along some of its axes."""
    return rows_of(scope, scope.fact(value).shape, lambda i: widen(scope.load(value, i)), axes)


def rows_of(scope: Lowering, shape: tuple[Dim, ...], element: Body, axes: Sequence[int]) -> Rows:
    """The rows, along some axes, of a value given by its shape and elements."""

    def join(outer: Indices, inner: Indices) -> Indices:
        left, right = iter(outer), iter(inner)
        return tuple(next(right) if i in axes else next(left) for i in range(len(shape)))

    def row(indices: Indices) -> Indices:
        return tuple(index for i, index in enumerate(indices) if i not in axes)

    inner = tuple(dim for i, dim in enumerate(shape) if i in axes)
    return Rows(scope, shape, row(shape), inner, element, join, row)


def rows_of_groups(scope: Lowering, value: ir.Value, groups: Dim, size: Dim) -> Rows:
    """The rows of [N, C, ...] that each hold `size` consecutive channels of one image with the axes after it, as
    [N, groups, size, ...]."""
    image, _, *places = scope.fact(value).shape
    shape = (image, groups, size, *places)
    return rows_of(
        scope,
        shape,
        lambda i: widen(scope.load(value, (i[0], i[1] * size + i[2], *i[3:]))),
        range(2, len(shape)),
    )
