"""Which layers are quantised, with which ranges: by the error at the outputs, measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from opweld.calibration.graph import Layer
from opweld.calibration.progress import Progress, tell
from opweld.quantize.calibrate import Observed
from opweld.quantize.placement import Placement
from opweld.quantize.ranges import Method, range_of
from opweld.quantize.scales import Affine, Codes, affine_of
from opweld.quantize.simulate import Simulation
from opweld.quantize.versions import Rounding, Setting, Version

LOOKED_AT = 4
"""Samples by which settings and layers are compared; an assignment is measured with all that are kept."""

LEAST_SAVED = 1e-9
"""Seconds that a layer counts as saving at least: those that save nothing go first."""


@dataclass(frozen=True)
class Choice:
    """One way to quantise all layers: the method of the ranges, whether biases are corrected, how weights round."""

    method: Method
    corrected: bool
    rounding: Rounding


@dataclass(frozen=True)
class Budget:
    """What the outputs may lose.

    Attributes:
        most: of the loss. loss: of a setting, as it is bounded.
        saved: predicted seconds that each layer saves where it is quantised, by node.
        narrower: what a layer is, by node, where it is no longer what was asked and not yet float.
    """

    most: float
    loss: Callable[[Setting], float]
    saved: Mapping[int, float]
    narrower: Mapping[int, Version]


def ranges_by(observed: Observed, placement: Placement, method: Method, codes: Codes) -> dict[str, Affine]:
    """Scales and zero points of values, of those that share one the same; values that are always 0 have none."""
    ends: dict[str, tuple[float, float]] = {}
    for value, first in placement.groups.items():
        low, high = range_of(observed.histograms[value], method)
        before = ends.get(first, (0.0, 0.0))
        ends[first] = min(before[0], low), max(before[1], high)
    found = {value: affine_of(*ends[first], codes) for value, first in placement.groups.items()}
    return {value: affine for value, affine in found.items() if affine is not None}


def chosen(
    simulation: Simulation, settings: Mapping[Choice, Setting], observed: Observed, progress: Progress | None
) -> Choice:
    """The choice of the least error with all layers quantised; of equal ones the first."""
    errors: dict[Choice, float] = {}
    for i, (choice, setting) in enumerate(settings.items()):
        tell(progress, "comparing ranges", i, len(settings))
        errors[choice] = simulation.error(setting, observed, LOOKED_AT) if len(settings) > 1 else 0.0
    return min(settings, key=lambda choice: errors[choice])


def errors_alone(
    simulation: Simulation, setting: Setting, observed: Observed, progress: Progress | None
) -> dict[int, float]:
    """By node, the error at the outputs where it alone is quantised."""
    found: dict[int, float] = {}
    for i, (node, version) in enumerate(setting.versions.items()):
        tell(progress, "measuring each node", i, len(setting.versions))
        found[node] = simulation.error(Setting({node: version}, setting.ranges), observed, LOOKED_AT)
    return found


def steps_back(setting: Setting, alone: Mapping[int, float], budget: Budget) -> list[Setting]:
    """Settings of less and less loss: the given one; then, one after the other, the layers whose error by predicted
    second saved is largest become int8 weights alone, where they were not; then float, in the same order."""
    order = sorted(setting.versions, key=lambda node: -alone[node] / max(budget.saved.get(node, 0.0), LEAST_SAVED))
    versions = dict(setting.versions)
    found = [setting]
    for node in order:
        if node in budget.narrower:
            versions = {**versions, node: budget.narrower[node]}
            found.append(Setting(versions, setting.ranges))
    for node in order:
        versions = {other: version for other, version in versions.items() if other != node}
        found.append(Setting(versions, setting.ranges))
    return found


def unranged(layers: Collection[Layer], ranges: Mapping[str, Affine]) -> list[Layer]:
    """Layers that read what is 0 in all samples."""
    return [layer for layer in layers if layer.data and layer.data not in ranges]
