"""What is found out about a model when it is loaded: whether calls may share runs, and what runs take."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from opweld.errors import OptionError
from opweld.groups import free_memory
from opweld.options import available_cores
from opweld.runtime.session import Session
from opweld.serve.inference.joined import Rows
from opweld.serve.inference.model import Array
from opweld.serve.inference.settings import Padding, Settings
from opweld.serve.inference.tensors import Tensors
from opweld.verification.expected import expectation_of
from opweld.verification.inputs import fitting_inputs

_SECONDS: Final = 0.5
"""After that, no larger runs are tried: a server of many models shall start."""

_ENOUGH: Final = 0.003
"""Seconds of runs of a size: of two that take longer, or of hundreds that do not."""

_SHARE: Final = 0.25
"""Part of the free memory that the runs of a model may take."""

_TOLERANCE: Final = 1e-3
"""By how much of an output's scale a row may change with its neighbours: schedules may round otherwise by size. What
mixes rows changes more."""

_LENGTHS: Final = (5, 8)
"""Of the call that is padded, and to what, when padding is tried."""


@dataclass(frozen=True)
class Examined:
    """What was found out.

    Attributes:
        rows: how calls share a run; None where they cannot. reason: why not.
        threads: numbers of threads that runs may have: powers of two, and all. Which of them make good use of their
            processors is for the batcher: what is measured here may have been beside other work.
        seconds: that runs took, by kind, size and threads.
    """

    rows: Rows | None
    reason: str
    threads: Sequence[int]
    seconds: Mapping[tuple[Hashable, int, int], float]


def examined(session: Session, tensors: Tensors, settings: Settings) -> Examined:
    """Runs a model with inputs that are made up, of usual sizes.

    Raises OptionError where the settings ask for padding that the model cannot have."""
    rows, reason = _rows(session, tensors, settings)
    if rows is None and settings.pad is not None:
        raise OptionError(f"pad: calls of this model cannot share a run: {reason}")
    seconds: dict[tuple[Hashable, int, int], float] = {}
    threads = _threads(settings)
    try:
        one = _row(session, 0)
        for count in threads:
            _measure(tensors, rows, one, count, _SECONDS / len(threads), seconds)
    except Exception:  # noqa: BLE001 - of made-up inputs: what runs take is learned from calls
        pass
    return Examined(rows, reason, threads, seconds)


def _measure(
    tensors: Tensors,
    rows: Rows | None,
    one: Mapping[str, Array],
    threads: int,
    most: float,
    seconds: dict[tuple[Hashable, int, int], float],
) -> None:
    """Adds what runs with so many threads take, of 1, 2, 4, ... rows; of no more once that has taken `most` seconds."""
    begun, count = time.perf_counter(), 1
    while True:
        feeds = one if rows is None else rows.join([one] * count)
        kind, size = _kind(rows, feeds)
        seconds[kind, size, threads] = _timed(tensors, feeds, threads)
        count *= 2
        if rows is None or count > rows.most or time.perf_counter() - begun > most:
            return


def _kind(rows: Rows | None, feeds: Mapping[str, Array]) -> tuple[Hashable, int]:
    """The kind of a run, and its size as costs have it."""
    if rows is None:
        return None, 1
    kind, count, length = rows.kind(feeds)
    return kind, count * length


def _rows(session: Session, tensors: Tensors, settings: Settings) -> tuple[Rows | None, str]:
    """How calls share a run, or why they cannot."""
    if settings.max_batch == 1:
        return None, "max_batch is 1"
    if any(spec.dtype == object for spec in (*tensors.inputs, *tensors.outputs)):
        return None, "it has strings"
    if session.has_dynamic_control_flow:
        return None, "what it does depends on data"
    for spec in tensors.inputs:
        if not spec.shape or isinstance(spec.shape[0], int):
            return None, f"the first dim of its input {spec.name!r} is not free"
    if len({spec.shape[0] for spec in tensors.inputs if spec.shape and spec.shape[0]}) > 1:
        return None, "the first dims of its inputs have different names"
    try:
        return _tried(session, tensors, settings)
    except OptionError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever made-up inputs do, calls can be answered one by one
        return None, f"it does not take several rows: {error}"


def _tried(session: Session, tensors: Tensors, settings: Settings) -> tuple[Rows | None, str]:
    alone = [_row(session, seed) for seed in range(3)]
    plain = Rows(settings.max_batch)
    for count in (2, 3):
        made = session.plan(plain.join(alone[:count])).outputs
        for spec, (shape, _) in zip(tensors.outputs, made, strict=True):
            if not shape or shape[0] != count:
                return None, f"its output {spec.name!r} has no row for each row of the inputs"
    together = plain.split(tensors.run(plain.join(alone)), [(1, 1)] * 3)
    for feeds, found in zip(alone, together, strict=True):
        if name := _unlike(tensors, found, tensors.run(feeds)):
            return None, f"a row of its output {name!r} depends on other rows"
    if settings.pad is not None:
        plain = _padded(session, tensors, plain, settings.pad)
    most = settings.max_batch
    room = _SHARE * free_memory() / available_cores()
    while most > 1 and session.plan(plain.join([alone[0]] * most)).arena > room:
        most //= 2
    return (replace(plain, most=most), "") if most > 1 else (None, "there is no memory for several rows")


def _padded(session: Session, tensors: Tensors, rows: Rows, pad: Padding) -> Rows:
    """The same with padding. Raises OptionError where it is none, or changes answers."""
    axes = {spec.name: spec.shape.index(pad.dim) for spec in tensors.inputs if spec.shape and pad.dim in spec.shape}
    if not axes or 0 in axes.values():
        names = sorted({dim for spec in tensors.inputs for dim in (spec.shape or ())[1:] if isinstance(dim, str)})
        raise OptionError(f"pad: no input has {pad.dim!r} behind its first dim; there are {', '.join(names) or 'none'}")
    if set(axes) != set(pad.values):
        raise OptionError(f"pad: expected a value for each of {', '.join(axes)}, got {', '.join(pad.values)}")
    short, long = (_row(session, 0, {pad.dim: length}) for length in _LENGTHS)
    shapes = [[shape for shape, _ in session.plan(feeds).outputs] for feeds in (short, long)]
    cut: dict[int, int] = {}
    for position, (left, right) in enumerate(zip(*shapes, strict=True)):
        for axis, sizes in enumerate(zip(left, right, strict=True)):
            if sizes == _LENGTHS:
                cut[position] = axis
            elif sizes[0] != sizes[1]:
                name = tensors.outputs[position].name
                raise OptionError(f"pad: output {name!r} has {sizes[0]} where {pad.dim} is {_LENGTHS[0]}: not cut back")
    padding = Rows(rows.most, axes, pad.values, cut)
    found = padding.split(tensors.run(padding.join([short, long])), [(1, _LENGTHS[0]), (1, _LENGTHS[1])])
    if name := _unlike(tensors, found[0], tensors.run(short)):
        raise OptionError(
            f"pad: output {name!r} of a call changes where it is padded with these values; the model needs a mask, "
            "or other ones"
        )
    return padding


def _row(session: Session, seed: int, dims: Mapping[str, int] | None = None) -> dict[str, Array]:
    """Inputs of one row, or as they are where the model fixes their number. dims: sizes of those that are not to be
    usual."""
    declared = session.manifest.inputs
    feeds, _ = fitting_inputs(
        declared,
        session.check,
        given={},
        dims=dims or {},
        seed=seed,
        expected=expectation_of(session.folder),
    )
    free = {info.name for info in declared if info.shape and isinstance(info.shape[0], str)}
    return {name: array[:1] if name in free else array for name, array in feeds.items()}


def _unlike(tensors: Tensors, found: list[Array], expected: list[Array]) -> str:
    """The name of an output that differs; empty where none does."""
    for spec, left, right in zip(tensors.outputs, found, expected, strict=True):
        if left.shape != right.shape:
            return spec.name
        if left.dtype.kind in "biu":
            if not np.array_equal(left, right):
                return spec.name
            continue
        wide = [np.asarray(one, np.complex128 if one.dtype.kind == "c" else np.float64) for one in (left, right)]
        scale = float(np.max(np.abs(wide[1]), initial=0.0, where=np.isfinite(wide[1])))
        if not np.allclose(wide[0], wide[1], rtol=0.0, atol=_TOLERANCE * scale, equal_nan=True):
            return spec.name
    return ""


def _timed(tensors: Tensors, feeds: Mapping[str, Array], threads: int) -> float:
    """Seconds of a run: the least of some, after one that binds its sizes."""
    tensors.run(feeds, threads)
    least, begun = math.inf, time.perf_counter()
    for _ in range(2):
        least = min(least, _once(tensors, feeds, threads))
    while time.perf_counter() - begun < _ENOUGH:
        least = min(least, _once(tensors, feeds, threads))
    return least


def _once(tensors: Tensors, feeds: Mapping[str, Array], threads: int) -> float:
    begun = time.perf_counter()
    tensors.run(feeds, threads)
    return time.perf_counter() - begun


def _threads(settings: Settings) -> Sequence[int]:
    processors = available_cores()
    most = min(settings.threads or processors, processors)
    return (*(1 << power for power in range((most - 1).bit_length())), most)
