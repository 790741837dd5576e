"""Algebraic simplification of scalar expressions that preserves every value, including NaN, infinities and signed
zeros.

Two exceptions, both outside what ONNX defines: the sign of zero of `min(-0.0, 0.0)`, and the last bit of `pow`. A
program that would have failed may run after simplification (`x * 0` of an integer no longer evaluates x).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from opweld.tensor.dim import Atom, Axis, Dim, Value, as_dim, atoms_of, floordiv, maximum, minimum, mod, nonnegative
from opweld.tensor.discontinuous import has_nan_edge, is_discontinuous
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Reduce,
    Scalar,
    Select,
    Unary,
    at_least_zero,
    binary,
    cast,
    const,
    free_atoms,
    index,
    load,
    reduce,
    select,
    transform,
    unary,
    walk,
)
from opweld.tensor.intern import current
from opweld.tensor.range import bounds, never_negative_zero
from opweld.tensor.rounding import as_integer, clamped_first
from opweld.tensor.semantics import Array, apply_binary, apply_cast, apply_unary, fails_on_zero, neutral

Rule: TypeAlias = Callable[[Binary], "Expr | None"]

_COMMUTATIVE = frozenset({"add", "mul", "min", "max", "and", "or", "xor", "eq", "ne", "bitand", "bitor", "bitxor"})
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_NEGATED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
_ASSOCIATIVE_INTEGER = frozenset({"add", "mul", "bitand", "bitor", "bitxor"})
_MERGED_REDUCTIONS = frozenset({"sum", "prod", "max", "min", "any", "all"})
_IDEMPOTENT_REDUCTIONS = frozenset({"max", "min", "any", "all"})

_PASSES = 16


def simplify(root: Expr) -> Expr:
    """An expression of the same value that is no larger; the same object when no rule applies."""
    known = current.get().simplified
    found = known.get(root)
    if found is not None:
        return found
    found = root
    for _ in range(_PASSES):
        following = transform(_fold_constants(found), _rewrite, _with_known_values)
        if following is found:
            break
        found = following
    known[root] = known[found] = found
    return found


def _rewrite(node: Expr) -> Expr | None:
    if isinstance(node, Unary):
        return _unary(node)
    if isinstance(node, Binary):
        return _binary(node)
    if isinstance(node, Cast):
        return _cast(node)
    if isinstance(node, Select):
        return _select(node)
    return _reduce(node) if isinstance(node, Reduce) else None


def _with_known_values(dim: Dim) -> Dim:
    """The polynomial, where an integer of the run is an index that is certainly inside its bounds, with that index."""
    known: dict[Atom, Dim] = {}
    for atom in atoms_of(dim):
        if isinstance(atom, Value):
            place = _dim(atom.expr)
            if place is not None and nonnegative(place) and nonnegative(atom.extent - 1 - place):
                known[atom] = place
    return dim.substitute(known) if known else dim


def _fold_constants(root: Expr) -> Expr:
    """Folds sub-expressions of literals, computed in float64 and rounded once; under discontinuous ones at every
    step."""
    exact: dict[Expr, Array] = {}
    own: dict[Expr, Array] = {}
    literals: dict[Expr, Expr] = {}
    folded: dict[Expr, Expr] = {}
    with np.errstate(all="ignore"):
        for node in walk(root):
            value = _exact_value(node, own if is_discontinuous(node) else exact)
            if value is None:
                continue
            exact[node] = value
            mine = _exact_value(node, own)
            assert mine is not None
            own[node] = _rounded(mine, node.dtype)
            if has_nan_edge(node) and np.isnan(value):
                exact[node] = value = own[node]
            literals[node] = literal = node if isinstance(node, Const) else const(_scalar(value), node.dtype)
            # `transform` has replaced operands already; the result is still the value rounded once
            folded[_with_literals(node, literals)] = literal
    return transform(root, folded.get) if any(not isinstance(node, Const) for node in folded) else root


def _with_literals(node: Expr, literals: Mapping[Expr, Expr]) -> Expr:
    if isinstance(node, Unary):
        return unary(node.op, literals[node.x])
    if isinstance(node, Binary):
        return binary(node.op, literals[node.x], literals[node.y])
    return cast(literals[node.x], node.dtype) if isinstance(node, Cast) else node


def _rounded(value: Array, dtype: DType) -> Array:
    return apply_cast(value, dtype.numpy).astype(np.float64) if dtype.is_float else value


def _scalar(value: Array) -> Scalar:
    scalar = value.item()
    assert isinstance(scalar, int | float | bool)
    return scalar


def _exact_value(node: Expr, exact: Mapping[Expr, Array]) -> Array | None:
    """The value of a node of literals: floats as float64, others in their own dtype."""
    if isinstance(node, Const):
        return np.asarray(node.value, np.float64 if node.dtype.is_float else node.dtype.numpy)
    if not isinstance(node, Unary | Binary | Cast) or any(operand not in exact for operand in node.operands):
        return None
    if isinstance(node, Unary):
        return apply_unary(node.op, exact[node.x])
    if isinstance(node, Cast):
        value = apply_cast(exact[node.x], node.dtype.numpy)
        return value.astype(np.float64) if node.dtype.is_float else value
    if fails_on_zero(node.op, node.x.dtype.numpy) and not exact[node.y]:
        return None
    return apply_binary(node.op, exact[node.x], exact[node.y])


def _unary(node: Unary) -> Expr | None:
    op, x = node.op, node.x
    if isinstance(x, Unary):
        if op == x.op and op in ("neg", "not", "bitnot"):
            return x.x
        if op == x.op and op in ("abs", "floor", "ceil", "round", "sign"):
            return x
        if op == "abs" and x.op == "neg":
            return unary("abs", x.x)
        if op == "reciprocal" and x.op == "sqrt":
            return unary("rsqrt", x.x)
    if op == "abs" and never_negative_zero(x) and bounds(x)[0] >= 0:
        return x
    if op in ("isnan", "isinf") and x.dtype.is_integer:
        return const(False, DType.BOOL)
    if op in ("floor", "ceil", "round") and x.dtype.is_integer:
        return x
    if op == "not" and isinstance(x, Binary):
        if x.op in ("eq", "ne"):
            return binary("ne" if x.op == "eq" else "eq", x.x, x.y)
        if x.op in _NEGATED and not x.x.dtype.is_float:  # for NaN, both a < b and a >= b are false
            return binary(_NEGATED[x.op], x.x, x.y)
    return None


def _binary(node: Binary) -> Expr | None:
    if isinstance(node.x, Const) and not isinstance(node.y, Const):
        if node.op in _COMMUTATIVE:
            return binary(node.op, node.y, node.x)
        if node.op in _MIRRORED:
            return binary(_MIRRORED[node.op], node.y, node.x)
    rule = _RULES.get(node.op)
    found = rule(node) if rule is not None else None
    if found is not None:
        return found
    if node.op in _ASSOCIATIVE_INTEGER and not node.dtype.is_float:
        return _join_literals(node)
    return None


def _join_literals(node: Binary) -> Expr | None:
    """(x op c) op d is x op (c op d) where the operator is exactly associative, that is for integers."""
    x, d = node.x, node.y
    if isinstance(x, Binary) and x.op == node.op and isinstance(x.y, Const) and isinstance(d, Const):
        return binary(node.op, x.x, binary(node.op, x.y, d))
    return None


def _is(x: Expr, value: float) -> bool:
    """Whether x is this literal; the two zeros are different literals."""
    return isinstance(x, Const) and x.value == value and math.copysign(1, x.value) == math.copysign(1, value)


def _add(node: Binary) -> Expr | None:
    x, y = node.x, node.y
    if _is(y, -0.0 if node.dtype.is_float else 0):
        return x
    # -0.0 + 0.0 is 0.0
    if _is(y, 0.0) and never_negative_zero(x):
        return x
    if isinstance(y, Unary) and y.op == "neg":
        return binary("sub", x, y.x)
    if isinstance(x, Unary) and x.op == "neg":
        return binary("sub", y, x.x)
    return None


def _sub(node: Binary) -> Expr | None:
    x, y = node.x, node.y
    if _is(y, 0):
        return x
    if isinstance(y, Unary) and y.op == "neg":
        return binary("add", x, y.x)
    if x is y and not node.dtype.is_float:  # infinity - infinity is NaN
        return const(0, node.dtype)
    return None


def _mul(node: Binary) -> Expr | None:
    x, y = node.x, node.y
    if _is(y, 1):
        return x
    if _is(y, -1):
        return unary("neg", x)
    if _is(y, 0) and not node.dtype.is_float:  # infinity * 0 and NaN * 0 are NaN, -1 * 0.0 is -0.0
        return y
    if isinstance(x, Unary) and x.op == "neg":
        if isinstance(y, Unary) and y.op == "neg":
            return binary("mul", x.x, y.x)
        if isinstance(y, Const) and node.dtype.is_signed:
            return binary("mul", x.x, const(-y.value, node.dtype))
    return None


def _div(node: Binary) -> Expr | None:
    x, y, dtype = node.x, node.y, node.dtype
    if _is(y, 1):
        return x
    if dtype.is_float:
        if _is(x, 1):
            return unary("reciprocal", y)
        if isinstance(y, Const) and y.value and abs(math.frexp(y.value)[0]) == 0.5:
            # a power of two: the quotient and the product are the same real number, rounded once
            inverse = 1 / y.value
            if _exactly(inverse, dtype):
                return binary("mul", x, const(inverse, dtype))
        return None
    dims = _dims(node)
    if dims is not None and nonnegative(dims[0]) and nonnegative(dims[1] - 1):  # truncation is floor there
        return index(floordiv(*dims))
    return None


def _exactly(value: float, dtype: DType) -> bool:
    literal = const(value, dtype)
    return isinstance(literal, Const) and literal.value == value and math.isfinite(value)


def _pow(node: Binary) -> Expr | None:
    x, y = node.x, node.y
    if _is(y, 1):
        return x
    if isinstance(y, Const) and y.value == 0:  # also for NaN
        return const(1, node.dtype)
    if _is(y, 2):
        return binary("mul", x, x)
    if _is(y, 3):
        return binary("mul", binary("mul", x, x), x)
    if not node.dtype.is_float:
        return None
    if _is(y, -1):
        return unary("reciprocal", x)
    # pow(-0.0, 0.5) is 0.0 and pow(-inf, 0.5) is inf, sqrt gives -0.0 and NaN
    if _is(y, 0.5):
        if never_negative_zero(x) and bounds(x)[0] >= 0:
            return unary("sqrt", x)
        root = unary("sqrt", binary("add", x, const(0, node.dtype)))
        return select(binary("eq", x, const(-math.inf, node.dtype)), const(math.inf, node.dtype), root)
    if _is(y, -0.5) and never_negative_zero(x) and bounds(x)[0] >= 0:
        return unary("rsqrt", x)
    return None


def _min(node: Binary) -> Expr | None:
    return _extreme(node, minimum)


def _max(node: Binary) -> Expr | None:
    return _extreme(node, maximum)


def _extreme(node: Binary, of_dims: Callable[[Dim, Dim], Dim]) -> Expr | None:
    """Rules of min and max, all of which propagate NaN, since x is kept."""
    op, x, y = node.op, node.x, node.y
    if x is y:
        return x
    dims = _dims(node)
    if dims is not None:
        return index(of_dims(*dims))
    if not isinstance(y, Const) or y.value != y.value:
        return None
    low, high = bounds(x)
    if (low >= y.value) if op == "max" else (high <= y.value):
        return x
    if isinstance(x, Binary) and isinstance(x.y, Const):
        if x.op == op:
            pick = max if op == "max" else min
            return binary(op, x.x, const(pick(x.y.value, y.value), node.dtype))
        # max(min(x, high), low) with low < high is min(max(x, low), high): the canonical form of a clip
        if op == "max" and x.op == "min" and y.value < x.y.value:
            return binary("min", binary("max", x.x, y), x.y)
    return clamped_first(node)


def _mod(node: Binary) -> Expr | None:
    dims = _dims(node)
    if dims is not None and nonnegative(dims[1] - 1):
        return index(mod(*dims))
    if _is(node.y, 1) and not node.dtype.is_float:
        return const(0, node.dtype)
    return None


def _and(node: Binary) -> Expr | None:
    x, y = node.x, node.y
    if x is y:
        return x
    if isinstance(y, Const):
        return x if y.value else y
    return None


def _or(node: Binary) -> Expr | None:
    x, y = node.x, node.y
    if x is y:
        return x
    if isinstance(y, Const):
        return y if y.value else x
    return None


def _xor(node: Binary) -> Expr | None:
    if isinstance(node.y, Const):
        return unary("not", node.x) if node.y.value else node.x
    return None


def _compare(node: Binary) -> Expr | None:
    """Decides comparisons of sizes and indices where the polynomials prove them, and of an expression with itself."""
    op, x, y = node.op, node.x, node.y
    if x is y and not x.dtype.is_float:
        return const(op in ("eq", "le", "ge"), DType.BOOL)
    dims = _dims(node)
    if dims is None:
        return None
    a, b = dims
    if op in ("eq", "ne"):
        apart = nonnegative(a - b - 1) or nonnegative(b - a - 1)
        return const(op == "ne", DType.BOOL) if apart else None
    gap = {"ge": a - b, "gt": a - b - 1, "le": b - a, "lt": b - a - 1}[op]
    decided = at_least_zero(gap)
    return decided if isinstance(decided, Const) else None


_RULES: Mapping[str, Rule] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "min": _min,
    "max": _max,
    "mod": _mod,
    "and": _and,
    "or": _or,
    "xor": _xor,
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _compare),
}


def _dims(node: Binary) -> tuple[Dim, Dim] | None:
    """The operands as polynomials, when both are and one is not a literal."""
    a, b = _dim(node.x), _dim(node.y)
    if a is None or b is None or (a.constant is not None and b.constant is not None):
        return None
    return a, b


def _dim(x: Expr) -> Dim | None:
    if isinstance(x, Index):
        return x.dim
    return as_dim(int(x.value)) if isinstance(x, Const) and x.dtype is DType.I64 else None


def _cast(node: Cast) -> Expr | None:
    x = node.x
    if isinstance(x, Cast) and lossless(x.x.dtype, x.dtype):
        return cast(x.x, node.dtype)
    return as_integer(node)


_DIGITS: Mapping[DType, int] = {
    DType.F64: 53, DType.F32: 24, DType.F16: 11, DType.BF16: 8, DType.F8E4M3FN: 4, DType.F8E4M3FNUZ: 4,
    DType.F8E5M2: 3, DType.F8E5M2FNUZ: 3, DType.F4E2M1: 2, DType.F8E8M0: 0,
}  # fmt: skip
"""The binary digits up to which the type represents every integer; 0 if none."""


def lossless(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target`."""
    if source is target:
        return True
    if source is DType.BOOL:
        return target is not DType.F8E8M0  # which has no zero
    if target is DType.BOOL or (source.is_float and not target.is_float):
        return False
    if source.is_float:
        # neither 16-bit type contains the other, and float16 lacks some powers of two
        return target.bytes > source.bytes and (source, target) != (DType.F8E8M0, DType.F16)
    value_bits = source.bits - source.is_signed
    if target.is_float:
        # the least integer is a power of two, so the digits of the greatest are decisive
        return value_bits <= _DIGITS[target]
    return (target.is_signed or not source.is_signed) and target.bits - target.is_signed >= value_bits


def _select(node: Select) -> Expr | None:
    condition, x, y = node.condition, node.x, node.y
    if isinstance(condition, Unary) and condition.op == "not":
        return select(condition.x, y, x)
    if isinstance(x, Const) and isinstance(y, Const) and node.dtype is DType.BOOL:
        return condition if x.value else unary("not", condition)
    if isinstance(x, Select) and x.condition is condition:
        return select(condition, x.x, y)
    if isinstance(y, Select) and y.condition is condition:
        return select(condition, x, y.y)
    return _wrapped(node)


def _wrapped(node: Select) -> Expr | None:
    """x[i] where i < n and x[i - n] elsewhere, as a roll has its two parts, is x[i % n]; x[0] and x[1] for an index of
    two are x at it.

    Along the last axis the parts of a roll stay two: each is dense in memory."""
    condition, x, y = node.condition, node.x, node.y
    if not isinstance(x, Load) or not isinstance(y, Load) or x.tensor != y.tensor or x.guards or y.guards:
        return None
    gap = condition.x if isinstance(condition, Binary) and condition.op == "ge" and _is(condition.y, 0) else None
    others = [n for n, (a, b) in enumerate(zip(x.indices, y.indices, strict=True)) if a is not b]
    if not isinstance(gap, Index) or len(others) != 1:
        return None
    (axis,) = others
    i = x.indices[axis]
    n = i - y.indices[axis]
    chosen = (-gap.dim).atom
    if i.constant == 0 and n.constant == -1 and isinstance(chosen, Axis) and chosen.extent.constant == 2:
        place = chosen.dim
    elif axis == len(x.indices) - 1 or gap.dim is not n - 1 - i:
        return None
    elif all(map(nonnegative, (n - 1, i, 2 * n - 1 - i))):
        place = mod(i, n)
    else:
        return None
    return load(x.tensor, x.dtype, (*x.indices[:axis], place, *x.indices[axis + 1 :]))


def _reduce(node: Reduce) -> Expr | None:
    body = node.body
    if any(axis.extent.constant == 0 for axis in node.axes):
        return const(0 if node.kind.startswith("arg") else neutral(node.kind, node.dtype.numpy), node.dtype)
    if node.kind in _IDEMPOTENT_REDUCTIONS:
        free = free_atoms(body)
        kept = tuple(axis for axis in node.axes if axis in free or not nonnegative(axis.extent - 1))
        if len(kept) < len(node.axes):
            return reduce(node.kind, kept, body)
    if isinstance(body, Reduce) and body.kind == node.kind and node.kind in _MERGED_REDUCTIONS:
        return reduce(node.kind, (*node.axes, *body.axes), body.body)
    return None
