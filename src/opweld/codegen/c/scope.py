"""Where in the text a name is defined: nested blocks, what each knows, and how definitions move out of loops."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from opweld.codegen.c.vector import Define, Expression, Name, VectorStatement
from opweld.tensor.dim import Atom

Known: TypeAlias = tuple[Name, frozenset[str]]
"""The name of a value, and what it was computed from."""


@dataclass
class NameScope:
    """A block being written. `atoms` are the integers it defines; `known` are the values it has named already."""

    depth: int
    loop: Atom | None = None
    statements: list[VectorStatement] = field(default_factory=list[VectorStatement])
    atoms: dict[Atom, Name] = field(default_factory=dict[Atom, Name])
    known: dict[Hashable, Known] = field(default_factory=dict[Hashable, Known])


class Scopes:
    """The stack of open blocks, and fresh names for one function."""

    def __init__(self) -> None:
        self.stack: list[NameScope] = [NameScope(0)]
        self._used: dict[str, int] = {}
        self._taken: set[str] = set()

    @property
    def current(self) -> NameScope:
        """The innermost open block."""
        return self.stack[-1]

    def open(self, loop: Atom | None = None, variable: str = "") -> None:
        """Opens a block; with `loop`, the body of a loop over that atom, called `variable`."""
        scope = NameScope(len(self.stack), loop)
        if loop is not None:
            scope.atoms[loop] = Name(variable)
        self.stack.append(scope)

    def close(self) -> tuple[VectorStatement, ...]:
        """Closes the innermost block and returns what was written in it."""
        return tuple(self.stack.pop().statements)

    def add(self, statement: VectorStatement) -> None:
        """Appends to the innermost block."""
        self.current.statements.append(statement)

    def block(self, write: Callable[[], None]) -> tuple[VectorStatement, ...]:
        """What `write` writes, as a block of its own."""
        self.open()
        write()
        return self.close()

    def fresh(self, stem: str) -> str:
        """A name that the function does not use yet: the stem, or else the stem and a number."""
        if stem not in self._taken:
            self._taken.add(stem)
            return stem
        return self.numbered(stem)

    def numbered(self, stem: str) -> str:
        """A name that the function does not use yet: the stem and a number."""
        while True:
            count = self._used.get(stem, 0)
            self._used[stem] = count + 1
            name = f"{stem}{count}"
            if name not in self._taken:
                self._taken.add(name)
                return name

    def find(self, key: Hashable) -> Name | None:
        """The name of a value that an open block has defined, or None."""
        for scope in reversed(self.stack):
            found = scope.known.get(key)
            if found is not None:
                return found[0]
        return None

    def name_of(self, atom: Atom) -> Name | None:
        """The name of an integer that an open block defines, or None."""
        for scope in reversed(self.stack):
            found = scope.atoms.get(atom)
            if found is not None:
                return found
        return None

    def depth_of(self, atom: Atom) -> int:
        """Index in the stack of the block that defines an atom; KeyError when none does."""
        for scope in reversed(self.stack):
            if atom in scope.atoms:
                return scope.depth
        raise KeyError(f"{atom} is not defined here")

    def innermost_loop(self) -> NameScope | None:
        """The block of the innermost open loop, or None."""
        for scope in reversed(self.stack):
            if scope.loop is not None:
                return scope
        return None

    def define(
        self,
        key: Hashable,
        ctype: str,
        name: str,
        value: Expression,
        reads: frozenset[str] = frozenset(),
        depth: int = -1,
    ) -> Name:
        """Names a value in the block at `depth` of the stack (-1: the innermost). Returns the name.

        A block further out gets the definition after what is written in it so far: before the loop being written."""
        scope = self.stack[depth]
        scope.statements.append(Define(ctype, name, value))
        scope.known[key] = (Name(name), reads)
        return Name(name)

    def remember(self, key: Hashable, name: Name, reads: frozenset[str] = frozenset()) -> None:
        """Records that the innermost block has a name for a value."""
        self.current.known[key] = (name, reads)

    def forget(self, written: frozenset[str]) -> None:
        """Drops every value that depends on memory or registers that have been written."""
        for scope in self.stack:
            stale = [key for key, (_, reads) in scope.known.items() if reads & written]
            for key in stale:
                del scope.known[key]
