"""Points at which claims are looked at before anybody tries to prove them."""

from __future__ import annotations

from opweld.tensor.atoms import Atom, Value
from opweld.tensor.dim import Axis, Dim, Symbol, floordiv, maximum, minimum, mod, nonnegative
from opweld.tensor.dtype import DType
from opweld.tensor.expr import load
from opweld.tensor.polynomial import SAMPLES

N, M = Symbol("n"), Symbol("m", 3)
ROW, COLUMN = Axis("i", N.dim), Axis("j", 4 * M.dim)
SUMS: tuple[Dim, ...] = (
    3 * N.dim * M.dim - ROW.dim + 7,
    floordiv(N.dim + ROW.dim, 7) - mod(COLUMN.dim, M.dim + 2),
    maximum(N.dim, 9) * minimum(COLUMN.dim, ROW.dim) - floordiv(N.dim, M.dim + 1),
)


def test_a_sample_is_the_integer_at_its_point() -> None:
    for dim in SUMS:
        for point in range(SAMPLES):
            values: dict[Atom, int] = {
                atom: value for atom in (N, M, ROW, COLUMN) if (value := atom.sampled()[point]) is not None
            }
            assert len(values) == 4
            assert dim.at_sample(point) == dim.evaluate(values)


def test_points_are_some_that_sizes_and_indices_may_have() -> None:
    assert (N.sampled()[0], M.sampled()[0]) == (1, 3)
    for index in (ROW, COLUMN, Value(load("x", DType.I64, (ROW.dim,)), N.dim)):
        for at, extent in zip(index.sampled(), index.extent.sampled(), strict=True):
            assert at is not None and extent is not None and 0 <= at < extent


def test_an_index_of_nothing_and_a_division_by_nothing_have_no_value() -> None:
    none, some = Axis("none", N.dim - 1), floordiv(M.dim, N.dim - 1)
    assert none.sampled()[0] is None and none.sampled()[1] is not None
    assert some.sampled()[0] is None and some.sampled()[1] is not None
    # A claim about it is neither refuted there nor proved for want of it.
    assert nonnegative(none.dim + 2)
    assert not nonnegative(none.dim - 2)


def test_of_two_sizes_each_may_be_the_larger_one() -> None:
    for a, b in (("h", "w"), ("n", "m"), ("batch", "length")):
        one, other = Symbol(a).dim, Symbol(b).dim
        differences = (one - other).sampled()
        assert min(d for d in differences if d is not None) < 0 < max(d for d in differences if d is not None)
        assert not nonnegative(one - other)
        assert not nonnegative(other - one)
