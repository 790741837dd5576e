from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opweld.tensor.dim import ZERO, Axis, FloorDiv, Symbol, as_dim, ceildiv, floordiv, mod

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


def test_what_a_product_divides_leaves_nothing() -> None:
    # The divisor is not provably positive; nobody divides by it where it is not.
    divisor = floordiv(H.dim, 2) * floordiv(Symbol("w").dim, 2)
    assert floordiv(3 * divisor, divisor) is as_dim(3)
    assert mod(3 * divisor, divisor) is ZERO
    assert floordiv(as_dim(0), divisor) is ZERO
