from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opweld.tensor.dim import Axis, FloorDiv, Symbol, ceildiv, floordiv

H = Symbol("h")


def test_sizes_that_are_halved_again_and_again_are_divided_once() -> None:
    size = H.dim
    for _ in range(5):
        size = ceildiv(size, 2)
    assert size is floordiv(H.dim + 31, 32)


@given(st.integers(1, 9), st.integers(-20, 20), st.integers(1, 9), st.integers(-20, 20), st.integers(1, 500))
def test_nested_divisions_keep_their_value(inner: int, shift: int, outer: int, offset: int, h: int) -> None:
    nested = floordiv(floordiv(H.dim + shift, inner) + offset, outer)
    assert nested.evaluate({H: h}) == ((h + shift) // inner + offset) // outer


def test_an_index_keeps_its_quotient() -> None:
    index = Axis("i", H.dim)
    quotient = floordiv(index.dim, 4)
    atom = floordiv(quotient + 1, 3).atom
    assert isinstance(atom, FloorDiv) and atom.left is quotient + 1
