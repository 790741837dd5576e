"""Runs a model once over all samples, compiled, and keeps the distribution of each value that ranges are needed of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from opweld.calibration.answered import Answered, Run, answered
from opweld.calibration.data import Sample
from opweld.calibration.graph import Graph, Layer
from opweld.calibration.progress import Progress
from opweld.calibration.windows import Moments, Reads
from opweld.quantize.histogram import ChannelMeans, Histogram

Array = NDArray[Any]


@dataclass(frozen=True)
class Observed(Answered):
    """What a run over all samples left.

    Attributes:
        histograms: by value. means: of the channels of what layers read, by value and axis.
        moments: second moments of what layers read. nbytes: of all of these.
    """

    histograms: Mapping[str, Histogram]
    means: Mapping[tuple[str, int], ChannelMeans]
    moments: Mapping[Reads, Moments]
    nbytes: int


def observe(
    graph: Graph,
    run: Run,
    values: Iterable[str],
    layers: Iterable[Layer],
    moments: Mapping[Reads, Moments],
    samples: Iterable[Sample],
    held_out: Iterable[Sample] | None,
    progress: Progress | None,
) -> Observed:
    """Raises and divides the samples as `answered` does; those that are held out are in no distribution."""
    histograms = {value: Histogram() for value in values}
    means = {(layer.data, layer.channels): ChannelMeans(layer.channels) for layer in layers if layer.data in histograms}

    def look(found: Mapping[str, Array]) -> None:
        for name, histogram in histograms.items():
            histogram.add(found[name])
        for (name, _), mean in means.items():
            mean.add(found[name])
        for reads, moment in moments.items():
            moment.add(found[reads.value])

    kept = answered(graph, run, histograms, look, samples, held_out, progress)
    nbytes = sum(one.nbytes for one in (*histograms.values(), *means.values(), *moments.values()))
    return Observed(**vars(kept), histograms=histograms, means=means, moments=moments, nbytes=nbytes)
