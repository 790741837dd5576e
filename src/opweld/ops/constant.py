"""Operators that create values from sizes alone: Constant, ConstantOfShape, EyeLike, Range."""

from __future__ import annotations

from typing import Any

import numpy as np

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops import ratio
from opweld.ops.elements import make, static_shape
from opweld.ops.emitted import Indices, define
from opweld.ops.expansion import DOMAIN, Expansion
from opweld.ops.fact import Fact
from opweld.ops.known import required_dims
from opweld.ops.operands import describe, known_numbers, requested_dtype, require_rank, require_same_dtype, required
from opweld.ops.ratio import Ratio
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import ONE, ZERO, Dim, as_dim, ceildiv, maximum, nonnegative, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Scalar, binary, cast, const, index, select, unary

LONGEST = 1 << 53
"""The limit of elements of a range whose length depends on data: more than memory holds, and exact in float64."""

_WIDEST = 1 << 20
"""Dtypes of bounds and steps of ranges that are multiplied as integers."""


@infers("Constant")
def infer_constant(scope: Inference, node: ir.Node) -> list[Fact]:
    """Known data. Loading turns constants into initializers; a Constant that remains is itself an output of the
    graph."""
    array = _constant_array(node)
    dtype = DType.of_numpy(array.dtype)
    return [Fact(dtype, tuple(map(as_dim, array.shape)), None, lambda: array)]


@lowers("Constant")
def lower_constant(scope: Lowering, node: ir.Node) -> None:
    """A constant of the program."""
    scope.alias(node.outputs[0], scope.constant(_constant_array(node), "constant"))


def _constant_array(node: ir.Node) -> np.ndarray[Any, Any]:
    dtypes: dict[str, type[np.generic]] = {
        "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64,
    }  # fmt: skip
    for name, value in node.attributes.items():
        if name == "value":
            return value
        if name in dtypes:
            return np.asarray(value, dtypes[name])
    raise UnsupportedError(f"{describe(node)}: only constants of numbers are supported")


@infers("ConstantOfShape")
def infer_constant_of_shape(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape that the input holds; no memory is allocated for the data."""
    dims = required_dims(scope, node, 0, "the shape")
    for dim in dims:
        if not nonnegative(dim):
            scope.at_least(dim, 0, node, "a dim of the shape")
    dtype, value = _fill(node)
    fact = Fact(dtype, dims)
    shape = static_shape(fact)
    if shape is None or dtype.is_float or dtype.is_storage_only:
        return [fact]
    element: Dim | bool = bool(value) if dtype is DType.BOOL else as_dim(int(value))
    return [Fact(dtype, dims, make(shape, [element] * int(product(shape))))]


@lowers("ConstantOfShape")
def lower_constant_of_shape(scope: Lowering, node: ir.Node) -> None:
    """The same literal everywhere."""
    dtype, value = _fill(node)
    define(scope, node.outputs[0], lambda _: const(value, dtype))


def _fill(node: ir.Node) -> tuple[DType, Scalar]:
    value = attribute(node, "value", None)
    if value is None:
        return DType.F32, 0.0
    array = np.asarray(value)
    if array.size != 1:
        raise ModelError(f"{describe(node)}: the value must have one element, got shape {list(array.shape)}")
    return DType.of_numpy(array.dtype), array.reshape(-1)[0].item()


@infers("EyeLike")
def infer_eye_like(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the input, which must be a matrix; its dtype, unless the attribute `dtype` is given."""
    fact = require_rank(scope.fact(required(node, 0)), 2, node, 2)
    declared = attribute(node, "dtype", None)
    return [Fact(fact.dtype if declared is None else requested_dtype(node, int(declared)), fact.shape)]


@lowers("EyeLike")
def lower_eye_like(scope: Lowering, node: ir.Node) -> None:
    """One on the k-th diagonal, zero elsewhere."""
    dtype, k = scope.fact(node.outputs[0]).dtype, int(attribute(node, "k", 0))
    on, off = (const(bit if dtype is not DType.BOOL else bool(bit), dtype) for bit in (1, 0))
    define(scope, node.outputs[0], lambda i: select(binary("eq", index(i[1] - i[0] - k), index(0)), on, off))


@infers("Range")
def infer_range(scope: Inference, node: ir.Node) -> list[Fact]:
    """ceil((limit - start) / delta) elements, none when that is negative."""
    facts = [scope.fact(required(node, position)) for position in range(3)]
    dtype = require_same_dtype(facts, node)
    if any(fact.rank and product(fact.shape).constant != 1 for fact in facts):
        raise ModelError(f"{describe(node)}: start, limit and delta must be scalars")
    if dtype.is_float:
        return _float_range(scope, node, dtype)
    first, last, step = (required_dims(scope, node, position, "a bound")[0] for position in range(3))
    if step is ZERO:
        raise ModelError(f"{describe(node)}: the step of a range must not be 0")
    if nonnegative(step - 1):
        distance, length = last - first, step
    elif nonnegative(-step - 1):
        distance, length = first - last, -step
    else:
        return _counted(scope, node)
    count = ceildiv(_distance(scope, node, distance), length)
    fact = Fact(dtype, (count,))
    shape = static_shape(fact)
    if shape is None:
        return [fact]
    return [Fact(dtype, (count,), make(shape, [first + step * i for i in range(shape[0])]))]


def _distance(scope: Inference, node: ir.Node, distance: Dim) -> Dim:
    """The length of a range in forward direction, in steps: zero if negative. Symbolic sizes are assumed not to be
    negative."""
    if distance.constant is not None:
        return maximum(distance, ZERO)
    if not nonnegative(distance):
        scope.at_least(distance, 0, node, "a range that is not empty")
    return distance


def _float_range(scope: Inference, node: ir.Node, dtype: DType) -> list[Fact]:
    """A range of floats that are known, or are sizes cast to float; else one whose length is computed at run time."""
    known = _float_bounds(scope, node)
    if known is not None:
        start, limit, delta = known
        if delta == 0 or not np.isfinite([start, limit, delta]).all():
            raise ModelError(f"{describe(node)}: range from {start} to {limit} by {delta} is not defined")
        return [Fact(dtype, (as_dim(max(0, int(np.ceil((limit - start) / delta)))),))]
    count = _exact_count(scope, node)
    return _counted(scope, node) if count is None else [Fact(dtype, (count,))]


def _exact_count(scope: Inference, node: ir.Node) -> Dim | None:
    """The length of a range of floats that equal sizes exactly; None where they may be rounded."""
    ends = [scope.ratio(required(node, position)) for position in range(3)]
    start, limit, delta = ends
    if start is None or limit is None or delta is None or not delta.numerator.constant:
        return None
    if delta.numerator.constant < 0:
        start, limit, delta = limit, start, Ratio(-delta.numerator, delta.denominator)
    distance = ratio.add(limit, Ratio(-start.numerator, start.denominator))
    steps = None if distance is None else ratio.divide(distance, delta)
    if steps is None:
        return None
    return ceildiv(_distance(scope, node, steps.numerator), steps.denominator)


@lowers("Range")
def lower_range(scope: Lowering, node: ir.Node) -> None:
    """start + position * delta, rounded once"""
    fact = scope.fact(node.outputs[0])
    dtype, count = fact.dtype, fact.shape[0].constant
    if dtype.is_float:
        known = _float_bounds(scope, node)
        if known is None or count is None:
            _lower_ramp(scope, node, 2)
            return
        values = (known[0] + np.arange(count, dtype=np.float64) * known[2]).astype(dtype.numpy)
        scope.alias(node.outputs[0], scope.constant(values, "range"))
        return
    first, _, step = (required_dims(scope, node, position, "a bound")[0] for position in range(3))
    define(scope, node.outputs[0], lambda indices: cast(index(first + step * indices[0]), dtype))


def _float_bounds(scope: Inference | Lowering, node: ir.Node) -> tuple[float, float, float] | None:
    values = [known_numbers(scope, required(node, position)) for position in range(3)]
    known = [float(value.reshape(-1)[0]) for value in values if value is not None]
    if len(known) < 3:
        return None
    return known[0], known[1], known[2]


def _counted(scope: Inference, node: ir.Node) -> list[Fact]:
    """A range whose length is computed at run time by a node before it."""
    made = Expansion(node)
    start, limit, delta = (required(node, position) for position in range(3))
    (count,) = made.own("RangeLength", start, limit, delta)
    return made.infer(scope, *made.own("Ramp", start, delta, count))


@infers("RangeLength", domain=DOMAIN)
def infer_range_length(scope: Inference, node: ir.Node) -> list[Fact]:
    """A scalar int64."""
    return [Fact(DType.I64, (ONE,))]


@lowers("RangeLength", domain=DOMAIN)
def lower_range_length(scope: Lowering, node: ir.Node) -> None:
    """ceil((limit - start) / delta), at least 0; -1 for an infinite range, or one of more than `LONGEST` elements."""
    dtype = scope.fact(required(node, 0)).dtype
    parts = _wide(scope, node, 0, 1, 2)
    length = _float_length(*parts) if dtype.is_float else _integer_length(*parts)
    define(scope, node.outputs[0], lambda _: length)


def _float_length(start: Expr, limit: Expr, delta: Expr) -> Expr:
    length = unary("ceil", binary("div", binary("sub", limit, start), delta))
    # NaN, from 0 / 0, compares false.
    ends = binary("lt", unary("abs", length), const(float(LONGEST), DType.F64))
    return select(ends, binary("max", length, const(0.0, DType.F64)), const(-1.0, DType.F64))


def _integer_length(start: Expr, limit: Expr, delta: Expr) -> Expr:
    """Computed in unsigned integers, which hold the difference of any two signed ones."""
    nothing = const(0, DType.I64)
    forwards = binary("gt", delta, nothing)
    near, far = select(forwards, start, limit), select(forwards, limit, start)
    distance = cast(binary("sub", far, near), DType.U64)
    step = cast(select(forwards, delta, unary("neg", delta)), DType.U64)
    one = const(1, DType.U64)
    length = binary("add", binary("div", binary("sub", distance, one), binary("max", step, one)), one)
    ends = binary("and", binary("ne", delta, nothing), binary("lt", length, const(LONGEST, DType.U64)))
    counted = select(ends, cast(length, DType.I64), const(-1, DType.I64))
    stays = binary("and", binary("ne", delta, nothing), binary("le", far, near))
    return select(stays, nothing, counted)


def _wide(scope: Lowering, node: ir.Node, *positions: int) -> list[Expr]:
    """Scalar inputs, as int64 or float64."""
    wide = DType.F64 if scope.fact(required(node, 0)).dtype.is_float else DType.I64
    return [cast(scope.load(required(node, position), ()), wide) for position in positions]


@infers("Ramp", domain=DOMAIN)
def infer_ramp(scope: Inference, node: ir.Node) -> list[Fact]:
    """One axis of the computed length."""
    (count,) = required_dims(scope, node, 2, "the length of the range")
    scope.at_least(count, 0, node, "the range has an end, which its step leads to, and memory can hold it")
    return [Fact(scope.fact(required(node, 0)).dtype, (count,))]


@lowers("Ramp", domain=DOMAIN)
def lower_ramp(scope: Lowering, node: ir.Node) -> None:
    """start + position * delta, rounded once"""
    _lower_ramp(scope, node, 1)


def _lower_ramp(scope: Lowering, node: ir.Node, delta_position: int) -> None:
    whole = [_whole(scope, required(node, position)) for position in (0, delta_position)]
    dtype = scope.fact(node.outputs[0]).dtype
    if whole[0] is not None and whole[1] is not None:
        # A converted index: float64 has the same value and half the lanes.
        first, step = whole[0], whole[1]
        define(scope, node.outputs[0], lambda at: cast(index(at[0] * step + first), dtype))
        return
    start, delta = _wide(scope, node, 0, delta_position)

    def body(at: Indices) -> Expr:
        return binary("add", start, binary("mul", cast(index(at[0]), start.dtype), delta))

    define(scope, node.outputs[0], body)


def _whole(scope: Lowering, value: ir.Value) -> int | None:
    """The value as a Python int if it is a known integer, else None."""
    known = known_numbers(scope, value)
    number = None if known is None else known.reshape(-1)[0].item()
    return None if number is None or number != number or abs(number) > _WIDEST or number != int(number) else int(number)
