"""A program with a number in the place of a symbol computes what it did where the symbol has that value."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.tensor.dim import Dim, Symbol, floordiv, symbols_of
from opweld.tensor.expr import Reduce, walk
from opweld.tensor.fixed import fixed
from opweld.tensor.interpret import interpret
from opweld.tensor.program import Guard, Input, SymbolSource, Tensor, TensorProgram, bodies_of
from opweld.tensor.simplify import simplify_program
from opweld.tensor.verify import verify
from tests.unit.tensor.programs import EXAMPLES, F32, Example, axes, read, shape

SYMBOLS = [(name, source.symbol.name) for name, make in EXAMPLES.items() for source in make().program.symbols]


def fixed_at_the_feeds(example: Example, name: str) -> TensorProgram:
    (source,) = (source for source in example.program.symbols if source.symbol.name == name)
    fed = example.feeds[source.input]
    value = int(fed.reshape(-1)[source.position]) if source.by_value else fed.shape[source.position]
    made = fixed(example.program, source.symbol, value // source.divisor, "a test")
    assert made is not None
    return made


@pytest.mark.parametrize(("example", "symbol"), SYMBOLS)
def test_it_computes_the_same(example: str, symbol: str) -> None:
    given = EXAMPLES[example]()
    made = fixed_at_the_feeds(given, symbol)
    for program in (made, simplify_program(made)):
        verify(program)
        found = interpret(program, given.feeds)
        for name, expected in given.expected.items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)  # float32 beside float64


@pytest.mark.parametrize(("example", "symbol"), SYMBOLS)
def test_the_symbol_is_in_no_size(example: str, symbol: str) -> None:
    made = fixed_at_the_feeds(EXAMPLES[example](), symbol)
    bodies = [body for item in made.items for body in bodies_of(item)]
    reduced = [axis.extent for node in walk(*bodies) if isinstance(node, Reduce) for axis in node.axes]
    sizes = [*reduced, *(dim for _, shape in made.signatures.values() for dim in shape)]
    assert symbol not in {found.name for size in sizes for found in symbols_of(size)}
    assert made.guards[-1].reason == "a test"


N = Symbol("n")


@pytest.mark.parametrize(
    ("extent", "guards"),
    [
        (N.dim - 3, ()),  # fewer than none
        (floordiv(64, N.dim - 1), ()),
        (N.dim, (Guard("least", N.dim - 2, "two at least"),)),
    ],
)
def test_a_size_that_the_program_cannot_have(extent: Dim, guards: tuple[Guard, ...]) -> None:
    (i,) = axes(i=extent)
    program = TensorProgram(
        "main",
        (Input("x", F32, shape(N.dim, extent)),),
        (),
        (Tensor("y", F32, (i,), read("x", 0, i)),),
        (("y", "y"),),
        (SymbolSource(N, "x", 0),),
        guards,
    )
    assert fixed(program, N, 1, "a test") is None
    assert fixed(program, N, 5, "a test") is not None
