"""Runs tile programs in NumPy, statement by statement, and catches what compiled code would not tell.

Every access must be in bounds, every element that is read must have been written, and no grid iteration may touch what
another one changes, of the same kernel or of another one of its phase: they run on different threads in any order.
(Writing the same value again is allowed.)

Inside a tile all existing indices are worked on at once: an expression is an array with one dimension for each
enclosing tile, and indices beyond the limit are simply not there. So are the iterations of a loop that does nothing but
accumulate (`_accumulates`), which another order changes by rounding alone: nothing is written meanwhile, and one look
at all that is read finds what looking at each iteration finds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from opweld.tensor.dim import Atom, Axis, Dim, FloorDiv, Max, Min, Mod, Value, atoms_of
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Bitcast, Cast, Const, Expr, Index, Load, Lookup, Select, Unary, loads
from opweld.tensor.externs import EXTERNS
from opweld.tensor.semantics import (
    apply_binary,
    apply_bitcast,
    apply_cast,
    apply_lookup,
    apply_reduce,
    apply_unary,
    fails_on_zero,
    neutral,
)
from opweld.tile.tile import (
    Accumulate,
    Collapse,
    Declare,
    Invoke,
    Kernel,
    Let,
    Loop,
    Statement,
    Tile,
    expressions_of,
    walk_statements,
)

Array = np.ndarray[Any, Any]

AT_ONCE = 4096
"""How many iterations of loops are worked on at once, for each index of the tiles inside them."""


@dataclass(eq=False)
class Block:
    """Flat memory: what is in it, what was written, and which iterations of the phase last wrote and read what."""

    name: str
    data: Array
    written: Array
    writer: Array = field(init=False)
    reader: Array = field(init=False)
    changed: bool = field(init=False)
    """Whether this phase wrote to it: else no element has a writer."""
    complete: bool = field(init=False)
    """Whether all of it was written before this phase."""

    def __post_init__(self) -> None:
        self.forget()

    @staticmethod
    def filled(name: str, data: Array) -> Block:
        """Memory that holds these values."""
        return Block(name, data, np.ones(data.size, bool))

    @staticmethod
    def empty(name: str, dtype: DType, elements: int) -> Block:
        """Memory that holds nothing yet."""
        return Block(name, np.zeros(elements, dtype.numpy), np.zeros(elements, bool))

    def forget(self) -> None:
        """Starts another phase: what was written before it is safe to touch."""
        self.writer = np.full(self.data.size, -1)
        self.reader = np.full(self.data.size, -1)
        self.changed, self.complete = False, bool(self.written.all())

    def read(self, offsets: Array, mask: Array, iteration: int) -> Array:
        """The elements at the offsets where the mask holds, anything elsewhere."""
        everywhere = bool(mask.all())
        at = offsets if everywhere else offsets[mask]
        if at.size == 0:
            return np.zeros(offsets.shape, self.data.dtype)
        if at.min() < 0 or at.max() >= self.data.size:
            bad = at[(at < 0) | (at >= self.data.size)]
            raise AssertionError(f"{self.name}: reads element {bad[:4]} of {self.data.size}")
        if not self.complete:
            unwritten = ~self.written[at]
            assert not unwritten.any(), f"{self.name}: reads elements {at[unwritten][:4]}, which nothing wrote"
        if self.changed:
            writer = self.writer[at]
            foreign = (writer >= 0) & (writer != iteration)
            assert not foreign.any(), f"{self.name}: iteration {iteration} reads {at[foreign][:4]} of another one"
        reader = self.reader[at]
        self.reader[at] = np.where((reader == -1) | (reader == iteration), iteration, -2)
        return self.data[at if everywhere else np.where(mask, offsets, 0)]

    def write(self, offsets: Array, values: Array, mask: Array, iteration: int) -> None:
        """Stores the values at the offsets where the mask holds."""
        bad = mask & ((offsets < 0) | (offsets >= self.data.size))
        assert not bad.any(), f"{self.name}: writes element {offsets[bad][:4]} of {self.data.size}"
        at, new = offsets[mask], values[mask]
        assert len(np.unique(at)) == len(at), f"{self.name}: one store writes an element twice"
        same = self.written[at] & _equal(self.data[at], new)
        foreign = (self.writer[at] >= 0) & (self.writer[at] != iteration) & ~same
        assert not foreign.any(), f"{self.name}: iteration {iteration} rewrites {at[foreign][:4]} of another one"
        foreign = (self.reader[at] != -1) & (self.reader[at] != iteration) & ~same
        assert not foreign.any(), f"{self.name}: iteration {iteration} changes {at[foreign][:4]} under another one"
        self.data[at], self.written[at], self.writer[at], self.changed = new, True, iteration, True


def _equal(x: Array, y: Array) -> Array:
    return np.asarray((x == y) | ((x != x) & (y != y)))


@dataclass(eq=False)
class Accumulator:
    """One element for each index of `over`; the arg kinds keep the extreme value and where it was."""

    over: tuple[Axis, ...]
    data: Array
    best: Array | None = None
    seen: Array | None = None


@dataclass(frozen=True, eq=False)
class Scope:
    """What is known at a statement: the enclosing tiles with their existing indices, loop indices and sizes. Loops that
    are worked on at once stand among the tiles."""

    tiles: tuple[tuple[Axis, Array], ...]
    values: Mapping[Atom, int]
    iteration: int
    loops: tuple[Axis, ...] = ()

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(indices) for _, indices in self.tiles)

    @cached_property
    def everywhere(self) -> Array:
        return np.ones(self.shape, bool)

    @cached_property
    def indices(self) -> Mapping[Atom, Array]:
        """The indices of each tile, along its own dimension."""
        after = range(len(self.tiles) - 1, -1, -1)
        return {axis: found.reshape(-1, *[1] * n) for (axis, found), n in zip(self.tiles, after, strict=True)}

    def with_tile(self, axis: Axis, indices: Array) -> Scope:
        return Scope((*self.tiles, (axis, indices)), self.values, self.iteration, self.loops)

    def with_loop(self, axis: Axis, indices: Array) -> Scope:
        return Scope((*self.tiles, (axis, indices)), self.values, self.iteration, (*self.loops, axis))

    def with_value(self, axis: Axis, value: int) -> Scope:
        return Scope(self.tiles, {**self.values, axis: value}, self.iteration, self.loops)


@lru_cache(maxsize=4096)
def _accumulates(loop: Loop) -> bool:
    """Whether a loop does nothing but accumulate, what its iterations do not change, over ranges that are the same in
    each."""
    inside = list(walk_statements(loop.body))
    if not all(isinstance(s, Accumulate | Let | Loop | Tile) for s in inside):
        return False
    changed = {s.name for s in inside if isinstance(s, Accumulate)}
    ranges = [s for s in inside if isinstance(s, Loop | Tile)]
    bounds = [
        d for s in ranges for d in ((s.lower, s.end) if isinstance(s, Loop) else (s.base, s.limit)) if d is not None
    ]
    return (
        not any(s.kind.startswith("arg") for s in inside if isinstance(s, Accumulate))
        and not any(node.tensor in changed for s in inside for root in expressions_of(s) for node in loads(root))
        and not any(loop.axis in atoms_of(dim) for dim in bounds)
    )


def run_kernel(kernel: Kernel, memory: Mapping[str, Block], sizes: Mapping[Atom, int], before: int = 0) -> int:
    """Executes all iterations of a kernel's grid. `memory` has a block for every buffer of the kernel.

    `before`: how many iterations of its phase ran already. They might run at the same time, so that what they touched
    is remembered, and must not be disturbed. Answers how many there are now."""
    for buffer in kernel.buffers:
        block = memory[buffer.name]
        assert block.data.dtype == buffer.dtype.numpy, f"{buffer.name}: {block.data.dtype} is no {buffer.dtype}"
    known: dict[Atom, int] = {symbol: sizes[symbol] for symbol in kernel.sizes}
    extents = [range(axis.extent.evaluate(known)) for axis in kernel.grid]
    positions = list(itertools.product(*extents))
    with np.errstate(all="ignore"):
        _run_grid(kernel, memory, known, positions, before)
    return before + len(positions)


def _run_grid(
    kernel: Kernel,
    memory: Mapping[str, Block],
    known: Mapping[Atom, int],
    positions: Iterable[tuple[int, ...]],
    before: int,
) -> None:
    for iteration, position in enumerate(positions, before):
        scratch = {
            block.name: Block.empty(block.name, block.dtype, block.elements.evaluate(known)) for block in kernel.scratch
        }
        values: dict[Atom, int] = {**known, **dict(zip(kernel.grid, position, strict=True))}
        buffers = {buffer.name: memory[buffer.name] for buffer in kernel.buffers}
        roles = {buffer.name: buffer.role for buffer in kernel.buffers}
        _Thread({**buffers, **scratch}, roles).block(kernel.body, Scope((), values, iteration))


class _Thread:
    """One grid iteration: its registers and the memory it sees."""

    def __init__(self, memory: Mapping[str, Block], roles: Mapping[str, str]) -> None:
        self.memory = memory
        self.roles = roles
        self.registers: dict[str, Accumulator | tuple[tuple[Axis, ...], Array]] = {}

    def block(self, body: Iterable[Statement], scope: Scope) -> None:
        for statement in body:
            self.statement(statement, scope)

    def statement(self, statement: Statement, scope: Scope) -> None:
        if isinstance(statement, Loop):
            self.loop(statement, scope)
        elif isinstance(statement, Tile):
            indices = np.arange(statement.width)
            if statement.limit is not None:
                indices = indices[indices + _number(statement.base, scope) < _number(statement.limit, scope)]
            if len(indices):
                self.block(statement.body, scope.with_tile(statement.axis, indices))
        elif isinstance(statement, Declare):
            self.declare(statement, scope)
        elif isinstance(statement, Accumulate):
            self.accumulate(statement, scope)
        elif isinstance(statement, Collapse):
            _collapse(self.accumulator(statement.name), statement.kind)
        elif isinstance(statement, Let):
            axes = tuple(axis for axis, _ in scope.tiles)
            self.registers[statement.name] = axes, self.value(statement.value, scope)
        elif isinstance(statement, Invoke):
            self.invoke(statement, scope)
        else:
            assert self.roles.get(statement.buffer) != "read", f"{statement.buffer} is stored to, but only read"
            mask = scope.everywhere
            for guard in statement.guards:
                mask = mask & (self.dim(guard, scope, mask) >= 0)
            offsets = np.broadcast_to(self.dim(statement.offset, scope, mask), scope.shape)
            values = np.broadcast_to(self.value(statement.value, scope, mask), scope.shape)
            self.memory[statement.buffer].write(offsets, values, mask, scope.iteration)

    def loop(self, loop: Loop, scope: Scope) -> None:
        values = range(_number(loop.lower, scope), _number(loop.end, scope))
        if not _accumulates(loop):
            for value in values:
                self.block(loop.body, scope.with_value(loop.axis, value))
            return
        size = max(1, AT_ONCE // prod(len(indices) for axis, indices in scope.tiles if axis in scope.loops))
        for start in range(0, len(values), size):
            self.block(loop.body, scope.with_loop(loop.axis, np.array(values[start : start + size], np.int64)))

    def invoke(self, call: Invoke, scope: Scope) -> None:
        numbers = [_number(dim, scope) for dim in call.numbers]
        sizes = EXTERNS[call.function].parts(numbers)
        places = [(self.memory[name], _number(offset, scope)) for name, offset in (*call.read, *call.written)]
        arrays = [block.data[start : start + size].copy() for (block, start), size in zip(places, sizes, strict=True)]
        split = len(call.read)
        for (block, start), size in zip(places[:split], sizes, strict=False):
            block.read(np.arange(start, start + size), np.ones(size, bool), scope.iteration)
        EXTERNS[call.function].compute(arrays[:split], arrays[split:], numbers)
        for (block, start), array in zip(places[split:], arrays[split:], strict=True):
            block.write(np.arange(start, start + array.size), array, np.ones(array.size, bool), scope.iteration)

    def accumulator(self, name: str) -> Accumulator:
        found = self.registers[name]
        assert isinstance(found, Accumulator), f"{name} is no accumulator"
        return found

    def declare(self, statement: Declare, scope: Scope) -> None:
        known = {axis: indices for axis, indices in scope.tiles if axis in statement.over}
        inner = Scope(tuple(known.items()), scope.values, scope.iteration)
        value = np.broadcast_to(self.value(statement.initial, inner), inner.shape)
        value = value.transpose([list(known).index(axis) for axis in statement.over if axis in known])
        value = value.reshape([len(known[axis]) if axis in known else 1 for axis in statement.over])
        data = np.zeros([int(axis.extent) for axis in statement.over], statement.dtype.numpy)
        places = [known.get(axis, np.arange(int(axis.extent))) for axis in statement.over]
        data[np.ix_(*places) if places else ()] = value
        self.registers[statement.name] = Accumulator(statement.over, data)

    def accumulate(self, statement: Accumulate, scope: Scope) -> None:
        target = self.accumulator(statement.name)
        value = np.broadcast_to(self.value(statement.value, scope), scope.shape)
        known = dict(scope.tiles)
        over = set(known) - set(scope.loops)
        assert over == set(target.over), f"{statement.name} is accumulated over other axes than it has"
        order = [list(known).index(axis) for axis in (*target.over, *scope.loops)]
        value = value.transpose(order)
        where = np.ix_(*(known[axis] for axis in target.over)) if target.over else ()
        if statement.kind.startswith("arg"):
            assert statement.position is not None
            position = np.broadcast_to(self.dim(statement.position, scope), scope.shape).transpose(order)
            if target.best is None or target.seen is None:
                target.best = np.zeros(target.data.shape, value.dtype)
                target.seen = np.zeros(target.data.shape, bool)
            better = ~target.seen[where] | _precedes(
                statement.kind, value, position, target.best[where], target.data[where]
            )
            target.best[where] = np.where(better, value, target.best[where])
            target.data[where] = np.where(better, position, target.data[where])
            target.seen[where] = True
            return
        value = value.astype(target.data.dtype)
        if scope.loops:
            value = apply_reduce(statement.kind, value.reshape(*value.shape[: len(target.over)], -1))
        target.data[where] = apply_reduce(statement.kind, np.stack([target.data[where], value], -1))

    # values

    def value(self, root: Expr, scope: Scope, mask: Array | None = None) -> Array:
        """The expression where the mask holds; what it is elsewhere does not matter."""
        return self._value(root, scope, scope.everywhere if mask is None else mask)

    def _value(self, node: Expr, scope: Scope, mask: Array) -> Array:
        if isinstance(node, Const):
            return np.asarray(node.value, node.dtype.numpy)
        if isinstance(node, Index):
            return np.asarray(self.dim(node.dim, scope, mask), np.int64)
        if isinstance(node, Load):
            return self._load(node, scope, mask)
        if isinstance(node, Unary):
            return apply_unary(node.op, self._value(node.x, scope, mask))
        if isinstance(node, Cast):
            return apply_cast(self._value(node.x, scope, mask), node.dtype.numpy)
        if isinstance(node, Bitcast):
            return apply_bitcast(self._value(node.x, scope, mask), node.x.dtype, node.dtype)
        if isinstance(node, Lookup):
            return apply_lookup(node.table, self._value(node.x, scope, mask))
        if isinstance(node, Binary):
            x, y = self._value(node.x, scope, mask), self._value(node.y, scope, mask)
            if fails_on_zero(node.op, y.dtype):
                assert not (mask & np.broadcast_to(y == 0, scope.shape)).any(), "divides an integer by zero"
            return apply_binary(node.op, x, y)
        if isinstance(node, Select):
            chosen = np.broadcast_to(self._value(node.condition, scope, mask), scope.shape)
            x, y = self._value(node.x, scope, mask & chosen), self._value(node.y, scope, mask & ~chosen)
            return np.where(chosen, x, y)
        raise AssertionError(f"{type(node).__name__} is no expression of a tile program")

    def _load(self, node: Load, scope: Scope, mask: Array) -> Array:
        if not node.indices:
            return self._register(node, scope)
        assert len(node.indices) == 1, f"{node} has {len(node.indices)} indices"
        assert self.roles.get(node.tensor) != "write", f"{node.tensor} is read, but only written"
        inside = mask
        for guard in node.guards:
            inside = inside & (self.dim(guard, scope, mask) >= 0)
        offsets = np.broadcast_to(self.dim(node.indices[0], scope, inside), scope.shape)
        memory = self.memory[node.tensor]
        if node.dtype is DType.I32 and memory.data.dtype.itemsize < 4:
            found = self._words(memory, offsets, inside, scope)
        else:
            found = memory.read(offsets, inside, scope.iteration)
        assert found.dtype == node.dtype.numpy, f"{node} is loaded from {found.dtype}"
        if node.fill is None:
            return found
        return np.where(inside, found, self._value(node.fill, scope, mask & ~inside))

    def _words(self, memory: Block, offsets: Array, inside: Array, scope: Scope) -> Array:
        """Words of memory of narrower elements, at offsets counted in words."""
        each = 4 // memory.data.dtype.itemsize
        parts = [memory.read(each * offsets + number, inside, scope.iteration) for number in range(each)]
        return np.ascontiguousarray(np.stack(parts, -1)).view(np.int32)[..., 0]

    def _register(self, node: Load, scope: Scope) -> Array:
        found = self.registers[node.tensor]
        axes, data = (found.over, found.data) if isinstance(found, Accumulator) else found
        assert data.dtype == node.dtype.numpy, f"{node} is of dtype {data.dtype}"
        known = [axis for axis, _ in scope.tiles]
        if isinstance(found, Accumulator):
            if any(axis not in known for axis in axes):
                # collapsed: every lane holds the same
                first = data.reshape(-1)[:1]
                assert _equal(data.reshape(-1), first).all(), f"{node.tensor} is read outside of its tile"
                return first.reshape(())
            data = data[np.ix_(*(dict(scope.tiles)[axis] for axis in axes))] if axes else data
        else:
            assert all(axis in known for axis in axes), f"{node.tensor} is read outside of its tile"
        data = np.broadcast_to(data, np.broadcast_shapes(data.shape, (1,) * len(axes)))
        inner = [axis for axis in known if axis in axes]
        data = data.transpose([axes.index(axis) for axis in inner]) if data.ndim == len(axes) else data
        shape = iter(data.shape)
        return data.reshape([next(shape) if axis in axes else 1 for axis in known])

    def dim(self, dim: Dim, scope: Scope, mask: Array | None = None) -> Array | int:
        """The integer of a polynomial at every index of the enclosing tiles that it depends on."""
        mask = scope.everywhere if mask is None else mask
        total: Array | int = 0
        for monomial, coefficient in dim.terms:
            term: Array | int = coefficient
            for atom in monomial:
                term = term * self._atom(atom, scope, mask)
            total = total + term
        return total

    def _atom(self, atom: Atom, scope: Scope, mask: Array) -> Array | int:
        if atom in scope.values:
            return scope.values[atom]
        if atom in scope.indices:
            return scope.indices[atom]
        if isinstance(atom, FloorDiv | Mod | Min | Max):
            left, right = self.dim(atom.left, scope, mask), self.dim(atom.right, scope, mask)
            if isinstance(atom, FloorDiv):
                return left // right
            if isinstance(atom, Mod):
                return left % right
            return np.minimum(left, right) if isinstance(atom, Min) else np.maximum(left, right)
        if isinstance(atom, Value):
            index = np.broadcast_to(self._value(atom.expr, scope, mask), scope.shape).astype(np.int64)
            outside = mask & ((index < 0) | (index >= self.dim(atom.extent, scope, mask)))
            if outside.any():
                raise IndexError(f"index {index[outside][0]} is out of range")
            return index
        raise AssertionError(f"{atom} is not known here")


def _number(dim: Dim, scope: Scope) -> int:
    return dim.evaluate(scope.values)


def _precedes(kind: str, x: Array, x_at: Array, y: Array, y_at: Array) -> Array:
    """Whether element x at its position is chosen over element y: NaN is extreme, ties go to the first (or last)."""
    x_nan, y_nan = x != x, y != y
    beats = (x > y) if kind.startswith("argmax") else (x < y)
    beats = (x_nan & ~y_nan) | (beats & ~y_nan)
    ties = (x == y) | (x_nan & y_nan)
    earlier = x_at > y_at if kind.endswith("_last") else x_at < y_at
    return np.asarray(beats | (ties & earlier))


def _collapse(target: Accumulator, kind: str) -> None:
    """Reduces the last axis, which is the lanes."""
    if not kind.startswith("arg"):
        target.data[...] = apply_reduce(kind, target.data)[..., None]
        return
    assert target.best is not None and target.seen is not None, "nothing was accumulated"
    assert len(target.over) == 1
    found: tuple[Any, Any] | None = None
    for best, at in _seen(target.best, target.data, target.seen):
        if found is None or bool(_precedes(kind, np.asarray(best), at, np.asarray(found[0]), found[1])):
            found = best, at
    assert found is not None
    target.best[...], target.data[...], target.seen[...] = found[0], found[1], True


def _seen(best: Array, data: Array, seen: Array) -> Iterator[tuple[Any, Any]]:
    return ((b, d) for b, d, s in zip(best, data, seen, strict=True) if s)


__all__ = ["Block", "neutral", "run_kernel"]
