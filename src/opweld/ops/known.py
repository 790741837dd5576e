"""Inputs that operators need as sizes or axes: polynomials of the symbols, or numbers, known before the model runs."""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.operands import describe, elements_of, given
from opweld.ops.registry import Inference, Lowering, UnknownElementsError
from opweld.tensor.dim import Dim, as_dim, symbols_of


def known_dims(scope: Inference | Lowering, node: ir.Node, position: int, what: str) -> tuple[Dim, ...] | None:
    """A 0-D or 1-D integer input as polynomials; None when it is absent, UnsupportedError when it depends on data."""
    value = given(node, position)
    if value is None:
        return None
    fact = scope.fact(value)
    if not fact.dtype.is_integer or fact.rank > 1:
        raise ModelError(f"{describe(node)}: {what} (input {value.name!r}) must be a list of integers")
    elements = elements_of(fact)
    if elements is None:
        title = f"{describe(node)}: {what} (input {value.name!r})"
        if fact.shape and fact.shape[0].constant is None:
            raise UnknownElementsError(
                value,
                f"{title} has {fact.shape[0]} elements, a number that is not known.",
                frozenset(symbol.name for symbol in symbols_of(fact.shape[0])),
            )
        raise UnknownElementsError(
            value,
            f"{title} depends on data, or on sizes in too complicated a way, and has too many elements to be read "
            "while the model runs. Make it a constant or a simple function of the inputs' sizes.",
        )
    return tuple(elements.flat)


def require_length(scope: Inference, node: ir.Node, position: int, length: int, what: str) -> None:
    """Assumes that a 1-D input of symbolic length has the length that the operator requires."""
    value = given(node, position)
    shape = () if value is None else scope.fact(value).shape
    if len(shape) == 1 and shape[0].constant is None:
        scope.same(shape[0], as_dim(length), node, f"{what}: {length} of them")


def required_dims(scope: Inference | Lowering, node: ir.Node, position: int, what: str) -> tuple[Dim, ...]:
    """`known_dims` of an input that must be present."""
    found = known_dims(scope, node, position, what)
    if found is None:
        raise ModelError(f"{describe(node)}: {what} (input {position}) is missing")
    return found
