"""The tensor program: each value as an expression of its indices, as in Halide's algorithms or TVM's te.compute.

It defines what is computed, without order of execution and without storage."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from opweld.tensor.dim import Axis, Dim, Symbol, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, loads


@dataclass(frozen=True)
class Input:
    """A value fed at run time, dense and row-major."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]


@dataclass(frozen=True, eq=False)
class Constant:
    """A value known at compile time; `read` loads it, so that large weights stay on disk until they are packed."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray[Any, Any]]
    origin: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """What it takes, stored densely."""
        return self.dtype.bytes * math.prod(self.shape)


PutWeights: TypeAlias = Callable[[str, Callable[[], np.ndarray[Any, Any]]], int]
"""Writes a constant's packed data (computed on demand) to the weights file under a key, and returns its byte offset."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A computed value: its element at indices `axes` is `body`. `origin` names the graph nodes from which it was
    lowered."""

    name: str
    dtype: DType
    axes: tuple[Axis, ...]
    body: Expr
    origin: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The extents of the axes."""
        return tuple(axis.extent for axis in self.axes)


@dataclass(frozen=True, eq=False)
class State:
    """A value carried between steps of a scan: `initial` over `axes` before the first, then the step tensor `update`.

    Inside the step, loading `name` gives the value before the step."""

    name: str
    dtype: DType
    axes: tuple[Axis, ...]
    initial: Expr
    update: str

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The extents of the axes."""
        return tuple(axis.extent for axis in self.axes)


@dataclass(frozen=True, eq=False)
class Scan:
    """A recurrence over `time`: each step computes the `steps` in order, from the states and from outer tensors.

    `stacked` are outputs (name, step tensor) of shape [T, *step shape]: element [t, ...] is that of the step tensor at
    step t of the recurrence (a reversed recurrence reverses the indices of its loads and of its users' loads).
    `final` are outputs (name, state): the state after the last step."""

    time: Axis
    states: tuple[State, ...]
    steps: tuple[Tensor, ...]
    stacked: tuple[tuple[str, str], ...]
    final: tuple[tuple[str, str], ...]
    origin: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """A value that an extern computes."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]


@dataclass(frozen=True, eq=False)
class Extern:
    """A call of a function of `tensor.externs`, for what expressions cannot compute, on dense row-major values.

    It is called once for each of `rows` independent rows, with the consecutive part of every operand and result that
    belongs to the row. `numbers` are passed on unchanged and give the function the sizes of these parts."""

    function: str
    operands: tuple[str, ...]
    results: tuple[Result, ...]
    numbers: tuple[Dim, ...]
    rows: Dim
    origin: tuple[str, ...] = ()


Item: TypeAlias = Tensor | Scan | Extern
"""A statement of a tensor program."""


@dataclass(frozen=True, eq=False)
class Guard:
    """An assumption about sizes or small integer inputs: `dim == 0` (kind "zero"), `dim != 0` (kind "nonzero") or
    `dim >= 0` (kind "least").

    `reason` names the node that needs it, for users."""

    kind: str
    dim: Dim
    reason: str

    def holds(self, values: Mapping[Any, int]) -> bool:
        """Whether the assumption holds for these symbol values."""
        value = self.dim.evaluate(values)
        if self.kind == "least":
            return value >= 0
        return (value == 0) == (self.kind == "zero")


@dataclass(frozen=True)
class SymbolSource:
    """Where a symbol's value comes from when a shape is bound: dim `position` of an input, or, with `by_value`, the
    element at linear position `position` of a small integer input. The symbol is that number divided by `divisor`; a
    number that the divisor does not divide makes the shape invalid, and `reason` names the node that needs the
    divisibility."""

    symbol: Symbol
    input: str
    position: int
    by_value: bool = False
    divisor: int = 1
    reason: str = ""


@dataclass(frozen=True)
class Persistent:
    """A value that persists between runs: loads of the input `input` read its value before the run, and the output with
    the public name `output` is its value afterwards.

    Without an `axis` the output has the input's shape and replaces all of it. With one, a run appends: the input's
    extent along the axis is a capacity, of which `length` elements are in use before the run; the output has these,
    unchanged, then the appended ones. Elements beyond the length are undefined and never loaded."""

    input: str
    output: str
    axis: int | None = None
    length: Dim | None = None


@dataclass(frozen=True, eq=False)
class TensorProgram:
    """One variant of a model: valid under `guards`. `items` are in topological order.

    `outputs` are (public name, value name): a value is an input, a constant or computed, and may be named twice.
    `states` are the pairs of an input and an output that share memory and are written in place. `values` maps tensors
    to the values of the graph that they compute; it is not printed. `precision`: what operands of contractions may be
    rounded to, a value of the option: fp32 for not at all."""

    name: str
    inputs: tuple[Input, ...]
    constants: tuple[Constant, ...]
    items: tuple[Item, ...]
    outputs: tuple[tuple[str, str], ...]
    symbols: tuple[SymbolSource, ...] = ()
    guards: tuple[Guard, ...] = ()
    states: tuple[Persistent, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    precision: str = "fp32"

    def shape_of(self, name: str) -> tuple[Dim, ...]:
        """The shape of any value, states and stacked outputs included."""
        return self.signatures[name][1]

    def dtype_of(self, name: str) -> DType:
        """The dtype of any value."""
        return self.signatures[name][0]

    @cached_property
    def constant_bytes(self) -> int:
        """The bytes of all constants, as they are stored densely."""
        return sum(constant.bytes for constant in self.constants)

    @cached_property
    def signatures(self) -> dict[str, tuple[DType, tuple[Dim, ...]]]:
        """dtype and shape of every value by name."""
        return dict(_signatures(self))


def _signatures(program: TensorProgram) -> Iterator[tuple[str, tuple[DType, tuple[Dim, ...]]]]:
    for value in program.inputs:
        yield value.name, (value.dtype, value.shape)
    for value in program.constants:
        yield value.name, (value.dtype, tuple(map(as_dim, value.shape)))
    for item in program.items:
        if isinstance(item, Tensor):
            yield item.name, (item.dtype, item.shape)
            continue
        if isinstance(item, Extern):
            for result in item.results:
                yield result.name, (result.dtype, result.shape)
            continue
        steps = {step.name: step for step in item.steps}
        states = {state.name: state for state in item.states}
        for value in (*item.states, *item.steps):
            yield value.name, (value.dtype, value.shape)
        for name, step in item.stacked:
            yield name, (steps[step].dtype, (item.time.extent, *steps[step].shape))
        for name, state in item.final:
            yield name, (states[state].dtype, states[state].shape)


def item_outputs(item: Item) -> tuple[str, ...]:
    """The names that later items may load."""
    if isinstance(item, Tensor):
        return (item.name,)
    if isinstance(item, Extern):
        return tuple(result.name for result in item.results)
    return tuple(name for name, _ in (*item.stacked, *item.final))


def tensors_of(item: Item) -> tuple[Tensor, ...]:
    """The tensors of an item: itself, or the steps of a recurrence."""
    return (item,) if isinstance(item, Tensor) else item.steps if isinstance(item, Scan) else ()


def bodies_of(item: Item) -> tuple[Expr, ...]:
    """The expressions of an item, initial states included."""
    initial = (state.initial for state in item.states) if isinstance(item, Scan) else ()
    return (*initial, *(tensor.body for tensor in tensors_of(item)))


def unused(name: str, taken: Container[str]) -> str:
    """A name like this one that is not taken: those of inputs are the model's, and may be any."""
    while name in taken:
        name += "_"
    return name


def item_inputs(item: Item) -> tuple[str, ...]:
    """The names of other items, inputs and constants that an item loads, once each, in order."""
    if isinstance(item, Tensor):
        return tuple(dict.fromkeys(node.tensor for node in loads(item.body)))
    if isinstance(item, Extern):
        return tuple(dict.fromkeys(item.operands))
    inner = {value.name for value in (*item.states, *item.steps)}
    return tuple(dict.fromkeys(node.tensor for node in loads(*bodies_of(item)) if node.tensor not in inner))
