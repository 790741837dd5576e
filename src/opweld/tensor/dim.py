"""Integer algebra for sizes and indices.

A `Dim` is a polynomial with integer coefficients over *atoms*: symbols (dynamic sizes), axes (loop indices), floor
divisions, remainders, minima, maxima, and checked run-time integers. Polynomials are canonical and interned, so two
equal sizes are the same object, and most index arithmetic that a Reshape or a Slice creates vanishes by construction:

    floordiv(W * y + x, W) is y          mod(W * y + x, W) is x          W * (p // W) + p % W is p

Symbols stand for sizes of at least one; every compiled program guards that. An empty domain is never iterated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    from opweld.tensor.expr import Expr

DimLike: TypeAlias = "Dim | int"
Monomial: TypeAlias = "tuple[Atom, ...]"

_dims: dict[tuple[tuple[tuple[Atom, ...], int], ...], Dim] = {}
_atoms: dict[tuple[object, ...], Atom] = {}
_integers: dict[int, Dim] = {}
_axis_counter = itertools.count()


class Atom:
    """An indivisible integer. Interned: equality is identity."""

    __slots__ = ("key", "text")
    rank: ClassVar[int] = 0
    key: tuple[int, str, int]
    text: str

    def __repr__(self) -> str:
        return self.text

    @property
    def dim(self) -> Dim:
        """The polynomial that is just this atom."""
        return _make({(self,): 1})


class Symbol(Atom):
    """A size known when a shape is bound, or the value of a small integer input. At least `least`."""

    __slots__ = ("least", "name")
    rank = 0
    name: str
    least: int | None

    def __new__(cls, name: str, least: int | None = 1) -> Symbol:
        """The symbol with this name and bound."""
        found = _atoms.get((cls, name, least))
        if found is None:
            found = super().__new__(cls)
            found.name, found.least, found.text = name, least, name
            found.key = (cls.rank, name, 0)
            _atoms[cls, name, least] = found
        assert isinstance(found, Symbol)
        return found


class Axis(Atom):
    """An index that runs over [0, extent). Every call makes a new axis."""

    __slots__ = ("extent", "name", "number")
    rank = 1
    name: str
    extent: Dim
    number: int

    def __new__(cls, name: str, extent: DimLike) -> Axis:
        """A new axis, unlike every other."""
        axis = super().__new__(cls)
        axis.name, axis.extent, axis.number = name, as_dim(extent), next(_axis_counter)
        axis.text, axis.key = name, (cls.rank, name, axis.number)
        return axis


class _Pair(Atom):
    __slots__ = ("left", "right")
    template: ClassVar[str]
    left: Dim
    right: Dim

    def __new__(cls, left: Dim, right: Dim) -> _Pair:
        found = _atoms.get((cls, left, right))
        if found is None:
            found = super().__new__(cls)
            found.left, found.right = left, right
            found.text = cls.template.format(_operand(left), _operand(right))
            found.key = (cls.rank, found.text, len(_atoms))
            _atoms[cls, left, right] = found
        assert isinstance(found, _Pair)
        return found


def _operand(dim: Dim) -> str:
    return f"({dim})" if len(dim.terms) > 1 else repr(dim)


class FloorDiv(_Pair):
    """left // right, rounded towards minus infinity, right > 0. Made by `floordiv`, which simplifies."""

    __slots__ = ()
    rank, template = 2, "({} // {})"


class Mod(_Pair):
    """left % right in [0, right), right > 0. Made by `mod`, which simplifies."""

    __slots__ = ()
    rank, template = 3, "({} % {})"


class Min(_Pair):
    """The smaller of two. Made by `minimum`."""

    __slots__ = ()
    rank, template = 4, "min({}, {})"


class Max(_Pair):
    """The larger of two. Made by `maximum`."""

    __slots__ = ()
    rank, template = 5, "max({}, {})"


class Value(Atom):
    """An integer computed at run time and used as an index into [0, extent). Compiled code checks it before use."""

    __slots__ = ("expr", "extent")
    rank = 6
    expr: Expr
    extent: Dim

    def __new__(cls, expr: Expr, extent: DimLike) -> Value:
        """The atom of this integer expression and this bound."""
        limit = as_dim(extent)
        found = _atoms.get((cls, expr, limit))
        if found is None:
            found = super().__new__(cls)
            found.expr, found.extent = expr, limit
            found.text, found.key = f"[{expr!r}]", (cls.rank, "", len(_atoms))
            _atoms[cls, expr, limit] = found
        assert isinstance(found, Value)
        return found


class Dim:
    """A canonical integer polynomial. Build with `as_dim`, operators, `floordiv`, `mod`, `minimum`, `maximum`."""

    __slots__ = ("terms",)
    terms: tuple[tuple[Monomial, int], ...]

    def __repr__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, coefficient in self.terms:
            factors = [atom.text for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = (" - " if coefficient < 0 else " + ") if text else ("-" if coefficient < 0 else "")
            text += sign + "*".join(factors)
        return text

    @property
    def constant(self) -> int | None:
        """The value when no atom takes part, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def __int__(self) -> int:
        value = self.constant
        if value is None:
            raise ValueError(f"{self} is not a known integer")
        return value

    @property
    def atom(self) -> Atom | None:
        """The atom when this is exactly one atom, else None."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            return self.terms[0][0][0]
        return None

    def __add__(self, other: DimLike) -> Dim:
        other = as_dim(other)
        if not other.terms:
            return self
        total = dict(self.terms)
        for monomial, coefficient in other.terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return _make(total)

    def __neg__(self) -> Dim:
        return _make({monomial: -coefficient for monomial, coefficient in self.terms})

    def __sub__(self, other: DimLike) -> Dim:
        return self + -as_dim(other)

    def __mul__(self, other: DimLike) -> Dim:
        other = as_dim(other)
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = tuple(sorted(left + right, key=_key))
                total[monomial] = total.get(monomial, 0) + a * b
        return _make(total)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: DimLike) -> Dim:
        return as_dim(other) - self

    def __floordiv__(self, other: DimLike) -> Dim:
        return floordiv(self, other)

    def __mod__(self, other: DimLike) -> Dim:
        return mod(self, other)

    def coefficient(self, atom: Atom) -> Dim | None:
        """c of `c * atom + rest` where neither c nor rest depends on the atom; None when not affine in it."""
        total: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            count = monomial.count(atom)
            rest = tuple(a for a in monomial if a is not atom)
            if any(atom in inner_atoms(a) for a in rest) or count > 1:
                return None
            if count:
                total[rest] = total.get(rest, 0) + coefficient
        return _make(total)

    def without(self, atom: Atom) -> Dim:
        """The terms in which the atom is not a factor: `rest` of `c * atom + rest`."""
        return _make({monomial: c for monomial, c in self.terms if atom not in monomial})

    def depends_on(self, atom: Atom) -> bool:
        """Whether the atom occurs anywhere, divisions and run-time values included."""
        return atom in atoms_of(self)

    def substitute(self, mapping: Mapping[Atom, Dim], on_value: Callable[[Expr], Expr] | None = None) -> Dim:
        """Replaces atoms everywhere, run-time index expressions included when `on_value` rewrites those."""
        if not mapping and on_value is None:
            return self
        if on_value is None and not any(atom in mapping for atom in atoms_of(self)):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            product = as_dim(coefficient)
            for atom in monomial:
                product = product * _substitute_atom(atom, mapping, on_value)
            total = total + product
        return total

    def evaluate(self, values: Mapping[Atom, int], on_value: Callable[[Value], int] | None = None) -> int:
        """The integer for given atom values; KeyError names a missing atom."""
        total = 0
        for monomial, coefficient in self.terms:
            for atom in monomial:
                coefficient *= _evaluate_atom(atom, values, on_value)
            total += coefficient
        return total


def as_dim(value: DimLike) -> Dim:
    """The polynomial of an integer, or the polynomial itself."""
    if isinstance(value, Dim):
        return value
    found = _integers.get(value)
    if found is None:
        found = _integers[value] = _make({(): int(value)})
    return found


def _key(atom: Atom) -> tuple[int, str, int]:
    return atom.key


def _monomial_key(item: tuple[Monomial, int]) -> tuple[int, tuple[tuple[int, str, int], ...]]:
    return (-len(item[0]), tuple(atom.key for atom in item[0]))


def _make(total: dict[Monomial, int]) -> Dim:
    """Interns a polynomial, after joining divisions with their remainders."""
    if 0 in total.values():
        total = {monomial: c for monomial, c in total.items() if c}
    for monomial in total:
        if any(type(atom) is Mod for atom in monomial):
            joined = _join_remainders(total)
            if joined is not None:
                return joined
            break
    terms = tuple(total.items() if len(total) < 2 else sorted(total.items(), key=_monomial_key))
    found = _dims.get(terms)
    if found is None:
        found = object.__new__(Dim)
        found.terms = terms
        _dims[terms] = found
    return found


def _join_remainders(total: dict[Monomial, int]) -> Dim | None:
    """d * (x // d) + x % d is x, and d * ((x // d) % e) + x % d is x % (d * e); None when neither occurs."""
    for monomial, coefficient in total.items():
        for atom in monomial:
            if not isinstance(atom, Mod):
                continue
            rest = list(monomial)
            rest.remove(atom)
            x, d = atom.left, atom.right
            quotients: list[tuple[Atom, Dim]] = [
                (FloorDiv(x, d), x),
                *(
                    (a, mod(x, d * a.right))
                    for m in total
                    for a in m
                    if isinstance(a, Mod) and (a.left.atom is FloorDiv(x, d))
                ),
            ]
            for quotient, whole in quotients:
                partner: dict[Monomial, int] = {}
                for d_monomial, d_coefficient in d.terms:
                    m = tuple(sorted((*rest, quotient, *d_monomial), key=_key))
                    partner[m] = partner.get(m, 0) + d_coefficient * coefficient
                if all(total.get(m) == c for m, c in partner.items()):
                    remaining = {m: c for m, c in total.items() if m not in partner and m != monomial}
                    return _make(remaining) + _make({tuple(rest): coefficient}) * whole
    return None


ZERO = _make({})
ONE = as_dim(1)


def _divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """q with a == q * b, by polynomial long division; None when there is none."""
    if not b.terms:
        return None
    lead_monomial, lead_coefficient = b.terms[0]
    quotient, remainder = ZERO, a
    for _ in range(len(a.terms) * 4 + 4):
        if not remainder.terms:
            return quotient
        monomial, coefficient = remainder.terms[0]
        factor = _monomial_quotient(monomial, lead_monomial)
        if factor is None or coefficient % lead_coefficient:
            return None
        step = _make({factor: coefficient // lead_coefficient})
        quotient, remainder = quotient + step, remainder - step * b
    return None


def _monomial_quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _split(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """(q, r) with a == q * b + r, r holding the terms that b does not divide."""
    exact = _divide_exactly(a, b)
    if exact is not None:
        return exact, ZERO
    if len(b.terms) != 1:
        # a symbolic sum: subtract it while its leading term divides that of a and what is left stays provably >= 0
        for monomial, coefficient in a.terms:
            factor = _monomial_quotient(monomial, b.terms[0][0])
            if factor is None or coefficient % b.terms[0][1]:
                continue
            step = _make({factor: coefficient // b.terms[0][1]})
            rest = a - step * b
            if nonnegative(rest) and nonnegative(b - 1 - rest):
                return step, rest
        return ZERO, a
    ((divisor, scale),) = b.terms
    quotient: dict[Monomial, int] = {}
    remainder: dict[Monomial, int] = {}
    for monomial, coefficient in a.terms:
        factor = _monomial_quotient(monomial, divisor)
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
    return _make(quotient), _make(remainder)


def floordiv(a: DimLike, b: DimLike) -> Dim:
    """a // b for b > 0, simplified."""
    a, b = as_dim(a), as_dim(b)
    if b.constant == 1:
        return a
    if b.constant is not None and b.constant <= 0:
        raise ZeroDivisionError(f"{a} // {b}")
    quotient, remainder = _split(a, b)
    if _within(remainder, b):
        return quotient
    if _within(remainder + b, b):
        return quotient - 1
    content = _content(remainder, b)
    if content > 1:
        return quotient + floordiv(_exact(remainder, content), _exact(b, content))
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
    if _within(remainder, b):
        return remainder
    content = _content(remainder, b)
    if content > 1:
        return content * mod(_exact(remainder, content), _exact(b, content))
    inner = remainder.atom
    if isinstance(inner, Mod) and _divide_exactly(inner.right, b) is not None:
        return mod(inner.left, b)
    return Mod(remainder, b).dim


def minimum(a: DimLike, b: DimLike) -> Dim:
    """min(a, b), resolved when one is provably not larger."""
    a, b = as_dim(a), as_dim(b)
    if nonnegative(b - a):
        return a
    if nonnegative(a - b):
        return b
    left, right = sorted((a, b), key=repr)
    return Min(left, right).dim


def maximum(a: DimLike, b: DimLike) -> Dim:
    """max(a, b), resolved when one is provably not smaller."""
    a, b = as_dim(a), as_dim(b)
    if nonnegative(a - b):
        return a
    if nonnegative(b - a):
        return b
    left, right = sorted((a, b), key=repr)
    return Max(left, right).dim


def ceildiv(a: DimLike, b: DimLike) -> Dim:
    """a / b rounded up, b > 0."""
    b = as_dim(b)
    return floordiv(as_dim(a) + b - 1, b)


def product(dims: Iterable[DimLike]) -> Dim:
    """The product of all dims; one for none."""
    total = ONE
    for dim in dims:
        total = total * dim
    return total


def _within(remainder: Dim, b: Dim) -> bool:
    return nonnegative(remainder) and nonnegative(b - 1 - remainder)


def _content(a: Dim, b: Dim) -> int:
    content = 0
    for _, coefficient in (*a.terms, *b.terms):
        content = gcd(content, coefficient)
    return content


def _exact(a: Dim, divisor: int) -> Dim:
    return _make({monomial: c // divisor for monomial, c in a.terms})


def _substitute_atom(atom: Atom, mapping: Mapping[Atom, Dim], on_value: Callable[[Expr], Expr] | None) -> Dim:
    if atom in mapping:
        return mapping[atom]
    if isinstance(atom, _Pair):
        left, right = atom.left.substitute(mapping, on_value), atom.right.substitute(mapping, on_value)
        if left is atom.left and right is atom.right:
            return atom.dim
        return _rebuild(atom, left, right)
    if isinstance(atom, Value):
        extent = atom.extent.substitute(mapping, on_value)
        expr = on_value(atom.expr) if on_value is not None else atom.expr
        if expr is atom.expr and extent is atom.extent:
            return atom.dim
        return Value(expr, extent).dim
    return atom.dim


def _rebuild(atom: _Pair, left: Dim, right: Dim) -> Dim:
    if isinstance(atom, FloorDiv):
        return floordiv(left, right)
    if isinstance(atom, Mod):
        return mod(left, right)
    return minimum(left, right) if isinstance(atom, Min) else maximum(left, right)


def _evaluate_atom(atom: Atom, values: Mapping[Atom, int], on_value: Callable[[Value], int] | None) -> int:
    if atom in values:
        return values[atom]
    if isinstance(atom, _Pair):
        left, right = atom.left.evaluate(values, on_value), atom.right.evaluate(values, on_value)
        if isinstance(atom, FloorDiv):
            return left // right
        if isinstance(atom, Mod):
            return left % right
        return min(left, right) if isinstance(atom, Min) else max(left, right)
    if isinstance(atom, Value) and on_value is not None:
        return on_value(atom)
    raise KeyError(f"no value for {atom}")


@lru_cache(maxsize=200_000)
def inner_atoms(atom: Atom) -> frozenset[Atom]:
    """The atom and all atoms inside it; for a run-time value, those of its index expressions too."""
    if isinstance(atom, _Pair):
        return frozenset((atom,)) | atoms_of(atom.left) | atoms_of(atom.right)
    if isinstance(atom, Value):
        from opweld.tensor.expr import free_atoms

        return frozenset((atom,)) | free_atoms(atom.expr) | atoms_of(atom.extent)
    return frozenset((atom,))


@lru_cache(maxsize=200_000)
def atoms_of(dim: Dim) -> frozenset[Atom]:
    """Every atom that occurs in the polynomial, at any depth."""
    found: frozenset[Atom] = frozenset()
    for monomial, _ in dim.terms:
        for atom in monomial:
            found |= inner_atoms(atom)
    return found


def symbols_of(dim: Dim) -> frozenset[Symbol]:
    """The dynamic sizes that occur in the polynomial."""
    return frozenset(atom for atom in atoms_of(dim) if isinstance(atom, Symbol))


def axes_of(dim: Dim) -> frozenset[Axis]:
    """The loop indices that occur in the polynomial."""
    return frozenset(atom for atom in atoms_of(dim) if isinstance(atom, Axis))


@lru_cache(maxsize=500_000)
def nonnegative(dim: Dim) -> bool:
    """Whether the polynomial is provably >= 0 for all sizes >= 1 and all axes within their extents."""
    value = dim.constant
    if value is not None:
        return value >= 0
    return _prove(dim, 12)


def _prove(dim: Dim, depth: int) -> bool:
    value = dim.constant
    if value is not None:
        return value >= 0
    if depth == 0:
        return False
    bounded = max(
        (a for monomial, _ in dim.terms for a in monomial if not isinstance(a, Symbol)), key=_key, default=None
    )
    if bounded is not None:
        return _prove_bounded(dim, bounded, depth)
    # Only symbols are left: with s = t + least, t >= 0, non-negative coefficients prove the claim.
    shift: dict[Atom, Dim] = {
        atom: atom.dim + atom.least
        for monomial, _ in dim.terms
        for atom in monomial
        if isinstance(atom, Symbol) and atom.least is not None
    }
    if any(isinstance(a, Symbol) and a.least is None for monomial, _ in dim.terms for a in monomial):
        return False
    return all(coefficient >= 0 for _, coefficient in dim.substitute(shift).terms)


def _prove_bounded(dim: Dim, atom: Atom, depth: int) -> bool:
    """Replaces a bounded atom by the end of its range that makes the polynomial smallest."""
    if any(monomial.count(atom) > 1 for monomial, _ in dim.terms):
        return False
    slope = _make({tuple(x for x in m if x is not atom): c for m, c in dim.terms if atom in m})
    rest = dim.without(atom)
    if _prove(slope, depth - 1):
        return any(_prove(slope * low + rest, depth - 1) for low in _lower_ends(atom))
    if _prove(-slope, depth - 1):
        lowest = (*_finer_quotients(slope, atom, rest), *(slope * high for high in _upper_ends(atom)))
        return any(_prove(low + rest, depth - 1) for low in lowest)
    return False


def _finer_quotients(slope: Dim, atom: Atom, rest: Dim) -> list[Dim]:
    """Lower bounds of slope * (x // 256), slope <= 0, beside x // 128 in the rest: slope / 2 * (x // 128)."""
    if not isinstance(atom, FloorDiv) or atom.right.constant is None:
        return []
    bounds: list[Dim] = []
    for finer in {a for monomial, _ in rest.terms for a in monomial}:
        if not isinstance(finer, FloorDiv) or finer.left is not atom.left or finer.right.constant is None:
            continue
        factor, uneven = divmod(atom.right.constant, finer.right.constant)
        if not uneven and all(coefficient % factor == 0 for _, coefficient in slope.terms):
            bounds.append(_exact(slope, factor) * finer.dim)
    return bounds


def _lower_ends(atom: Atom) -> list[Dim]:
    if isinstance(atom, Axis | Mod | Value):
        return [ZERO]
    if isinstance(atom, FloorDiv):
        ends: list[Dim] = []
        constant = atom.right.constant
        low = lower_constant(atom.left)
        if low is not None and constant is not None:
            ends.append(as_dim(low // constant))
        elif nonnegative(atom.left):
            ends.append(ZERO)
        return ends
    if isinstance(atom, Max):
        return [atom.left, atom.right]
    if isinstance(atom, Min):
        return [ZERO] if nonnegative(atom.left) and nonnegative(atom.right) else []
    return []


def _upper_ends(atom: Atom) -> list[Dim]:
    if isinstance(atom, Axis | Value):
        return [atom.extent - 1]
    if isinstance(atom, Mod):
        return [atom.right - 1]
    if isinstance(atom, FloorDiv):
        # x // d <= x when x >= 0; for a constant d, split the largest value of x by d.
        ends: list[Dim] = []
        constant = atom.right.constant
        top = _largest(atom.left)
        if (
            top is not None
            and constant is not None
            and not any(isinstance(a, FloorDiv) for m, _ in top.terms for a in m)
        ):
            tight = floordiv(top, constant)
            if tight.atom is None or not isinstance(tight.atom, FloorDiv):
                ends.append(tight)
        elif top is not None:
            exact = _split(top + 1, atom.right)
            if exact[1] is ZERO:
                ends.append(exact[0] - 1)
        if nonnegative(atom.left):
            ends.append(atom.left)
        return ends
    if isinstance(atom, Min):
        return [atom.left, atom.right]
    return []


def _largest(dim: Dim) -> Dim | None:
    """An upper bound free of axes, when every axis enters with a slope of known sign; else None."""
    for axis in sorted(axes_of(dim), key=_key):
        slope = dim.coefficient(axis)
        if slope is None:
            return None
        if nonnegative(slope):
            dim = slope * (axis.extent - 1) + dim.without(axis)
        elif nonnegative(-slope):
            dim = dim.without(axis)
        else:
            return None
    return dim


@lru_cache(maxsize=200_000)
def lower_constant(dim: Dim) -> int | None:
    """The largest of a few constants k such that dim >= k is provable; None when even the smallest fails."""
    value = dim.constant
    if value is not None:
        return value
    loose = dict(dim.terms).get((), 0)
    for k in sorted({loose, loose + 1, 0, 1, -1, loose - 1}, reverse=True):
        if _prove(dim - k, 8):
            return k
    return None


def smallest(dim: Dim) -> Dim | None:
    """A lower bound free of axes, reached when axes are independent; None when a slope's sign is unknown."""
    top = _largest(-dim)
    return None if top is None else -top


def upper_constant(dim: Dim) -> int | None:
    """A constant that the polynomial provably never exceeds; None when there is none in sight."""
    top = _largest(dim)
    return None if top is None else top.constant
