"""Access to the operands of a node: optional ones, known integers, axes, small constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from opweld import ir
from opweld.errors import ModelError, UnsupportedError, in_line
from opweld.ops.fact import ELEMENT_LIMIT, Elements, Fact
from opweld.ops.registry import Inference, Lowering, UnknownElementsError
from opweld.tensor.dim import Dim, as_dim
from opweld.tensor.dtype import DType


class Named(Protocol):
    """A node that messages can name: of a graph, or of a file that is being read."""

    @property
    def name(self) -> str | None:
        """Its name."""
        ...

    @property
    def op_type(self) -> str:
        """Its operator."""
        ...


V = TypeVar("V", bound="NamedValue", covariant=True)


class NamedValue(Protocol):
    """A value, whose name is empty for an operand that is absent."""

    @property
    def name(self) -> str | None:
        """Its name."""
        ...


class Reading(Named, Protocol[V]):
    """A node with its operands: of a graph, or of a file that is being read."""

    @property
    def inputs(self) -> Sequence[V | None]:
        """Its operands; None for one that is absent."""
        ...


def describe(node: Named) -> str:
    """The node for error messages."""
    return f"node {node.name!r} ({in_line(node.op_type)})"


def given(node: Reading[V], position: int) -> V | None:
    """The input at the position, or None when it is absent."""
    value = node.inputs[position] if position < len(node.inputs) else None
    return None if value is None or value.name == "" else value


def required(node: Reading[V], position: int) -> V:
    """The input at the position; ModelError when it is absent."""
    value = given(node, position)
    if value is None:
        raise ModelError(f"{describe(node)}: input {position} is missing")
    return value


def wanted(node: ir.Node, position: int) -> ir.Value | None:
    """The output at the position, or None when the model does not use it."""
    value = node.outputs[position] if position < len(node.outputs) else None
    return None if value is None or value.name == "" else value


def elements_of(fact: Fact) -> Elements | None:
    """The elements of a small integer or bool value: tracked ones, or those of a constant; None when unknown."""
    if fact.elements is not None:
        return fact.elements
    if fact.constant is None or fact.dtype.is_float:
        return None
    extents = [dim.constant for dim in fact.shape]
    if None in extents or int(np.prod([e or 0 for e in extents], dtype=np.int64)) > ELEMENT_LIMIT:
        return None
    array = fact.constant()
    return make_elements(array.shape, (bool(v) if fact.dtype is DType.BOOL else as_dim(int(v)) for v in array.flat))


def make_elements(shape: tuple[int, ...], values: Iterable[Dim | bool]) -> Elements:
    """An object array of the shape, filled in row-major order."""
    array = np.empty(shape, object)
    for position, value in enumerate(values):
        array.reshape(-1)[position] = value
    return array


def map_elements(function: Callable[..., Dim | bool | None], *operands: Elements) -> Elements | None:
    """The broadcast element-wise result; None as soon as the function returns None for one element."""
    broadcast = np.broadcast_arrays(*operands)
    if broadcast[0].size > ELEMENT_LIMIT:
        return None
    results: list[Dim | bool] = []
    for values in zip(*(array.flat for array in broadcast), strict=True):
        result = function(*values)
        if result is None:
            return None
        results.append(result)
    return make_elements(broadcast[0].shape, results)


def known_integers(scope: Inference | Lowering, node: ir.Node, position: int, what: str) -> tuple[int, ...] | None:
    """A 0-D or 1-D integer input whose values must be known at compile time; None when the input is absent."""
    value = given(node, position)
    if value is None:
        return None
    elements = elements_of(require_rank(scope.fact(value), 0, node, 1))
    constants = None if elements is None else [e.constant if isinstance(e, Dim) else int(e) for e in elements.flat]
    if constants is None or any(c is None for c in constants):
        raise UnknownElementsError(
            value,
            f"{describe(node)}: {what} (input {value.name!r}) must be known when compiling. "
            f"Make it a constant before export.",
        )
    return tuple(c for c in constants if c is not None)


def known_numbers(scope: Inference | Lowering, value: ir.Value) -> np.ndarray[Any, Any] | None:
    """The data of a value that is known at compile time, else None."""
    fact = scope.fact(value)
    return None if fact.constant is None else fact.constant()


def normalize_axis(axis: int, rank: int, node: ir.Node) -> int:
    """The axis counted from the front; ModelError when it is out of range."""
    if not -rank <= axis < rank:
        raise ModelError(f"{describe(node)}: axis {axis} is out of range for a value of rank {rank}")
    return axis % rank


def normalize_axes(axes: Sequence[int], rank: int, node: ir.Node) -> tuple[int, ...]:
    """Sorted axes counted from the front, each once; ModelError when one is out of range."""
    return tuple(sorted({normalize_axis(axis, rank, node) for axis in axes}))


def require_rank(fact: Fact, least: int, node: ir.Node, most: int | None = None) -> Fact:
    """The fact itself; ModelError when its rank is not within the limits."""
    if fact.rank < least or (most is not None and fact.rank > most):
        limits = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
        raise ModelError(f"{describe(node)}: expected an input of rank {limits}, got shape {list(fact.shape)}")
    return fact


def require_float(fact: Fact, node: ir.Node) -> Fact:
    """The fact itself; ModelError when its dtype is not floating-point."""
    if not fact.dtype.is_float:
        raise ModelError(f"{describe(node)}: expected a floating-point input, got {fact.dtype!r}")
    return fact


def require_same_dtype(facts: Sequence[Fact], node: ir.Node) -> DType:
    """The one dtype of several inputs; ModelError when they differ."""
    dtypes = [fact.dtype for fact in facts]
    if any(dtype is not dtypes[0] for dtype in dtypes):
        raise ModelError(f"{describe(node)}: inputs must have one element type, got {', '.join(map(repr, dtypes))}")
    return dtypes[0]


def requested_dtype(node: ir.Node, onnx_type: int) -> DType:
    """The dtype with ONNX's number, from an attribute; UnsupportedError when it is not supported."""
    try:
        return DType.of_onnx(onnx_type)
    except ValueError:
        raise UnsupportedError(f"{describe(node)}: element type {onnx_type} is not supported") from None
