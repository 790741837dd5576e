"""What a factor of a contraction takes that is computed in registers, and one that is read as it is multiplied."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass

from opweld.fuse.region import axes_in, loaded
from opweld.schedule.cost import (
    CONVERT,
    VECTORS,
    Product,
    best_height,
    contraction,
    core_of,
    level_rate,
    most_rows,
)
from opweld.schedule.expected import LENGTH, Expected
from opweld.target import Target
from opweld.tensor.dim import Axis, product
from opweld.tensor.expr import Binary, Bitcast, Cast, Expr, Load, Reduce, free_atoms
from opweld.tensor.program import Tensor


@dataclass(frozen=True)
class Factor:
    """A factor of a contraction that is no bare load: what it is, the load that has all its axes, and the bytes of what
    that reads and of the factor's elements. `inverse`: what the other factor is multiplied by, where this one is
    multiples of its elements."""

    value: Expr
    operand: Load
    narrow: int
    wide: int
    inverse: Expr | None = None


@dataclass(frozen=True)
class FactorPrices:
    """Seconds of contractions by how a factor is computed: (in registers, in memory).

    `weights_bytes`: of all constants of the program, which pass through the caches in a run. `computed`: the values
    that items of the program compute, which a launch less makes in another type."""

    expected: Expected
    target: Target
    weights_bytes: int
    computed: Container[str] = ()

    def weights(self, tensor: Tensor, summed: Reduce, factor: Factor) -> tuple[float, float]:
        """Of a constant, along which the lanes run. Of rows whose number nobody knows, the geometric mean of as many as
        are expected and of many: what is gained at either counts alike."""
        if self.target.kind == "gpu":
            return self._moved(factor)
        axes = axes_in(factor.operand)
        extents = [axis.extent for axis in tensor.axes if axis not in axes]
        rows = max(1, self.expected.product(extents))
        ways = self._weights_at(rows, tensor, summed, factor)
        if self.expected.known(product(extents)) is not None or rows >= LENGTH:
            return ways
        many = self._weights_at(LENGTH, tensor, summed, factor)
        return math.sqrt(ways[0] * many[0]), math.sqrt(ways[1] * many[1])

    def _weights_at(self, rows: int, tensor: Tensor, summed: Reduce, factor: Factor) -> tuple[float, float]:
        """The same of so many rows: the bytes of the constant come beside the products."""
        core, target = core_of(self.target), self.target
        axes = axes_in(factor.operand)
        vectors = self.expected.product(axis.extent for axis in axes) / target.vector_lanes_f32
        passes = -(-rows // most_rows(VECTORS, summed.dtype, target))
        parts = without_scale(factor.value, summed)
        computed = passes * vectors * self._cycles(factor.value if parts is None else parts[0], summed) / core.hertz
        lane = self.expected.product(axis.extent for axis in tensor.axes if axis in axes)
        reduced = self.expected.product(axis.extent for axis in summed.axes)
        shape = Product(lane, rows, reduced, 1, summed.dtype, target)
        products = contraction(shape, VECTORS, best_height(shape, VECTORS))
        fetched = [size / level_rate(max(self.weights_bytes, size), target) for size in (factor.narrow, factor.wide)]
        # A tile of few rows waits for its sums: what it computes meanwhile takes no longer.
        return max(products.arithmetic + computed, products.seconds, fetched[0]), max(products.seconds, fetched[1])

    def values(self, tensor: Tensor, summed: Reduce, factor: Factor) -> tuple[float, float]:
        """Of a value that is the same in all lanes: each tile of lanes computes it."""
        core, target = core_of(self.target), self.target
        made = 0.0 if factor.operand.tensor in self.computed else core.launch
        if target.kind == "gpu":
            registers, memory = self._moved(factor)
            return registers, memory + made
        axes = axes_in(factor.operand)
        columns = self.expected.product(axis.extent for axis in tensor.axes if axis not in axes)
        tiles = -(-max(1, columns) // (VECTORS * target.vector_lanes_f32))
        each = self._cycles(factor.value, summed)
        computed = self.expected.product(axis.extent for axis in axes) * tiles * each / core.hertz
        moved = 2 * max(0, factor.wide - factor.narrow) / level_rate(factor.wide, target)
        once = factor.wide / factor.value.dtype.bytes / target.vector_lanes_f32 * each / core.hertz
        return computed, once + moved + made

    def _moved(self, factor: Factor) -> tuple[float, float]:
        """On a GPU, where other units compute what tensor cores multiply: how long its bytes take."""
        narrow, wide = factor.narrow, factor.wide
        return narrow / level_rate(narrow, self.target), wide / level_rate(wide, self.target)

    def _cycles(self, value: Expr, summed: Reduce) -> float:
        """Of a vector of a factor, beside its load; what is the same for all that is summed is computed before."""
        axes = set(summed.axes)
        nodes = [node for node in loaded(value) if not isinstance(node, Load | Bitcast) and free_atoms(node) & axes]
        return sum(CONVERT if isinstance(node, Cast) else 1 / core_of(self.target).products for node in nodes)


def without_scale(value: Expr, summed: Reduce) -> tuple[Expr, Expr] | None:
    """A factor as one that is multiplied by what is the same for all that is summed: that is multiplied once, after."""
    if not isinstance(value, Binary) or value.op != "mul" or value.dtype is not summed.dtype:
        return None
    for rest, scale in ((value.x, value.y), (value.y, value.x)):
        if not free_atoms(scale) & set(summed.axes):
            return rest, scale
    return None


def lanes_and_rows(
    item: Tensor, along: Container[Axis], across: Container[Axis], expected: Expected
) -> tuple[int, int]:
    """How many results of a product its weights, which have the axes `along`, and only they have; how many share those
    weights: many, where nobody knows. `across` are the axes of the other operand."""
    lanes = expected.product(axis.extent for axis in item.axes if axis in along and axis not in across)
    extents = [axis.extent for axis in item.axes if axis not in along]
    rows = max(1, expected.product(extents))
    return lanes, rows if expected.known(product(extents)) is not None else max(rows, LENGTH)
