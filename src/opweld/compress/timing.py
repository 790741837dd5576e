"""What layers take, as they were and as they would be: predicted, and measured in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from opweld.analysis.alternate import Blocks, alternate_runs
from opweld.calibration.graph import Graph, attributes_of
from opweld.compile import compile as compile_model
from opweld.compress.change import Change, edited
from opweld.inspection import explain
from opweld.tune.trial import Gain, gain
from opweld.tune.tune import WORTH

Array = NDArray[Any]
Feeds = Mapping[str, Array]

LAYER = Blocks(rounds=7, block_s=0.05)
"""How long layers are timed beside each other."""

WHOLE = Blocks(rounds=9, block_s=0.2)
"""How long whole models are."""


@dataclass(frozen=True)
class Cost:
    """Of a part of a model: bytes that it stores, floating-point operations, predicted seconds on one core."""

    bytes: int
    flops: int
    seconds: float


class Timer:
    """Times changes of a model's layers, layers of equal shapes once.

    Args:
        shapes: of what layers read.
    """

    def __init__(self, graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._graph, self._shapes = graph, shapes
        self._costs: dict[tuple[Any, ...], Cost] = {}
        self._gains: dict[tuple[Any, ...], Gain] = {}

    def cost(self, nodes: Sequence[int], changes: Sequence[Change] = ()) -> Cost:
        """What these nodes cost where these changes are made."""
        part = self.part(nodes, changes)
        key = structure(part)
        if key not in self._costs:
            self._costs[key] = cost_of(part)
        return self._costs[key]

    def gain(self, change: Change) -> Gain:
        """What a change gains, measured."""
        before, after = self.part(change.nodes), self.part(change.nodes, [change])
        key = structure(before), structure(after)
        if key not in self._gains:
            self._gains[key] = race(before, after, random_feeds(before), LAYER)
        return self._gains[key]

    def part(self, nodes: Sequence[int], changes: Sequence[Change] = ()) -> onnx.ModelProto:
        """These nodes alone, where these changes are made."""
        return edited(self._graph, changes).part(nodes, self._shapes)


def cost_of(part: onnx.ModelProto) -> Cost:
    """Of a model of fixed sizes; none of it is compiled to code."""
    kernels = explain(part).account.kernels
    stored = sum(tensor.ByteSize() for tensor in part.graph.initializer)
    return Cost(stored, sum(kernel.flops for kernel in kernels), sum(kernel.seconds for kernel in kernels))


def race(before: onnx.ModelProto, after: onnx.ModelProto, feeds: Feeds, blocks: Blocks) -> Gain:
    """What one model gains beside another on the same inputs, in alternating blocks of runs."""
    sessions = {name: compile_model(model).session for name, model in (("before", before), ("after", after))}

    def seconds(name: str) -> float:
        return sessions[name].clocked(feeds).wall * 1e-9

    runs: dict[str, Callable[[], float]] = {name: partial(seconds, name) for name in sessions}
    made = alternate_runs(runs, blocks)
    was, now = (np.array([run.answer for run in made[name]]) for name in ("before", "after"))
    return gain(was, now, blocks.rounds)


def faster(measured: Gain) -> bool:
    """Whether that is more than noise, in three of four blocks at least."""
    return measured.ratio > WORTH and measured.low > 1


def random_feeds(part: onnx.ModelProto) -> Feeds:
    """Normally distributed inputs of a part of fixed shapes, all of float32."""
    random = np.random.default_rng(0)
    return {
        value.name: random.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim], np.float32)
        for value in part.graph.input
    }


def structure(part: onnx.ModelProto) -> tuple[Any, ...]:
    """What the time of a part depends on, weights and names left out: equal of layers of equal shapes."""
    graph = Graph(part)
    numbers: dict[str, int] = {}
    shapes: list[Any] = [tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in part.graph.input]
    for node in graph.nodes:
        read = tuple(
            tuple(graph.stored[name].dims) if name in graph.stored else numbers.get(name, -1) for name in node.input
        )
        attributes = tuple(sorted((key, repr(value)) for key, value in attributes_of(node).items()))
        shapes.append((node.op_type, read, attributes))
        for name in node.output:
            numbers[name] = len(numbers)
    return tuple(shapes)
