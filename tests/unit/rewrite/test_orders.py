"""Random graphs of transpositions and what lies between them: the same numbers, and no more nodes or bytes moved."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from opweld.ledger import Ledger
from opweld.rewrite.optimize import optimize_model
from opweld.rules import REWRITES
from opweld.verification.reference import float64_outputs
from tests.unit.rewrite.rewritten import Array, kinds, normal


class Graph:
    """A graph in the making: its nodes, its stored tensors, the values that are there and their shapes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: dict[str, Array] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.rank = self.chance.choice((2, 3, 4, 4))

    def store(self, array: Array) -> str:
        name = f"k{len(self.stored)}"
        self.stored[name] = array
        return name

    def add(self, operator: str, inputs: list[str], *shapes: tuple[int, ...], **attributes: Any) -> None:
        names = [f"v{len(self.shapes) + at}" for at in range(len(shapes))]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        self.shapes.update(zip(names, shapes, strict=True))

    def grow(self) -> None:
        """Adds a node that reads what is there; likely something recent."""
        chance, names = self.chance, list(self.shapes)
        value = names[-1 - min(int(chance.expovariate(0.5)), len(names) - 1)]
        shape: tuple[int, ...] = self.shapes[value]
        axis = chance.randrange(len(shape)) if shape else 0
        alike = [other for other in names if self.shapes[other] == shape]
        kind = chance.randrange(14)
        if len(shape) != self.rank or kind < 4:
            order = list(range(len(shape)))
            last = [*order[:1], *order[2:], *order[1:2]]
            order = chance.choice((last, [last.index(at) for at in order], chance.sample(order, len(order))))
            self.add("Transpose", [value], tuple(shape[at] for at in order), perm=order)
        elif kind == 4:
            self.add(chance.choice(("Relu", "Tanh", "Neg")), [value], shape)
        elif kind == 5:
            self.add(chance.choice(("Add", "Mul", "Sub")), [value, chance.choice(alike)], shape)
        elif kind == 6:
            own = tuple(extent if chance.random() < 0.5 else 1 for extent in shape)[chance.randrange(len(shape)) :]
            pair = [value, self.store(normal(*own, seed=len(names)))]
            self.add(chance.choice(("Add", "Mul")), chance.sample(pair, 2), shape)
        elif kind == 7 and shape[axis] < 20:
            joined = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
            self.add("Concat", [value, chance.choice(alike)], joined, axis=axis - chance.choice((0, len(shape))))
        elif kind == 8 and shape[axis] > 1:
            sizes = (1, shape[axis] - 1)
            parts = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
            self.add("Split", [value, self.store(np.array(sizes))], *parts, axis=axis)
        elif kind == 9:
            self.add("Softmax", [value], shape, axis=axis)
        elif kind == 10:
            keeps = chance.random() < 0.6
            left = (*shape[:axis], *((1,) if keeps else ()), *shape[axis + 1 :])
            self.add("ReduceMean", [value, self.store(np.array([axis]))], left, keepdims=int(keeps))
        elif kind == 11 and len(shape) > 2:
            self.add("MatMul", [value, self.store(normal([*shape][-1], 3, seed=len(names)))], (*shape[:-1], 3))
        elif kind == 12 and len(shape) == 4:
            weights = [self.store(normal(3, shape[1], 1, 1)), *([self.store(normal(3))] if axis % 2 else [])]
            self.add("Conv", [value, *weights], (shape[0], 3, *shape[2:]))
        elif kind == 13:
            self.add("LayerNormalization", [value, self.store(normal([*shape][-1]))], shape)

    def model(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """The whole, with what nobody reads and a few others as outputs; and something to feed it."""
        feeds = {f"x{at}": normal(*self.chance.choices((1, 2, 3, 5), k=self.rank), seed=at) for at in range(2)}
        self.shapes = {name: array.shape for name, array in feeds.items()}
        while len(self.nodes) < 14:
            self.grow()
        read = {name for node in self.nodes for name in node.input}
        made = [name for node in self.nodes for name in node.output]
        given = [name for name in made if name not in read or self.chance.random() < 0.05]
        graph = helper.make_graph(
            self.nodes,
            "orders",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in feeds.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name]) for name in given],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in self.stored.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), feeds


def transposed(model: onnx.ModelProto) -> int:
    """Elements that are transposed."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.value_info, *inferred.output)
    }
    return sum(math.prod(shapes[node.output[0]]) for node in model.graph.node if node.op_type == "Transpose")


@pytest.mark.parametrize("seed", range(60))
def test_random_orders(seed: int) -> None:
    model, feeds = Graph(seed).model()
    plain = optimize_model(model, lambda: Ledger(disable=("rewrite.sinking", "rewrite.pointwise"), rules=REWRITES))
    made = optimize_model(model, lambda: Ledger(rules=REWRITES))
    proto = ir.serde.serialize_model(made.model)
    onnx.checker.check_model(proto, full_check=True)
    for before, after in zip(float64_outputs(model, feeds), float64_outputs(proto, feeds), strict=True):
        assert before.shape == after.shape
        np.testing.assert_allclose(after, before, rtol=0, atol=1e-5 * max(1e-30, float(np.max(np.abs(before)))))
    assert len(kinds(made)) <= len(kinds(plain))
    assert transposed(proto) <= transposed(ir.serde.serialize_model(plain.model))
    assert kinds(optimize_model(proto, lambda: Ledger(rules=REWRITES))) == kinds(made)
