"""Runs a model once over all samples, compiled, and keeps the distribution of each value that ranges are needed of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from opweld.compile import compile as compile_model
from opweld.errors import InputError
from opweld.quantize.data import Sample
from opweld.quantize.graph import Graph, Layer
from opweld.quantize.histogram import ChannelMeans, Histogram

Progress = Callable[[str, int, int], None]
Array = NDArray[Any]

COMPARED = 16
"""So many samples are kept, with what the model answers, to measure errors at the outputs."""


@dataclass(frozen=True)
class Observed:
    """What a run over all samples left.

    Attributes:
        histograms: by value. means: of the channels of what layers read, by value and axis.
        samples: the first ones. answers: the model's own outputs for these, by name.
        count: of all samples. nbytes: of histograms and means.
    """

    histograms: Mapping[str, Histogram]
    means: Mapping[tuple[str, int], ChannelMeans]
    samples: tuple[Sample, ...]
    answers: tuple[Mapping[str, Array], ...]
    count: int
    nbytes: int


def observe(
    graph: Graph, values: Iterable[str], layers: Iterable[Layer], samples: Iterable[Sample], progress: Progress | None
) -> Observed:
    """Raises InputError naming sample and node where a value or an answer is not finite, and what running raises."""
    histograms = {value: Histogram() for value in values}
    means = {(layer.data, layer.channels): ChannelMeans(layer.channels) for layer in layers if layer.data in histograms}
    outputs = [value.name for value in graph.model.graph.output]
    kept: list[Sample] = []
    answers: list[Mapping[str, Array]] = []
    count, model = 0, None
    for count, sample in enumerate(samples, start=1):
        if model is None:  # the first sample is right
            model = compile_model(with_outputs(graph, histograms), progress=progress)
        if progress is not None:
            progress("gathering ranges", count, 0)
        found = {**sample, **model.run(sample)}
        for name in (*histograms, *outputs):
            array = found[name]
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                where = graph.maker(name)
                raise InputError(f"{where} is NaN or infinite for sample {count - 1}: it has no range; leave that out")
        for name, histogram in histograms.items():
            histogram.add(found[name])
        for (name, _), mean in means.items():
            mean.add(found[name])
        if len(kept) < COMPARED:
            kept.append(sample)
            answers.append({name: found[name].copy() for name in outputs})
    nbytes = sum(one.nbytes for one in (*histograms.values(), *means.values()))
    return Observed(histograms, means, tuple(kept), tuple(answers), count, nbytes)


def with_outputs(graph: Graph, values: Iterable[str]) -> onnx.ModelProto:
    """The model, with these values of float32 as outputs too."""
    made = onnx.ModelProto()
    made.CopyFrom(graph.model)
    for value in values:
        if value in graph.producers and value not in graph.outputs:
            made.graph.output.append(helper.make_tensor_value_info(value, TensorProto.FLOAT, None))
    return made
