"""Lowers a tile program to a vector program: tiles become named registers, written out row by row, vector by vector.

Loops stay loops: all rows and vectors of the enclosing tiles are inside them. A tile that may be partly empty is
written once for each number of indices that it can have; where that number is symbolic, a tail of rows is written as
pieces of 4, 2 and 1, a tail of lanes as single vectors and one partial vector.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from opweld.codegen.c.integers import ALL, Active
from opweld.codegen.c.matrix import MatrixTiles
from opweld.codegen.c.state import Context, Instance, Row, State, Vector
from opweld.codegen.c.statements import Accumulators, Stores
from opweld.codegen.c.vector import (
    Conditional,
    Define,
    Do,
    Element,
    Expression,
    For,
    Function,
    GridAxis,
    If,
    Infix,
    Literal,
    Name,
    Update,
    VectorStatement,
    While,
    call,
    integer,
    moved,
    plus,
)
from opweld.schedule.cost import LINE
from opweld.tensor.dim import ZERO, Axis, Dim, axes_of
from opweld.tensor.expr import Load, loads
from opweld.tensor.externs import symbol
from opweld.tile.bodies import Place, Step, lay_out, reads_of, trips_of
from opweld.tile.instances import possible_counts
from opweld.tile.matrix import is_matrix
from opweld.tile.registers import most_held
from opweld.tile.tile import Accumulate, Collapse, Declare, Fetch, Invoke, Kernel, Let, Loop, Statement, Tile


def vectorise(kernel: Kernel, name: str, lanes: int) -> Function:
    """The vector program of a kernel for registers of `lanes` elements. Names in it do not depend on the model.

    Raises ValueError when the kernel breaks the rules of `tile.check`."""
    return _Lowering(kernel, lanes).function(name)


class _Lowering:
    def __init__(self, kernel: Kernel, lanes: int) -> None:
        self._state = State(kernel, lanes)
        self._scopes = self._state.scopes
        self._accumulators = Accumulators(self._state)
        self._stores = Stores(self._state)
        self._matrix = MatrixTiles(self._state)

    def function(self, name: str) -> Function:
        """The whole kernel."""
        scopes = self._scopes
        for position, atom in enumerate(self._state.kernel.sizes):
            variable = scopes.numbered("n")
            scopes.add(Define("const int64_t", variable, Element(Name("p"), integer(position))))
            scopes.current.atoms[atom] = Name(variable)
        self._state.bind_memory()
        extents = [self._extent(axis) for axis in self._state.kernel.grid]
        scopes.open()
        grid: list[GridAxis] = []
        for axis, extent in zip(self._state.kernel.grid, extents, strict=True):
            variable = scopes.fresh(_stem(axis.name))
            scopes.current.atoms[axis] = Name(variable)
            grid.append(GridAxis(variable, extent))
        self._block(self._state.kernel.body, Context())
        body = scopes.close()
        return Function(name, scopes.close(), tuple(grid), body)

    def _extent(self, axis: Axis) -> Expression:
        value = self._state.values.integers.value(axis.extent)
        if isinstance(value, Name | Literal):
            return value
        return self._scopes.define(("extent", axis), "const int64_t", self._scopes.numbered("extent"), value)

    # ---- statements --------------------------------------------------------------------------------------------------

    def _block(self, body: tuple[Statement, ...], context: Context) -> None:
        crowded = self._crowded(body, context)
        for previous, statement in zip((None, *body), body, strict=False):
            if crowded and isinstance(statement, Accumulate) and isinstance(previous, Accumulate):
                self._scopes.add(Do(call("opw_separate")))
                self._scopes.forget(frozenset(self._state.memories))
            if isinstance(statement, Loop):
                self._loop(statement, context)
            elif isinstance(statement, Tile):
                self._tile(statement, context)
            elif isinstance(statement, Declare):
                self._accumulators.declare(statement, context)
            elif isinstance(statement, Let):
                self._accumulators.let(statement, context)
            elif isinstance(statement, Accumulate):
                self._accumulators.accumulate(statement, context)
            elif isinstance(statement, Collapse):
                self._accumulators.collapse(statement)
            elif isinstance(statement, Invoke):
                self._invoke(statement)
            else:
                self._stores.store(statement, context)

    def _invoke(self, item: Invoke) -> None:
        """A call of a function of `tensor.externs`."""
        values, memories = self._state.values, self._state.memories
        places = [(memories[name], offset) for name, offset in (*item.read, *item.written)]
        pointers = [moved(*values.addresses.element(memory, offset)) for memory, offset in places]
        scratch = [memories[name].name for name in item.scratch]
        numbers = [values.integers.value(dim) for dim in item.numbers]
        name = symbol(item.function, places[0][0].dtype)
        self._scopes.add(Do(call(name, *pointers, *scratch, *numbers, Name("error"))))
        self._scopes.forget(frozenset((*(name for name, _ in item.written), *item.scratch)))

    def _crowded(self, body: tuple[Statement, ...], context: Context) -> bool:
        """Whether the piece of the tiles being written takes the registers from which on its loop wants no sharing."""
        loop = self._state.outer[-1] if self._state.outer else None
        if loop is None or loop.body is not body or loop.separate is None:
            return False
        found: list[tuple[str, list[Load]]] = []
        for item in body:
            if isinstance(item, Accumulate):
                registers = self._state.registers[item.name]
                for instance in context.instances():
                    name = registers.names[registers.key(instance, context.shifted)]
                    found.append((name, loads(self._state.instantiate(item.value, instance, context))))
        return most_held(found) >= loop.separate

    def _loop(self, loop: Loop, context: Context) -> None:
        for part, instance in self._single(context, loop.lower, loop.end):
            lower = loop.lower.substitute(instance.mapping)
            trips = trips_of(loop)
            if trips is not None:
                self._laid_out(loop, part, lower, trips)
                continue
            upper = loop.end.substitute(instance.mapping)
            self._scopes.forget(self._state.written(loop.body))
            first, last = self._state.values.integers.value(lower), self._state.values.integers.value(upper)
            variable = self._scopes.fresh(_stem(loop.axis.name))
            self._scopes.open(loop.axis, variable)
            self._state.outer.append(loop)
            self._block(loop.body, part)
            self._state.outer.pop()
            body = self._scopes.close()
            written = For(variable, first, last, body, unroll=loop.unroll)
            self._scopes.add(self._fetching(written, loop.fetches) if loop.fetches else written)

    def _laid_out(self, loop: Loop, context: Context, lower: Dim, trips: int) -> None:
        """All bodies of a loop of accumulations in a row, in the order of the fewest loads."""
        self._scopes.forget(self._state.written(loop.body))
        found: list[tuple[Accumulate, Context]] = []
        for trip in range(trips):
            rows = (*context.rows, (loop.axis, (Row(trip, lower + trip),)))
            body = replace(context, rows=rows)
            rowwise = list(body.split(frozenset(axis for axis, _ in rows)))
            found += [(item, row) for item in loop.body if isinstance(item, Accumulate) for row in rowwise]
        layout = lay_out([self._step(item, row) for item, row in found], loop.separate or sys.maxsize)
        for position, number in enumerate(layout.order):
            if position in layout.breaks:
                self._scopes.add(Do(call("opw_separate")))
                self._scopes.forget(frozenset(self._state.memories))
            self._accumulators.accumulate(*found[number])

    def _step(self, item: Accumulate, row: Context) -> Step:
        """What one accumulation adds to and loads, in one row and all vectors."""
        registers, reads = self._state.registers[item.name], reads_of(item)
        accumulators: list[str] = []
        loaded: list[tuple[Place, ...]] = []
        for instance in row.instances():
            mapping = instance.mapping
            accumulators.append(registers.names[registers.key(instance, row.shifted)])
            loaded.append(tuple((node.tensor, node.indices[0].substitute(mapping)) for node in reads))
        return Step(tuple(accumulators), tuple(loaded))

    def _fetching(self, written: For, fetches: tuple[Fetch, ...]) -> For:
        """The loop in blocks of as many bodies as it is unrolled, with the fetches before each block; a block of one
        body begins with them."""
        single = written.unroll == 1
        block = Name(written.variable if single else self._scopes.fresh(f"{written.variable}_block"))
        made: list[VectorStatement] = []
        for fetch in fetches:
            memory = self._state.memories[fetch.buffer]
            place = moved(*self._state.values.addresses.element(memory, fetch.start))
            step = integer(fetch.step) if fetch.passes is None else self._step_of(fetch.passes, fetch.step)
            start, line = plus(place, Infix("*", block, step)), LINE // memory.dtype.bytes
            made += [Do(call("opw_prefetch", moved(start, integer(line * n)))) for n in range(fetch.lines)]
        if single:
            return replace(written, body=(*made, *written.body))
        inner = replace(written, lower=block, upper=plus(block, integer(written.unroll)))
        return For(block.name, written.lower, written.upper, (*made, inner), step=written.unroll)

    def _step_of(self, passes: Dim, step: int) -> Name:
        """A name for the elements that the fetches of a block are apart, before all loops, as it depends on sizes only:
        none in a single pass, which fetches the same lines again and so next to nothing. A test around the fetches
        would be another body of the loop, and its pointers more than there are registers."""
        more = Infix(">", self._state.values.integers.value(passes), integer(1))
        key, value = ("step", passes, step), Conditional(more, integer(step), integer(0))
        return self._scopes.find(key) or self._scopes.define(
            key, "const int64_t", self._scopes.numbered("step"), value, depth=0
        )

    def _tile(self, tile: Tile, context: Context) -> None:
        if is_matrix(tile):
            self._matrix.tile(tile)
            return
        if tile.role == "lane" and context.lane is not None:
            raise ValueError(f"{self._state.kernel.name}: lane tile {tile.axis} inside lane tile {context.lane}")
        dims = (tile.base,) if tile.limit is None else (tile.base, tile.limit)
        for part, instance in self._single(context, *dims):
            if tile.limit is None:
                self._full(tile, part)
                continue
            remaining = (tile.limit - tile.base).substitute(instance.mapping)
            counts = possible_counts(remaining, tile.width)
            if counts is not None:
                self._counted(tile, part, remaining, counts)
            else:
                self._symbolic(tile, part, remaining)

    def _single(self, context: Context, *dims: Dim) -> list[tuple[Context, Instance]]:
        """Contexts in which none of the polynomials depends on a tile axis that has several values."""
        axes = frozenset(axis for dim in dims for axis in axes_of(dim)) & context.axes
        if context.lane in axes:
            raise ValueError(f"{self._state.kernel.name}: bounds depend on the lane tile {context.lane}")
        return [(part, next(part.instances(axes))) for part in context.split(axes)]

    def _full(self, tile: Tile, context: Context) -> None:
        self._piece(tile, context, tile.width, None)

    def _piece(self, tile: Tile, context: Context, count: int, start: Dim | None, active: Active = ALL) -> None:
        """The body for `count` indices, from `start` on where given."""
        shifted = context.shifted if start is None else context.shifted | {tile.axis}
        first = ZERO if start is None else start
        if tile.role == "row":
            rows = tuple(Row(r, first + r) for r in range(count))
            self._block(tile.body, Context((*context.rows, (tile.axis, rows)), context.lane, context.vectors, shifted))
            return
        vectors: list[Vector] = []
        for v in range(-(-count // self._state.lanes)):
            rest = count - v * self._state.lanes
            exists = active if rest >= self._state.lanes else Active(count=integer(rest))
            vectors.append(Vector(v, first + v * self._state.lanes + self._state.lane.dim, exists))
        self._block(tile.body, Context(context.rows, tile.axis, tuple(vectors), shifted))

    def _counted(self, tile: Tile, context: Context, remaining: Dim, counts: tuple[int, ...]) -> None:
        if counts == (0,):
            return
        if counts == (tile.width,):
            self._full(tile, context)
            return
        if remaining.constant is not None:
            self._piece(tile, context, counts[0], None)
            return
        left = self._left(remaining)
        chain: tuple[VectorStatement, ...] = ()
        for count in reversed([count for count in counts if count]):
            condition = Infix(">=" if count == tile.width else "==", left, integer(count))
            block = self._scopes.block(lambda count=count: self._piece(tile, context, count, None))
            chain = (If(condition, block, chain),)
        for statement in chain:
            self._scopes.add(statement)

    def _symbolic(self, tile: Tile, context: Context, remaining: Dim) -> None:
        left = self._left(remaining)
        full = self._scopes.block(lambda: self._full(tile, context))
        pieces = self._row_pieces if tile.role == "row" else self._lane_pieces
        tail = self._scopes.block(lambda: pieces(tile, context, left))
        self._scopes.add(If(Infix(">=", left, integer(tile.width)), full, tail))

    def _left(self, remaining: Dim) -> Name:
        """A name for how many indices of a tile are left."""
        value = self._state.values.integers.value(remaining)
        return self._scopes.define(("left", remaining), "const int64_t", self._scopes.numbered("left"), value)

    def _row_pieces(self, tile: Tile, context: Context, left: Name) -> None:
        """Four rows at a time, then two, then one: fewer accumulators wait for each other, more make the text long."""
        start = Axis("start", tile.width)
        name = Name(self._scopes.numbered("start"))
        self._scopes.add(Define("int64_t", name.name, integer(0)))
        for size in (4, 2, 1):
            if size >= tile.width:
                continue
            self._scopes.forget(self._state.written(tile.body))
            self._scopes.open(start, name.name)
            self._piece(tile, context, size, start.dim)
            self._scopes.add(Update(name, "+", integer(size)))
            body = self._scopes.close()
            condition = Infix(">=", Infix("-", left, name), integer(size))
            repeated = size == 4 and tile.width > 8
            self._scopes.add(While(condition, body) if repeated else If(condition, body))

    def _lane_pieces(self, tile: Tile, context: Context, left: Name) -> None:
        start = Axis("start", tile.width)
        name = Name(self._scopes.numbered("start"))
        self._scopes.add(Define("int64_t", name.name, integer(0)))
        if tile.width > self._state.lanes:
            self._scopes.forget(self._state.written(tile.body))
            self._scopes.open(start, name.name)
            self._piece(tile, context, self._state.lanes, start.dim)
            self._scopes.add(Update(name, "+", integer(self._state.lanes)))
            body = self._scopes.close()
            self._scopes.add(While(Infix("<=", plus(name, integer(self._state.lanes)), left), body))

        def write() -> None:
            self._scopes.current.atoms[start] = name
            rest = Name(self._scopes.numbered("rest"))
            self._scopes.add(Define("const int64_t", rest.name, Infix("-", left, name)))
            self._piece(tile, context, self._state.lanes, start.dim, Active(count=rest))

        self._scopes.add(If(Infix("<", name, left), self._scopes.block(write)))


def _stem(name: str) -> str:
    """A short variable name from the letters of an axis' name; never a word of C."""
    letters = "".join(c for c in name.lower() if "a" <= c <= "z")[:2]
    return letters if letters and letters not in ("if", "do", "p", "in", "io") else "i"
