"""Elementwise operators of all dtypes, with broadcasting, and casts between them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tests.random.families.registry import proposal
from tests.random.graph import BOOL, F16, F32, F64, I32, I64, Graph, Rejected, Value

# fmt: off
ANYWHERE = (
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg",
    "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Shrink", "Tanh", "ThresholdedRelu",
    "Celu", "Atan", "Asinh", "Identity",
)
# fmt: on
SMALL = ["Exp", "Sinh", "Cosh", "Tan"]
INSIDE_ONE = ["Acos", "Asin", "Atanh"]
POSITIVE = ["Log", "Sqrt", "Reciprocal"]


def fits_into(value: Value, other: Value) -> bool:
    """Whether the one broadcasts into the other without growing it."""
    if value.rank > other.rank:
        return False
    return all(a == b or set(a) == {1} for a, b in zip(value.extents[::-1], other.extents[::-1], strict=False))


def partner(graph: Graph, value: Value) -> Value:
    """A second operand: another value that broadcasts, the same one, a constant or a fresh input."""
    others = [v for v in graph.values if v.dtype == value.dtype and (fits_into(v, value) or fits_into(value, v))]
    if others and graph.chance(0.6):
        return graph.choose(others[-8:])
    if graph.chance(0.08):
        return value
    shape: list[int] = []
    for axis in range(value.rank):
        shape.append(value.extents[axis][0] if value.static(axis) and graph.chance(0.6) else 1)
    del shape[: graph.choose([0, 0, 1, value.rank])]
    array = graph.draw(shape, value.dtype)
    if graph.chance(0.15):
        array = np.full(shape, graph.choose([0, 1, 2, -1]) if value.dtype.kind in "if" else 1).astype(value.dtype)
    return graph.constant(array, value.dtype)


def made_positive(graph: Graph, value: Value) -> Value:
    """|x| + 0.5, or exp(x), or x * x + 1."""
    how = graph.between(0, 2)
    if how == 0:
        return graph.node("Add", graph.node("Abs", value), graph.constant(0.5, value.dtype))
    if how == 1:
        return graph.node("Exp", graph.node("Tanh", value))
    return graph.node("Add", graph.node("Mul", value, value), graph.constant(1.0, value.dtype))


@proposal(5)
def unary(graph: Graph) -> Value:
    x = graph.pick()
    how = graph.random.random()
    if how < 0.7:
        name = graph.choose(ANYWHERE)
        attributes: dict[str, Any] = {}
        if graph.chance(0.3) and name in ("Elu", "LeakyRelu", "Celu", "ThresholdedRelu", "HardSigmoid"):
            attributes["alpha"] = graph.choose([0.1, 0.5, 2.0])
        if name == "Gelu" and graph.chance(0.5):
            attributes["approximate"] = "tanh"
        return graph.node(name, x, **attributes)
    if how < 0.8:
        return graph.node(graph.choose(SMALL), graph.node("Tanh", x))
    if how < 0.88:
        bounded = graph.node("Mul", graph.node("Tanh", x), graph.constant(0.9, x.dtype))
        return graph.node(graph.choose(INSIDE_ONE), bounded)
    return graph.node(graph.choose(POSITIVE), made_positive(graph, x))


@proposal(0.7)
def passed_on(graph: Graph) -> Value:
    """What changes nothing: Identity, Dropout, a Cast to what it is."""
    x = graph.pick(lambda v: v.rank > 0)
    how = graph.between(0, 2)
    if how == 0:
        return graph.node("Identity", x)
    if how == 1 and x.floating:
        return graph.node("Dropout", x)
    return graph.node("Cast", x, to=helper.np_dtype_to_tensor_dtype(x.dtype), dtype=x.dtype)


@proposal(5)
def binary(graph: Graph) -> Value:
    x = graph.pick()
    y = partner(graph, x)
    operands = (x, y) if graph.chance(0.6) else (y, x)
    name = graph.choose(["Add", "Add", "Mul", "Mul", "Sub", "Div", "Max", "Min", "PRelu", "Pow", "Mean", "Sum"])
    if name == "Div":
        return graph.node("Div", operands[0], made_positive(graph, operands[1]))
    if name == "Pow":
        if graph.chance(0.7):
            return graph.node("Pow", x, graph.constant(graph.choose([2, 3, 0, 1]), graph.choose([x.dtype, I64])))
        return graph.node("Pow", made_positive(graph, x), graph.constant(graph.choose([0.5, -0.5, 1.5]), x.dtype))
    if name == "PRelu":
        if not fits_into(y, x):
            raise Rejected
        return graph.node("PRelu", x, y)
    if name in ("Mean", "Sum", "Max", "Min") and graph.chance(0.4):
        return graph.node(name, *operands, partner(graph, x))
    return graph.node(name, *operands)


@proposal(2)
def integers(graph: Graph) -> Value:
    if graph.chance(0.3) or not any(v.dtype.kind in "iu" for v in graph.values):
        like = graph.pick(lambda v: v.rank > 0)
        shape = [like.extents[a][0] if like.static(a) else 1 for a in range(like.rank)]
        x = graph.input(shape, graph.choose([I32, I64, np.uint8, np.int8]))
    else:
        x = graph.pick(lambda v: v.dtype.kind in "iu")
    y = partner(graph, x)
    how = graph.between(0, 9)
    if how < 5:
        return graph.node(graph.choose(["Add", "Sub", "Mul", "Max", "Min"]), x, y)
    if how == 5:
        divisor = graph.constant(graph.choose([1, 2, 3, 7]), x.dtype)
        name = graph.choose(["Div", "Mod"])
        return graph.node(name, graph.node("Abs", x) if name == "Div" else x, divisor)
    if how == 6:
        return graph.node(graph.choose(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]), x, y)
    if how == 7:
        return graph.node(graph.choose(["Abs", "Sign", "BitwiseNot", "Neg" if x.dtype.kind == "i" else "Abs"]), x)
    if how == 8 and x.dtype.kind == "u":
        shift = graph.constant(graph.between(0, 3), x.dtype)
        return graph.node("BitShift", x, shift, direction=graph.choose(["LEFT", "RIGHT"]))
    return graph.node(graph.choose(["Equal", "Less", "Greater", "GreaterOrEqual"]), x, y)


@proposal(1.5)
def compare(graph: Graph) -> Value:
    x = graph.pick()
    return graph.node(graph.choose(["Less", "Greater", "GreaterOrEqual", "LessOrEqual"]), x, partner(graph, x))


@proposal(1.5)
def logic(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.dtype == BOOL)
    if graph.chance(0.3):
        return graph.node("Not", x)
    return graph.node(graph.choose(["And", "Or", "Xor", "Equal"]), x, partner(graph, x))


@proposal(2)
def where(graph: Graph) -> Value:
    """A condition that broadcasts with both sides."""
    condition = graph.pick(lambda v: v.dtype == BOOL)
    fitting = [v for v in graph.values if v.dtype != BOOL and (fits_into(v, condition) or fits_into(condition, v))]
    x = graph.choose(fitting)
    return graph.node("Where", condition, *graph.random.sample([x, partner(graph, x)], 2))


@proposal(1.5)
def clip(graph: Graph) -> Value:
    x = graph.pick(lambda v: v.dtype.kind in "fi")
    low, high = graph.choose([(-1, 1), (0, 6), (0, None), (None, 1), (-2, 3)])
    limits = [None if limit is None else graph.constant(limit, x.dtype) for limit in (low, high)]
    return graph.node("Clip", x, *limits)


@proposal(2.5)
def cast(graph: Graph) -> Value:
    """To another dtype; floats are cast to integers after scaling, so that a few values result."""
    x = graph.pick(lambda v: True)
    target = np.dtype(graph.choose([F32, F32, F16, F64, I32, I64, BOOL, np.uint8, np.int8]))
    if x.floating and target.kind in "iu":
        x = graph.node("Mul", graph.node("Abs", x), graph.constant(1.37, x.dtype))
    if target.kind == "u" and x.dtype.kind == "i":
        x = graph.node("Abs", x)
    if target.kind == "f" and graph.chance(0.2):
        like = graph.pick(lambda v: v.dtype == target)
        return graph.node("CastLike", x, like, dtype=target)
    made = graph.node("Cast", x, to=helper.np_dtype_to_tensor_dtype(target), dtype=target)
    if target in (F16, F64) and graph.chance(0.7):
        made = graph.node(graph.choose(["Relu", "Sigmoid", "Neg", "Abs"]), made)
        return graph.node("Cast", made, to=helper.np_dtype_to_tensor_dtype(F32), dtype=F32)
    return made


@proposal(0.5)
def is_special(graph: Graph) -> Value:
    """NaN and infinity that the graph makes itself."""
    x = graph.pick(lambda v: v.dtype in (F32, F64))
    mask = graph.node("Greater", x, graph.constant(0.4, x.dtype))
    special = graph.constant(graph.choose([np.nan, np.inf, -np.inf]), x.dtype)
    odd = graph.node("Where", mask, special, x)
    found = graph.node(graph.choose(["IsNaN", "IsInf"]), odd)
    return graph.node("Where", found, graph.constant(0, x.dtype), odd) if graph.chance(0.7) else found
