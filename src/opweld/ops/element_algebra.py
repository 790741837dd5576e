"""Element-wise operators on tracked elements: the polynomials and truth values of small integer tensors.

A comparison of sizes that cannot be proved is an assumption: the scope decides it, and the compilation may fork. One
that a program only asserts (attribute `asserted`) is data then: no other outcome has nodes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TypeAlias

from opweld import ir
from opweld.ops.fact import Elements, Fact
from opweld.ops.operands import describe, elements_of, map_elements
from opweld.ops.registry import Inference, attribute
from opweld.tensor.dim import Dim, TooLargeError, as_dim, floordiv, maximum, minimum, mod, nonnegative
from opweld.tensor.dtype import DType

Element: TypeAlias = "Dim | bool"

DECISION_LIMIT = 64
"""Tensors with more elements than this are never a reason to fork the compilation."""


class _Comparisons:
    """Comparisons of dims, decided by proof or, in small tensors, by an assumption of the scope."""

    def __init__(self, scope: Inference, node: ir.Node, size: int) -> None:
        self.scope, self.node = scope, node
        self.may_assume = size <= DECISION_LIMIT and not attribute(node, "asserted", 0)

    def is_zero(self, dim: Dim) -> bool | None:
        if dim.constant is not None:
            return dim.constant == 0
        if nonnegative(dim - 1) or nonnegative(-dim - 1):
            return False
        return (
            self.scope.decide(dim, "zero", self.node, f"{describe(self.node)} compares it") if self.may_assume else None
        )

    def is_least(self, dim: Dim) -> bool | None:
        if nonnegative(dim):
            return True
        if nonnegative(-dim - 1):
            return False
        return (
            self.scope.decide(dim, "least", self.node, f"{describe(self.node)} compares it")
            if self.may_assume
            else None
        )


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """a / b truncated; None when the signs are not known."""
    if a.constant is not None and b.constant:
        magnitude = abs(a.constant) // abs(b.constant)
        return as_dim(magnitude if (a.constant < 0) == (b.constant < 0) else -magnitude)
    if not nonnegative(b - 1):
        return None
    if nonnegative(a):
        return floordiv(a, b)
    # One of the two is zero: a negative quotient is rounded towards zero.
    return floordiv(maximum(a, 0), b) - floordiv(maximum(-a, 0), b)


def _remainder(a: Dim, b: Dim) -> Dim | None:
    """a % b with the sign of b; None unless b is known to be positive."""
    return mod(a, b) if nonnegative(b - 1) else None


def _remainder_truncated(a: Dim, b: Dim) -> Dim | None:
    """a - b * trunc(a / b); None when the signs are not known."""
    quotient = _quotient(a, b)
    return None if quotient is None else a - b * quotient


def _magnitude(a: Dim) -> Dim | None:
    return a if nonnegative(a) else -a if nonnegative(-a) else None


def _negated(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _converted(value: Element, to: DType, comparisons: _Comparisons) -> Element | None:
    if to is DType.BOOL:
        return value if isinstance(value, bool) else _negated(comparisons.is_zero(value))
    number = as_dim(int(value)) if isinstance(value, bool) else value
    if number.constant is None or to is DType.I64:
        return number
    return as_dim(to.wrapped(number.constant))


Function: TypeAlias = "Callable[..., Element | None]"
OfDims: TypeAlias = "Callable[[Dim, Dim], Element | None]"
OfTruths: TypeAlias = "Callable[[bool, bool], bool]"


def _either(a: Element, b: Element, of_dims: Callable[[Dim, Dim], bool | None]) -> bool | None:
    return a == b if isinstance(a, bool) or isinstance(b, bool) else of_dims(a, b)


def _functions(comparisons: _Comparisons, fact: Fact, node: ir.Node) -> Mapping[str, Function]:
    """The functions of tracked elements by operator name; the fact is the one of the output."""
    zero, least = comparisons.is_zero, comparisons.is_least

    def convert(a: Element, _: Element = False) -> Element | None:
        return _converted(a, fact.dtype, comparisons)

    def equal(a: Element, b: Element) -> bool | None:
        return _either(a, b, lambda x, y: zero(x - y))

    def choose(condition: bool, a: Element, b: Element) -> Element:
        return a if condition else b

    of_one: dict[str, Callable[[Dim], Element | None]] = {
        "Abs": _magnitude,
        "Neg": lambda a: -a,
        "Relu": lambda a: maximum(a, 0),
    }
    of_dims: dict[str, OfDims] = {
        "Add": lambda a, b: a + b,
        "Div": _quotient,
        "Greater": lambda a, b: least(a - b - 1),
        "GreaterOrEqual": lambda a, b: least(a - b),
        "Less": lambda a, b: least(b - a - 1),
        "LessOrEqual": lambda a, b: least(b - a),
        "Mod": _remainder_truncated if attribute(node, "fmod", 0) else _remainder,
        "Mul": lambda a, b: a * b,
        "Sub": lambda a, b: a - b,
    }
    of_truths: dict[str, OfTruths] = {
        "And": lambda a, b: a and b,
        "Or": lambda a, b: a or b,
        "Xor": lambda a, b: a != b,
    }
    folds: dict[str, Callable[[Dim, Dim], Dim]] = {"Max": maximum, "Min": minimum, "Sum": lambda a, b: a + b}

    def negate(a: bool) -> bool:
        return not a

    others: dict[str, Function] = {"Cast": convert, "CastLike": convert, "Equal": equal, "Not": negate, "Where": choose}
    found = folds.get(node.op_type)
    if found is not None:
        operation = found
        others[node.op_type] = lambda *a: reduce(operation, a)
    return {**of_one, **of_dims, **of_truths, **others}


def track(scope: Inference, node: ir.Node, fact: Fact, operands: list[Fact]) -> Fact:
    """The output's fact with the elements that follow from tracked operands; the same fact when none do."""
    if any(known.dtype.is_float or known.dtype.is_storage_only for known in (fact, *operands)):
        return fact
    elements = [elements_of(operand) for operand in operands]
    known = [e for e in elements if e is not None]
    if len(known) < len(operands) or any(dim.constant is None for dim in fact.shape):
        return fact
    size = max((e.size for e in known), default=0)
    function = _functions(_Comparisons(scope, node, size), fact, node).get(node.op_type)
    if function is None:
        return fact
    try:
        tracked: Elements | None = map_elements(function, *known)
    except TooLargeError:  # the numbers are ordinary data then, computed at run time
        return fact
    if tracked is None or not _fit(tracked, fact.dtype):
        return fact
    return Fact(fact.dtype, fact.shape, tracked, fact.constant)


def _fit(elements: Elements, dtype: DType) -> bool:
    """Whether the known numbers among elements are ones of the type: others wrap around, which dims do not."""
    least, most = (0, 1) if dtype is DType.BOOL else dtype.limits
    numbers = (own.constant for own in elements.flat if isinstance(own, Dim))
    return all(number is None or least <= number <= most for number in numbers)
