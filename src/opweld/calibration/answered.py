"""A model run once over all samples: some are kept with its answers, the values of the others are looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.calibration.data import Sample
from opweld.calibration.graph import Graph
from opweld.calibration.progress import Progress, tell
from opweld.errors import InputError

Array = NDArray[Any]
Run = Callable[[Sample], Mapping[str, Array]]
"""Answers a sample with the outputs and all values that are looked at."""

COMPARED = 16
"""So many samples are kept, with what the model answers, to measure errors at the outputs."""

APART = 5
"""Of the samples every so manieth is kept apart, unless others are given for that."""


@dataclass(frozen=True)
class Answered:
    """Samples that were kept, with what the model answers.

    Attributes:
        samples: those that the error of the result, and a budget, are measured on. answers: the model's own outputs for
            these, by name. apart: whether nothing else was taken from these.
        compared: those, of the ones that were looked at, by which settings and nodes are compared. right: the model's
            own outputs for these. count: of all samples.
    """

    samples: tuple[Sample, ...]
    answers: tuple[Mapping[str, Array], ...]
    apart: bool
    compared: tuple[Sample, ...]
    right: tuple[Mapping[str, Array], ...]
    count: int


def answered(
    graph: Graph,
    run: Run,
    values: Collection[str],
    look: Callable[[Mapping[str, Array]], None],
    samples: Iterable[Sample],
    held_out: Iterable[Sample] | None,
    progress: Progress | None,
) -> Answered:
    """Runs the samples, and calls `look` with the values of each that is not held out.

    `held_out` are samples that errors are measured on and nothing else; where there are none, every fifth is such a
    one, and where there are fewer than five, errors are measured on those that were looked at. Raises InputError
    naming sample and node where one of the `values` or an answer is not finite, and what running raises."""
    outputs = [value.name for value in graph.model.graph.output]
    first: list[tuple[Sample, Mapping[str, Array]]] = []
    apart: list[tuple[Sample, Mapping[str, Array]]] = []
    count = 0
    for count, (sample, away) in enumerate(_divided(samples, held_out), start=1):
        tell(progress, "looking at samples", count, 0)
        found = {**sample, **run(sample)}
        for name in (*values, *outputs):
            array = found[name]
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                where = graph.maker(name)
                raise InputError(f"{where} is NaN or infinite for sample {count - 1}: leave it out")
        kept = apart if away else first
        if away or len(first) < COMPARED:
            kept.append((sample, {name: found[name].copy() for name in outputs}))
        if not away:
            look(found)
    judged = apart or first
    return Answered(
        tuple(sample for sample, _ in judged), tuple(answer for _, answer in judged), bool(apart),
        tuple(sample for sample, _ in first), tuple(answer for _, answer in first), count,
    )  # fmt: skip


def _divided(samples: Iterable[Sample], held_out: Iterable[Sample] | None) -> Iterator[tuple[Sample, bool]]:
    """Samples, and whether they are kept apart."""
    if held_out is not None:
        yield from chain(((sample, False) for sample in samples), ((sample, True) for sample in held_out))
        return
    for number, sample in enumerate(samples):
        yield sample, number % APART == APART - 1 and number < APART * COMPARED
