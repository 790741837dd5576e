"""Which layers are quantised, with which ranges: by the error at the outputs, measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from opweld.quantize.calibrate import Observed, Progress
from opweld.quantize.graph import Layer
from opweld.quantize.placement import Placement
from opweld.quantize.ranges import Method, range_of
from opweld.quantize.scales import Affine, Codes, affine_of
from opweld.quantize.simulate import Simulation

LOOKED_AT = 4
"""Samples by which layers are compared; an assignment is measured with all that are kept."""


@dataclass(frozen=True)
class Assignment:
    """What is quantised, and how.

    Attributes:
        method: of the ranges. corrected: whether biases are.
        alone: by the place of a layer's node, the error at the outputs where it alone is quantised.
        kept: the layers that stay in float for the budget, the worst first; error: of the others together.
    """

    method: Method
    corrected: bool
    alone: Mapping[int, float]
    kept: tuple[int, ...]
    error: float


def ranges_by(observed: Observed, placement: Placement, method: Method, codes: Codes) -> dict[str, Affine]:
    """Scales and zero points of values, of those that share one the same; values that are always 0 have none."""
    ends: dict[str, tuple[float, float]] = {}
    for value, first in placement.groups.items():
        low, high = range_of(observed.histograms[value], method)
        before = ends.get(first, (0.0, 0.0))
        ends[first] = min(before[0], low), max(before[1], high)
    found = {value: affine_of(*ends[first], codes) for value, first in placement.groups.items()}
    return {value: affine for value, affine in found.items() if affine is not None}


def assign(
    simulation: Simulation,
    layers: Sequence[Layer],
    ranges: Mapping[Method, Mapping[str, Affine]],
    correctable: bool,
    max_error: float | None,
    progress: Progress | None,
) -> Assignment:
    """The ranges, and corrected biases or not, of the least error with all layers quantised; then, under a budget, as
    few layers in float as keep it, those first whose error alone is largest."""
    every = [layer.node for layer in layers]
    choices: list[tuple[Method, bool]] = [
        (method, corrected) for method in ranges for corrected in ((False, True) if correctable else (False,))
    ]
    errors: dict[tuple[Method, bool], float] = {}
    for i, choice in enumerate(choices):
        _tell(progress, "comparing ranges", i, len(choices))
        errors[choice] = simulation.error(every, ranges[choice[0]], choice[1])
    method, corrected = min(choices, key=lambda choice: errors[choice])
    chosen = ranges[method]
    alone: dict[int, float] = {}
    for i, node in enumerate(every):
        _tell(progress, "measuring each node", i, len(every))
        alone[node] = simulation.error([node], chosen, corrected, LOOKED_AT)
    worst = sorted(every, key=lambda node: -alone[node])
    error = errors[method, corrected]
    if max_error is None or error <= max_error:
        return Assignment(method, corrected, alone, (), error)
    # The fewest: `least` are too few, `most` are enough, as all are.
    least, most, error = 0, len(worst), 0.0
    while most - least > 1:
        middle = (least + most) // 2
        _tell(progress, "keeping to the budget", len(worst) - (most - least), len(worst))
        found = simulation.error(set(worst[middle:]), chosen, corrected)
        if found <= max_error:
            most, error = middle, found
        else:
            least = middle
    return Assignment(method, corrected, alone, tuple(worst[:most]), error)


def unranged(layers: Collection[Layer], ranges: Mapping[str, Affine]) -> list[Layer]:
    """Layers that read what is 0 in all samples."""
    return [layer for layer in layers if layer.data not in ranges]


def _tell(progress: Progress | None, what: str, done: int, total: int) -> None:
    if progress is not None:
        progress(what, done, total)
