"""Reductions and what is built of them: softmax, normalisations, extremes, sums along an axis, pooling."""

from __future__ import annotations

from typing import Any

from tests.random.families.products import image, windows
from tests.random.families.registry import proposal
from tests.random.graph import BOOL, F32, I32, I64, Graph, Rejected, Value

SUMS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
    "ReduceProd",
    "ReduceLogSum",
]


def not_empty(value: Value) -> bool:
    """Whether there is always something to reduce."""
    return value.rank > 0 and all(array.size for array in value.data)


def some_axes(graph: Graph, x: Value) -> list[int]:
    """Axes to reduce, some counted from the end."""
    axes = sorted(graph.random.sample(range(x.rank), graph.between(1, min(x.rank, 3))))
    return [axis - x.rank if graph.chance(0.3) else axis for axis in axes]


@proposal(4.5)
def reduce(graph: Graph) -> Value:
    x = graph.pick(lambda v: not_empty(v) and v.dtype.kind in "fi")
    axes = None if graph.chance(0.08) else graph.integers(some_axes(graph, x))
    if x.floating:
        name = graph.choose([*SUMS, "ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum"])
        if name in ("ReduceProd", "ReduceLogSum"):
            x = graph.node("Sigmoid", x)
    elif x.dtype in (I32, I64):
        name = graph.choose(["ReduceSum", "ReduceMax", "ReduceMin"])
    else:
        name = graph.choose(["ReduceMax", "ReduceMin"])
    return graph.node(name, x, axes, keepdims=graph.between(0, 1))


@proposal(1.5)
def reduced_and_back(graph: Graph) -> Value:
    """x against a reduction of itself: the residual has two readers."""
    x = graph.pick(lambda v: not_empty(v) and v.floating)
    name = graph.choose(["ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2"])
    total = graph.node(name, x, graph.integers(some_axes(graph, x)), keepdims=1)
    return graph.node(graph.choose(["Sub", "Mul", "Add"]), x, total)


@proposal(1.5)
def arg(graph: Graph) -> Value:
    x = graph.pick(lambda v: not_empty(v) and v.dtype != BOOL)
    return graph.node(
        graph.choose(["ArgMax", "ArgMin"]),
        x,
        axis=graph.between(-x.rank, x.rank - 1),
        keepdims=graph.between(0, 1),
        select_last_index=graph.choose([0, 0, 0, 1]),
    )


@proposal(3)
def softmax(graph: Graph) -> Value:
    x = graph.pick(lambda v: not_empty(v) and v.floating)
    name = graph.choose(["Softmax", "Softmax", "Softmax", "LogSoftmax", "Hardmax"])
    return graph.node(name, x, axis=graph.between(-x.rank, x.rank - 1))


@proposal(2)
def cumulative(graph: Graph) -> Value:
    x = graph.pick(lambda v: not_empty(v) and v.dtype in (F32, I64))
    axis = graph.constant(graph.between(-x.rank, x.rank - 1), graph.choose([I32, I64]))
    return graph.node("CumSum", x, axis, exclusive=graph.between(0, 1), reverse=graph.between(0, 1))


@proposal(2.5)
def layer_norm(graph: Graph) -> Value:
    x = graph.pick(lambda v: not_empty(v) and v.dtype == F32)
    axis = graph.between(max(x.rank - 2, 0), x.rank - 1)
    shape = [x.size(a) for a in range(axis, x.rank)]
    scale = graph.constant(1 + 0.1 * graph.draw(shape, F32), F32)
    bias = graph.constant(graph.draw(shape, F32)) if graph.chance(0.7) else None
    if graph.chance(0.2):
        return graph.node("RMSNormalization", x, scale, axis=axis)
    return graph.node("LayerNormalization", x, scale, bias, axis=axis - x.rank if graph.chance(0.5) else axis)


@proposal(2)
def channel_norm(graph: Graph) -> Value:
    """BatchNormalization, InstanceNormalization, GroupNormalization."""
    x = graph.pick(lambda v: image(v) and not_empty(v))
    channels = x.size(1)
    scale = graph.constant(1 + 0.1 * graph.draw((channels,), F32), F32)
    bias = graph.constant(graph.draw((channels,), F32))
    name = graph.choose(["BatchNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization"])
    if name == "BatchNormalization":
        mean = graph.constant(graph.draw((channels,), F32))
        variance = graph.constant(0.5 + abs(graph.draw((channels,), F32)), F32)
        return graph.node(name, x, scale, bias, mean, variance)
    if name == "InstanceNormalization":
        return graph.node(name, x, scale, bias)
    groups = graph.choose([g for g in (1, 2, 3, 4, channels) if channels % g == 0])
    return graph.node(name, x, scale, bias, num_groups=groups)


@proposal(0.7)
def other_norm(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.rank == 4 and v.dtype == F32 and not_empty(v))
    how = graph.between(0, 2)
    if how == 0:
        return graph.node("LpNormalization", x, axis=graph.between(0, 3), p=2)  # the reference forgets signs for 1
    if how == 1:
        return graph.node("MeanVarianceNormalization", x, axes=sorted(graph.random.sample(range(4), 2)))
    return graph.node("LRN", x, size=graph.choose([1, 3, 5]))


@proposal(3)
def pool(graph: Graph) -> Value:
    x = graph.pick(lambda v: image(v) and not_empty(v))
    name = graph.choose(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"])
    attributes = windows(graph, x)
    kernel, pads = attributes["kernel_shape"], attributes.get("pads")
    if isinstance(pads, list) and any(p >= k for p, k in zip(pads, kernel * 2, strict=True)):
        raise Rejected  # a window on nothing but padding
    if "auto_pad" not in attributes and graph.chance(0.3) and name != "LpPool":
        attributes["ceil_mode"] = 1
    if name == "AveragePool":
        attributes["count_include_pad"] = graph.between(0, 1)
    if name == "LpPool":
        if set(attributes) - {"kernel_shape", "strides"}:
            raise Rejected  # the reference has no other form
        attributes["p"] = 2
    return graph.node(name, x, **attributes)


@proposal(1.5)
def global_pool(graph: Graph) -> Value:
    x = graph.pick(lambda v: image(v) and not_empty(v))
    return graph.node(graph.choose(["GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool"]), x)


@proposal(2)
def resize(graph: Graph) -> Value:
    """Nearest and linear, by scales and by sizes; often padded or convolved after."""
    x = graph.pick(lambda v: image(v) and not_empty(v) and v.rank < 5 and max(a.size for a in v.data) <= 512)
    n = x.rank - 2
    mode = graph.choose(["nearest", "nearest", "linear", "cubic"])
    attributes: dict[str, Any] = {"mode": mode}
    attributes["coordinate_transformation_mode"] = graph.choose(
        ["asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"]
    )
    if mode == "nearest":
        attributes["nearest_mode"] = graph.choose(["floor", "round_prefer_floor", "ceil", "round_prefer_ceil"])
    if graph.chance(0.6):
        scales = graph.constant([1.0, 1.0, *(graph.choose([1.0, 2.0, 2.0, 0.5, 1.5, 3.0]) for _ in range(n))], F32)
        y = graph.node("Resize", x, None, scales, **attributes)
    else:
        axes = list(range(2, x.rank))
        sizes = graph.integers([graph.between(1, 9) for _ in axes])
        y = graph.node("Resize", x, None, None, sizes, axes=axes, **attributes)
    if not all(array.size for array in y.data):
        raise Rejected  # scaled down to nothing, which nobody defines
    if "pytorch" in attributes["coordinate_transformation_mode"] and any(1 in array.shape[2:] for array in y.data):
        raise Rejected  # to one element: at 0, says the specification; the reference takes -0.5
    if graph.chance(0.3):
        return graph.node("Pad", y, graph.integers([0, 0, *[1] * n, 0, 0, *[1] * n]))
    return y
