"""The tracked elements of small tensors through operators that move them or convert them to floats.

Elements are object arrays: `Dim` for integers, `bool` for booleans, and, only here and in the driver of inference,
`float` or `Ratio` for floats. Integer arithmetic and comparisons are in `element_algebra`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from opweld.ops import ratio
from opweld.ops.fact import ELEMENT_LIMIT, Elements, Fact
from opweld.ops.ratio import Ratio, as_ratio
from opweld.tensor.dim import Dim, as_dim, nonnegative, product
from opweld.tensor.dtype import DType

Element: TypeAlias = "Dim | bool | float | Ratio"
Attributes: TypeAlias = "Mapping[str, Any]"
Shapes: TypeAlias = "list[tuple[int, ...]]"


def make(shape: Sequence[int], values: Sequence[Any]) -> Elements:
    """An object array of the shape with these elements in row-major order."""
    array = np.empty(len(values), object)
    for position, value in enumerate(values):
        array[position] = value
    return array.reshape(tuple(shape))


def from_array(array: np.ndarray[Any, Any], dtype: DType) -> Elements:
    """The elements of known data."""
    if dtype is DType.BOOL:
        return make(array.shape, [bool(value) for value in array.flat])
    if dtype.is_float:
        return make(array.shape, [float(value) for value in array.flat])
    return make(array.shape, [as_dim(int(value)) for value in array.flat])


def to_array(elements: Elements, dtype: DType) -> np.ndarray[Any, Any] | None:
    """The data if all elements are known numbers, else None. Integers outside of the dtype wrap."""
    values: list[Any] = []
    for element in elements.flat:
        value = element.constant if isinstance(element, Dim) else element
        if not isinstance(value, bool | int | float):
            return None
        values.append(value)
    if dtype.is_integer:
        values = [dtype.wrapped(int(v)) for v in values]
    with np.errstate(over="ignore"):
        return np.array(values, dtype.numpy).reshape(elements.shape)


def static_shape(fact: Fact) -> tuple[int, ...] | None:
    """The shape when every dim is a known number and there are few enough elements to track, else None."""
    shape = [dim.constant for dim in fact.shape]
    known = tuple(extent for extent in shape if extent is not None)
    if len(known) < len(shape) or int(product(known)) > ELEMENT_LIMIT:
        return None
    return known


def known_integers_of(elements: Elements | None) -> list[int] | None:
    """The integers when all elements are known, in row-major order, else None."""
    if elements is None:
        return None
    values = [element.constant if isinstance(element, Dim) else None for element in elements.flat]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def evaluate_elements(
    op_type: str,
    inputs: Sequence[Elements | None],
    attributes: Attributes,
    input_facts: Sequence[Fact | None],
    outputs: Sequence[Fact],
) -> list[Elements] | None:
    """The elements of the outputs of one node of the default domain, None when they are unknown.

    `inputs` are the elements of the inputs, None for an absent or unknown input; `outputs` are the inferred facts.
    """
    shapes = [shape for shape in map(static_shape, outputs) if shape is not None]
    if not outputs or len(shapes) < len(outputs) or any(fact.dtype.is_storage_only for fact in outputs):
        return None
    if op_type in _MOVES:
        return None if inputs[0] is None else _MOVES[op_type](inputs[0], inputs[1:], attributes, shapes)
    if op_type in ("Cast", "CastLike"):
        return None if inputs[0] is None else _map(_caster(outputs[0].dtype), [inputs[0]])
    arrays = [array for array in inputs if array is not None]
    if not arrays or len(arrays) < len(inputs):
        return None
    facts = [fact for fact in input_facts if fact is not None]
    dtype = outputs[0].dtype
    if not dtype.is_float:
        return None
    known = _compute(op_type, arrays, facts, dtype)
    if known is not None or op_type not in _FRACTIONS:
        return known
    return _map(_FRACTIONS[op_type], arrays) if dtype in (DType.F32, DType.F64) else None


def _map(function: Callable[..., Element | None], arrays: Sequence[Elements]) -> list[Elements] | None:
    aligned = np.broadcast_arrays(*arrays)
    results: list[Element] = []
    for values in zip(*(array.flat for array in aligned), strict=True):
        result = function(*values)
        if result is None:
            return None
        results.append(result)
    return [make(aligned[0].shape, results)]


def _caster(dtype: DType) -> Callable[[Element], Element | None]:
    return lambda x: _cast(x, dtype)


def _rounded(x: float, dtype: DType) -> float:
    with np.errstate(over="ignore"):  # overflow gives infinity
        return float(np.asarray(x).astype(dtype.numpy))


def _cast(x: Element, dtype: DType) -> Element | None:
    """One element converted from or to a float dtype; None when it is unknown."""
    if isinstance(x, Dim) and dtype.is_float:
        if x.constant is not None:
            return _rounded(x.constant, dtype)
        return Ratio(x) if dtype in (DType.F32, DType.F64) else None
    if isinstance(x, Ratio):
        if dtype in (DType.F32, DType.F64):
            return x
        return x.floor() if dtype in (DType.I32, DType.I64) and nonnegative(x.numerator) else None
    if isinstance(x, float) and dtype.is_integer:
        return as_dim(int(x)) if abs(x) < 2.0 ** (8 * dtype.bytes - 1) else None
    if isinstance(x, float | bool) and dtype.is_float:
        return _rounded(x, dtype)
    return bool(x) if isinstance(x, float | bool) and dtype is DType.BOOL else None


def _two(function: Callable[[Ratio, Ratio], Ratio | None]) -> Callable[[Any, Any], Ratio | None]:
    def apply(x: Any, y: Any) -> Ratio | None:
        a, b = as_ratio(x), as_ratio(y)
        return None if a is None or b is None else function(a, b)

    return apply


def _one(function: Callable[[Ratio], Ratio | None]) -> Callable[[Any], Ratio | None]:
    def apply(x: Any) -> Ratio | None:
        a = as_ratio(x)
        return None if a is None else function(a)

    return apply


_FRACTIONS: dict[str, Callable[..., Ratio | None]] = {
    "Add": _two(ratio.add),
    "Sub": _two(lambda x, y: ratio.add(x, Ratio(-y.numerator, y.denominator))),
    "Mul": _two(ratio.multiply),
    "Div": _two(ratio.divide),
    "Neg": _one(lambda x: Ratio(-x.numerator, x.denominator)),
    "Floor": _one(lambda x: Ratio(x.floor())),
    "Ceil": _one(lambda x: Ratio(x.ceil())),
}

_KNOWN_FLOATS: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "Ceil": np.ceil,
    "Div": np.divide,
    "Floor": np.floor,
    "Max": lambda *arrays: reduce(np.maximum, arrays),  # np.maximum needs two operands
    "Min": lambda *arrays: reduce(np.minimum, arrays),
    "Mul": np.multiply,
    "Neg": np.negative,
    "Pow": np.power,
    "Reciprocal": np.reciprocal,
    "Round": np.rint,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
}


def _compute(op_type: str, arrays: Sequence[Elements], facts: Sequence[Fact], dtype: DType) -> list[Elements] | None:
    """Known floats, computed in the model's precision."""
    function = _KNOWN_FLOATS.get(op_type)
    if function is None or len(arrays) > 2:
        return None
    data = [to_array(array, fact.dtype) for array, fact in zip(arrays, facts, strict=True)]
    known = [array for array in data if array is not None]
    if len(known) < len(data):
        return None
    with np.errstate(all="ignore"):
        return [from_array(np.asarray(function(*known)).astype(dtype.numpy), dtype)]


def _reshape(data: Elements, _: Any, __: Any, shapes: Shapes) -> list[Elements] | None:
    return [data.reshape(shapes[0])]


def _transpose(data: Elements, _: Any, attributes: Attributes, __: Any) -> list[Elements] | None:
    return [np.transpose(data, attributes.get("perm"))]


def _concat(data: Elements, others: Sequence[Elements | None], attributes: Attributes, _: Any) -> list[Elements] | None:
    arrays = [data, *(array for array in others if array is not None)]
    return [np.concatenate(arrays, attributes["axis"])] if len(arrays) == len(others) + 1 else None


def _expand(data: Elements, _: Any, __: Any, shapes: Shapes) -> list[Elements] | None:
    return [np.broadcast_to(data, shapes[0]).copy()]


def _tile(data: Elements, others: Sequence[Elements | None], _: Any, __: Any) -> list[Elements] | None:
    repeats = known_integers_of(others[0])
    return None if repeats is None else [np.tile(data, repeats)]


def _gather(data: Elements, others: Sequence[Elements | None], attributes: Attributes, _: Any) -> list[Elements] | None:
    positions = known_integers_of(others[0])
    axis = attributes.get("axis", 0)
    if others[0] is None or positions is None:
        return None
    if any(not -data.shape[axis] <= position < data.shape[axis] for position in positions):
        return None
    taken: Any = np.take(data, np.array(positions, np.int64).reshape(others[0].shape), axis)
    # NumPy gives the object itself, not a 0-D array, when one element is left.
    return [taken if isinstance(taken, np.ndarray) else make((), [taken])]


def _slice(data: Elements, others: Sequence[Elements | None], _: Any, __: Any) -> list[Elements] | None:
    starts, ends, axes, steps = (known_integers_of(others[i]) if i < len(others) else None for i in range(4))
    if starts is None or ends is None or (axes is None and len(others) > 2 and others[2] is not None):
        return None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        extent = data.shape[axis]
        whole = step < 0 and end < -extent
        data = np.take(data, list(range(*slice(start, None if whole else end, step).indices(extent))), axis)
    return [data]


def _split(data: Elements, _: Any, attributes: Attributes, shapes: Shapes) -> list[Elements] | None:
    axis = int(attributes.get("axis", 0))
    ends = list(itertools.accumulate(shape[axis] for shape in shapes))
    return list(np.split(data, ends[:-1], axis))


_MOVES: dict[str, Callable[..., list[Elements] | None]] = {
    "Concat": _concat,
    "Expand": _expand,
    "Flatten": _reshape,
    "Gather": _gather,
    "Identity": _reshape,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _reshape,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}

MOVING = frozenset((*_MOVES, "Cast"))
"""Operators whose elements are those of their input."""

TELLING = MOVING.union(("CastLike", "Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Min", "Max", "Where"))
"""Operators whose elements follow from those of their integer inputs."""

COMPARING = frozenset(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or", "Xor"))
"""Operators of the same kind, where each outcome is a variant of its own."""
