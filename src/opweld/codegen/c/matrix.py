"""Tiles whose accumulators are in a matrix unit, by the functions of `opweld_matrix.h`."""

from __future__ import annotations

from collections.abc import Callable

from opweld.codegen.c.memory import Memory
from opweld.codegen.c.state import State
from opweld.codegen.c.vector import Do, Expression, For, If, Infix, Literal, Prefix, call, integer, moved
from opweld.schedule.cost import MATRIX_ROWS
from opweld.tensor.dim import Atom, Dim, as_dim, minimum
from opweld.tensor.expr import Load
from opweld.tile.matrix import MatrixTile, matrix_tile
from opweld.tile.tile import Tile


class MatrixTiles:
    """Writes such tiles of one function."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._scopes = state.scopes

    def tile(self, tile: Tile) -> None:
        """The sums of a tile, and their stores. Rows that do not exist are neither loaded nor stored."""
        parts = matrix_tile(tile)
        shape, row = parts.shape, parts.row
        exist = as_dim(row.width) if row.limit is None else minimum(row.width, row.limit - row.base)
        rows = self._state.values.integers.value(exist)
        if not isinstance(rows, Literal):
            rows = self._scopes.define(exist, "const int64_t", self._scopes.numbered("rows"), rows)
        self._do("shape", integer(shape.down), integer(shape.across), rows, integer(parts.steps))
        for number in range(shape.down * shape.across):
            self._do("zero", integer(number))
        self._loops(parts, rows, 0)
        for down in range(shape.down):
            self._where_rows(down, rows, lambda down=down: self._stores(parts, down))
        self._scopes.forget(frozenset((parts.store.buffer,)))

    def _do(self, function: str, *operands: Expression) -> None:
        unit = self._scopes.find("matrix unit")
        if unit is None:
            start = call("opw_matrix_start")
            unit = self._scopes.define("matrix unit", "OPW_MATRIX", self._scopes.fresh("matrix"), start, depth=0)
        self._scopes.add(Do(call(f"opw_matrix_{function}", Prefix("&", unit), *operands)))

    def _loops(self, parts: MatrixTile, rows: Expression, depth: int) -> None:
        if depth == len(parts.loops):
            self._step(parts, rows)
            return
        loop, values = parts.loops[depth], self._state.values.integers
        first, last = values.value(loop.lower), values.value(loop.end)
        variable = self._scopes.fresh(f"k{depth}")
        self._scopes.open(loop.axis, variable)
        self._loops(parts, rows, depth + 1)
        body = self._scopes.close()
        self._scopes.add(For(variable, first, last, body, step=loop.unroll))

    def _step(self, parts: MatrixTile, rows: Expression) -> None:
        """As many steps of the sum as the unit takes at once, for all registers of the tile."""
        shape, factors = parts.shape, parts.factors
        name = factors.op + ("_swapped" if factors.swapped else "")

        def products(down: int, across: int) -> None:
            if across == 0:
                self._load(shape.rows(down), parts, factors.rows, down, 0, factors.stride)
            self._do(name, *map(integer, (shape.accumulator(down, across), shape.rows(down), shape.lanes(across))))

        for across in range(shape.across):
            self._load(shape.lanes(across), parts, factors.lanes, 0, across, factors.step)
            for down in range(shape.down):
                self._where_rows(down, rows, lambda down=down, across=across: products(down, across))

    def _where_rows(self, down: int, rows: Expression, write: Callable[[], None]) -> None:
        """What `write` writes about one of the registers down, where it has rows: the first one always has."""
        if down == 0 or isinstance(rows, Literal):
            write()
        else:
            self._scopes.add(If(Infix(">", rows, integer(MATRIX_ROWS * down)), self._scopes.block(write)))

    def _load(self, register: int, parts: MatrixTile, operand: Load, down: int, across: int, stride: int) -> None:
        memory = self._state.values.addresses.words(self._state.memories[operand.tensor], operand.dtype)
        place = self._place(parts, memory, operand.indices[0], down, across)
        self._do("load", integer(register), place, integer(stride))

    def _stores(self, parts: MatrixTile, down: int) -> None:
        memory = self._state.memories[parts.store.buffer]
        for across in range(parts.shape.across):
            place = self._place(parts, memory, parts.store.offset, down, across)
            self._do("store", integer(parts.shape.accumulator(down, across)), place, integer(parts.pitch))

    def _place(self, parts: MatrixTile, memory: Memory, address: Dim, down: int, across: int) -> Expression:
        """A pointer to the first element of a register."""
        at: dict[Atom, Dim] = {
            parts.row.axis: as_dim(MATRIX_ROWS * down),
            parts.lane.axis: as_dim(MATRIX_ROWS * across),
        }
        return moved(*self._state.values.addresses.element(memory, address.substitute(at)))
