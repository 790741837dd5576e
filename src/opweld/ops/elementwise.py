"""Element-wise operators with NumPy broadcasting: one expression for each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.activation import UNARY_OPERATORS, formula_of, leaky_relu
from opweld.ops.arithmetic import div, larger, number, smaller, square
from opweld.ops.element_algebra import track
from opweld.ops.emitted import Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, given, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, fresh_axes, infers, lowers, required_attribute
from opweld.tensor.dim import ONE, ZERO
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Const, Expr, binary, cast, select, unary

PAIRS: Mapping[str, str] = {
    "Add": "add",
    "And": "and",
    "BitwiseAnd": "bitand",
    "BitwiseOr": "bitor",
    "BitwiseXor": "bitxor",
    "Div": "div",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Mul": "mul",
    "Or": "or",
    "Sub": "sub",
    "Xor": "xor",
}
"""Operators that are one binary expression of two inputs of one dtype."""

PREDICATES = frozenset(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf"))
"""Operators whose result is BOOL for any dtype of input."""

VARIADIC: Mapping[str, str] = {"Max": "max", "Mean": "add", "Min": "min", "Sum": "add"}
"""Operators of any number of inputs, folded from the left; Mean divides by their number at the end."""

MOST_AT_ONCE = 16
"""The most inputs of a variadic operator in one expression."""

Body = Callable[[Sequence[Expr]], Expr]


@infers(*UNARY_OPERATORS)
def infer_unary(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input; predicates give BOOL."""
    fact = scope.fact(required(node, 0))
    dtype = DType.BOOL if node.op_type in PREDICATES else fact.dtype
    return [track(scope, node, Fact(dtype, fact.shape), [fact])]


@infers(*PAIRS, *VARIADIC, "PRelu")
def infer_same_dtype(scope: Inference, node: ir.Node) -> list[Fact]:
    """The broadcast shape; all inputs have one dtype."""
    facts = [scope.fact(value) for value in node.inputs]
    dtype = require_same_dtype(facts, node)
    shape = scope.broadcast([fact.shape for fact in facts], node)
    return [track(scope, node, Fact(DType.BOOL if node.op_type in PREDICATES else dtype, shape), facts)]


@infers("Mod", "Pow", "BitShift")
def infer_first_dtype(scope: Inference, node: ir.Node) -> list[Fact]:
    """The broadcast shape; the dtype of the first input."""
    facts = [scope.fact(value) for value in node.inputs]
    shape = scope.broadcast([fact.shape for fact in facts], node)
    return [track(scope, node, Fact(facts[0].dtype, shape), facts)]


@infers("Where")
def infer_where(scope: Inference, node: ir.Node) -> list[Fact]:
    """The broadcast shape; the dtype of the two choices."""
    facts = [scope.fact(value) for value in node.inputs]
    if facts[0].dtype is not DType.BOOL:
        raise ModelError(f"{describe(node)}: the condition must be bool, got {facts[0].dtype!r}")
    dtype = require_same_dtype(facts[1:], node)
    shape = scope.broadcast([fact.shape for fact in facts], node)
    return [track(scope, node, Fact(dtype, shape), facts)]


@infers("Clip")
def infer_clip(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input; the limits are of its dtype, with shape [] or [1]."""
    fact = scope.fact(required(node, 0))
    limits = [
        require_rank(scope.fact(value), 0, node, 1) for value in (given(node, 1), given(node, 2)) if value is not None
    ]
    for dim in (dim for limit in limits for dim in limit.shape):
        scope.same(dim, ONE, node, f"a limit of {describe(node)} is one number")
    require_same_dtype([fact, *limits], node)
    return [Fact(fact.dtype, fact.shape)]


@lowers(*UNARY_OPERATORS)
def lower_unary(scope: Lowering, node: ir.Node) -> None:
    """The formula, applied to each element."""
    formula = formula_of(node)
    # float8 is storage-only: predicates are computed of the converted value
    _lower_map(scope, node, lambda x: formula(cast(x[0], DType.F32) if x[0].dtype.is_storage_only else x[0]))


@lowers(*PAIRS)
def lower_pair(scope: Lowering, node: ir.Node) -> None:
    """One binary expression of two operands."""
    op = PAIRS[node.op_type]
    _lower_map(scope, node, lambda x: binary(op, x[0], x[1]))


@lowers(*VARIADIC)
def lower_variadic(scope: Lowering, node: ir.Node) -> None:
    """A chain of binary expressions, in order. With very many inputs, partial results are tensors of their own: a
    kernel has a pointer, and code, for each operand."""
    op, shape = VARIADIC[node.op_type], scope.fact(node.outputs[0]).shape
    values = [value for value in node.inputs if value is not None]
    divisor = len(node.inputs) if node.op_type == "Mean" else 1

    def extended(before: Emitted | None, count: int, at: Indices) -> Expr:
        """`before` combined with the next inputs."""
        first = [] if before is None else [before.at(at)]
        loads = [scope.load(value, at) for value in values[done : done + count]]
        return reduce(lambda a, b: binary(op, a, b), [*first, *loads])

    total: Emitted | None = None
    done = 0
    while len(values) - done > MOST_AT_ONCE:
        total = emit(scope, shape, partial(extended, total, MOST_AT_ONCE), node.op_type)
        done += MOST_AT_ONCE

    def body(at: Indices) -> Expr:
        whole = extended(total, MOST_AT_ONCE, at)
        return div(whole, divisor) if divisor > 1 else whole

    define(scope, node.outputs[0], body)


@lowers("PRelu")
def lower_prelu(scope: Lowering, node: ir.Node) -> None:
    """x where x >= 0, else slope * x"""
    _lower_map(scope, node, lambda x: leaky_relu(x[0], x[1]))


@lowers("Mod")
def lower_mod(scope: Lowering, node: ir.Node) -> None:
    """The remainder: with the sign of the divisor, or of the dividend if fmod is set."""
    op = "fmod" if attribute(node, "fmod", 0) else "mod"
    _lower_map(scope, node, lambda x: binary(op, x[0], x[1]))


@lowers("Pow")
def lower_pow(scope: Lowering, node: ir.Node) -> None:
    """The power, computed in a float dtype if either operand is one, converted to the dtype of the base."""
    _lower_map(scope, node, lambda x: power(x[0], x[1]))


@lowers("BitShift")
def lower_shift(scope: Lowering, node: ir.Node) -> None:
    """Bits shifted left or right."""
    direction = required_attribute(node, "direction")
    if direction not in ("LEFT", "RIGHT"):
        raise ModelError(f"{describe(node)}: direction must be LEFT or RIGHT, got {direction!r}")
    _lower_map(scope, node, lambda x: binary("shl" if direction == "LEFT" else "shr", x[0], x[1]))


@lowers("Where")
def lower_where(scope: Lowering, node: ir.Node) -> None:
    """One of two operands, by the condition."""
    _lower_map(scope, node, lambda x: select(x[0], x[1], x[2]))


@lowers("Clip")
def lower_clip(scope: Lowering, node: ir.Node) -> None:
    """min(max(x, low), high), so that the upper limit wins when the limits cross."""
    low, high = (
        None if value is None else scope.load(value, [ZERO] * scope.fact(value).rank)
        for value in (given(node, 1), given(node, 2))
    )

    def body(x: Sequence[Expr]) -> Expr:
        clipped = x[0] if low is None else larger(x[0], low)
        return clipped if high is None else smaller(clipped, high)

    _lower_map(scope, node, body, inputs=1)


def power(base: Expr, exponent: Expr) -> Expr:
    """base ** exponent in the dtype of the base; small constant exponents become products, more exact and cheaper."""
    known = exponent.value if isinstance(exponent, Const) else None
    if known == 1:
        return base
    if known == 2:
        return square(base)
    if known == 3:
        return binary("mul", square(base), base)
    if known == -1 and base.dtype.is_float:
        return unary("reciprocal", base)
    if known == 0 and base.dtype.is_float:
        return number(1, base)
    if base.dtype.is_float or not exponent.dtype.is_float:
        return binary("pow", base, cast(exponent, base.dtype))
    return cast(binary("pow", cast(base, DType.F64), cast(exponent, DType.F64)), base.dtype)


def _lower_map(scope: Lowering, node: ir.Node, body: Body, inputs: int | None = None) -> None:
    axes = fresh_axes(scope.fact(node.outputs[0]).shape)
    indices = [axis.dim for axis in axes]
    operands = [scope.load(value, indices) for value in node.inputs[:inputs] if value is not None]
    scope.result(node.outputs[0], axes, body(operands))
