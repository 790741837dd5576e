"""Memory: a pointer that moves only with the outer loops and the index that the innermost loop adds; loads by them.

A load is broadcast, contiguous, strided or gathered, and touches only what its guards allow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from opweld.codegen.c.dependence import Dependence
from opweld.codegen.c.integers import ALL, Active, Evaluate, Indices, Integers
from opweld.codegen.c.operators import MEMORY, select, stored, vector_literal, vector_type
from opweld.codegen.c.scope import Scopes
from opweld.codegen.c.vector import (
    Assign,
    Call,
    Conditional,
    Convert,
    Define,
    Element,
    Expression,
    If,
    Infix,
    Name,
    call,
    moved,
)
from opweld.tensor.dim import ONE, ZERO, Dim, Monomial, nonnegative, upper_constant
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Const, Expr, Load
from opweld.tensor.guards import Groups, in_turn
from opweld.tile.tile import reads

_ZERO_BYTES = 16384  # of opw_zeros in opweld_kernel.h


@dataclass(frozen=True)
class Memory:
    """A buffer or a piece of scratch: its name in C, the type of its elements."""

    name: Name
    dtype: DType
    written: bool

    @property
    def short(self) -> str:
        """The dtype in the names of functions that load and store its elements."""
        return stored(self.dtype).short


class Addresses:
    """Names pointers into buffers for one function."""

    def __init__(self, scopes: Scopes, integers: Integers, dependence: Dependence) -> None:
        self._scopes = scopes
        self._integers = integers
        self._dependence = dependence
        self._starts: dict[Hashable, int] = {}

    def words(self, memory: Memory, dtype: DType) -> Memory:
        """The memory as elements of a wider dtype, which loads of words count in. Memory of bytes may be read as any
        type."""
        if dtype is memory.dtype:
            return memory
        key = ("words", memory.name, dtype)
        name = self._scopes.find(key)
        if name is None:
            ctype = f"const {MEMORY[dtype]} *"
            variable = self._scopes.numbered(f"{memory.name.name}_words")
            name = self._scopes.define(key, ctype, variable, Convert(ctype, memory.name), depth=0)
        return Memory(name, dtype, False)

    def element(self, memory: Memory, offset: Dim) -> tuple[Name, Expression]:
        """(pointer, index) of an element; the offset is the same for all lanes."""
        inner, outer = self._split(offset)
        constant = outer.constant if outer.constant is not None else dict(outer.terms).get((), 0)
        outer = outer - constant
        pointer = self._pointer(memory, outer)
        return pointer, self._integers.value(inner + constant)

    def guarded(
        self, memory: Memory, offset: Dim, guards: tuple[Dim, ...], span: int
    ) -> tuple[Name, Expression] | None:
        """Like `element`, where a pointer to zeros takes the place of the memory when a guard is negative.

        `span` is how many elements are read from there on. None when the zeros would not suffice."""
        inner, outer = self._split(offset)
        if any(self._moves(monomial) for guard in guards for monomial, _ in guard.terms):
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
                return found, self._integers.value(inner + distance)
        raise AssertionError("a new pointer always fits")

    def _guarded_pointer(self, key: Hashable, memory: Memory, outer: Dim, guards: tuple[Dim, ...]) -> None:
        condition, depth = self.condition(guards)
        depth = max(depth, self._integers.depth(outer))
        ctype = MEMORY[memory.dtype]
        value = Conditional(condition, self._moved(memory, outer), Name(f"opw_zeros.{ctype}s"))
        reads = self._dependence.dim_reads(outer)
        for guard in guards:
            reads |= self._dependence.dim_reads(guard)
        name = self._scopes.numbered(f"{memory.name.name}_")
        self._scopes.define(key, f"const {ctype} *", name, value, reads, depth)

    def condition(self, guards: tuple[Dim, ...]) -> tuple[Name, int]:
        """A name for "no guard is negative", and the block that defines it."""
        depth = max(self._integers.depth(guard) for guard in guards)
        key = ("inside", guards)
        found = self._scopes.find(key)
        if found is not None:
            return found, depth
        value = self._integers.all_positive(guards)
        reads: frozenset[str] = frozenset()
        for guard in guards:
            reads |= self._dependence.dim_reads(guard)
        name = self._scopes.numbered("inside")
        return self._scopes.define(key, "const int", name, value, reads, depth), depth

    def _pointer(self, memory: Memory, outer: Dim) -> Name:
        if outer is ZERO:
            return memory.name
        key = ("pointer", memory.name, outer)
        found = self._scopes.find(key)
        if found is not None:
            return found
        depth = self._integers.depth(outer)
        value = self._moved(memory, outer)
        const = "" if memory.written else "const "
        name = self._scopes.numbered(f"{memory.name.name}_")
        reads = self._dependence.dim_reads(outer)
        return self._scopes.define(key, f"{const}{MEMORY[memory.dtype]} *", name, value, reads, depth)

    def _moved(self, memory: Memory, outer: Dim) -> Expression:
        return memory.name if outer is ZERO else Infix("+", memory.name, self._integers.value(outer))

    def _split(self, offset: Dim) -> tuple[Dim, Dim]:
        """(terms that the innermost loop changes, the others)."""
        inner = offset.only(self._moves)
        return inner, offset - inner

    def _moves(self, monomial: Monomial) -> bool:
        loop = self._scopes.innermost_loop()
        return loop is not None and self._integers.depth_of(monomial) >= loop.depth


Either = Callable[[Load, Active, Expression, Callable[[], Expression], Callable[[], Expression]], Name]
"""Writes a branch: (what it computes, lanes, condition, what either side writes) -> the variable they assign."""


class Loads:
    """Writes the loads of one function. `vector` writes what a load gives where its guards exclude it."""

    def __init__(
        self,
        scopes: Scopes,
        dependence: Dependence,
        indices: Indices,
        addresses: Addresses,
        memories: Mapping[str, Memory],
        vector: Evaluate,
        either: Either,
    ) -> None:
        self._scopes = scopes
        self._dependence = dependence
        self._indices = indices
        self._addresses = addresses
        self._memories = memories
        self._vector = vector
        self._either = either

    def value(self, node: Load, active: Active) -> Expression:
        """A load from memory; the name of a variable where it takes a branch."""
        memory = self._memories[node.tensor]
        assert reads(node.dtype, memory.dtype), f"{node!r} loads {node.dtype} from a buffer of {memory.dtype}"
        memory = self._addresses.words(memory, node.dtype)
        return self._guarded(node, memory, in_turn(node.guards), active)

    def _guarded(self, node: Load, memory: Memory, groups: Groups, active: Active) -> Expression:
        """A load where the guards of all groups hold, each tested where those before it do."""
        offset = node.indices[0]
        if not groups:
            return self._lanes(memory, offset, active)
        uniform, varying = self._indices.divided(groups[0], active)
        if not uniform:
            return self._where(node, memory, varying, groups[1:], active)
        fill = node.fill
        assert fill is not None
        alone = not varying and len(groups) == 1
        simple = alone and not self._dependence.dim_reads(offset) and active.mask is None
        stride = self._dependence.lane_stride(offset)
        if simple and stride in (ZERO, ONE) and isinstance(fill, Const):
            start = offset.without(self._dependence.lane)
            if _is_plain_zero(fill):
                span = 1 if stride is ZERO else int(self._dependence.lane.extent)
                found = self._addresses.guarded(memory, start, uniform, span)
                if found is not None:
                    return self._read(memory, *found, stride is ONE, active)
            condition, _ = self._addresses.condition(uniform)
            loaded = self._read(memory, *self._addresses.element(memory, start), stride is ONE, active)
            return Conditional(condition, loaded, vector_literal(fill.value, fill.dtype))
        return self._either(
            node,
            active,
            self._indices.integers.all_positive(uniform),
            lambda: self._where(node, memory, varying, groups[1:], active),
            lambda: self._vector(fill, active),
        )

    def _where(self, node: Load, memory: Memory, guards: tuple[Dim, ...], later: Groups, active: Active) -> Expression:
        """A load whose guards differ from lane to lane, and may have others after them."""
        if not guards:
            return self._guarded(node, memory, later, active)
        inside = self._indices.restrict(active, guards)
        mask = self._indices.lanes_mask(inside)
        assert mask is not None
        loaded = self._guarded(node, memory, later, inside)
        fill = node.fill
        # Memory that is read lane by lane leaves zeros in lanes that are masked; one element for all lanes does not.
        moves = self._dependence.lane_stride(node.indices[0]) is not ZERO
        if fill is None or (moves and _is_plain_zero(fill)):
            return loaded
        return select(mask, node.dtype, loaded, self._vector(fill, active))

    def _lanes(self, memory: Memory, offset: Dim, active: Active) -> Expression:
        stride = self._dependence.lane_stride(offset)
        if stride is None:
            offsets = self._indices.vector(offset, active)
            return memory_call("gather", memory, active, memory.name, offsets)
        if active.mask is None or not (stride is ZERO or self._dependence.dim_reads(offset)):
            return self._along(memory, offset, stride, active)
        # An index that is checked or a load that is made although no lane wants it would be an error.
        name = self._scopes.numbered("t")
        self._scopes.add(Define(vector_type(memory.dtype), name, vector_literal(0, memory.dtype)))
        self._scopes.open()
        value = self._along(memory, offset, stride, ALL if stride is ZERO else active)
        self._scopes.add(Assign(Name(name), value))
        self._scopes.add(If(call("opw_any", active.mask), self._scopes.close()))
        return Name(name)

    def _along(self, memory: Memory, offset: Dim, stride: Dim, active: Active) -> Expression:
        """A load of elements that are so far apart from lane to lane."""
        pointer, position = self._addresses.element(memory, offset.without(self._dependence.lane))
        if stride is ZERO or stride is ONE:
            return self._read(memory, pointer, position, stride is ONE, active)
        step = self._indices.integers.value(stride)
        return memory_call("load_strided", memory, active, moved(pointer, position), step)

    def _read(
        self, memory: Memory, pointer: Expression, position: Expression, contiguous: bool, active: Active
    ) -> Expression:
        if not contiguous:
            return call(f"opw_splat_{memory.short}", Element(pointer, position))
        return memory_call("load", memory, active, moved(pointer, position))


def memory_call(function: str, memory: Memory, active: Active, *operands: Expression) -> Call:
    """A function on the lanes that exist: it has a variant for masks, and one for the first few lanes."""
    which = active.mask or active.count
    how = "" if which is None else "masked_" if active.mask is not None else "partial_"
    return call(f"opw_{function}_{how}{memory.short}", *operands, *(() if which is None else (which,)))


def _is_plain_zero(fill: Expr) -> bool:
    """Whether the fill is what masked memory and the page of zeros hold; a negative zero is not."""
    return isinstance(fill, Const) and fill.value == 0 and math.copysign(1, fill.value) > 0
