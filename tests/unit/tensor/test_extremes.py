"""Normal forms and proofs of minima and maxima."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from opweld.tensor.dim import Axis, Dim, DimLike, Symbol, maximum, minimum, nonnegative

N, M = Symbol("n"), Symbol("m")


@pytest.mark.parametrize("pick", [minimum, maximum])
def test_what_both_sides_share_is_outside(pick: Callable[[DimLike, DimLike], Dim]) -> None:
    n, m = N.dim, M.dim
    assert pick(n - m, 0) is pick(n, m) - m
    assert pick(n + 5, m + 5) is pick(n, m) + 5
    assert pick(2 * n - 7, n * m - m) is pick(2 * n + m, n * m + 7) - m - 7


def test_extremes_of_indices_stay_as_written() -> None:
    i = Axis("i", N.dim).dim
    assert repr(maximum(i - 3, 3 - i)) == "max((-i + 3), (i - 3))"


CLAIMS: list[tuple[Dim, bool]] = [
    (N.dim + M.dim - maximum(N.dim, M.dim), True),
    (minimum(N.dim, M.dim) - 1, True),
    (N.dim + 255 - maximum(N.dim, 256), True),
    (maximum(N.dim, M.dim) - minimum(N.dim, M.dim), True),
    (maximum(N.dim, 256) - N.dim - 1, False),
    (N.dim - maximum(N.dim, 2), False),
]


@pytest.mark.parametrize(("claim", "holds"), CLAIMS)
def test_proofs(claim: Dim, holds: bool) -> None:
    assert nonnegative(claim) is holds
    values = [claim.evaluate({N: n, M: m}) for n, m in itertools.product((1, 2, 3, 255, 256, 257, 1000), repeat=2)]
    assert (min(values) >= 0) is holds
