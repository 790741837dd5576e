"""What the samples tell of a model: its answers, the second moments of what layers read, and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from opweld.calibration.answered import Answered, answered
from opweld.calibration.data import Sample
from opweld.calibration.graph import Graph, Layer
from opweld.calibration.moments import SecondMoments, second_moments
from opweld.calibration.progress import Progress
from opweld.compress.fed import Fed

Array = NDArray[Any]

COMPARED = 4
"""Samples by which single changes are compared. Where there are as many others, no moments are of these: a layer that
sees few rows, as one behind pooling does, would seem to lose nothing at a rank that is only high enough for them."""


@dataclass(frozen=True)
class Looked(Answered):
    """What a run over all samples left.

    Attributes:
        moments: second moments of what layers read, by value and axis. nbytes: of these.
        shapes: of what was watched, for the first sample.
    """

    moments: Mapping[tuple[str, int], SecondMoments]
    nbytes: int
    shapes: Mapping[str, tuple[int, ...]]


def look(
    graph: Graph,
    fed: Fed,
    layers: Sequence[Layer],
    samples: Iterable[Sample],
    held_out: Iterable[Sample] | None,
    progress: Progress | None,
) -> Looked:
    """Raises and divides the samples as `answered` does."""
    moments = second_moments(graph, layers)
    shapes: dict[str, tuple[int, ...]] = {}
    seen = 0

    def gather(found: Mapping[str, Array]) -> None:
        for (name, _), moment in moments.items():
            moment.add(found[name])

    def add(found: Mapping[str, Array]) -> None:
        nonlocal seen
        seen += 1
        for name in fed.watched:
            shapes.setdefault(name, found[name].shape)
        if seen > COMPARED:
            gather(found)

    kept = answered(graph, fed.run, fed.watched, add, samples, held_out, progress)
    if seen < 2 * COMPARED:
        for sample in kept.compared[:COMPARED]:
            gather({**sample, **fed.run(sample)})
    nbytes = sum(one.nbytes for one in moments.values())
    return Looked(**vars(kept), moments=moments, nbytes=nbytes, shapes=shapes)
