"""Integer polynomials as C text: divisions get names, as far out of the loops as their operands allow."""

from __future__ import annotations

from collections.abc import Callable

from opweld.codegen.c.scope import Scopes
from opweld.tensor.dim import Atom, Axis, Dim, FloorDiv, Max, Min, Mod, Symbol, Value, as_dim, nonnegative

_INT64_MIN = -(1 << 63)


def literal(value: int) -> str:
    """An int64 literal."""
    return "INT64_MIN" if value == _INT64_MIN else str(value)


class Integers:
    """Prints polynomials in the scopes of one function. `run_time` names a checked run-time index, `reads`
    tells what the run-time indices of a polynomial load."""

    def __init__(
        self, scopes: Scopes, run_time: Callable[[Value], str], reads: Callable[[Dim], frozenset[str]]
    ) -> None:
        self._scopes = scopes
        self._reads = reads
        self._run_time = run_time

    def text(self, dim: Dim) -> str:
        """The polynomial as an expression, not in parentheses."""
        groups: dict[tuple[Atom, ...], Dim] = {}
        for monomial, coefficient in dim.terms:
            sizes = tuple(atom for atom in monomial if isinstance(atom, Symbol))
            rest = tuple(atom for atom in monomial if not isinstance(atom, Symbol))
            factor = as_dim(coefficient)
            for atom in sizes:
                factor = factor * atom.dim
            groups[rest] = groups.get(rest, as_dim(0)) + factor
        text = ""
        for rest, factor in sorted(groups.items(), key=lambda item: len(item[0]) == 0):
            names = [self.atom(atom) for atom in rest]
            negative = not rest and factor.constant is not None and factor.constant < 0
            negative = negative or (factor.constant is not None and factor.constant < 0 and bool(text))
            shown = -factor if negative and factor.constant != _INT64_MIN else factor
            if shown.constant != 1 or not names:
                names.append(self._size(shown))
            joint = (" - " if negative else " + ") if text else ("-" if negative else "")
            text += joint + " * ".join(names)
        return text or "0"

    def operand(self, dim: Dim) -> str:
        """The polynomial as an operand of a product or a comparison."""
        text = self.text(dim)
        return f"({text})" if " " in text or text.startswith("-") else text

    def depth(self, dim: Dim) -> int:
        """The outermost block (index in the stack) where the polynomial can be computed."""
        return max((self._depth_of(atom) for monomial, _ in dim.terms for atom in monomial), default=0)

    def atom(self, atom: Atom) -> str:
        """The name of an atom, defined now if it has none."""
        found = self._scopes.name_of(atom)
        if found is not None:
            return found
        if isinstance(atom, Value):
            return self._run_time(atom)
        if isinstance(atom, Symbol | Axis):
            raise KeyError(f"{atom} is not defined in this block")
        assert isinstance(atom, FloorDiv | Mod | Min | Max)
        reads = self._reads(atom.dim)
        found = self._scopes.find(atom)
        if found is not None:
            return found
        depth = self._depth_of(atom)
        value = self._pair(atom)
        name = self._scopes.numbered("i")
        self._scopes.define(atom, "const int64_t", name, value, reads, depth)
        if not reads:
            self._scopes.stack[depth].atoms[atom] = name
        return name

    def positive(self, dim: Dim) -> str:
        """A comparison: the polynomial is >= 0. Printed with the constant on the right."""
        constant = dict(dim.terms).get((), 0)
        rest = dim - constant
        if constant and all(c < 0 for _, c in rest.terms):
            return f"{self.text(-rest)} <= {literal(constant)}"
        return f"{self.text(rest)} >= {literal(-constant)}"

    def _size(self, factor: Dim) -> str:
        """A coefficient made of sizes: products and sums of them are named once, at the top."""
        if factor.constant is not None:
            return literal(factor.constant)
        if factor.atom is not None:
            return self.atom(factor.atom)
        key = ("size", factor)
        found = self._scopes.find(key)
        if found is not None:
            return found
        text = ""
        for monomial, coefficient in factor.terms:
            names = [self.atom(atom) for atom in monomial]
            if abs(coefficient) != 1 or not names:
                names.append(literal(abs(coefficient)))
            joint = (" - " if coefficient < 0 else " + ") if text else ("-" if coefficient < 0 else "")
            text += joint + " * ".join(names)
        return self._scopes.define(key, "const int64_t", self._scopes.numbered("size"), text, depth=0)

    def _depth_of(self, atom: Atom) -> int:
        if self._scopes.name_of(atom) is not None:
            return self._scopes.depth_of(atom)
        if isinstance(atom, Value):
            return self._scopes.current.depth
        if isinstance(atom, Symbol | Axis):
            raise KeyError(f"{atom} is not defined in this block")
        assert isinstance(atom, FloorDiv | Mod | Min | Max)
        if isinstance(atom, FloorDiv | Mod) and not nonnegative(atom.right - 1):
            return self._scopes.current.depth  # the divisor may be zero where this block is not entered
        return max(self.depth(atom.left), self.depth(atom.right))

    def _pair(self, atom: FloorDiv | Mod | Min | Max) -> str:
        if isinstance(atom, Min | Max):
            function = "opw_min" if isinstance(atom, Min) else "opw_max"
            return f"{function}({self.text(atom.left)}, {self.text(atom.right)})"
        if nonnegative(atom.left):
            sign = "/" if isinstance(atom, FloorDiv) else "%"
            return f"{self.operand(atom.left)} {sign} {self.operand(atom.right)}"
        function = "opw_floordiv" if isinstance(atom, FloorDiv) else "opw_mod"
        return f"{function}({self.text(atom.left)}, {self.text(atom.right)})"
