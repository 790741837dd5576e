"""What the lowering of one kernel knows: for which rows and vectors a statement is written, its registers, its memory.

A `Context` is the tiles around a statement, an `Instance` one row of each and one vector; `Registers` are the C
variables behind an accumulator or named value; `State` has them all, and makes instances of tile expressions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from opweld.codegen.c.integers import ALL, Active
from opweld.codegen.c.memory import Memory
from opweld.codegen.c.operators import MEMORY
from opweld.codegen.c.scope import Scopes
from opweld.codegen.c.values import Values
from opweld.codegen.c.vector import Convert, Define, Element, Expression, Infix, Name, integer
from opweld.tensor.dim import ZERO, Atom, Axis, Dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, free_atoms, load, loads, transform
from opweld.tile.tile import (
    Accumulate,
    Collapse,
    Invoke,
    Kernel,
    Loop,
    Statement,
    Store,
    Tile,
    expressions_of,
    walk_statements,
)


@dataclass(frozen=True)
class Row:
    """One index of a row tile: its number in the text, and the value of the tile's axis."""

    key: int
    value: Dim


@dataclass(frozen=True)
class Vector:
    """One vector of a lane tile: its number in the text, the axis' value in terms of the lane, the lanes that exist."""

    key: int
    value: Dim
    active: Active = ALL


@dataclass(frozen=True)
class Instance:
    """One row of every enclosing row tile, and one vector of the lane tile."""

    rows: Mapping[Axis, Row]
    lane: Axis | None
    vector: Vector | None

    @property
    def active(self) -> Active:
        """The lanes that exist."""
        return ALL if self.vector is None else self.vector.active

    @property
    def mapping(self) -> dict[Atom, Dim]:
        """What the tile axes stand for."""
        found: dict[Atom, Dim] = {axis: row.value for axis, row in self.rows.items()}
        if self.lane is not None and self.vector is not None:
            found[self.lane] = self.vector.value
        return found

    def key(self, axis: Axis) -> int | None:
        """The number of the tile's index in the text; None outside the tile."""
        if axis is self.lane and self.vector is not None:
            return self.vector.key
        row = self.rows.get(axis)
        return None if row is None else row.key


@dataclass(frozen=True)
class Context:
    """The enclosing tiles: the rows that are written out, and the vectors. `shifted`: pieces of a symbolic tail."""

    rows: tuple[tuple[Axis, tuple[Row, ...]], ...] = ()
    lane: Axis | None = None
    vectors: tuple[Vector, ...] = ()
    shifted: frozenset[Axis] = frozenset()

    @property
    def axes(self) -> frozenset[Axis]:
        """The axes of the enclosing tiles."""
        return frozenset((*(axis for axis, _ in self.rows), *(() if self.lane is None else (self.lane,))))

    def instances(self, axes: frozenset[Axis] | None = None) -> Iterator[Instance]:
        """Every combination, rows outside, vectors inside; only over `axes` where given."""
        kept = [(axis, rows) for axis, rows in self.rows if axes is None or axis in axes]
        with_lane = self.lane is not None and (axes is None or self.lane in axes)
        for combination in itertools.product(*(rows for _, rows in kept)):
            chosen = {axis: row for (axis, _), row in zip(kept, combination, strict=True)}
            for vector in self.vectors if with_lane else (None,):
                yield Instance(chosen, self.lane if with_lane else None, vector)

    def split(self, axes: frozenset[Axis]) -> Iterator[Context]:
        """One context for each combination of the rows of `axes`."""
        choices = [[(row,) for row in rows] if axis in axes else [rows] for axis, rows in self.rows]
        for combination in itertools.product(*choices):
            rows = tuple((axis, chosen) for (axis, _), chosen in zip(self.rows, combination, strict=True))
            yield Context(rows, self.lane, self.vectors, self.shifted)


Key = tuple[int, ...]


@dataclass
class Registers:
    """One variable for each index of the axes in `over`.

    `lane` is the axis among them that fills vectors. `outside` are those whose tiles were not open yet at the
    declaration. `reducing`: a Collapse combines the lanes later, so that any lane may hold any value; `collapsed`: it
    has."""

    stem: str
    dtype: DType
    over: tuple[Axis, ...]
    lane: Axis | None
    outside: frozenset[Axis] = frozenset()
    reducing: bool = False
    collapsed: bool = False
    loops: int = 0
    names: dict[Key, str] = field(default_factory=dict[Key, str])
    best: dict[Key, str] = field(default_factory=dict[Key, str])
    best_dtype: DType | None = None

    def key(self, instance: Instance, shifted: frozenset[Axis]) -> Key:
        """Which of the variables an instance means."""
        key: list[int] = []
        for axis in self.over:
            number = instance.key(axis)
            if axis is self.lane and self.collapsed:
                number = 0
            if number is None:
                raise ValueError(f"{self.stem} is used outside the tile of {axis}, over which it is held")
            if axis in shifted and axis in self.outside and not (axis is self.lane and self.reducing):
                raise ValueError(f"{self.stem} is held over {axis}, whose tail has a symbolic size")
            key.append(number)
        return tuple(key)

    def name(self, key: Key) -> str:
        """The C name of one of the variables."""
        return self.stem + "".join(
            f"_v{number}" if axis is self.lane else f"_r{number}" for axis, number in zip(self.over, key, strict=True)
        )

    def all_names(self) -> Iterator[str]:
        """Every C name."""
        yield from self.names.values()
        yield from self.best.values()

    def groups(self) -> Iterator[list[Key]]:
        """The keys that differ in the vector only, group by group."""
        position = self.over.index(self.lane) if self.lane is not None else -1

        def rest(key: Key) -> Key:
            return key if position < 0 else key[:position] + key[position + 1 :]

        for _, group in itertools.groupby(sorted(self.names, key=lambda key: (rest(key), key)), key=rest):
            yield list(group)


def declared_keys(over: tuple[Axis, ...], context: Context, lane: Axis | None, lanes: int) -> list[Key]:
    """Every index that an accumulator declared here holds: those written out, or all of a tile still to come."""
    written = {axis: [row.key for row in rows] for axis, rows in context.rows}
    if context.lane is not None:
        written[context.lane] = [vector.key for vector in context.vectors]
    choices: list[list[int]] = []
    for axis in over:
        width = int(axis.extent)
        choices.append(written.get(axis) or list(range(width // lanes if axis is lane else width)))
    return list(itertools.product(*choices))


def _collapsed(everything: Sequence[Statement]) -> frozenset[str]:
    """The accumulators whose lanes a Collapse combines, and the parts that are only added to such ones."""
    found = {item.name for item in everything if isinstance(item, Collapse)}
    readers: dict[str, list[Statement]] = {}
    for item in everything:
        for value in expressions_of(item):
            for site in loads(value):
                readers.setdefault(site.tensor, []).append(item)
    # A part is added outside of the loops that sum it, and so after those of its own parts.
    for item in reversed(everything):
        if isinstance(item, Accumulate) and item.name in found and isinstance(item.value, Load):
            part = item.value.tensor
            found |= {part} if readers[part] == [item] else set()
    return frozenset(found)


class State:
    """Shared by the parts of one lowering. `outer` are the open loops; `registers` those of every name so far."""

    def __init__(self, kernel: Kernel, lanes: int) -> None:
        self.kernel = kernel
        self.lanes = lanes
        self.scopes = Scopes()
        self.lane = Axis("lane", lanes)
        self.memories: dict[str, Memory] = {}
        self.values = Values(self.scopes, self.lane, self.memories)
        self.registers: dict[str, Registers] = {}
        everything = tuple(walk_statements(kernel.body))
        self.accumulations = {item.name: item for item in everything if isinstance(item, Accumulate)}
        self.collapsed = _collapsed(everything)
        self.lane_axes = frozenset(item.axis for item in everything if isinstance(item, Tile) and item.role == "lane")
        self.outer: list[Loop] = []
        self._instantiated: dict[tuple[Expr, tuple[tuple[Atom, Dim], ...]], Expr] = {}

    def bind_memory(self) -> None:
        """Defines a pointer for every buffer and piece of scratch."""
        counts: dict[str, int] = {}
        for position, buffer in enumerate(self.kernel.buffers):
            stem = {"read": "in", "write": "out", "update": "io"}[buffer.role]
            number = counts.get(stem, 0)
            counts[stem] = number + 1
            written = buffer.role != "read"
            place = Element(Name("buffers"), integer(position))
            self._add_memory(buffer.name, f"{stem}{number}", buffer.dtype, written, place)
        offset = ZERO
        for number, block in enumerate(self.kernel.scratch):
            start = Name("scratch")
            place = start if offset is ZERO else Infix("+", start, self.values.integers.value(offset))
            self._add_memory(block.name, f"tmp{number}", block.dtype, True, Convert("void *", place))
            offset = offset + (block.elements * block.dtype.bytes + 63) // 64 * 64

    def _add_memory(self, name: str, variable: str, dtype: DType, written: bool, place: Expression) -> None:
        self.memories[name] = Memory(Name(variable), dtype, written)
        const = "" if written else "const "
        self.scopes.add(Define(f"{const}{MEMORY[dtype]} *restrict", variable, place))

    def axes(self, value: Expr) -> frozenset[Axis]:
        """The tile axes on which an expression depends, through accumulators and named values too."""
        found = frozenset(atom for atom in free_atoms(value) if isinstance(atom, Axis))
        for name in self.values.dependence.reads(value):
            registers = self.registers.get(name)
            if registers is not None:
                lane = frozenset((registers.lane,)) if registers.collapsed else frozenset[Axis | None]()
                found |= frozenset(registers.over) - lane
        return found

    def instantiate(self, value: Expr, instance: Instance, context: Context) -> Expr:
        """The expression for one instance: tile axes replaced, accumulators by the names of their variables."""
        mapping = instance.mapping
        axes = self.axes(value)
        relevant = tuple((axis, mapping[axis]) for axis in mapping if axis in axes)
        key = (value, relevant)
        found = self._instantiated.get(key)
        if found is not None:
            return found

        def rewrite(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.indices:
                return None
            registers = self.registers.get(node.tensor)
            if registers is None:
                raise ValueError(f"{self.kernel.name}: {node.tensor} is used before it is defined")
            return load(registers.names[registers.key(instance, context.shifted)], node.dtype, ())

        result = transform(value, rewrite, lambda dim: dim.substitute(mapping))
        self._instantiated[key] = result
        return result

    def instantiate_dim(self, dim: Dim, instance: Instance, context: Context) -> Dim:
        """The polynomial for one instance."""
        return dim.substitute(instance.mapping, lambda value: self.instantiate(value, instance, context))

    def forget_instances(self) -> None:
        """To be called when a name gets other registers."""
        self._instantiated.clear()

    def written(self, body: tuple[Statement, ...]) -> frozenset[str]:
        """Names of the buffers and variables that the statements write."""
        found: set[str] = set()
        for item in walk_statements(body):
            if isinstance(item, Store):
                found.add(item.buffer)
            elif isinstance(item, Invoke):
                found.update((*(name for name, _ in item.written), *item.scratch))
            elif isinstance(item, Accumulate | Collapse) and item.name in self.registers:
                found.update(self.registers[item.name].all_names())
        return frozenset(found)
