"""Lowers a tile program to a vector program: tiles become named registers, written out row by row, vector by vector.

Loops stay loops: all rows and vectors of the enclosing tiles are inside them. A tile that may be partly empty is
written once for each number of indices that it can have; where that number is symbolic, a tail of rows is written as
pieces of 8, 4, 2 and 1, a tail of lanes as single vectors and one partial vector.
"""

from __future__ import annotations

from opweld.codegen.c.context import Context, Instance, Row, Vector
from opweld.codegen.c.memory import Memory
from opweld.codegen.c.operators import MEMORY, neutral, register, vector_literal, vector_type
from opweld.codegen.c.prefetch import UNROLL, next_panel
from opweld.codegen.c.registers import (
    Registers,
    accumulations,
    across_lanes,
    combine,
    declared_keys,
    lane_axes,
)
from opweld.codegen.c.scope import Scopes
from opweld.codegen.c.tails import possible_counts
from opweld.codegen.c.unroll import unroll_factor
from opweld.codegen.c.values import ALL, Active, Values
from opweld.codegen.c.vector import Assign, Define, Do, For, Function, GridAxis, If, VectorStatement, While
from opweld.schedule.tile import Accumulate, Collapse, Declare, Kernel, Let, Loop, Statement, Store, Tile
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, axes_of
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, cast, free_atoms, index, load, transform

_STEMS = frozenset(("acc", "sum", "total", "max", "min", "best", "mean", "square", "product", "count", "state"))


def vectorise(kernel: Kernel, name: str, lanes: int) -> Function:
    """The vector program of a kernel for registers of `lanes` elements. Names in it do not depend on the model.

    Raises ValueError when the kernel breaks the rules of `schedule.tile`."""
    return _Lowering(kernel, lanes).function(name)


class _Lowering:
    def __init__(self, kernel: Kernel, lanes: int) -> None:
        self._kernel = kernel
        self._lanes = lanes
        self._scopes = Scopes()
        self._lane = Axis("lane", lanes)
        self._memories: dict[str, Memory] = {}
        self._values = Values(self._scopes, self._lane, self._memories)
        self._registers: dict[str, Registers] = {}
        self._accumulations = {item.name: item for item in accumulations(kernel.body)}
        self._collapsed = frozenset(_collapses(kernel.body))
        self._lane_axes = frozenset(lane_axes(kernel.body))
        self._outer: list[Loop] = []
        self._instantiated: dict[tuple[Expr, tuple[tuple[Atom, Dim], ...]], Expr] = {}

    def function(self, name: str) -> Function:
        """The whole kernel."""
        scopes = self._scopes
        for position, symbol in enumerate(self._kernel.sizes):
            variable = scopes.numbered("n")
            scopes.add(Define("const int64_t", variable, f"p[{position}]"))
            scopes.current.atoms[symbol] = variable
        self._bind_memory()
        extents = [self._extent(axis) for axis in self._kernel.grid]
        scopes.open()
        grid: list[GridAxis] = []
        for axis, extent in zip(self._kernel.grid, extents, strict=True):
            variable = scopes.fresh(_stem(axis.name))
            scopes.current.atoms[axis] = variable
            grid.append(GridAxis(variable, extent))
        self._block(self._kernel.body, Context())
        body = scopes.close()
        return Function(name, scopes.close(), tuple(grid), body)

    def _extent(self, axis: Axis) -> str:
        text = self._values.integers.text(axis.extent)
        if text.isidentifier() or axis.extent.constant is not None:
            return text
        return self._scopes.define(("extent", axis), "const int64_t", self._scopes.numbered("extent"), text)

    def _bind_memory(self) -> None:
        counts: dict[str, int] = {}
        for position, buffer in enumerate(self._kernel.buffers):
            stem = {"read": "in", "write": "out", "update": "io"}[buffer.role]
            number = counts.get(stem, 0)
            counts[stem] = number + 1
            written = buffer.role != "read"
            self._add_memory(buffer.name, f"{stem}{number}", buffer.dtype, written, f"buffers[{position}]")
        offset = ZERO
        for number, block in enumerate(self._kernel.scratch):
            place = "scratch" if offset is ZERO else f"(scratch + {self._values.integers.text(offset)})"
            self._add_memory(block.name, f"tmp{number}", block.dtype, True, f"(void *){place}")
            offset = offset + (block.elements * block.dtype.bytes + 63) // 64 * 64

    def _add_memory(self, name: str, variable: str, dtype: DType, written: bool, place: str) -> None:
        self._memories[name] = Memory(variable, dtype, written)
        const = "" if written else "const "
        self._scopes.add(Define(f"{const}{MEMORY[dtype]} *restrict", variable, place))

    # ---- statements --------------------------------------------------------------------------------------------------

    def _block(self, body: tuple[Statement, ...], context: Context) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                self._loop(statement, context)
            elif isinstance(statement, Tile):
                self._tile(statement, context)
            elif isinstance(statement, Declare):
                self._declare(statement, context)
            elif isinstance(statement, Let):
                self._let(statement, context)
            elif isinstance(statement, Accumulate):
                self._accumulate(statement, context)
            elif isinstance(statement, Collapse):
                self._collapse(statement)
            else:
                self._store(statement, context)

    def _loop(self, loop: Loop, context: Context) -> None:
        for part, instance in self._single(context, loop.lower, loop.end):
            lower = loop.lower.substitute(instance.mapping)
            upper = loop.end.substitute(instance.mapping)
            self._scopes.forget(self._written(loop.body))
            lower_text, upper_text = self._values.integers.text(lower), self._values.integers.text(upper)
            variable = self._scopes.fresh(_stem(loop.axis.name))
            self._scopes.open(loop.axis, variable)
            self._outer.append(loop)
            self._block(loop.body, part)
            self._outer.pop()
            body = self._scopes.close()
            trips = (upper - lower).constant
            unroll = unroll_factor(body, trips, self._lanes)
            self._scopes.add(self._fetching(For(variable, lower_text, upper_text, body, unroll=unroll), loop, context))

    def _fetching(self, written: For, loop: Loop, context: Context) -> For:
        """The loop, with fetches of the next panel between every few bodies where that helps."""
        if written.unroll != UNROLL:
            return written
        fetch = next_panel(self._kernel, loop, tuple(self._outer), context.lane)
        if fetch is None:
            return written
        memory = self._memories[fetch.buffer]
        pointer, position = self._values.addresses.element(memory, fetch.start)
        start = pointer if position == "0" else f"{pointer} + {position}"
        block = self._scopes.fresh(f"{written.variable}_block")
        fetches = [
            Do(f"opw_prefetch({start} + {block} * {fetch.step}{f' + {64 // memory.dtype.bytes * n}' if n else ''})")
            for n in range(fetch.lines)
        ]
        inner = For(written.variable, block, f"{block} + {UNROLL}", written.body, unroll=UNROLL)
        return For(block, written.lower, written.upper, (*fetches, inner), step=UNROLL)

    def _tile(self, tile: Tile, context: Context) -> None:
        if tile.role == "lane" and context.lane is not None:
            raise ValueError(f"{self._kernel.name}: lane tile {tile.axis} inside lane tile {context.lane}")
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
            raise ValueError(f"{self._kernel.name}: bounds depend on the lane tile {context.lane}")
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
        for v in range(-(-count // self._lanes)):
            rest = count - v * self._lanes
            exists = active if rest >= self._lanes else Active(count=str(rest))
            vectors.append(Vector(v, first + v * self._lanes + self._lane.dim, exists))
        self._block(tile.body, Context(context.rows, tile.axis, tuple(vectors), shifted))

    def _counted(self, tile: Tile, context: Context, remaining: Dim, counts: tuple[int, ...]) -> None:
        if not counts:
            return
        if len(counts) == 1 and counts[0] == tile.width:
            self._full(tile, context)
            return
        if remaining.constant is not None:
            self._piece(tile, context, counts[0], None)
            return
        text = self._values.integers.text(remaining)
        left = self._scopes.define(
            ("left", remaining), "const int64_t", self._scopes.numbered("left"), text, frozenset()
        )
        chain: tuple[VectorStatement, ...] = ()
        for count in reversed(counts):
            sign = ">=" if count == tile.width else "=="
            block = self._scopes.block(lambda count=count: self._piece(tile, context, count, None))
            chain = (If(f"{left} {sign} {count}", block, chain),)
        for statement in chain:
            self._scopes.add(statement)

    def _symbolic(self, tile: Tile, context: Context, remaining: Dim) -> None:
        text = self._values.integers.text(remaining)
        left = self._scopes.define(
            ("left", remaining), "const int64_t", self._scopes.numbered("left"), text, frozenset()
        )
        full = self._scopes.block(lambda: self._full(tile, context))
        pieces = self._row_pieces if tile.role == "row" else self._lane_pieces
        tail = self._scopes.block(lambda: pieces(tile, context, left))
        self._scopes.add(If(f"{left} >= {tile.width}", full, tail))

    def _row_pieces(self, tile: Tile, context: Context, left: str) -> None:
        """Four rows at a time, then two, then one: fewer accumulators wait for each other, more make the text long."""
        start = Axis("start", tile.width)
        name = self._scopes.numbered("start")
        self._scopes.add(Define("int64_t", name, "0"))
        for size in (4, 2, 1):
            if size >= tile.width:
                continue
            self._scopes.forget(self._written(tile.body))
            self._scopes.open(start, name)
            self._piece(tile, context, size, start.dim)
            self._scopes.add(Do(f"{name} += {size}"))
            body = self._scopes.close()
            condition = f"{left} - {name} >= {size}"
            repeated = size == 4 and tile.width > 8
            self._scopes.add(While(condition, body) if repeated else If(condition, body))

    def _lane_pieces(self, tile: Tile, context: Context, left: str) -> None:
        start = Axis("start", tile.width)
        name = self._scopes.numbered("start")
        self._scopes.add(Define("int64_t", name, "0"))
        if tile.width > self._lanes:
            self._scopes.forget(self._written(tile.body))
            self._scopes.open(start, name)
            self._piece(tile, context, self._lanes, start.dim)
            self._scopes.add(Do(f"{name} += {self._lanes}"))
            body = self._scopes.close()
            self._scopes.add(While(f"{name} + {self._lanes} <= {left}", body))

        def write() -> None:
            self._scopes.current.atoms[start] = name
            rest = self._scopes.numbered("rest")
            self._scopes.add(Define("const int64_t", rest, f"{left} - {name}"))
            self._piece(tile, context, self._lanes, start.dim, Active(count=rest))

        self._scopes.add(If(f"{name} < {left}", self._scopes.block(write)))

    # ---- registers ---------------------------------------------------------------------------------------------------

    def _declare(self, item: Declare, context: Context) -> None:
        lane = next((axis for axis in item.over if axis in self._lane_axes), None)
        stem = self._scopes.fresh(item.name if item.name in _STEMS else "acc")
        registers = Registers(stem, item.dtype, item.over, lane, frozenset(item.over) - context.axes)
        registers.loops = len(self._outer)
        registers.reducing = lane is not None and lane in registers.outside and item.name in self._collapsed
        accumulation = self._accumulations.get(item.name)
        kind = accumulation.kind if accumulation is not None else "sum"
        if kind.startswith("arg") and accumulation is not None:
            registers.best_dtype = accumulation.value.dtype
        self._registers[item.name] = registers
        self._instantiated.clear()
        instances = {tuple(_keys(i, item.over)): i for i in context.instances(frozenset(item.over))}
        for key in declared_keys(item.over, context, lane, self._lanes):
            name = registers.name(key)
            pairs = zip(item.over, key, strict=True)
            instance = instances[tuple(k if axis not in registers.outside else None for axis, k in pairs)]
            text = _plain(self._values.vector(self._instantiate(item.initial, instance, context), instance.active))
            registers.names[key] = name
            self._scopes.add(Define(vector_type(item.dtype), name, text))
            if lane is not None:
                self._values.dependence.varying.add(name)
            if registers.best_dtype is not None:
                best = f"{name}_best"
                registers.best[key] = best
                lowest = vector_literal(neutral(kind, registers.best_dtype), registers.best_dtype)
                self._scopes.add(Define(vector_type(registers.best_dtype), best, lowest))

    def _let(self, item: Let, context: Context) -> None:
        axes = self._axes(item.value) & context.axes
        over = tuple(sorted(axes, key=lambda axis: axis.key))
        lane = context.lane if context.lane in axes else None
        registers = Registers(self._scopes.numbered("x"), item.value.dtype, over, lane)
        values = [
            (instance, self._instantiate(item.value, instance, context)) for instance in context.instances(axes)
        ]
        for instance, value in values:
            key = tuple(_number(instance, axis) for axis in over)
            name = registers.name(key)
            text = _plain(self._values.vector(value, instance.active))
            self._scopes.add(Define(f"const {vector_type(value.dtype)}", name, text))
            registers.names[key] = name
            if self._values.dependence.varies(value):
                self._values.dependence.varying.add(name)
        self._registers[item.name] = registers
        self._instantiated.clear()

    def _accumulate(self, item: Accumulate, context: Context) -> None:
        registers = self._registers[item.name]
        for instance in context.instances():
            name = registers.names[registers.key(instance, context.shifted)]
            value = self._instantiate(item.value, instance, context)
            active = instance.active
            if context.lane is not None and registers.lane is not context.lane:
                self._accumulate_lanes(item, name, value, active)
            elif item.kind.startswith("arg"):
                best = registers.best[registers.key(instance, context.shifted)]
                position = (item.position if item.position is not None else ZERO).substitute(instance.mapping)
                self._accumulate_position(item.kind, name, best, value, position, active)
            else:
                partial = active != ALL and registers.lane in registers.outside
                text = self._values.vector(value, active)
                mask = self._values.lanes_mask(active) if partial else None
                if mask is not None:
                    other = vector_literal(neutral(item.kind, value.dtype), value.dtype)
                    text = self._values.blend(mask, value.dtype, text, other)
                self._combine(item.kind, registers.dtype, name, text)
            self._scopes.forget(frozenset((name,)))

    def _combine(self, kind: str, dtype: DType, name: str, text: str) -> None:
        if kind in ("sum", "prod", "any", "all"):
            sign = {"sum": "+", "prod": "*", "any": "|", "all": "&"}[kind]
            self._scopes.add(Do(f"{name} {sign}= {_plain(text)}"))
        else:
            self._scopes.add(Assign(name, combine(kind, dtype, _plain(text), name)))

    def _accumulate_lanes(self, item: Accumulate, name: str, value: Expr, active: Active) -> None:
        """A value that differs from lane to lane, into a register that does not."""
        if item.kind.startswith("arg") or not self._values.dependence.varies(value):
            raise ValueError(f"{self._kernel.name}: {item.name} must be held over the lane tile it is accumulated in")
        text = self._values.vector(value, active)
        mask = self._values.lanes_mask(active)
        if mask is not None:
            other = vector_literal(neutral(item.kind, value.dtype), value.dtype)
            text = self._values.blend(mask, value.dtype, text, other)
        self._combine(item.kind, value.dtype, name, across_lanes(item.kind, value.dtype, _plain(text)))

    def _accumulate_position(
        self, kind: str, name: str, best: str, value: Expr, position: Dim, active: Active
    ) -> None:
        """Remembers where the extreme element is. A NaN is more extreme than any number, as in NumPy."""
        dtype = register(value.dtype)
        short = dtype.short
        text = self._values.named(value, active)
        last = kind.endswith("_last")
        order = ("ge" if last else "gt") if kind.startswith("argmax") else ("le" if last else "lt")
        better = f"opw_{order}_{short}({text}, {best})"
        if dtype.is_float:
            unordered = f"opw_isnan_{short}({text})"
            better += f" | {unordered}" if last else f" | ({unordered} & ~opw_isnan_{short}({best}))"
        mask = self._values.lanes_mask(active)
        if mask is not None:
            better = f"({better}) & {mask}"
        chosen = self._scopes.numbered("m")
        where = self._values.named(cast(index(position), DType.I64), active)
        self._scopes.add(Define("const vi32", chosen, better))
        self._scopes.add(Assign(best, self._values.blend(chosen, value.dtype, text, best)))
        self._scopes.add(Assign(name, self._values.blend(chosen, DType.I64, where, name)))

    def _collapse(self, item: Collapse) -> None:
        registers = self._registers[item.name]
        if registers.lane is None:
            raise ValueError(f"{self._kernel.name}: {item.name} has no lanes to collapse")
        if registers.loops != len(self._outer):
            raise ValueError(f"{self._kernel.name}: {item.name} is declared outside the loop that collapses it")
        for group in registers.groups():
            names = [registers.names[key] for key in group]
            first = names[0]
            if item.kind.startswith("arg"):
                self._collapse_position(item.kind, registers, names, [registers.best[key] for key in group])
            else:
                text = first
                for other in names[1:]:
                    text = combine(item.kind, registers.dtype, text, other)
                self._scopes.add(Assign(first, across_lanes(item.kind, registers.dtype, text)))
            for key in group:
                registers.names[key] = first
            self._values.dependence.varying.discard(first)
        registers.collapsed = True
        self._scopes.forget(frozenset(registers.all_names()))
        self._instantiated.clear()

    def _collapse_position(self, kind: str, registers: Registers, names: list[str], best: list[str]) -> None:
        assert registers.best_dtype is not None
        greatest, last = int(kind.startswith("argmax")), int(kind.endswith("_last"))
        short = register(registers.best_dtype).short
        for name, value in zip(names[1:], best[1:], strict=True):
            merge = f"opw_merge_positions_{short}(&{best[0]}, &{names[0]}, {value}, {name}, {greatest}, {last})"
            self._scopes.add(Do(merge))
        self._scopes.add(Do(f"opw_collapse_positions_{short}(&{best[0]}, &{names[0]}, {greatest}, {last})"))

    # ---- stores ------------------------------------------------------------------------------------------------------

    def _store(self, item: Store, context: Context) -> None:
        memory = self._memories[item.buffer]
        if item.value.dtype is not memory.dtype:
            raise ValueError(f"{self._kernel.name}: {item.value.dtype} is stored in {item.buffer}, of {memory.dtype}")
        done: set[object] = set()
        for instance in context.instances():
            value = self._instantiate(item.value, instance, context)
            offset = self._instantiate_dim(item.offset, instance, context)
            guards = tuple(self._instantiate_dim(guard, instance, context) for guard in item.guards)
            guards = tuple(guard for guard in guards if not (guard.constant is not None and guard.constant >= 0))
            if (value, offset, guards, instance.active) in done:
                continue
            done.add((value, offset, guards, instance.active))
            self._guarded_store(memory, offset, value, guards, instance.active, context.lane is not None)
            self._scopes.forget(frozenset((item.buffer,)))

    def _guarded_store(
        self, memory: Memory, offset: Dim, value: Expr, guards: tuple[Dim, ...], active: Active, in_lanes: bool
    ) -> None:
        uniform = tuple(guard for guard in guards if not self._values.dependence.dim_varies(guard))
        varying = tuple(guard for guard in guards if self._values.dependence.dim_varies(guard))

        def write() -> None:
            lanes = self._values.restrict(active, varying)
            self._write(memory, offset, value, lanes, in_lanes)

        if not uniform:
            write()
            return
        condition = " && ".join(self._values.integers.positive(guard) for guard in uniform)
        self._scopes.add(If(condition, self._scopes.block(write)))

    def _write(self, memory: Memory, offset: Dim, value: Expr, active: Active, in_lanes: bool) -> None:
        kind = memory.dtype.short
        stride = self._values.dependence.lane_stride(offset)
        if stride is ZERO:
            if in_lanes and self._values.dependence.varies(value):
                raise ValueError(f"{self._kernel.name}: all lanes are stored at one place, {offset}")
            text = _plain(self._values.vector(value, active))
            pointer, position = self._values.addresses.element(memory, offset)
            self._scopes.add(Do(f"{pointer}[{position}] = opw_element_{kind}({text})"))
            return
        text = _plain(self._values.vector(value, active))
        how = "masked" if active.mask is not None else "partial" if active.count is not None else ""
        suffix = f"{how}_{kind}" if how else kind
        which = f", {active.mask or active.count}" if how else ""
        if stride is None:
            offsets = self._values.integer_vector(offset, active)
            self._scopes.add(Do(f"opw_scatter_{suffix}({memory.name}, {text}, {offsets}{which})"))
            return
        pointer, position = self._values.addresses.element(memory, offset.without(self._lane))
        place = pointer if position == "0" else f"{pointer} + {position}"
        if stride is ONE:
            self._scopes.add(Do(f"opw_store_{suffix}({place}, {text}{which})"))
            return
        step = self._values.integers.operand(stride)
        self._scopes.add(Do(f"opw_store_strided_{suffix}({place}, {text}, {step}{which})"))

    # ---- instances ---------------------------------------------------------------------------------------------------

    def _axes(self, value: Expr) -> frozenset[Axis]:
        """The tile axes on which an expression depends, through accumulators and named values too."""
        found = frozenset(atom for atom in free_atoms(value) if isinstance(atom, Axis))
        for name in self._values.dependence.reads(value):
            registers = self._registers.get(name)
            if registers is not None:
                lane = frozenset((registers.lane,)) if registers.collapsed else frozenset[Axis | None]()
                found |= frozenset(registers.over) - lane
        return found

    def _instantiate(self, value: Expr, instance: Instance, context: Context) -> Expr:
        """The expression for one instance: tile axes replaced, accumulators by the names of their variables."""
        mapping = instance.mapping
        axes = self._axes(value)
        relevant = tuple((axis, mapping[axis]) for axis in mapping if axis in axes)
        key = (value, relevant)
        found = self._instantiated.get(key)
        if found is not None:
            return found

        def rewrite(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.indices:
                return None
            registers = self._registers.get(node.tensor)
            if registers is None:
                raise ValueError(f"{self._kernel.name}: {node.tensor} is used before it is defined")
            return load(registers.names[registers.key(instance, context.shifted)], node.dtype, ())

        result = transform(value, rewrite, lambda dim: dim.substitute(mapping))
        self._instantiated[key] = result
        return result

    def _instantiate_dim(self, dim: Dim, instance: Instance, context: Context) -> Dim:
        return dim.substitute(instance.mapping, lambda value: self._instantiate(value, instance, context))

    def _written(self, body: tuple[Statement, ...]) -> frozenset[str]:
        """Names of the buffers and variables that the statements write."""
        found: set[str] = set()
        for item in body:
            if isinstance(item, Store):
                found.add(item.buffer)
            elif isinstance(item, Accumulate | Collapse) and item.name in self._registers:
                found.update(self._registers[item.name].all_names())
            elif isinstance(item, Tile | Loop):
                found |= self._written(item.body)
        return frozenset(found)


def _keys(instance: Instance, over: tuple[Axis, ...]) -> list[int | None]:
    return [instance.key(axis) for axis in over]


def _number(instance: Instance, axis: Axis) -> int:
    number = instance.key(axis)
    assert number is not None
    return number


def _collapses(body: tuple[Statement, ...]) -> set[str]:
    found: set[str] = set()
    for item in body:
        if isinstance(item, Collapse):
            found.add(item.name)
        elif isinstance(item, Tile | Loop):
            found |= _collapses(item.body)
    return found


def _plain(text: str) -> str:
    """The text without a pair of parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]


def _stem(name: str) -> str:
    """A short variable name from the letters of an axis' name; never a word of C."""
    letters = "".join(c for c in name.lower() if "a" <= c <= "z")[:2]
    return letters if letters and letters not in ("if", "do", "p", "in", "io") else "i"
