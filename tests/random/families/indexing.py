"""Elements chosen by indices: Gather, GatherElements, GatherND, OneHot."""

from __future__ import annotations

import numpy as np

from tests.random.families.registry import proposal
from tests.random.graph import F32, I32, I64, Graph, Rejected, Value


def _indices(graph: Graph, shape: list[int], limit: int) -> Value:
    """Indices below the limit, negative ones among them; known when compiling, or computed at run time."""
    if limit < 1:
        raise Rejected
    low = -limit if graph.chance(0.4) else 0
    array = graph.numbers.integers(low, limit, shape)
    dtype = graph.choose([I32, I64])
    if graph.chance(0.5):
        return graph.constant(array, dtype)
    fed = graph.input(shape, dtype)
    # Any integer becomes one in range: the remainder takes the sign of the divisor.
    return graph.node("Mod", fed, graph.constant(limit, dtype))


@proposal(3)
def gather(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.rank > 0)
    axis = graph.between(0, x.rank - 1)
    limit = min(x.extents[axis])
    shape = graph.choose([[], [1], [3], [5], [2, 3]])
    return graph.node("Gather", x, _indices(graph, shape, limit), axis=axis - x.rank if graph.chance(0.3) else axis)


@proposal(1)
def embedding(graph: Graph) -> Value:
    """Rows of a table, by positions that have a symbolic length."""
    table = graph.constant(graph.draw((graph.between(4, 12), graph.choose([4, 8, 17])), F32))
    symbols = list(graph.choices[0])
    dims = [graph.choose([*symbols, 1, 5]), graph.choose([*symbols, 3])]
    index = graph.node("Mod", graph.input(dims, I64), graph.constant(table.size(0), I64))
    return graph.node("Gather", table, index, axis=0)


@proposal(1.5)
def gather_elements(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.rank > 0)
    axis = graph.between(0, x.rank - 1)
    shape = [graph.between(1, min(x.extents[a])) if min(x.extents[a]) else 0 for a in range(x.rank)]
    shape[axis] = graph.between(1, 4)
    return graph.node("GatherElements", x, _indices(graph, shape, min(x.extents[axis])), axis=axis)


@proposal(1)
def gather_nd(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.rank > 1)
    depth = graph.between(1, 2)
    limits = [min(x.extents[a]) for a in range(depth)]
    if min(limits) < 1:
        raise Rejected
    array = np.stack([graph.numbers.integers(0, limit, (3,)) for limit in limits], axis=-1)
    return graph.node("GatherND", x, graph.constant(array, I64))


@proposal(0.7)
def one_hot(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.dtype in (I32, I64) and 0 < v.rank < 4)
    values = graph.constant(graph.choose([[0.0, 1.0], [-1.0, 2.5]]), F32)
    return graph.node(
        "OneHot", x, graph.constant(graph.between(1, 6), I64), values, axis=graph.choose([-1, 0]), dtype=F32
    )


@proposal(1.5)
def top_k(graph: Graph) -> Value:
    """Extreme elements or their places; ties and NaN would make the order a matter of taste after rounding."""
    x = graph.pick(lambda v: v.rank > 0 and v.dtype == F32)
    axis = graph.between(0, x.rank - 1)
    least = min(x.extents[axis])
    count = graph.constant([graph.between(0 if graph.chance(0.1) else min(1, least), least)], I64)
    return graph.node("TopK", x, count, outputs=2, axis=axis, largest=int(graph.chance(0.7)))


@proposal(1.5)
def scatter_elements(graph: Graph) -> Value:
    """Updates along one axis, none of which meet unless they are combined by an operation that has no order."""
    x = graph.pick(lambda v: v.rank > 0 and v.dtype == F32)
    axis = graph.between(0, x.rank - 1)
    limit = min(x.extents[axis])
    if limit < 1:
        raise Rejected
    shape = [graph.between(1, min(x.extents[a])) if min(x.extents[a]) else 0 for a in range(x.rank)]
    reduction = graph.choose(["none", "add", "max", "min"])
    shape[axis] = 1 if reduction == "none" else graph.between(1, 4)
    updates = graph.input(shape, F32)
    return graph.node("ScatterElements", x, _indices(graph, shape, limit), updates, axis=axis, reduction=reduction)


@proposal(1)
def scatter_nd(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.rank > 0 and v.dtype == F32)
    limit = min(x.extents[0])
    if limit < 1:
        raise Rejected
    if not all(x.static(axis) for axis in range(1, x.rank)):
        raise Rejected
    updates = graph.constant(graph.draw((3, *(x.size(axis) for axis in range(1, x.rank))), F32), F32)
    low = -limit if graph.chance(0.4) else 0
    indices = graph.constant(graph.numbers.integers(low, limit, [3, 1]), I64)
    return graph.node("ScatterND", x, indices, updates, reduction="add")
