"""Quotients and remainders of polynomials, simplified as they are made.

floordiv(W * y + x, W) is y          mod(W * y + x, W) is x          W * (p // W) + p % W is p
"""

from __future__ import annotations

from collections.abc import Mapping

from opweld.tensor.atoms import Atom, Pair, axes_of
from opweld.tensor.bounds import largest, lower_constant, nonnegative
from opweld.tensor.polynomial import (
    ZERO,
    Dim,
    DimLike,
    Monomial,
    as_dim,
    atom_key,
    common_factor,
    divided,
    exact_quotient,
    make,
    monomial_quotient,
)


class FloorDiv(Pair):
    """left // right, rounded towards minus infinity, right > 0. Made by `floordiv`, which simplifies."""

    __slots__ = ()
    rank, template, divides = 2, "({} // {})", True

    @staticmethod
    def made(left: Dim, right: Dim) -> Dim:
        """The quotient, simplified."""
        return floordiv(left, right)

    @staticmethod
    def number(left: int, right: int) -> int:
        """The quotient."""
        return left // right

    def lower_bounds(self) -> list[Dim]:
        """The least dividend divided."""
        constant = self.right.constant
        low = lower_constant(self.left)
        if low is not None and constant is not None:
            return [as_dim(low // constant)]
        return [ZERO] if nonnegative(self.left) else []

    def upper_bounds(self) -> list[Dim]:
        """x // d <= x when x >= 0; for a constant d, the largest value of x divided by d."""
        ends: list[Dim] = []
        constant = self.right.constant
        top = largest(self.left)
        if (
            top is not None
            and constant is not None
            and not any(isinstance(a, FloorDiv) for m, _ in top.terms for a in m)
        ):
            tight = floordiv(top, constant)
            if tight.atom is None or not isinstance(tight.atom, FloorDiv):
                ends.append(tight)
        elif top is not None:
            exact = _split(top + 1, self.right)
            if exact[1] is ZERO:
                ends.append(exact[0] - 1)
        if nonnegative(self.left):
            ends.append(self.left)
        return ends

    def lower_bounds_beside(self, slope: Dim, rest: Dim) -> list[Dim]:
        """Of slope * (x // 256) beside x // 128: slope / 2 * (x // 128)."""
        if self.right.constant is None:
            return []
        bounds: list[Dim] = []
        for finer in {a for monomial, _ in rest.terms for a in monomial}:
            if not isinstance(finer, FloorDiv) or finer.left is not self.left or finer.right.constant is None:
                continue
            factor, uneven = divmod(self.right.constant, finer.right.constant)
            if not uneven and all(coefficient % factor == 0 for _, coefficient in slope.terms):
                bounds.append(divided(slope, factor) * finer.dim)
        return bounds


class Mod(Pair):
    """left % right in [0, right), right > 0. Made by `mod`, which simplifies."""

    __slots__ = ()
    rank, template, divides = 3, "({} % {})", True
    is_remainder = True

    @staticmethod
    def made(left: Dim, right: Dim) -> Dim:
        """The remainder, simplified."""
        return mod(left, right)

    @staticmethod
    def number(left: int, right: int) -> int:
        """The remainder."""
        return left % right

    def lower_bounds(self) -> list[Dim]:
        """Zero."""
        return [ZERO]

    def upper_bounds(self) -> list[Dim]:
        """One less than the divisor."""
        return [self.right - 1]

    def joined(self, total: Mapping[Monomial, int]) -> Dim | None:
        """d * (x // d) + x % d is x, and d * ((x // d) % e) + x % d is x % (d * e); None when neither occurs."""
        for monomial, coefficient in total.items():
            for atom in monomial:
                if isinstance(atom, Mod):
                    found = atom._joined_to_quotient(total, monomial, coefficient)
                    if found is not None:
                        return found
        return None

    def _joined_to_quotient(self, total: Mapping[Monomial, int], monomial: Monomial, coefficient: int) -> Dim | None:
        rest = list(monomial)
        rest.remove(self)
        x, d = self.left, self.right
        quotient_of_x = FloorDiv(x, d)
        quotients: list[tuple[Atom, Dim]] = [
            (quotient_of_x, x),
            *(
                (a, mod(x, d * a.right))
                for m in total
                for a in m
                if isinstance(a, Mod) and (a.left.atom is quotient_of_x)
            ),
        ]
        for quotient, whole in quotients:
            partner: dict[Monomial, int] = {}
            for d_monomial, d_coefficient in d.terms:
                m = tuple(sorted((*rest, quotient, *d_monomial), key=atom_key))
                partner[m] = partner.get(m, 0) + d_coefficient * coefficient
            if all(total.get(m) == c for m, c in partner.items()):
                remaining = {m: c for m, c in total.items() if m not in partner and m != monomial}
                return make(remaining) + make({tuple(rest): coefficient}) * whole
        return None


def floordiv(a: DimLike, b: DimLike) -> Dim:
    """a // b for b > 0, simplified."""
    a, b = as_dim(a), as_dim(b)
    if b.constant == 1:
        return a
    if b.constant is not None and b.constant <= 0:
        raise ZeroDivisionError(f"{a} // {b}")
    quotient, remainder = _split(a, b)
    if remainder is ZERO or _within(remainder, b):
        return quotient
    if _within(remainder + b, b):
        return quotient - 1
    content = common_factor(remainder, b)
    if content > 1:
        return quotient + floordiv(divided(remainder, content), divided(b, content))
    return quotient + _floordiv_atom(remainder, b)


def _floordiv_atom(remainder: Dim, b: Dim) -> Dim:
    inner = remainder.atom
    if isinstance(inner, FloorDiv):
        return floordiv(inner.left, inner.right * b)
    # (x // d + c) // b is (x + c * d) // (d * b). Only among sizes: an index keeps its remainder's partner.
    if len(remainder.terms) == 2 and not remainder.terms[1][0] and not axes_of(remainder):
        whole = remainder - remainder.terms[1][1]
        if isinstance(whole.atom, FloorDiv):
            return floordiv(whole.atom.left + whole.atom.right * remainder.terms[1][1], whole.atom.right * b)
    return FloorDiv(remainder, b).dim


def mod(a: DimLike, b: DimLike) -> Dim:
    """a % b in [0, b) for b > 0, simplified."""
    a, b = as_dim(a), as_dim(b)
    if b.constant is not None and b.constant <= 0:
        raise ZeroDivisionError(f"{a} % {b}")
    if b.constant == 1:
        return ZERO
    _, remainder = _split(a, b)
    if remainder is ZERO or _within(remainder, b):
        return remainder
    content = common_factor(remainder, b)
    if content > 1:
        return content * mod(divided(remainder, content), divided(b, content))
    inner = remainder.atom
    if isinstance(inner, Mod) and exact_quotient(inner.right, b) is not None:
        return mod(inner.left, b)
    return Mod(remainder, b).dim


def ceildiv(a: DimLike, b: DimLike) -> Dim:
    """a / b rounded up, b > 0."""
    b = as_dim(b)
    return floordiv(as_dim(a) + b - 1, b)


def _split(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """(q, r) with a == q * b + r, r holding the terms that b does not divide."""
    exact = exact_quotient(a, b)
    if exact is not None:
        return exact, ZERO
    if len(b.terms) != 1:
        # a symbolic sum: subtract it while its leading term divides that of a and what is left stays provably >= 0
        for monomial, coefficient in a.terms:
            factor = monomial_quotient(monomial, b.terms[0][0])
            if factor is None or coefficient % b.terms[0][1]:
                continue
            step = make({factor: coefficient // b.terms[0][1]})
            rest = a - step * b
            if nonnegative(rest) and nonnegative(b - 1 - rest):
                return step, rest
        return ZERO, a
    ((divisor, scale),) = b.terms
    quotient: dict[Monomial, int] = {}
    remainder: dict[Monomial, int] = {}
    for monomial, coefficient in a.terms:
        factor = monomial_quotient(monomial, divisor)
        if factor is None:
            remainder[monomial] = coefficient
        elif divisor or not monomial or coefficient % scale == 0:
            q, r = divmod(coefficient, scale)
            if monomial and not divisor and r:
                remainder[monomial] = coefficient
                continue
            if q:
                quotient[factor] = quotient.get(factor, 0) + q
            if r:
                remainder[monomial] = r
        else:
            remainder[monomial] = coefficient
    return make(quotient), make(remainder)


def _within(remainder: Dim, b: Dim) -> bool:
    # Most remainders are not below the divisor, which is soon seen; that they are not negative takes a proof.
    return nonnegative(b - 1 - remainder) and nonnegative(remainder)


Dim.divide, Dim.remainder = staticmethod(floordiv), staticmethod(mod)
