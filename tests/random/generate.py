"""The random graph of a seed: a model, and feeds at several choices of sizes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from numpy.typing import NDArray

from tests.random.families import FAMILIES
from tests.random.families.registry import Proposal
from tests.random.graph import F16, F32, I64, Graph, Value

Array = NDArray[Any]

SMALL = (2, 3, 4, 5, 6)
PRIME = (5, 7, 11, 13)
LARGE = (16, 17, 24, 31, 33, 40)

IMAGES = "conv conv_transpose pool resize channel_norm global_pool squeeze_and_excite space_and_depth"
SEQUENCES = "attention recurrence layer_norm matmul_by_weights gemm embedding rotary"
NUMBERS = "integers compare logic where cast clip arg one_hot gather"
THEMES = (
    ((1, 2, 2, 3, 3, 3, 4, 4, 4, 5), ""),
    ((4, 4, 4, 3, 5), IMAGES),
    ((3, 3, 2), SEQUENCES),
    ((1, 2, 3), NUMBERS),
)
"""Ranks of inputs, and the proposals that are drawn three times as often."""


@dataclass(frozen=True, eq=False)
class Case:
    """A model and what to feed it. `feeds` holds one set of inputs for each choice of sizes."""

    seed: int
    model: onnx.ModelProto
    feeds: Sequence[dict[str, Array]]
    sizes: tuple[dict[str, int], ...] = ()


def case_of(seed: int) -> Case:
    """The case of a seed: always the same one."""
    chance = random.Random(seed)
    choices = choices_of(chance)
    graph = Graph(chance, choices)
    ranks, favoured = chance.choice(THEMES)
    for _ in range(chance.choice([1, 1, 2, 3])):
        source(graph, ranks)
    favoured_three_times = [
        (function, 3 * weight if function.__name__ in favoured.split() else weight) for function, weight in FAMILIES
    ]
    grow(graph, favoured_three_times, ranks)
    return case_from(seed, graph, outputs_of(graph))


def grow(graph: Graph, proposals: Sequence[tuple[Proposal, float]], ranks: tuple[int, ...]) -> None:
    """Adds up to 28 nodes by proposals, each with how often it is drawn, and now and then an input of these ranks."""
    functions, weights = [function for function, _ in proposals], [weight for _, weight in proposals]
    target = graph.between(1, 28)
    for _ in range(6 * target):
        if len(graph.nodes) >= target:
            break
        graph.attempt(graph.random.choices(functions, weights)[0])
        if graph.chance(0.03):
            graph.attempt(lambda g: source(g, ranks))
    if not graph.nodes and not graph.attempt(lambda g: g.node("Identity", g.pick(lambda v: True))):
        graph.node("Identity", graph.input((2, 3)))  # what was there is larger than values of nodes may be


def case_from(seed: int, graph: Graph, outputs: Sequence[Value]) -> Case:
    """The case of a graph and its outputs."""
    feeds = tuple(graph.feeds(choice) for choice in range(len(graph.choices)))
    return Case(seed, graph.model(outputs), feeds, tuple(graph.choices))


def choices_of(chance: random.Random) -> list[dict[str, int]]:
    """Sizes of the symbols: all 1, all small, all prime, all larger; without symbols, one choice of none."""
    if chance.random() < 0.35:
        return [{}]
    symbols = chance.sample(["N", "S", "H", "W"], chance.randint(1, 3))
    ranges = [(1,), SMALL, PRIME, LARGE]
    chosen = chance.sample(range(4), 3)
    # One size apart from the next: equal sizes of two symbols at every choice would make them one.
    return [dict(zip(symbols, _distinct(chance, ranges[index], len(symbols)), strict=True)) for index in sorted(chosen)]


def _distinct(chance: random.Random, sizes: tuple[int, ...], count: int) -> list[int]:
    return list(sizes) * count if len(sizes) == 1 else chance.sample(sizes, count)


def source(graph: Graph, ranks: tuple[int, ...]) -> Value:
    """A graph input: an image, a sequence, a vector, sometimes with an axis of one or of no elements."""
    rank = graph.choose(ranks)
    dims: list[int | str] = [graph.choose([1, 2, 3, 4, 5, 7, 8, 16]) for _ in range(rank)]
    places = {1: [0], 2: [0, 0, 1], 3: [0, 1], 4: [0, 2, 3], 5: [0, 2]}[rank]
    for symbol in graph.choices[0]:
        if graph.chance(0.6):
            dims[graph.choose(places)] = symbol
    if graph.chance(0.02):
        dims[graph.between(0, rank - 1)] = 0
    dtype = graph.choose([F32] * 12 + [F16, I64])
    value = graph.input(dims, dtype)
    if max(array.size for array in value.data) > 1 << 13:
        graph.inputs.pop()
        graph.values.remove(value)
        value = graph.input([dim if isinstance(dim, str) else min(dim, 2) for dim in dims], dtype)
    return value


def outputs_of(graph: Graph) -> list[Value]:
    """Whatever nobody reads, some of what somebody does, now and then an input passed through."""
    read = {name for node in graph.nodes for name in node.input}
    computed = {name for node in graph.nodes for name in node.output}
    outputs = [value for value in graph.values if value.name in computed and value.name not in read]
    graph.random.shuffle(outputs)
    del outputs[6:]
    outputs += [v for v in graph.values if v.name in computed and v.name in read and graph.chance(0.12)][:4]
    if graph.chance(0.04):
        outputs.append(graph.inputs[0][0])
    unused = [v for v, _ in graph.inputs if v.name not in read]
    for value in unused:
        if value not in outputs and graph.chance(0.5):
            outputs.append(value)
    graph.random.shuffle(outputs)
    if graph.chance(0.04):
        outputs.append(outputs[0])
    return outputs
