"""Addresses: a pointer that moves only with the outer loops, and the index that the innermost loop adds."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass

from opweld.codegen.c.dependence import Dependence
from opweld.codegen.c.integers import Integers
from opweld.codegen.c.operators import MEMORY
from opweld.codegen.c.scope import Scopes
from opweld.tensor.dim import ZERO, Dim, as_dim, nonnegative, upper_constant
from opweld.tensor.dtype import DType

_ZERO_BYTES = 16384  # of opw_zeros in opweld_kernel.h


@dataclass(frozen=True)
class Memory:
    """A buffer or a piece of scratch: its name in C, the type of its elements."""

    name: str
    dtype: DType
    written: bool


class Addresses:
    """Names pointers into buffers for one function."""

    def __init__(self, scopes: Scopes, integers: Integers, dependence: Dependence) -> None:
        self._scopes = scopes
        self._integers = integers
        self._dependence = dependence
        self._starts: dict[Hashable, int] = {}

    def element(self, memory: Memory, offset: Dim) -> tuple[str, str]:
        """(pointer, index) of an element; the offset is the same for all lanes."""
        inner, outer = self._split(offset)
        constant = outer.constant if outer.constant is not None else dict(outer.terms).get((), 0)
        outer = outer - constant
        pointer = self._pointer(memory, outer)
        return pointer, self._integers.text(inner + constant)

    def guarded(self, memory: Memory, offset: Dim, guards: tuple[Dim, ...], span: int) -> tuple[str, str] | None:
        """Like `element`, where a pointer to zeros takes the place of the memory when a guard is negative.

        `span` is how many elements are read from there on. None when the zeros would not suffice."""
        inner, outer = self._split(offset)
        if any(self._moves(guard) for guard in guards):
            inner, outer = ZERO, offset
        highest = upper_constant(inner)
        room = _ZERO_BYTES // memory.dtype.bytes
        if highest is None or highest + span > room or not nonnegative(inner):
            inner, outer, highest = ZERO, offset, 0
            if span > room:
                return None
        constant = dict(outer.terms).get((), 0)
        key = ("guarded", memory.name, outer - constant, guards)
        for number in itertools.count():
            # Rows a constant distance apart share a pointer, as far as the zeros reach.
            found = self._scopes.find((*key, number))
            if found is None:
                self._guarded_pointer((*key, number), memory, outer, guards)
                self._starts[key, number] = constant
                found = self._scopes.find((*key, number))
            distance = constant - self._starts[key, number]
            if found is not None and distance >= 0 and distance + highest + span <= room:
                return found, self._integers.text(inner + distance)
        raise AssertionError("a new pointer always fits")

    def _guarded_pointer(self, key: Hashable, memory: Memory, outer: Dim, guards: tuple[Dim, ...]) -> None:
        condition, depth = self.condition(guards)
        depth = max(depth, self._integers.depth(outer))
        ctype = MEMORY[memory.dtype]
        base = memory.name if outer is ZERO else f"{memory.name} + {self._integers.operand(outer)}"
        text = f"{condition} ? {base} : (const {ctype} *)opw_zeros"
        reads = self._dependence.dim_reads(outer)
        for guard in guards:
            reads |= self._dependence.dim_reads(guard)
        name = self._scopes.numbered(f"{memory.name}_")
        self._scopes.define(key, f"const {ctype} *", name, text, reads, depth)

    def condition(self, guards: tuple[Dim, ...]) -> tuple[str, int]:
        """A name for "no guard is negative", and the block that defines it."""
        depth = max(self._integers.depth(guard) for guard in guards)
        key = ("inside", guards)
        found = self._scopes.find(key)
        if found is not None:
            return found, depth
        text = " && ".join(self._integers.positive(guard) for guard in guards)
        reads: frozenset[str] = frozenset()
        for guard in guards:
            reads |= self._dependence.dim_reads(guard)
        name = self._scopes.numbered("inside")
        return self._scopes.define(key, "const int", name, text, reads, depth), depth

    def _pointer(self, memory: Memory, outer: Dim) -> str:
        if outer is ZERO:
            return memory.name
        key = ("pointer", memory.name, outer)
        found = self._scopes.find(key)
        if found is not None:
            return found
        depth = self._integers.depth(outer)
        text = f"{memory.name} + {self._integers.operand(outer)}"
        const = "" if memory.written else "const "
        name = self._scopes.numbered(f"{memory.name}_")
        reads = self._dependence.dim_reads(outer)
        return self._scopes.define(key, f"{const}{MEMORY[memory.dtype]} *", name, text, reads, depth)

    def _split(self, offset: Dim) -> tuple[Dim, Dim]:
        """(terms that the innermost loop changes, the others)."""
        inner = ZERO
        for monomial, coefficient in offset.terms:
            term = as_dim(coefficient)
            for atom in monomial:
                term = term * atom.dim
            if self._moves(term):
                inner = inner + term
        return inner, offset - inner

    def _moves(self, dim: Dim) -> bool:
        loop = self._scopes.innermost_loop()
        return loop is not None and self._integers.depth(dim) >= loop.depth
