"""Element-wise functions that ONNX does not have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from opweld import ir
from opweld.ops.arithmetic import add, div, mul, sub, where
from opweld.ops.aten.special import SPECIAL, SPECIAL_PAIRS
from opweld.ops.element_algebra import track
from opweld.ops.emitted import define
from opweld.ops.fact import Fact
from opweld.ops.operands import require_float, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, infers, lowers
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, unary

DOMAIN = "aten"


def expm1(x: Expr) -> Expr:
    """exp(x) - 1, by 2 t / (1 - t) with t = tanh(x / 2) where the difference would cancel."""
    half = unary("tanh", mul(x, 0.5))
    near = div(mul(half, 2), sub(1, half))
    return where(binary("lt", unary("abs", x), const(1, x.dtype)), near, sub(unary("exp", x), 1))


def exp2(x: Expr) -> Expr:
    """2 to the power of x."""
    return binary("pow", const(2, x.dtype), x)


def truncated(x: Expr) -> Expr:
    """x rounded towards zero."""
    return where(binary("lt", x, const(0, x.dtype)), unary("ceil", x), unary("floor", x))


UNARY: Mapping[str, Callable[[Expr], Expr]] = {
    "Exp2": exp2,
    "Expm1": expm1,
    "Log10": lambda x: mul(unary("log", x), 1 / math.log(10)),
    "Log1p": lambda x: unary("log1p", x),
    "Log2": lambda x: mul(unary("log", x), 1 / math.log(2)),
    "Rsqrt": lambda x: unary("rsqrt", x),
    "Trunc": truncated,
    **SPECIAL,
}
"""Functions of a float."""


def shifted(op: str, x: Expr, count: Expr) -> Expr:
    """Bits shifted; by as many as there are, or more, all are gone, and so is what a negative number would mean."""
    bits = x.dtype.bits
    low, high = binary("lt", count, const(0, x.dtype)), binary("ge", count, const(bits, x.dtype))
    beyond = binary("or", low, high)
    inside = where(beyond, 0, count)
    moved = binary(op, x, inside)
    if op == "shr" and x.dtype.is_signed:
        return where(beyond, binary("shr", x, const(bits - 1, x.dtype)), moved)
    return where(beyond, 0, moved)


def modulo(x: Expr, y: Expr) -> Expr:
    """x - y floor(x / y), of the sign of y: fmod, and y more where the signs differ."""
    if not x.dtype.is_float:
        return binary("mod", x, y)
    rest = binary("fmod", x, y)
    zero = const(0, x.dtype)
    differ = binary("xor", binary("lt", rest, zero), binary("lt", y, zero))
    return where(binary("and", binary("ne", rest, zero), differ), add(rest, y), rest)


PAIRS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "Atan2": lambda y, x: binary("atan2", y, x),
    "Mod": modulo,
    "ShiftLeft": lambda x, count: shifted("shl", x, count),
    "ShiftRight": lambda x, count: shifted("shr", x, count),
    **SPECIAL_PAIRS,
}
"""Functions of two operands of one dtype."""


@infers(*UNARY, domain=DOMAIN)
def infer_unary(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input."""
    fact = require_float(scope.fact(required(node, 0)), node)
    return [track(scope, node, Fact(fact.dtype, fact.shape), [fact])]


@lowers(*UNARY, domain=DOMAIN)
def lower_unary(scope: Lowering, node: ir.Node) -> None:
    """The function, applied to each element."""
    value = required(node, 0)
    define(scope, node.outputs[0], lambda i: UNARY[node.op_type](_widened(scope.load(value, i))))


@infers(*PAIRS, domain=DOMAIN)
def infer_pair(scope: Inference, node: ir.Node) -> list[Fact]:
    """The broadcast shape; both inputs have one dtype."""
    facts = [scope.fact(value) for value in node.inputs]
    dtype = require_same_dtype(facts, node)
    return [Fact(dtype, scope.broadcast([fact.shape for fact in facts], node))]


@lowers(*PAIRS, domain=DOMAIN)
def lower_pair(scope: Lowering, node: ir.Node) -> None:
    """The function, applied to each pair of elements."""
    x, y = required(node, 0), required(node, 1)
    define(
        scope,
        node.outputs[0],
        lambda i: PAIRS[node.op_type](_widened(scope.load(x, i)), _widened(scope.load(y, i))),
    )


def _widened(x: Expr) -> Expr:
    """float16 and bfloat16 are computed in float32, and rounded once."""
    return cast(x, DType.F32) if x.dtype.is_float and x.dtype.computed is not x.dtype else x
