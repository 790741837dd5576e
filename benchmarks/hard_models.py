"""ONNX models that are small and ask for much: sizes that explode, and operators of very many inputs.

Each compiles or is refused with an error that names a node, soon and in little memory; `compile_time --hard` shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import onnx
from onnx import TensorProto, helper

from benchmarks.sized_models import Builder


def squares(count: int, use: str = "ConstantOfShape") -> onnx.ModelProto:
    """The sum of the dims of x, squared again and again, as a size of y.

    use: what asks for the size; "Mul" computes with it instead, as with any number."""
    b = Builder()
    s = b.node("ReduceSum", [b.node("Shape", ["x"])], keepdims=1)
    for _ in range(count):
        s = b.node("Mul", [s, s])
    if use == "ConstantOfShape":
        y = b.node("ConstantOfShape", [s])
    elif use == "Expand":
        y = b.node("Expand", [b.number(1), s])
    elif use == "Reshape":
        y = b.node("Reshape", ["x", s])
    else:
        y = b.node("Mul", ["x", b.node("Cast", [s], to=TensorProto.FLOAT)])
    return b.model(("x", ("a", "b", "c", "d")), (y, ("a", "b", "c", "d") if use == "Mul" else ("n",)))


def powers(count: int) -> onnx.ModelProto:
    """The shape of x, squared again and again, as the shape of y: one term, of high degree."""
    b = Builder()
    s = b.node("Shape", ["x"])
    for _ in range(count):
        s = b.node("Mul", [s, s])
    return b.model(("x", ("a", "b")), (b.node("ConstantOfShape", [s]), ("m", "n")))


def reshapes(count: int) -> onnx.ModelProto:
    """Pairs of Reshape and Transpose: every pair splits and merges dims that do not divide each other."""
    b = Builder()
    shapes = [b.node("Shape", ["p"]), b.node("Shape", ["q"]), b.node("Shape", ["r"])]
    value = "x"
    for i in range(count):
        value = b.node("Transpose", [b.node("Reshape", [value, shapes[i % 3]])], perm=[0, 2, 1] if i % 2 else [2, 0, 1])
    model = b.model(("x", ("a", "b", "c")), (value, ("k", "l", "m")))
    for i, name in enumerate("pqr"):
        dims = [f"{name}{i}" for i in range(3)]
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
    return model


def halves(count: int) -> onnx.ModelProto:
    """Pairs of Reshape and Transpose whose shapes are 2 x half the size: what the size must be a multiple of grows."""
    b = Builder()
    value, shape = "x", b.integers(2, -1)
    for _ in range(count):
        value = b.node("Transpose", [b.node("Reshape", [value, shape])], perm=[1, 0])
    return b.model(("x", ("m", "n")), (value, ("h", 2)))


def concat(count: int) -> onnx.ModelProto:
    """A Concat of inputs that each have a size of their own."""
    return _of_many("Concat", count, own=True, axis=0)


def total(count: int) -> onnx.ModelProto:
    """A Sum of inputs."""
    return _of_many("Sum", count, own=False)


def chain(count: int) -> onnx.ModelProto:
    """Elementwise nodes one after the other, and nothing else."""
    b = Builder()
    value, weight = "x", b.weight(8)
    for i in range(count):
        value = b.node(("Relu", "Add", "Mul", "Sigmoid")[i % 4], [value] if i % 4 in (0, 3) else [value, weight])
    return b.model(("x", ("n", 8)), (value, ("n", 8)))


def _of_many(kind: str, count: int, own: bool, **attributes: int) -> onnx.ModelProto:
    b = Builder()
    names = [f"x{i}" for i in range(count)]
    y = b.node(kind, names, **attributes)
    sizes = [f"n{i}" if own else "n" for i in range(count)]
    model = b.model((names[0], (sizes[0], 4)), (y, ("m", 4)))
    fed = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [s, 4]) for n, s in zip(names, sizes, strict=True)]
    model.graph.input.extend(fed[1:])
    return model


HARD: Mapping[str, tuple[Callable[[int], onnx.ModelProto], int]] = {
    "squares": (squares, 8),
    "squares-expand": (partial(squares, use="Expand"), 8),
    "squares-reshape": (partial(squares, use="Reshape"), 8),
    "squares-mul": (partial(squares, use="Mul"), 8),
    "powers": (powers, 8),
    "reshapes": (reshapes, 8),
    "halves": (halves, 8),
    "concat": (concat, 125),
    "sum": (total, 2000),
    "elementwise": (chain, 10_000),
}
"""Name -> (the model of a count, the count that is measured)."""
