"""Sizes in C with checked arithmetic: what `bind` evaluates when shapes are known."""

from __future__ import annotations

from collections.abc import Mapping

from opweld.codegen.c.integers import literal
from opweld.tensor.dim import Atom, Dim, FloorDiv, Max, Min, Mod


class Sizes:
    """Writes statements that evaluate polynomials; on overflow they return -1 from the function they stand in."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[Atom, str] = {}
        self._known: dict[tuple[str, str, str], str] = {}

    def define(self, atom: Atom, name: str) -> None:
        """Says which C variable holds a symbol."""
        self._names[atom] = name

    @property
    def names(self) -> Mapping[Atom, str]:
        """The C variables of the symbols defined so far."""
        return self._names

    def value(self, dim: Dim) -> str:
        """A C operand with the polynomial's value."""
        total = ""
        for monomial, coefficient in dim.terms:
            product = "" if coefficient == 1 and monomial else literal(coefficient)
            for atom in monomial:
                name = self._atom(atom)
                product = self._checked("mul", product, name) if product else name
            total = self._checked("add", total, product) if total else product
        return total or "0"

    def _atom(self, atom: Atom) -> str:
        found = self._names.get(atom)
        if found is not None:
            return found
        if not isinstance(atom, FloorDiv | Mod | Min | Max):
            raise ValueError(f"{atom} is not known when shapes are bound")
        left, right = self.value(atom.left), self.value(atom.right)
        function = {FloorDiv: "opw_floordiv", Mod: "opw_mod", Min: "opw_min", Max: "opw_max"}[type(atom)]
        if isinstance(atom, FloorDiv | Mod) and atom.right.constant is None:
            self.lines.append(f"if ({right} <= 0) return -1;")
        name = f"t{len(self._known)}"
        self._known[function, left, right] = name
        self.lines.append(f"const int64_t {name} = {function}({left}, {right});")
        self._names[atom] = name
        return name

    def _checked(self, operation: str, left: str, right: str) -> str:
        key = (operation, left, right)
        found = self._known.get(key)
        if found is None:
            found = f"t{len(self._known)}"
            self._known[key] = found
            self.lines.append(f"int64_t {found};")
            check = f"__builtin_{operation}_overflow((int64_t){left}, (int64_t){right}, &{found})"
            self.lines.append(f"if ({check}) return -1;")
        return found
