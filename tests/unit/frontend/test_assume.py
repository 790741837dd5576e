from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opweld.frontend.assume import Assumptions, primitive
from opweld.tensor.dim import Atom, Dim, Symbol, as_dim, ceildiv, floordiv, minimum, mod

H, W, V = Symbol("h"), Symbol("w"), Symbol("v", None)


def test_an_equation_is_solved_for_the_symbol_whose_value_stays_a_size() -> None:
    a, b, c = (Symbol(name).dim for name in "abc")
    assumed = Assumptions().equal(a + b - c, "why")
    assert assumed.symbols == {Symbol("c"): a + b}
    assert assumed.guards() == ()
    assert assumed.rewrite(c * 2 + a) is a * 3 + b * 2


def test_a_value_symbol_stays_a_guard() -> None:
    assumed = Assumptions().equal(V.dim - 16000, "sr is fixed")
    assert assumed.rewrite(V.dim) is as_dim(16000)
    (guard,) = assumed.guards()
    assert guard.holds({V: 16000}) and not guard.holds({V: 8000})
    counted = Assumptions().sized(V, 1, "")
    size = counted.rewrite(V.dim)
    (guard,) = counted.equal(size - 3, "three").guards()
    assert guard.holds({V: 3}) and not guard.holds({V: 4})


def test_divisors_multiply() -> None:
    assumed = Assumptions().dividing(H, 4, "first")
    (quarter,) = assumed.divided
    assumed = assumed.dividing(quarter, 8, "second")
    assert [str(assumed.rewrite(H.dim)), assumed.divides] == ["32*h_by_32", True]
    final = assumed.divided[Symbol("h_by_32")]
    assert (final.base, final.divisor, final.reason) == (H, 32, "first; second")


def test_halves_that_double_make_multiples() -> None:
    half, quarter = ceildiv(H.dim, 2), ceildiv(H.dim, 4)
    assumed = Assumptions().equal(half - quarter * 2, "")
    assert str(assumed.rewrite(half)) == "2*h_by_4"
    general = Assumptions(general=True).equal(half - quarter * 2, "")
    assert not general.divides
    assert general.rewrite(half) is general.rewrite(quarter * 2)


def test_an_equation_with_a_minimum_removes_it() -> None:
    assumed = Assumptions().equal(minimum(H.dim, 512) - H.dim, "")
    assert assumed.rewrite(minimum(H.dim, 512)) is H.dim
    (guard,) = assumed.guards()
    assert guard.holds({H: 512}) and not guard.holds({H: 513})


def test_decisions_answer_later_questions() -> None:
    other = Assumptions().decided("zero", H.dim - 1, False, "")
    assert other.answer("zero", H.dim - 1) is False
    large = Assumptions().decided("least", H.dim - 10, True, "")
    assert large.answer("least", H.dim - 5) is True
    assert large.answer("least", 3 - H.dim) is False
    assert large.answer("least", H.dim - 20) is None
    small = Assumptions().decided("least", H.dim - 10, False, "")
    assert small.answer("least", H.dim - 10) is False


def test_decisions_that_exclude_each_other_are_a_contradiction() -> None:
    assert Assumptions().decided("zero", H.dim - 3, False, "").equal(H.dim - 3, "").contradiction() is not None
    assert Assumptions().equal(H.dim - 3, "").decided("zero", W.dim - 3, False, "").contradiction() is None


def test_sizes_and_numbers_are_divided_out() -> None:
    assert primitive((H.dim - W.dim) * 6 * H.dim) in (H.dim - W.dim, W.dim - H.dim)
    assert primitive(H.dim * 4 - 8) is H.dim - 2
    assert primitive(as_dim(0)) is as_dim(0)
    assert primitive(ceildiv(H.dim, 2) * (W.dim - 3)) is W.dim - 3
    for kept in (mod(H.dim, 2), floordiv(H.dim, 2)):
        assert primitive(kept * 6) is kept, "it is zero for sizes that are none of empty values"
        assert primitive(kept * W.dim) is kept


EXPRESSIONS = [
    H.dim,
    W.dim,
    ceildiv(H.dim, 2),
    floordiv(H.dim + 3, 8),
    minimum(W.dim, 20),
    as_dim(6),
    H.dim * 2,
    W.dim + 1,
]


@given(
    st.sampled_from(EXPRESSIONS), st.sampled_from(EXPRESSIONS), st.booleans(), st.integers(1, 70), st.integers(1, 70)
)
def test_what_is_assumed_makes_both_sides_equal(a: Dim, b: Dim, general: bool, h: int, w: int) -> None:
    """Wherever the assumptions hold, both sides evaluate to the same; rewriting changes no value."""
    if (a - b).constant is not None:
        return
    assumed = Assumptions(general=general).equal(primitive(a - b), "")
    values: dict[Atom, int] = {H: h, W: w}
    for symbol, known in assumed.divided.items():
        if values[known.base] % known.divisor:
            return
        values[symbol] = values[known.base] // known.divisor
    if any(values[s] != d.evaluate(values) for s, d in assumed.symbols.items()):
        return
    if not all(guard.holds(values) for guard in assumed.guards()):
        return
    assert a.evaluate(values) == b.evaluate(values)
    for dim in EXPRESSIONS:
        assert assumed.rewrite(dim).evaluate(values) == dim.evaluate(values)


@pytest.mark.parametrize("difference", [H.dim * W.dim - 12, H.dim * H.dim - W.dim * 7])
def test_an_equation_that_cannot_be_solved_is_still_known(difference: Dim) -> None:
    assumed = Assumptions(general=True).equal(difference, "")
    assert assumed.states(difference) and assumed.states(-difference)
    assert assumed.answer("zero", difference) is True
    assert len(assumed.guards()) == 1


def test_an_equation_is_not_solved_for_an_atom_of_its_products() -> None:
    a, b = floordiv(H.dim + 3, 8), floordiv(W.dim + 3, 8)
    assumed = Assumptions(general=True).equal((a + 1) * (b + 1) - 12, "")
    values: dict[Atom, int] = {H: 21, W: 13}
    assert all(guard.holds(values) for guard in assumed.guards())
    assert assumed.rewrite(a).evaluate(values) == 3
    assert assumed.rewrite(b).evaluate(values) == 2
