"""The invariants of tile programs: what every renderer may rely on.

memory      a load or store with an address names a buffer or scratch block of its dtype, and its role allows it; a
            load may read a word of 32 bits of memory of bytes
registers   a load without an address names an accumulator or `Let` that is in scope, and each is read by someone; then
            its name may serve another one
axes        every axis is that of the grid, or of an enclosing loop or tile, and is bound once
tiles       lane tiles are whole vectors wide and do not nest; one whose accumulator is in a matrix unit has the form
            that `tile.matrix` says
accumulators  are declared over enclosing tiles, or over the lanes of a later tile of the same block, are accumulated
            inside exactly those tiles, and read there or after they were collapsed
calls       stand outside of tiles, read what may be read and write what may be written
loops       are unrolled once at least; what they fetch is memory, once for each group of unrolled bodies
sizes       every symbol is a parameter
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from opweld.errors import OpweldError
from opweld.tensor.dim import ZERO, Axis, Dim, Symbol, Value, atoms_of
from opweld.tensor.dtype import DType
from opweld.tensor.expr import REDUCTIONS, Expr, Load, Reduce, dims_of, walk
from opweld.tensor.externs import EXTERNS
from opweld.tile.matrix import is_matrix, matrix_tile
from opweld.tile.tile import (
    Accumulate,
    Collapse,
    Declare,
    Invoke,
    Kernel,
    Let,
    Loop,
    Statement,
    Store,
    Tile,
    dims_of_statement,
    reads,
    walk_statements,
)


def check_kernel(kernel: Kernel, lanes: int) -> None:
    """Checks the invariants of a kernel for vectors of `lanes` float32.

    Raises OpweldError, which names the kernel, the statement and what is wrong with it.
    """
    _Checker(kernel, lanes).run()


@dataclass(eq=False)
class _Register:
    """An accumulator (`over` its axes) or a `Let` (over the tiles around it)."""

    dtype: DType
    over: tuple[Axis, ...]
    accumulates: bool
    collapsed: bool = False
    read: bool = False


@dataclass(frozen=True, eq=False)
class _Scope:
    """What is known at a statement: axes, the tiles among them, and registers by name."""

    axes: frozenset[Axis]
    tiles: tuple[Tile, ...]
    registers: dict[str, _Register]

    def inside(self, axis: Axis, tile: Tile | None = None) -> _Scope:
        tiles = self.tiles if tile is None else (*self.tiles, tile)
        return _Scope(self.axes | {axis}, tiles, dict(self.registers))

    @property
    def tile_axes(self) -> tuple[Axis, ...]:
        return tuple(tile.axis for tile in self.tiles)


class _Checker:
    def __init__(self, kernel: Kernel, lanes: int) -> None:
        self._kernel = kernel
        self._lanes = lanes
        self._dtypes = {block.name: block.dtype for block in (*kernel.buffers, *kernel.scratch)}
        self._readable = {buffer.name for buffer in kernel.buffers if buffer.role != "write"}
        self._writable = {buffer.name for buffer in kernel.buffers if buffer.role != "read"}
        self._scratch = {block.name for block in kernel.scratch}
        self._sizes = frozenset(kernel.sizes)
        self._where = "its parameters"

    def run(self) -> None:
        """Checks everything."""
        kernel = self._kernel
        names = [block.name for block in (*kernel.buffers, *kernel.scratch)]
        self._unique(names, "memory")
        self._unique(kernel.sizes, "sizes")
        self._unique(kernel.grid, "grid axes")
        nothing = _Scope(frozenset(), (), {})
        for axis in kernel.grid:
            self._dim(axis.extent, nothing)
        for block in kernel.scratch:
            self._dim(block.elements, nothing)
        self._block(kernel.body, _Scope(frozenset(kernel.grid), (), {}))

    def _fail(self, reason: str) -> NoReturn:
        raise OpweldError(f"kernel {self._kernel.name}, {self._where}: {reason}")

    def _unique(self, values: Iterable[object], what: str) -> None:
        found = list(values)
        for value in found:
            if found.count(value) > 1:
                self._fail(f"{what} named twice: {value}")

    # ----------------------------------------------------------------------------------------------- statements

    def _block(self, body: tuple[Statement, ...], scope: _Scope) -> None:
        outer = set(scope.registers.values())
        for position, statement in enumerate(body):
            self._where = _describe(statement)
            self._statement(statement, scope, body[position + 1 :])
        for name, register in scope.registers.items():
            if register not in outer and not register.read:
                self._where = f"register {name}"
                self._fail("is never read")

    def _statement(self, statement: Statement, scope: _Scope, later: tuple[Statement, ...]) -> None:
        if isinstance(statement, Loop):
            self._dim(statement.lower, scope)
            self._dim(statement.end, scope)
            self._fresh_axis(statement.axis, scope)
            self._writing(statement, scope)
            self._block(statement.body, scope.inside(statement.axis))
        elif isinstance(statement, Tile):
            self._tile(statement, scope)
        elif isinstance(statement, Declare):
            self._declare(statement, scope, later)
        elif isinstance(statement, Accumulate):
            self._accumulate(statement, scope)
        elif isinstance(statement, Collapse):
            register = self._accumulator(statement.name, scope)
            if register.collapsed or len(register.over) != 1 or register.over[0] in scope.axes:
                self._fail("needs an accumulator over lanes that are not in scope any more")
            register.collapsed = True
        elif isinstance(statement, Let):
            self._expression(statement.value, scope)
            self._name(statement.name, _Register(statement.value.dtype, scope.tile_axes, accumulates=False), scope)
        elif isinstance(statement, Invoke):
            self._invoke(statement, scope)
        else:
            self._store(statement, scope)

    def _writing(self, loop: Loop, scope: _Scope) -> None:
        """How a loop is to be written: counts are positive, fetches are of memory and fit the unrolled bodies."""
        if loop.unroll < 1 or (loop.separate is not None and loop.separate < 1):
            self._fail("counts bodies and registers from 1 on")
        trips = (loop.end - loop.lower).constant
        for fetch in loop.fetches:
            if fetch.buffer not in self._readable | self._scratch:
                self._fail(f"fetches {fetch.buffer}, which is no memory that is there to be read")
            if fetch.lines < 1 or loop.lower is not ZERO or trips is None or trips % loop.unroll:
                self._fail(f"fetches {fetch.lines} lines for every {loop.unroll} of {trips} bodies")
            for dim in fetch.dims():
                self._dim(dim, scope)
            if _axes(fetch.start) & set(scope.tile_axes):
                self._fail("fetches from an index of a tile")
            if fetch.passes is not None and _axes(fetch.passes):
                self._fail("fetches for passes that an iteration counts")

    def _tile(self, tile: Tile, scope: _Scope) -> None:
        self._dim(tile.base, scope)
        if tile.limit is not None:
            self._dim(tile.limit, scope)
        self._fresh_axis(tile.axis, scope)
        if is_matrix(tile) and not scope.tiles:
            self._matrix(tile)
        width = tile.axis.extent.constant
        if width is None or width < 1:
            self._fail(f"is {tile.axis.extent} wide; a tile's width is known when compiling")
        if tile.role == "lane":
            if width % self._lanes:
                self._fail(f"is {width} wide, which is no multiple of {self._lanes} lanes")
            if any(outer.role == "lane" for outer in scope.tiles):
                self._fail("is a lane tile inside a lane tile")
        tiles_above = {axis for outer in (tile.base, tile.limit) if outer is not None for axis in _axes(outer)}
        if tiles_above & set(scope.tile_axes):
            self._fail("begins or ends at an index of another tile")
        self._block(tile.body, scope.inside(tile.axis, tile))

    def _matrix(self, tile: Tile) -> None:
        try:
            matrix_tile(tile)
        except ValueError as error:
            self._fail(f"an accumulator in a matrix unit {error}")

    def _declare(self, statement: Declare, scope: _Scope, later: tuple[Statement, ...]) -> None:
        if statement.unit == "matrix" and [tile.role for tile in scope.tiles] != ["lane", "row"]:
            self._fail("an accumulator in a matrix unit is in no tile of rows in a tile of lanes")
        others = set(scope.tile_axes) - set(statement.over)
        self._expression(statement.initial, _Scope(scope.axes - others, (), scope.registers))
        if statement.initial.dtype is not statement.dtype:
            self._fail(f"starts with a {statement.initial.dtype!r}")
        bound_later = {s.axis for s in walk_statements(later) if isinstance(s, Tile) and s.role == "lane"}
        for axis in statement.over:
            if axis not in scope.tile_axes and axis not in bound_later:
                self._fail(f"runs over {axis}, which is no tile around it nor the lanes of one after it")
        self._name(statement.name, _Register(statement.dtype, statement.over, accumulates=True), scope)

    def _accumulate(self, statement: Accumulate, scope: _Scope) -> None:
        register = self._accumulator(statement.name, scope)
        if statement.kind not in REDUCTIONS:
            self._fail(f"is no reduction: {statement.kind}")
        if statement.kind.startswith("arg") != (statement.position is not None):
            self._fail("an arg kind has a position, the others have none")
        if statement.position is not None:
            self._dim(statement.position, scope)
            if register.dtype is not DType.I64:
                self._fail(f"an arg kind counts in i64, and {statement.name} is a {register.dtype!r}")
        elif statement.value.dtype is not register.dtype:
            self._fail(f"combines a {statement.value.dtype!r} into a {register.dtype!r}")
        if register.collapsed:
            self._fail("combines into an accumulator that was collapsed")
        if set(register.over) != set(scope.tile_axes):
            self._fail(f"is inside tiles {list(scope.tile_axes)}, its accumulator over {list(register.over)}")
        self._expression(statement.value, scope)

    def _store(self, statement: Store, scope: _Scope) -> None:
        if statement.buffer not in self._writable | self._scratch:
            self._fail("writes memory that is not there to be written")
        if statement.value.dtype is not self._dtypes[statement.buffer]:
            self._fail(f"writes a {statement.value.dtype!r} into {self._dtypes[statement.buffer]!r} memory")
        self._dim(statement.offset, scope)
        for guard in statement.guards:
            self._dim(guard, scope)
        self._expression(statement.value, scope)

    def _invoke(self, statement: Invoke, scope: _Scope) -> None:
        if statement.function not in EXTERNS:
            self._fail("calls a function that there is not")
        if scope.tiles:
            self._fail("calls a function inside a tile")
        for name, _ in statement.read:
            if name not in self._readable | self._scratch:
                self._fail(f"reads {name}, which is no memory that is there to be read")
        for name in (*(name for name, _ in statement.written), *statement.scratch):
            if name not in self._writable | self._scratch:
                self._fail(f"writes {name}, which is no memory that is there to be written")
        for dim in dims_of_statement(statement):
            self._dim(dim, scope)

    def _accumulator(self, name: str, scope: _Scope) -> _Register:
        found = scope.registers.get(name)
        if found is None or not found.accumulates:
            self._fail(f"{name} is no accumulator in scope")
        return found

    def _fresh_axis(self, axis: Axis, scope: _Scope) -> None:
        if axis in scope.axes:
            self._fail(f"axis {axis} is bound already")

    def _name(self, name: str, register: _Register, scope: _Scope) -> None:
        before = scope.registers.get(name)
        if not (before is None or before.read):
            self._fail(f"the name {name} is taken")
        scope.registers[name] = register

    # ---------------------------------------------------------------------------------------------- expressions

    def _dim(self, dim: Dim, scope: _Scope) -> None:
        for atom in atoms_of(dim):
            if isinstance(atom, Symbol) and atom not in self._sizes:
                self._fail(f"size {atom} is no parameter")
            if isinstance(atom, Axis) and atom not in scope.axes:
                self._fail(f"axis {atom} is not in scope")
            if isinstance(atom, Value):
                self._expression(atom.expr, scope)

    def _expression(self, root: Expr, scope: _Scope) -> None:
        for node in walk(root):
            if isinstance(node, Reduce):
                self._fail("holds a reduction, which only an accumulator can compute")
            for dim in dims_of(node):
                for atom in atoms_of(dim):
                    if not isinstance(atom, Value):
                        self._dim(atom.dim, scope)
            if isinstance(node, Load):
                self._load(node, scope)

    def _load(self, node: Load, scope: _Scope) -> None:
        if node.indices:
            if len(node.indices) != 1 or node.tensor not in self._readable | self._scratch:
                self._fail(f"{node} reads no memory that is there to be read")
            if not reads(node.dtype, self._dtypes[node.tensor]):
                self._fail(f"{node} reads a {node.dtype!r} from {self._dtypes[node.tensor]!r} memory")
            return
        register = scope.registers.get(node.tensor)
        if register is None:
            self._fail(f"{node.tensor} is no register in scope")
        if register.dtype is not node.dtype:
            self._fail(f"{node} reads a {node.dtype!r} from a {register.dtype!r} register")
        if not register.collapsed and not set(register.over) <= scope.axes:
            self._fail(f"{node.tensor} is read outside of its tiles")
        register.read = True


def _describe(statement: Statement) -> str:
    if isinstance(statement, Loop | Tile):
        return f"{statement.role + ' tile' if isinstance(statement, Tile) else 'loop'} {statement.axis}"
    if isinstance(statement, Invoke):
        return f"invoke {statement.function}"
    name = statement.buffer if isinstance(statement, Store) else statement.name
    return f"{type(statement).__name__.lower()} {name}"


def _axes(dim: Dim) -> set[Axis]:
    return {atom for atom in atoms_of(dim) if isinstance(atom, Axis)}
