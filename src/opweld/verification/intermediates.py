"""The values of a graph that a compiled model keeps in memory, read while it runs, and compared with the reference.

What is fused is nowhere in memory; what is left are the results of kernels. A run is stopped after each phase and its
results are copied from where they lie, in whatever order and with whatever padding, so that what is seen is what the
compiled model computes: nothing is compiled otherwise, and memory that is used again is read before it is.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, ParamSpec, TypeVar, cast

import numpy as np
import onnx
from numpy.typing import NDArray

from opweld.place.placed import Placed
from opweld.place.storage import Storage
from opweld.runtime.session import Session
from opweld.tensor.dim import Atom, Dim
from opweld.tile.kernels import ScheduledKernel
from opweld.tile.module import ModuleVariant
from opweld.verification.compare import SCALE_TOLERANCE, Comparison, compare, disagree, relative_error

Array = NDArray[Any]
P = ParamSpec("P")
T = TypeVar("T")

Verdict = Literal["right", "rounding", "unseen", "wrong"]

JUMP = 8.0
"""Times the error of what it is computed from: then a value's error is its own."""


@dataclass(frozen=True, eq=False)
class Kept:
    """A value of the graph that is in memory after a step.

    Attributes:
        name: in the graph. nodes: the graph's nodes that its kernel computes, in order.
        step: the last one that writes it. buffer: which of the step's buffers holds it.
        shape, storage: how it lies there.
    """

    name: str
    nodes: tuple[str, ...]
    step: int
    buffer: int
    shape: tuple[Dim, ...]
    storage: Storage


@dataclass(frozen=True, eq=False)
class Traced:
    """A variant, what it keeps, and the names of what its segment reads, in order."""

    variant: ModuleVariant
    inputs: tuple[str, ...]
    kept: tuple[Kept, ...]


class Tracing:
    """A stage of `opweld.stages` that remembers where the variants of a compilation keep values."""

    def __init__(self) -> None:
        self.traced: dict[str, Traced] = {}

    def __call__(self, name: str, run: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a stage."""
        value = run(*args, **kwargs)
        if name == "assemble" and isinstance(value, ModuleVariant):
            placed, scheduled = cast("tuple[Placed, Sequence[ScheduledKernel]]", args[2:4])
            inputs = cast("Sequence[str]", args[-1])
            self.traced[value.name] = Traced(value, tuple(inputs), kept_values(placed, scheduled, value))
        return value


def kept_values(placed: Placed, scheduled: Sequence[ScheduledKernel], variant: ModuleVariant) -> tuple[Kept, ...]:
    """What a variant keeps of the values of the graph, in the order in which they are complete."""
    values, shapes = placed.program.values, placed.shapes
    numbers = {name: number for number, region in enumerate(placed.regions) for name in region.outputs}
    subjects = {item.kernel.name: item.subject[0] for item in scheduled}
    writers: dict[str, list[tuple[int, int]]] = {}
    for step, launch in enumerate(variant.launches):
        for buffer in launch.kernel.buffers:
            if buffer.role != "read":
                number = numbers[subjects[launch.kernel.name]]
                writers.setdefault(buffer.name, []).append((number, step))
    found: list[Kept] = []
    for name, number in numbers.items():
        if name not in values:
            continue
        storage, region = placed.storages[name], placed.regions[number]
        # What is joined may be written by those before it; what comes after it may take its memory over.
        steps = [step for writer, step in writers.get(storage.root, ()) if writer <= number]
        if steps:
            buffers = [buffer.name for buffer in variant.launches[max(steps)].kernel.buffers]
            place = buffers.index(storage.root)
            found.append(Kept(values[name], region.origin, max(steps), place, shapes[name], storage))
    return tuple(sorted(found, key=lambda kept: kept.step))


def read_values(session: Session, traced: Mapping[str, Traced], feeds: Mapping[str, Any]) -> list[tuple[Kept, Array]]:
    """Runs a model and returns what it keeps, in the order in which it is computed: of a segment that is come to again,
    as in a loop, what it keeps then too.

    Raises OpweldError naming the node for a bad index."""
    read: list[tuple[Kept, Array]] = []
    by_step: dict[int, list[Kept]] = {}
    symbols: dict[Atom, int] = {}
    steps = 0

    def entered(variant: str, arrays: Sequence[Array]) -> None:
        nonlocal steps
        found = traced[variant]
        by_step.clear()
        for kept in found.kept:
            by_step.setdefault(steps + kept.step, []).append(kept)
        steps += len(found.variant.launches)
        symbols.clear()
        symbols.update(_symbols(found.variant, dict(zip(found.inputs, arrays, strict=True))))

    def seen(step: int, buffers: Sequence[int]) -> None:
        for kept in by_step.get(step, ()):
            read.append((kept, _read(buffers[kept.buffer], kept, symbols)))

    session.watch(feeds, seen, entered)
    return read


def _symbols(variant: ModuleVariant, feeds: Mapping[str, Array]) -> dict[Atom, int]:
    """The sizes of a call, from what the segment reads."""
    found: dict[Atom, int] = {}
    for source in variant.symbols:
        array = feeds[source.input]
        number = int(array.reshape(-1)[source.position]) if source.by_value else array.shape[source.position]
        found[source.symbol] = number // source.divisor
    return found


def _read(pointer: int, kept: Kept, symbols: Mapping[Atom, int]) -> Array:
    """A copy of a value, row-major."""
    storage = kept.storage
    shape = tuple(dim.evaluate(symbols) for dim in kept.shape)
    dtype = np.dtype(storage.dtype.numpy)
    count = storage.elements.evaluate(symbols)
    if 0 in shape or not count:
        return np.zeros(shape, dtype)
    memory = np.frombuffer(ctypes.string_at(pointer, count * dtype.itemsize), dtype)
    address = np.full((1,) * len(shape), storage.offset.evaluate(symbols), np.int64)
    for term in storage.terms:
        piece = (np.arange(shape[term.axis], dtype=np.int64) + term.shift) // term.divisor
        if term.modulus is not None:
            piece = piece % term.modulus
        view = [1] * len(shape)
        view[term.axis] = -1
        address = address + (piece * term.stride.evaluate(symbols)).reshape(view)
    return memory[np.broadcast_to(address, shape)]


# ---------------------------------------------------------------------------------------------------------- comparison


@dataclass(frozen=True)
class Intermediate:
    """A value that was read, and what it should be.

    Attributes:
        name: in the graph. node: the graph's node that makes it. nodes: all that its kernel computes.
        comparison: with the reference.
        before: the largest error of the values that were read and that it is computed from, 0 where there are none.
        spoilt: how many of its elements are NaN or infinite where those of the reference are not.
        is_output: whether it is an output of the model.
        shown: whether some output of the model is outside of its tolerance, or none could be read.
    """

    name: str
    node: str
    nodes: tuple[str, ...]
    comparison: Comparison
    before: float
    spoilt: int
    is_output: bool
    shown: bool = True

    @property
    def verdict(self) -> Verdict:
        """What is to be thought of it. Rounding adds up on the way, and is judged at the outputs: an error that begins
        here and that every output is right in spite of is `unseen`, unless numbers were lost."""
        if self.comparison.passed:
            return "right"
        if self.is_output or (self.jumps and (self.shown or self.spoilt)):
            return "wrong"
        return "unseen" if self.jumps else "rounding"

    @property
    def wrong(self) -> bool:
        """Whether this is where something is wrong."""
        return self.verdict == "wrong"

    @property
    def jumps(self) -> bool:
        """Whether the error begins here: it is more than rounding, and far more than what it is computed from has."""
        known = SCALE_TOLERANCE.get(self.comparison.dtype, 0.0)
        return self.comparison.error > max(known, JUMP * self.before)

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        return self.comparison.to_json() | {
            "node": self.node,
            "nodes": list(self.nodes),
            "before": "infinity" if math.isinf(self.before) else self.before,
            "jumps": self.jumps,
            "spoilt": self.spoilt,
            "output": self.is_output,
            "wrong": self.wrong,
            "verdict": self.verdict,
        }


def compare_values(
    graph: onnx.GraphProto,
    read: Sequence[tuple[Kept, Array]],
    right: Mapping[str, Array],
    peer: Mapping[str, Array],
    own: Callable[[], Mapping[str, Array]] = dict[str, Array],
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> list[Intermediate]:
    """What was read, compared with the reference, in the order of the graph; what the reference does not have is left
    out.

    Args:
        graph: the model's.
        read: of the compiled model.
        right: the values of the graph in float64, by name.
        peer: those of an unoptimised runtime, as far as they are there: their errors say what rounding does to the
            model, unless they are more than that.
        own: those of the reference in the model's own precision, asked for where that is to say it.
        rtol, atol: tolerances, as for `compare`.
    """
    found = {kept.name: (kept, array) for kept, array in read if kept.name in right}
    makers = {name: node.name or node.op_type for node in graph.node for name in node.output}
    position = {name: i for i, name in enumerate(makers)}
    sources = _sources(graph, found)
    outputs = {value.name for value in graph.output}
    remembered = cache(own)
    errors: dict[str, float] = {}
    made: list[Intermediate] = []
    for name in sorted(found, key=lambda name: position.get(name, -1)):
        kept, array = found[name]
        comparison = _compared(name, array, right[name], peer.get(name), remembered, rtol=rtol, atol=atol)
        errors[name] = comparison.error
        before = max((errors.get(source, 0.0) for source in sources.get(name, ())), default=0.0)
        spoilt = _spoilt(array, right[name])
        node = makers.get(name, "")
        made.append(Intermediate(name, node, kept.nodes, comparison, before, spoilt, is_output=name in outputs))
    judged = [value.comparison.passed for value in made if value.is_output]
    shown = not judged or not all(judged)
    return [replace(value, shown=shown) for value in made]


def _compared(
    name: str,
    array: Array,
    right: Array,
    peer: Array | None,
    own: Callable[[], Mapping[str, Array]],
    *,
    rtol: float | None,
    atol: float | None,
) -> Comparison:
    """As `Reference.check` compares an output."""
    if peer is None or not disagree(peer, right):
        return compare(name, array, right, peer, rtol=rtol, atol=atol)
    found = compare(name, array, right, rtol=rtol, atol=atol)
    if not found.passed:
        rounded = own().get(name)
        rounded = None if rounded is None or disagree(rounded, right) else rounded
        found = compare(name, array, right, rounded, rtol=rtol, atol=atol)
    return replace(found, peer_error=relative_error(peer, right)[0] if peer.shape == right.shape else math.inf)


def _sources(graph: onnx.GraphProto, found: Collection[str]) -> dict[str, set[str]]:
    """The values among `found` that each value is computed from, with none of them between."""
    reached: dict[str, set[str]] = {}
    for node in graph.node:
        own: set[str] = set()
        for name in node.input:
            own |= {name} if name in found else reached.get(name, set())
        for name in node.output:
            reached[name] = own
    return reached


def _spoilt(array: Array, right: Array) -> int:
    """How many elements are not finite where the reference's are."""
    if array.shape != right.shape or right.dtype.kind != "f":
        return 0
    return int((np.isfinite(right) & ~np.isfinite(array.astype(np.float64))).sum())


def first_spoilt(values: Sequence[Intermediate]) -> Intermediate | None:
    """The first value that has a NaN or infinity where the reference has none."""
    return next((value for value in values if value.spoilt), None)


def first_undefined(graph: onnx.GraphProto, right: Mapping[str, Array]) -> tuple[str, str, int] | None:
    """The first value that has NaNs in the reference itself: its name, its node, and how many. None where none has."""
    for node in graph.node:
        for name in node.output:
            array = right.get(name)
            if array is not None and array.dtype.kind == "f" and np.isnan(array).any():
                return name, node.name or node.op_type, int(np.isnan(array).sum())
    return None
