"""Tile programs: a grid, loops over tiles, and what happens to a tile held in registers.

    Kernel    = buffers, sizes, grid axes, scratch, statements
    Statement = Loop(axis, lower, upper, body, ...)        a serial loop, and how it is to be written
              | Tile(axis, role, base, width, limit, body)  `width` consecutive indices at once, in registers
              | Declare(name, dtype, over, initial, unit)   an accumulator tile, one register for each index of `over`
              | Accumulate(name, kind, value, position)     name[...] = name[...] (kind) value
              | Collapse(name, kind)                        a horizontal reduction of an accumulator, in place
              | Let(name, value)                            binds a name to a value, for the rest of the body
              | Store(buffer, offset, value, guards)        writes an element (a vector of them, inside a lane tile)
              | Invoke(function, read, written, scratch, numbers)  calls a function of `tensor.externs` on memory

Expressions are those of `tensor.expr`. A load with one index reads a buffer or scratch at a linear offset, counted in
elements of its own dtype: an int32 load of memory of bytes reads a word of four, at four times its offset. A load with
no index reads an accumulator or a `Let`. A tile's axis runs over [0, width); the index is `base + axis`, as written out
in expressions. Indices at or beyond `limit` are out of bounds: they are neither loaded nor stored. A `row` tile is
unrolled in the generated code, with one set of registers for each row (MR); a `lane` tile is one SIMD register, or
several (NR). Triton prints both as dimensions of its blocks. Renderers make no choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, Symbol, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, dims_of, loads, substitute, walk


@dataclass(frozen=True)
class Fetch:
    """A software prefetch: changes no value, and any address is allowed.

    Before each unrolled body, of k, k + 1, ..., `lines` cache lines of the buffer are fetched from element
    `start + step * k` on. `passes`: where run time counts only one of these, all fetch from `start` on."""

    buffer: str
    start: Dim
    lines: int
    step: int
    passes: Dim | None = None

    def dims(self) -> tuple[Dim, ...]:
        """Its polynomials."""
        return (self.start,) if self.passes is None else (self.start, self.passes)


@dataclass(frozen=True, eq=False)
class Loop:
    """A serial loop of the axis over [lower, upper).

    Attributes:
        unroll: the factor; 1 leaves unrolling to the compiler. Accumulations of as few trips are laid out in a row, in
            the order of `tile.bodies`.
        fetches: software prefetches, once for every `unroll` bodies.
        separate: a number of registers. Where the accumulations of the tiles around the loop and all their operands
            would need as many, each accumulation loads its own operands, or what is laid out in a row loads again;
            None: loads are shared.
    """

    axis: Axis
    body: tuple[Statement, ...]
    lower: Dim = ZERO
    upper: Dim | None = None
    unroll: int = 1
    fetches: tuple[Fetch, ...] = ()
    separate: int | None = None

    @property
    def end(self) -> Dim:
        """The end of the range."""
        return self.axis.extent if self.upper is None else self.upper


@dataclass(frozen=True, eq=False)
class Tile:
    """`width` consecutive indices, base + axis, in registers at once; those at or beyond `limit` are out of bounds.

    A lane tile's width is a multiple of the vector length. `limit` None: the tile is always full."""

    axis: Axis
    role: Literal["row", "lane"]
    base: Dim
    body: tuple[Statement, ...]
    limit: Dim | None = None

    @property
    def width(self) -> int:
        """Number of indices of a full tile."""
        return int(self.axis.extent)


@dataclass(frozen=True, eq=False)
class Declare:
    """A new accumulator: one register for each index of the enclosing tile axes named in `over`.

    `unit`: where it is held. What the registers of a matrix unit hold (AMX) are sums of dot products of words from
    zero, which are stored in memory and not used in any other way; see `tile.matrix`."""

    name: str
    dtype: DType
    over: tuple[Axis, ...]
    initial: Expr
    unit: Literal["vector", "matrix"] = "vector"


@dataclass(frozen=True, eq=False)
class Accumulate:
    """Combines a value into an accumulator. `position` is the int64 index that reductions such as argmax return."""

    name: str
    kind: str
    value: Expr
    position: Dim | None = None


@dataclass(frozen=True, eq=False)
class Collapse:
    """A horizontal reduction: combines the lanes of an accumulator; afterwards every lane holds the result."""

    name: str
    kind: str


@dataclass(frozen=True, eq=False)
class Let:
    """Binds a name to a value, for the rest of the enclosing body."""

    name: str
    value: Expr


@dataclass(frozen=True, eq=False)
class Store:
    """Writes a value at a linear offset of a buffer, unless a guard is negative."""

    buffer: str
    offset: Dim
    value: Expr
    guards: tuple[Dim, ...] = ()


@dataclass(frozen=True, eq=False)
class Invoke:
    """Calls a function of `tensor.externs`, outside of all tiles. `read` and `written` are (memory, offset) pairs in
    the order of its parameters, `scratch` names of memory; it gets pointers to these elements, and the numbers."""

    function: str
    read: tuple[tuple[str, Dim], ...]
    written: tuple[tuple[str, Dim], ...]
    scratch: tuple[str, ...]
    numbers: tuple[Dim, ...]


Statement: TypeAlias = Loop | Tile | Declare | Accumulate | Collapse | Let | Store | Invoke


@dataclass(frozen=True)
class Buffer:
    """A kernel parameter: memory that is read, written, or both (in place)."""

    name: str
    dtype: DType
    role: Literal["read", "write", "update"]


@dataclass(frozen=True)
class Scratch:
    """Memory of one thread, 64-byte aligned, not kept between grid iterations."""

    name: str
    dtype: DType
    elements: Dim


@dataclass(frozen=True, eq=False)
class Kernel:
    """One launch. The grid axes are linearised, last fastest; ranges of it run on different threads in any order."""

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[Symbol, ...]
    grid: tuple[Axis, ...]
    body: tuple[Statement, ...]
    scratch: tuple[Scratch, ...] = ()
    origin: tuple[str, ...] = ()

    @property
    def iterations(self) -> Dim:
        """The number of grid iterations."""
        total = ONE
        for axis in self.grid:
            total = total * axis.extent
        return total

    @property
    def scratch_bytes(self) -> Dim:
        """Bytes of scratch a thread needs, each block rounded up to 64."""
        total = ZERO
        for block in self.scratch:
            total = total + (as_dim(63) + block.elements * block.dtype.bytes) // 64 * 64
        return total


def reads(dtype: DType, memory: DType) -> bool:
    """Whether a load of a dtype may read memory of another: elements as they are, or words of several."""
    return dtype is memory or (dtype is DType.I32 and memory in (DType.U8, DType.I8, DType.I16, DType.BF16))


# ---- traversal and rewriting -----------------------------------------------------------------------------------------


def walk_statements(body: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement at any depth, outer ones first, in the order of the text."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop | Tile):
            yield from walk_statements(statement.body)


def expressions_of(statement: Statement) -> tuple[Expr, ...]:
    """The expressions of one statement, not of those inside it."""
    if isinstance(statement, Declare):
        return (statement.initial,)
    if isinstance(statement, Accumulate | Let | Store):
        return (statement.value,)
    return ()


def dims_of_statement(statement: Statement) -> tuple[Dim, ...]:
    """The polynomials of one statement, those of its expressions included, not those of statements inside it."""
    own: tuple[Dim, ...] = ()
    if isinstance(statement, Loop):
        own = (statement.lower, statement.end, *(dim for fetch in statement.fetches for dim in fetch.dims()))
    elif isinstance(statement, Tile):
        own = (statement.base,) if statement.limit is None else (statement.base, statement.limit)
    elif isinstance(statement, Store):
        own = (statement.offset, *statement.guards)
    elif isinstance(statement, Accumulate) and statement.position is not None:
        own = (statement.position,)
    elif isinstance(statement, Invoke):
        own = (*(offset for _, offset in (*statement.read, *statement.written)), *statement.numbers)
    return (*own, *(dim for root in expressions_of(statement) for node in walk(root) for dim in dims_of(node)))


def dims_of_kernel(grid: Iterable[Axis], scratch: Iterable[Scratch], body: Iterable[Statement]) -> Iterator[Dim]:
    """The polynomials of a kernel with this grid, scratch and body, at any depth."""
    yield from (axis.extent for axis in grid)
    yield from (block.elements for block in scratch)
    for statement in walk_statements(body):
        yield from dims_of_statement(statement)


def memory_of(body: Iterable[Statement]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of memory that statements at any depth read, and of what they write, in order of appearance."""
    read: dict[str, None] = {}
    written: dict[str, None] = {}
    for statement in walk_statements(body):
        for root in expressions_of(statement):
            read |= {node.tensor: None for node in loads(root) if node.indices}
        if isinstance(statement, Store):
            written[statement.buffer] = None
        elif isinstance(statement, Invoke):
            read |= {name: None for name, _ in statement.read}
            written |= dict.fromkeys((*(name for name, _ in statement.written), *statement.scratch))
    return tuple(read), tuple(written)


def map_statements(
    body: tuple[Statement, ...], change: Callable[[Statement], Statement | tuple[Statement, ...]]
) -> tuple[Statement, ...]:
    """Replaces each statement at any depth by the result of `change`, inner ones first.

    A statement may become several or none. Unchanged statements are the same objects."""
    result: list[Statement] = []
    for statement in body:
        inner = statement
        if isinstance(statement, Loop | Tile):
            changed = map_statements(statement.body, change)
            inner = statement if changed is statement.body else replace(statement, body=changed)
        made = change(inner)
        result += made if isinstance(made, tuple) else (made,)
    same = len(result) == len(body) and all(new is old for new, old in zip(result, body, strict=True))
    return body if same else tuple(result)


def map_operands(statement: Statement, dim: Callable[[Dim], Dim], value: Callable[[Expr], Expr]) -> Statement:
    """Replaces the polynomials and expressions of one statement, not those of statements inside it."""
    if isinstance(statement, Loop):
        upper = None if statement.upper is None else dim(statement.upper)
        fetches = tuple(
            replace(fetch, start=dim(fetch.start), passes=None if fetch.passes is None else dim(fetch.passes))
            for fetch in statement.fetches
        )
        return replace(statement, lower=dim(statement.lower), upper=upper, fetches=fetches)
    if isinstance(statement, Tile):
        limit = None if statement.limit is None else dim(statement.limit)
        return replace(statement, base=dim(statement.base), limit=limit)
    if isinstance(statement, Declare):
        return replace(statement, initial=value(statement.initial))
    if isinstance(statement, Accumulate):
        position = None if statement.position is None else dim(statement.position)
        return replace(statement, value=value(statement.value), position=position)
    if isinstance(statement, Let):
        return replace(statement, value=value(statement.value))
    if isinstance(statement, Store):
        guards = tuple(map(dim, statement.guards))
        return replace(statement, offset=dim(statement.offset), value=value(statement.value), guards=guards)
    if isinstance(statement, Invoke):
        read = tuple((name, dim(offset)) for name, offset in statement.read)
        written = tuple((name, dim(offset)) for name, offset in statement.written)
        return replace(statement, read=read, written=written, numbers=tuple(map(dim, statement.numbers)))
    return statement


def substitute_statements(body: tuple[Statement, ...], mapping: Mapping[Atom, Dim]) -> tuple[Statement, ...]:
    """Replaces axes and sizes in statements at any depth. The axes that they bind are not replaced."""

    def change(statement: Statement) -> Statement:
        return map_operands(statement, lambda dim: dim.substitute(mapping), lambda root: substitute(root, mapping))

    return map_statements(body, change) if mapping else body
