"""The random graph of quantised values of a seed."""

from __future__ import annotations

import random

import onnx

from tests.random.families import FAMILIES
from tests.random.families.registry import QUANTIZED
from tests.random.generate import Case, case_from, choices_of, grow, outputs_of, source
from tests.random.graph import Graph
from tests.random.quantized import integer, pairs  # pyright: ignore[reportUnusedImport]  # noqa: F401 - registers them

BETWEEN = (
    "unary binary clip activation transpose reshape slice_ concat pad pool global_pool softmax layer_norm "
    "matmul_by_weights conv resize residual"
)
"""Proposals of floats that are found between quantised values."""

ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinear", "QGemm")
"""Beginnings of the names of operators whose results are rounded to codes."""


def rounds(node: onnx.NodeProto) -> bool:
    """Whether a node rounds to codes: the other way, where what is rounded is a tie."""
    return node.op_type.startswith(ROUNDING)


def case_of(seed: int) -> Case:
    """The case of a seed: always the same one.

    Of half of the graphs all codes are outputs, so that each is judged by itself; of the others those that nothing
    reads and a few more are, and what lies between fuses as it does in a model."""
    chance = random.Random(seed)
    graph = Graph(chance, choices_of(chance))
    ranks = chance.choice([(2, 2, 3), (4, 4, 3), (2, 3, 4), (3, 5)])
    for _ in range(chance.choice([1, 1, 2])):
        source(graph, ranks)
    known = [(function, 0.4 * weight) for function, weight in FAMILIES if function.__name__ in BETWEEN.split()]
    grow(graph, [*QUANTIZED, *known], ranks)
    outputs = outputs_of(graph)
    if graph.chance(0.5):
        codes = {name for node in graph.nodes if rounds(node) for name in node.output}
        outputs += [value for value in graph.values if value.name in codes and value not in outputs]
    return case_from(seed, graph, outputs)
