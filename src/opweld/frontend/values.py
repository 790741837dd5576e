"""Properties of single values: the initial fact, the readers, whether elements may be tracked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.elements import from_array, static_shape
from opweld.ops.fact import Fact
from opweld.tensor.dim import Dim, Symbol, as_dim, symbols_of
from opweld.tensor.dtype import DType

VALUE_LIMIT = 16
"""Integer values with more elements than this are data: they never decide a shape."""


def values_read(node: ir.Node) -> Iterator[ir.Value]:
    """The values that a node reads, those that its bodies capture included."""
    yield from (value for value in node.inputs if value is not None)
    for body in node.bodies:
        yield from captured(body)


def captured(graph: ir.Graph) -> Iterator[ir.Value]:
    """What the nodes of a body read that the body does not define."""
    own = {*graph.inputs, *graph.stored, *(value for node in graph for value in node.outputs)}
    for node in graph:
        yield from (value for value in values_read(node) if value not in own)
    yield from (value for value in graph.outputs if value not in own)


def may_be_tracked(fact: Fact) -> bool:
    """Whether a value is a small integer or bool tensor, whose elements may take part in shapes and conditions.

    It has one axis at most, or a single element: a network's answer of shape [1, 1] is a condition, too."""
    if fact.dtype.is_float or fact.dtype is DType.U64:
        return False
    most = VALUE_LIMIT if fact.rank <= 1 else 1
    return all(dim.constant is not None and dim.constant <= most for dim in fact.shape)


def is_unknown(fact: Fact) -> bool:
    """Whether the elements of a value could be tracked, but are not."""
    return fact.elements is None and fact.constant is None and may_be_tracked(fact)


def initial_facts(graph: ir.Graph) -> dict[ir.Value, Fact]:
    """The facts of a graph's initializers."""
    return {value: constant_fact(value) for value in graph.stored}


def constant_fact(value: ir.Value) -> Fact:
    """The fact of an initializer, read on demand; the elements of small integer ones are tracked at once."""
    stored = value.stored
    assert stored is not None, value
    dtype = dtype_of(value.name, stored.dtype)
    shape = tuple(map(as_dim, stored.shape))
    fact = Fact(dtype, shape, None, stored.read)
    if dtype.is_float or dtype.is_storage_only or static_shape(fact) is None:
        return fact
    return Fact(dtype, shape, from_array(stored.read(), dtype), stored.read)


def dtype_of(name: str, declared: DType | str | None) -> DType:
    """The element type of a value; UnsupportedError names the value when opweld has none."""
    if declared is None:
        raise ModelError(f"value {name!r} has no declared element type")
    if isinstance(declared, str):
        raise UnsupportedError(
            f"value {name!r} has element type {declared}, which is not supported. Cast it before export."
        )
    return declared


def free_symbols(facts: Mapping[ir.Value, Fact]) -> frozenset[Symbol]:
    """The symbols that the shapes and elements of values depend on."""
    found: frozenset[Symbol] = frozenset()
    for fact in facts.values():
        for dim in fact.shape:
            found |= symbols_of(dim)
        if fact.elements is not None:
            for element in fact.elements.flat:
                if isinstance(element, Dim):
                    found |= symbols_of(element)
    return found
