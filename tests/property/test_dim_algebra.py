"""Random index arithmetic, simplified, evaluates like Python's integers; what is called provable is true."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opweld.tensor.dim import (
    Atom,
    Axis,
    Dim,
    Symbol,
    as_dim,
    floordiv,
    lower_constant,
    maximum,
    minimum,
    mod,
    nonnegative,
    upper_constant,
)

N, M, FREE = Symbol("n"), Symbol("m"), Symbol("free", None)
EXTENTS = (as_dim(5), as_dim(1), N.dim, N.dim * M.dim, 2 * N.dim + 1)
AXES = tuple(Axis(f"a{position}", extent) for position, extent in enumerate(EXTENTS))


def assignments() -> list[dict[Atom, int]]:
    """Symbols from 1 to 4, and for each of the axes its ends and an index inside."""
    found: list[dict[Atom, int]] = []
    for n, m in itertools.product((1, 2, 3, 4), (1, 2, 3, 4)):
        sizes: dict[Atom, int] = {N: n, M: m, FREE: 3 * n - 2 * m - 2}
        extents = [axis.extent.evaluate(sizes) for axis in AXES]
        for seed in range(6):
            picks = [(0, extent - 1, (7 * seed + position) % extent) for position, extent in enumerate(extents)]
            chosen = [pick[(seed + position * (seed // 3 + 1)) % 3] for position, pick in enumerate(picks)]
            found.append({**sizes, **dict(zip(AXES, chosen, strict=True))})
    return found


ASSIGNMENTS = assignments()


@dataclass(frozen=True)
class Pair:
    """A simplified polynomial, and what it should evaluate to."""

    dim: Dim
    value: Callable[[dict[Atom, int]], int]


def leaf(atom: Atom) -> Pair:
    return Pair(atom.dim, lambda values: values[atom])


def literal(value: int) -> Pair:
    return Pair(as_dim(value), lambda values: value)


def node(dim: Dim, combine: Callable[[int, int], int], a: Pair, b: Pair) -> Pair:
    return Pair(dim, lambda values: combine(a.value(values), b.value(values)))


LEAVES = st.one_of(st.sampled_from([leaf(atom) for atom in (N, M, FREE, *AXES)]), st.integers(-9, 9).map(literal))
POSITIVE = st.one_of(
    st.integers(1, 9).map(literal),
    st.sampled_from([leaf(N), leaf(M), *(Pair(e, lambda values, e=e: e.evaluate(values)) for e in EXTENTS)]),
    st.tuples(st.integers(1, 4), st.sampled_from([N, M])).map(
        lambda pair: Pair(pair[0] * pair[1].dim, lambda values: pair[0] * values[pair[1]])
    ),
)


def grow(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def build(name: str, a: Pair, b: Pair) -> Pair:
        if name == "add":
            return node(a.dim + b.dim, lambda x, y: x + y, a, b)
        if name == "sub":
            return node(a.dim - b.dim, lambda x, y: x - y, a, b)
        if name == "mul":
            return node(a.dim * b.dim, lambda x, y: x * y, a, b)
        return node(minimum(a.dim, b.dim), min, a, b) if name == "min" else node(maximum(a.dim, b.dim), max, a, b)

    def divide(name: str, a: Pair, b: Pair) -> Pair:
        if name == "floordiv":
            return node(floordiv(a.dim, b.dim), lambda x, y: x // y, a, b)
        return node(mod(a.dim, b.dim), lambda x, y: x % y, a, b)

    return st.one_of(
        st.builds(build, st.sampled_from(["add", "sub", "mul", "min", "max"]), inner, inner),
        st.builds(divide, st.sampled_from(["floordiv", "mod"]), inner, POSITIVE),
    )


PAIRS = st.recursive(LEAVES, grow, max_leaves=8)


@given(PAIRS)
@settings(max_examples=600, deadline=None)
def test_simplified_arithmetic_is_arithmetic(pair: Pair) -> None:
    for values in ASSIGNMENTS:
        assert pair.dim.evaluate(values) == pair.value(values), (pair.dim, values)


@given(PAIRS)
@settings(max_examples=600, deadline=None)
def test_what_is_proved_is_true(pair: Pair) -> None:
    low, high = lower_constant(pair.dim), upper_constant(pair.dim)
    proved = nonnegative(pair.dim)
    for values in ASSIGNMENTS:
        value = pair.value(values)
        assert not proved or value >= 0, (pair.dim, values)
        assert low is None or value >= low, (pair.dim, low, values)
        assert high is None or value <= high, (pair.dim, high, values)


@given(PAIRS, PAIRS)
@settings(max_examples=300, deadline=None)
def test_equal_polynomials_are_one_object(a: Pair, b: Pair) -> None:
    assert a.dim + b.dim is b.dim + a.dim
    assert a.dim * b.dim is b.dim * a.dim
    assert (a.dim - b.dim) + b.dim is a.dim
    assert (a.dim + b.dim) * 2 is a.dim * 2 + b.dim * 2


@given(PAIRS, st.sampled_from(AXES), PAIRS)
@settings(max_examples=300, deadline=None)
def test_substitution_is_evaluation_in_two_steps(pair: Pair, atom: Axis, replacement: Pair) -> None:
    # an index stays within its extent when it is replaced
    fits = [values for values in ASSIGNMENTS if 0 <= replacement.value(values) < atom.extent.evaluate(values)]
    assume(len(fits) == len(ASSIGNMENTS))
    substituted = pair.dim.substitute({atom: replacement.dim})
    for values in fits:
        changed = {**values, atom: replacement.value(values)}
        assert substituted.evaluate(values) == pair.value(changed)


@given(PAIRS, st.sampled_from([N, M, *AXES]))
@settings(max_examples=300, deadline=None)
def test_coefficients_split_affine_polynomials(pair: Pair, atom: Atom) -> None:
    slope = pair.dim.coefficient(atom)
    assume(slope is not None)
    assert slope is not None
    assert slope * atom.dim + pair.dim.without(atom) is pair.dim
    assert not slope.depends_on(atom) and not pair.dim.without(atom).depends_on(atom)


@given(st.integers(2, 9), st.integers(2, 9), st.integers(2, 9))
def test_reshapes_of_reshapes_vanish(a: int, b: int, c: int) -> None:
    """Splitting an index and joining it again is the index, with sizes known or not."""
    known = (as_dim(a), as_dim(b), as_dim(c))
    for x, y, z in (known, (N.dim, M.dim, as_dim(c)), (as_dim(a), N.dim, as_dim(c) * M.dim)):
        i, j, k = Axis("i", x), Axis("j", y), Axis("k", z)
        flat = (i.dim * y + j.dim) * z + k.dim
        assert mod(flat, z) is k.dim
        assert floordiv(flat, z) is i.dim * y + j.dim
        assert floordiv(flat, y * z) is i.dim
        whole = Axis("w", x * y * z)
        joined = floordiv(whole.dim, y * z) * y * z + mod(floordiv(whole.dim, z), y) * z + mod(whole.dim, z)
        for values in ASSIGNMENTS:
            for index in (0, 1, x.evaluate(values) * y.evaluate(values) * z.evaluate(values) - 1):
                assert joined.evaluate({**values, whole: index}) == index
