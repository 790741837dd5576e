"""Runs a model once over all samples, compiled, and keeps the distribution of each value that ranges are needed of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.errors import InputError
from opweld.quantize.data import Progress, Sample
from opweld.quantize.graph import Graph, Layer
from opweld.quantize.hessian import SecondMoments
from opweld.quantize.histogram import ChannelMeans, Histogram

Array = NDArray[Any]
Run = Callable[[Sample], Mapping[str, Array]]
"""Answers a sample with the outputs and all values that are looked at."""

COMPARED = 16
"""So many samples are kept, with what the model answers, to measure errors at the outputs."""

APART = 5
"""Of the samples every so manieth is kept apart, unless others are given for that."""


@dataclass(frozen=True)
class Observed:
    """What a run over all samples left.

    Attributes:
        histograms: by value. means: of the channels of what layers read, by value and axis.
        moments: second moments of what layers read, by value.
        samples: those that the error of the result, and a budget, are measured on. answers: the model's own outputs for
            these, by name. apart: whether nothing else was taken from these.
        compared: those, of the ones that ranges are of, by which settings and nodes are compared. right: the model's
            own outputs for these. count: of all samples. nbytes: of histograms and means.
    """

    histograms: Mapping[str, Histogram]
    means: Mapping[tuple[str, int], ChannelMeans]
    moments: Mapping[str, SecondMoments]
    samples: tuple[Sample, ...]
    answers: tuple[Mapping[str, Array], ...]
    apart: bool
    compared: tuple[Sample, ...]
    right: tuple[Mapping[str, Array], ...]
    count: int
    nbytes: int


def observe(
    graph: Graph,
    run: Run,
    values: Iterable[str],
    layers: Iterable[Layer],
    moments: Mapping[str, SecondMoments],
    samples: Iterable[Sample],
    held_out: Iterable[Sample] | None,
    progress: Progress | None,
) -> Observed:
    """Raises InputError naming sample and node where a value or an answer is not finite, and what running raises.

    `held_out` are samples that errors are measured on and nothing else; where there are none, every fifth is such a
    one, and where there are fewer than five, errors are measured on those that the ranges are of."""
    histograms = {value: Histogram() for value in values}
    means = {(layer.data, layer.channels): ChannelMeans(layer.channels) for layer in layers if layer.data in histograms}
    outputs = [value.name for value in graph.model.graph.output]
    first: list[tuple[Sample, Mapping[str, Array]]] = []
    apart: list[tuple[Sample, Mapping[str, Array]]] = []
    count = 0
    for count, (sample, away) in enumerate(_divided(samples, held_out), start=1):
        if progress is not None:
            progress("gathering ranges", count, 0)
        found = {**sample, **run(sample)}
        for name in (*histograms, *outputs):
            array = found[name]
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                where = graph.maker(name)
                raise InputError(f"{where} is NaN or infinite for sample {count - 1}: it has no range; leave that out")
        kept = apart if away else first
        if away or len(first) < COMPARED:
            kept.append((sample, {name: found[name].copy() for name in outputs}))
        if away:
            continue
        for name, histogram in histograms.items():
            histogram.add(found[name])
        for (name, _), mean in means.items():
            mean.add(found[name])
        for name, moment in moments.items():
            moment.add(found[name])
    nbytes = sum(one.nbytes for one in (*histograms.values(), *means.values(), *moments.values()))
    judged = apart or first
    return Observed(
        histograms, means, moments, tuple(sample for sample, _ in judged), tuple(answer for _, answer in judged),
        bool(apart), tuple(sample for sample, _ in first), tuple(answer for _, answer in first), count, nbytes,
    )  # fmt: skip


def _divided(samples: Iterable[Sample], held_out: Iterable[Sample] | None) -> Iterator[tuple[Sample, bool]]:
    """Samples, and whether they are kept apart."""
    if held_out is not None:
        yield from chain(((sample, False) for sample in samples), ((sample, True) for sample in held_out))
        return
    for number, sample in enumerate(samples):
        yield sample, number % APART == APART - 1 and number < APART * COMPARED
