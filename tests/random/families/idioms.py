"""What exporters write out: activations, normalisations and attention in pieces, residuals, diamonds, guards."""

from __future__ import annotations

import numpy as np

from tests.random.families.elementwise import fits_into, partner
from tests.random.families.registry import proposal
from tests.random.families.rows import not_empty
from tests.random.graph import BOOL, F32, I64, Graph, Value


def _float(value: Value) -> bool:
    return value.dtype == F32


@proposal(2)
def activation(graph: Graph) -> Value:
    """GELU by erf and by tanh, SiLU, HardSwish, Mish, quick GELU."""
    x = graph.pick(_float)
    how = graph.between(0, 4)
    if how == 0:
        inner = graph.node("Div", x, graph.constant(np.sqrt(2), F32))
        inner = graph.node("Add", graph.node("Erf", inner), graph.constant(1, F32))
        return graph.node("Mul", graph.node("Mul", x, inner), graph.constant(0.5, F32))
    if how == 1:
        cube = graph.node("Pow", x, graph.constant(3, F32))
        inner = graph.node("Add", x, graph.node("Mul", cube, graph.constant(0.044715, F32)))
        inner = graph.node("Tanh", graph.node("Mul", inner, graph.constant(0.7978846, F32)))
        half = graph.node("Mul", x, graph.constant(0.5, F32))
        return graph.node("Mul", half, graph.node("Add", inner, graph.constant(1, F32)))
    if how == 2:
        return graph.node("Mul", x, graph.node("Sigmoid", x))
    if how == 3:
        inner = graph.node("Add", x, graph.constant(3, F32))
        inner = graph.node("Clip", inner, graph.constant(0, F32), graph.constant(6, F32))
        return graph.node("Div", graph.node("Mul", x, inner), graph.constant(6, F32))
    return graph.node("Mul", x, graph.node("Tanh", graph.node("Softplus", x)))


@proposal(2)
def normalisation(graph: Graph) -> Value:
    """LayerNorm or RMSNorm in pieces, over the last axis or over another."""
    x = graph.pick(lambda v: _float(v) and not_empty(v))
    axis = graph.choose([-1, -1, graph.between(-x.rank, -1)])
    axes = graph.integers([axis])
    if graph.chance(0.5):
        x = graph.node("Sub", x, graph.node("ReduceMean", x, axes))
    square = graph.node("Mul", x, x) if graph.chance(0.5) else graph.node("Pow", x, graph.constant(2, F32))
    spread = graph.node("Add", graph.node("ReduceMean", square, axes), graph.constant(1e-5, F32))
    root = graph.node("Sqrt", spread)
    if graph.chance(0.5):
        return graph.node("Div", x, root)
    made = graph.node("Mul", x, graph.node("Reciprocal", root))
    if axis == -1 and x.static(x.rank - 1):
        made = graph.node("Mul", made, graph.constant(graph.draw((x.size(x.rank - 1),), F32)))
    return made


@proposal(2)
def attention(graph: Graph) -> Value:
    """Heads split and merged, scores scaled, masked, guarded against NaN; keys may be values of their own."""
    x = graph.pick(lambda v: _float(v) and v.rank == 3 and not_empty(v) and v.static(2))
    width = x.size(2)
    heads = graph.choose([h for h in (1, 2, 3, 4) if width % h == 0])

    def projected(source: Value) -> Value:
        if graph.chance(0.7):
            source = graph.node("MatMul", source, graph.constant(graph.draw((width, width), F32) / width**0.5, F32))
        return graph.node("Reshape", source, graph.integers([0, 0, heads, width // heads]))

    q = graph.node("Transpose", projected(x), perm=[0, 2, 1, 3])
    k = graph.node("Transpose", projected(x), perm=[0, 2, 3, 1])
    v = graph.node("Transpose", projected(x), perm=[0, 2, 1, 3])
    scores = graph.node("MatMul", q, k)
    scores = graph.node("Mul", scores, graph.constant((width // heads) ** -0.5, F32))
    how = graph.between(0, 3)
    if how == 1:
        scores = graph.node("Add", scores, graph.node("Mul", scores, graph.constant(0.1, F32)))
    elif how == 2:
        ones = graph.node("Greater", scores, graph.constant(-1e30, F32))
        mask = graph.node("Cast", graph.node("Trilu", graph.node("Cast", ones, to=1), upper=0), to=9)
        scores = graph.node("Where", mask, scores, graph.constant(graph.choose([-np.inf, -1e9]), F32))
    elif how == 3 and x.static(1):
        mask = np.where(graph.draw((x.size(1), x.size(1)), BOOL), np.float32(0), np.float32(-1e4))
        scores = graph.node("Add", scores, graph.constant(mask, F32))
    chosen = graph.node("Softmax", scores, axis=-1)
    if graph.chance(0.4):
        chosen = graph.node("Where", graph.node("IsNaN", chosen), graph.constant(0, F32), chosen)
    mixed = graph.node("Transpose", graph.node("MatMul", chosen, v), perm=[0, 2, 1, 3])
    merged = graph.node("Reshape", mixed, graph.integers([0, 0, width]))
    return graph.node("Add", merged, x) if graph.chance(0.5) else merged


@proposal(2)
def residual(graph: Graph) -> Value:
    """Two values of one shape are added, and the sum is read twice."""
    x = graph.pick(lambda v: _float(v) and v.rank > 0)
    same = [v for v in graph.values if _float(v) and v.extents == x.extents]
    total = graph.node("Add", x, graph.choose(same))
    other = graph.node(graph.choose(["Relu", "Sigmoid", "Neg", "Tanh"]), total)
    return graph.node(graph.choose(["Add", "Mul", "Sub", "Max"]), total, other)


@proposal(1.5)
def diamond(graph: Graph) -> Value:
    """One value taken apart and put together again, along another path each."""
    x = graph.pick(lambda v: _float(v) and v.rank > 0)
    axis = graph.between(0, x.rank - 1)
    left = graph.node(graph.choose(["Sigmoid", "Exp", "Abs"]), graph.node("Tanh", x))
    right = graph.node("Neg", x)
    joined = graph.node("Concat", *graph.random.sample([left, right, x], 3), axis=axis)
    if graph.chance(0.4):
        return graph.node("ReduceSum", joined, graph.integers([axis]), keepdims=graph.between(0, 1))
    return joined


@proposal(1)
def squeeze_and_excite(graph: Graph) -> Value:
    """A global mean, two small layers, a gate on the channels."""
    x = graph.pick(lambda v: _float(v) and v.rank == 4 and not_empty(v) and v.static(1))
    channels = x.size(1)
    small = graph.between(1, 4)
    pooled = graph.node("GlobalAveragePool", x)
    down = graph.node("Conv", pooled, graph.weights(small, channels, 1, 1), graph.weights(small))
    up = graph.node("Conv", graph.node("Relu", down), graph.weights(channels, small, 1, 1))
    return graph.node("Mul", x, graph.node(graph.choose(["Sigmoid", "HardSigmoid"]), up))


@proposal(1)
def rotary(graph: Graph) -> Value:
    """Halves of the last axis swapped with a sign, times a sine, plus the value times a cosine."""
    x = graph.pick(lambda v: _float(v) and v.rank > 1 and v.static(v.rank - 1) and v.size(v.rank - 1) % 2 == 0)
    width = x.size(x.rank - 1)
    if width < 2:
        return graph.node("Neg", x)
    half, axes = graph.integers([width // 2]), graph.integers([-1])
    first = graph.node("Slice", x, graph.integers([0]), half, axes)
    second = graph.node("Slice", x, half, graph.integers([1 << 40]), axes)
    turned = graph.node("Concat", graph.node("Neg", second), first, axis=-1)
    angles = graph.constant(graph.draw((width,), F32))
    sine, cosine = graph.node("Sin", angles), graph.node("Cos", angles)
    return graph.node("Add", graph.node("Mul", x, cosine), graph.node("Mul", turned, sine))


@proposal(1)
def shape_as_number(graph: Graph) -> Value:
    """A size computed in the graph, as a factor."""
    x = graph.pick(lambda v: _float(v) and v.rank > 0)
    axis = graph.between(0, x.rank - 1)
    size = graph.node("Gather", graph.node("Shape", x), graph.constant(axis, I64), axis=0)
    if graph.chance(0.2):
        size = graph.node("Size", x)
    scale = graph.node("Sqrt", graph.node("Cast", size, to=1))
    return graph.node("Mul", x, scale)


@proposal(1)
def select_by_comparison(graph: Graph) -> Value:
    """Where over a comparison with one of its own sides."""
    x = graph.pick(_float)
    y = partner(graph, x)
    if not fits_into(y, x):
        y = x
    return graph.node("Where", graph.node("Less", x, y), x, graph.node("Neg", x))
