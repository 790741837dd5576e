"""Operators that move data: layouts, slices, concatenations, padding, expansion."""

from __future__ import annotations

import numpy as np

from tests.random.families.elementwise import fits_into
from tests.random.families.registry import proposal
from tests.random.graph import BOOL, F32, I64, Graph, Rejected, Value


def anything(value: Value) -> bool:
    """Any value that has an axis."""
    return value.rank > 0


@proposal(4)
def transpose(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.rank > 1)
    perm = graph.random.sample(range(x.rank), x.rank)
    return graph.node("Transpose", x, perm=perm)


@proposal(4)
def reshape(graph: Graph) -> Value:
    """Merges neighbours, splits a fixed axis, flattens, or asks with 0 and -1."""
    x = graph.pick(anything)
    dims: list[int] = [x.extents[a][0] if x.static(a) else 0 for a in range(x.rank)]
    how = graph.between(0, 3)
    axis = graph.between(0, x.rank - 1)
    if how == 0 and x.rank > 1:
        axis = graph.between(0, x.rank - 2)
        merged = dims[axis] * dims[axis + 1] if dims[axis] and dims[axis + 1] else -1
        target = [*dims[:axis], merged, *dims[axis + 2 :]]
        if any(d == 0 for d in target[axis + 1 :]):  # a 0 copies the dim at its own place
            raise Rejected
    elif how == 1 and dims[axis] > 1:
        factors = [f for f in range(1, dims[axis] + 1) if dims[axis] % f == 0]
        factor = graph.choose(factors)
        target = [*dims[:axis], factor, dims[axis] // factor, *dims[axis + 1 :]]
        if any(d == 0 for d in target[axis + 1 :]):
            raise Rejected
    elif how == 2:
        return graph.node("Flatten", x, axis=graph.between(-x.rank + 1, x.rank) if x.rank > 1 else 1)
    else:
        known = [a for a in range(x.rank) if dims[a]]
        target = [dims[a] for a in known] if len(known) == x.rank else [-1, *(dims[a] for a in known[-1:])]
        graph.random.shuffle(target)
    if graph.chance(0.3) and -1 not in target:
        target[graph.between(0, len(target) - 1)] = -1
    return graph.node("Reshape", x, graph.integers(target))


@proposal(2)
def reshape_by_shape(graph: Graph) -> Value:
    """The exporters' way: Shape, Gather, Unsqueeze, Concat, Reshape."""
    x = graph.pick(lambda v: v.rank > 1)
    shape = graph.node("Shape", x)
    kept = graph.between(1, x.rank - 1)
    if graph.chance(0.5):
        head = graph.node("Slice", shape, graph.integers([0]), graph.integers([kept]))
        target = graph.node("Concat", head, graph.integers([-1]), axis=0)
    else:
        parts = []
        for axis in range(kept):
            dim = graph.node("Gather", shape, graph.constant(axis, I64), axis=0)
            parts.append(graph.node("Unsqueeze", dim, graph.integers([0])))
        target = graph.node("Concat", *parts, graph.integers([-1]), axis=0)
    return graph.node("Reshape", x, target)


@proposal(2)
def squeeze(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.rank < 6)
    ones = [a for a in range(x.rank) if set(x.extents[a]) == {1}]
    if ones and graph.chance(0.5):
        return graph.node("Squeeze", x, graph.integers(graph.random.sample(ones, graph.between(1, len(ones)))))
    return graph.node("Unsqueeze", x, graph.integers([graph.between(-x.rank - 1, x.rank)]))


@proposal(3)
def slice_(graph: Graph) -> Value:
    """Any step, negative ones too, and ends far outside."""
    x = graph.pick(anything)
    count = graph.between(1, min(2, x.rank))
    axes = graph.random.sample(range(x.rank), count)
    starts, ends, steps = [], [], []
    for _ in axes:
        step = graph.choose([1, 1, 1, 2, 3, -1, -1, -2])
        start, end = graph.choose([0, 0, 1, -2, -3, 2]), graph.choose([1 << 30, -1, 3, 5, 9])
        if step < 0:
            start, end = graph.choose([-1, 1 << 30, 4, -2]), graph.choose([-(1 << 40), 0, -8])
        starts.append(start)
        ends.append(end)
        steps.append(step)
    signed = [a - x.rank if graph.chance(0.3) else a for a in axes]
    made = graph.node(
        "Slice", x, graph.integers(starts), graph.integers(ends), graph.integers(signed), graph.integers(steps)
    )
    if any(array.size == 0 for array in made.data) and graph.chance(0.9):
        raise Rejected
    return made


@proposal(3)
def concat(graph: Graph) -> Value:
    x = graph.pick(anything)
    axis = graph.between(0, x.rank - 1)

    def joins(value: Value) -> bool:
        if value.dtype != x.dtype or value.rank != x.rank:
            return False
        return all(a == axis or value.extents[a] == x.extents[a] for a in range(x.rank))

    others = [v for v in graph.values if joins(v)]
    parts = [x, *(graph.choose(others) for _ in range(graph.between(1, 2)))]
    graph.random.shuffle(parts)
    return graph.node("Concat", *parts, axis=axis - x.rank if graph.chance(0.3) else axis)


@proposal(2.5)
def split(graph: Graph) -> Value:
    x = graph.pick(lambda v: any(v.static(a) and v.size(a) > 1 for a in range(v.rank)))
    axis = graph.choose([a for a in range(x.rank) if x.static(a) and x.size(a) > 1])
    size = x.size(axis)
    if graph.chance(0.5):
        count = graph.between(2, min(3, size))
        return graph.several("Split", x, outputs=count, axis=axis, num_outputs=count)[0]
    first = graph.between(1, size - 1)
    return graph.several("Split", x, graph.integers([first, size - first]), outputs=2, axis=axis)[-1]


@proposal(3.5)
def pad(graph: Graph) -> Value:
    """All modes; a fill may be a negative zero, pads may crop."""
    x = graph.pick(lambda v: v.rank > 0 and v.dtype != BOOL)
    mode = graph.choose(["constant", "constant", "constant", "edge", "reflect", "wrap"])
    axes = sorted(graph.random.sample(range(x.rank), graph.between(1, min(2, x.rank))))
    low = -1 if mode == "constant" and graph.chance(0.3) else 0
    pads = [graph.between(low, 3) for _ in range(2 * len(axes))]
    if any(min(x.extents[a]) <= 3 * (mode == "reflect") for a in axes) and mode != "constant":
        raise Rejected  # nothing to repeat, or a reflection of a reflection
    fill = None
    if mode == "constant" and graph.chance(0.5):
        fill = graph.constant(graph.choose([0, 1, 3] if x.dtype.kind == "u" else [0, 1.5, -2, -0.0, 7]), x.dtype)
    if graph.chance(0.5) and fill is None:
        whole = [0] * (2 * x.rank)
        for position, axis in enumerate(axes):
            whole[axis], whole[axis + x.rank] = pads[position], pads[position + len(axes)]
        return graph.node("Pad", x, graph.integers(whole), mode=mode)
    return graph.node("Pad", x, graph.integers(pads), fill, graph.integers(axes), mode=mode)


@proposal(2)
def expand(graph: Graph) -> Value:
    """Fixed axes of one element are stretched, new ones come in front; often padded after."""
    x = graph.pick(lambda v: v.rank < 5)
    target = [graph.between(2, 5) if set(x.extents[a]) == {1} and graph.chance(0.7) else 1 for a in range(x.rank)]
    target = [graph.between(1, 3)] * graph.between(0, 1) + target
    made = graph.node("Expand", x, graph.integers(target))
    return _maybe_padded(graph, made)


@proposal(1.5)
def expand_like(graph: Graph) -> Value:
    """To the shape of another value."""
    x = graph.pick(lambda v: True)
    likes = [v for v in graph.values if fits_into(x, v) and v.extents != x.extents]
    return graph.node("Expand", x, graph.node("Shape", graph.choose(likes)))


@proposal(1.5)
def tile(graph: Graph) -> Value:
    x = graph.pick(lambda v: 0 < v.rank < 5)
    made = graph.node("Tile", x, graph.integers([graph.choose([1, 1, 2, 3]) for _ in range(x.rank)]))
    return _maybe_padded(graph, made)


def _maybe_padded(graph: Graph, x: Value) -> Value:
    if x.rank == 0 or x.dtype == BOOL or graph.chance(0.6):
        return x
    return graph.node("Pad", x, graph.integers([graph.between(0, 2) for _ in range(2 * x.rank)]))


@proposal(1)
def triangle(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.rank > 1)
    k = graph.constant(graph.between(-2, 2), I64) if graph.chance(0.6) else None
    return graph.node("Trilu", x, k, upper=graph.between(0, 1))


@proposal(1.5)
def space_and_depth(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.rank == 4 and v.dtype == F32)
    if graph.chance(0.5):
        mode = graph.choose(["DCR", "CRD"])
        return graph.node("DepthToSpace", x, blocksize=2, mode=mode)
    return graph.node("SpaceToDepth", x, blocksize=2)


@proposal(1)
def number_range(graph: Graph) -> Value:
    """Positions from a shape, as exporters of transformers write them."""
    x = graph.pick(anything)
    axis = graph.between(0, x.rank - 1)
    length = graph.node("Gather", graph.node("Shape", x), graph.constant(axis, I64), axis=0)
    made = graph.node("Range", graph.constant(0, I64), length, graph.constant(1, I64))
    return graph.node("Cast", made, to=1, dtype=F32) if graph.chance(0.7) else made


@proposal(0.7)
def filled(graph: Graph) -> Value:
    """ConstantOfShape of the shape of a value."""
    x = graph.pick(anything)
    value = np.array([graph.choose([0.0, 1.0, -2.5])], np.float32)
    from onnx import numpy_helper

    return graph.node("ConstantOfShape", graph.node("Shape", x), value=numpy_helper.from_array(value), dtype=F32)
