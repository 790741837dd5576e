"""What happens to registers and memory: accumulators and named values, declared, combined, reduced; stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from opweld.codegen.c.integers import ALL, Active
from opweld.codegen.c.memory import Memory, memory_call
from opweld.codegen.c.operators import (
    REDUCE_INFIX,
    across_lanes,
    combine,
    register,
    select,
    vector_literal,
    vector_type,
)
from opweld.codegen.c.state import Context, Instance, Registers, State, declared_keys
from opweld.codegen.c.vector import (
    Assign,
    Define,
    Do,
    Element,
    Expression,
    If,
    Infix,
    Literal,
    Name,
    Prefix,
    Update,
    call,
    moved,
)
from opweld.tensor.dim import ONE, ZERO, Axis, Dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Expr, Load, cast, index
from opweld.tensor.guards import Groups, in_turn
from opweld.tensor.operators import WORDS, neutral
from opweld.tensor.rounding import saturated
from opweld.tile.squares import is_square
from opweld.tile.tile import Accumulate, Collapse, Declare, Let, Store

_STEMS = frozenset(("acc", "sum", "total", "max", "min", "best", "mean", "square", "product", "count", "state"))


HALF = 8
"""Lanes of half of the longest vector, for which alone functions of halves are written."""


class Accumulators:
    """Writes everything that happens to registers in one function."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._values = state.values
        self._indices = state.values.indices
        self._scopes = state.scopes

    def declare(self, item: Declare, context: Context) -> None:
        """New registers, one for each index of the axes the accumulator is held over."""
        lane = next((axis for axis in item.over if axis in self._state.lane_axes), None)
        stem = self._scopes.fresh(item.name if item.name in _STEMS else "acc")
        registers = Registers(stem, item.dtype, item.over, lane, frozenset(item.over) - context.axes)
        registers.loops = len(self._state.outer)
        registers.reducing = lane is not None and lane in registers.outside and item.name in self._state.collapsed
        accumulation = self._state.accumulations.get(item.name)
        kind = accumulation.kind if accumulation is not None else "sum"
        if kind.startswith("arg") and accumulation is not None:
            registers.best_dtype = accumulation.value.dtype
        self._state.registers[item.name] = registers
        self._state.forget_instances()
        if self._is_square(item, context):
            self._squares(item.initial, registers, context)
            return
        instances = {tuple(_keys(i, item.over)): i for i in context.instances(frozenset(item.over))}
        for key in declared_keys(item.over, context, lane, self._state.lanes):
            name = registers.name(key)
            pairs = zip(item.over, key, strict=True)
            instance = instances[tuple(k if axis not in registers.outside else None for axis, k in pairs)]
            initial = self._state.instantiate(item.initial, instance, context)
            value = self._values.vector(initial, instance.active)
            registers.names[key] = name
            self._scopes.add(Define(vector_type(item.dtype), name, value))
            if lane is not None:
                self._values.dependence.varying.add(name)
            if registers.best_dtype is not None:
                best = f"{name}_best"
                registers.best[key] = best
                lowest = vector_literal(neutral(kind, registers.best_dtype), registers.best_dtype)
                self._scopes.add(Define(vector_type(registers.best_dtype), best, lowest))

    def _is_square(self, item: Declare, context: Context) -> bool:
        """Whether registers over whole vectors, and as many rows as those have lanes, begin with elements that lie
        next to each other from row to row."""
        value, lane = item.initial, context.lane
        if lane is None or len(context.rows) != 1:
            return False
        ((axis, rows),) = context.rows
        if not is_square(value, axis, lane) or self._state.memories[value.tensor].dtype is not value.dtype:
            return False
        whole = len(rows) == self._state.lanes and all(vector.active == ALL for vector in context.vectors)
        return whole and set(item.over) == {axis, lane}

    def _squares(self, value: Expr, registers: Registers, context: Context) -> None:
        """Loads a square of elements for each vector, and transposes it."""
        lane = self._state.lane
        squares: dict[int, str] = {}
        for instance in context.instances():
            key = registers.key(instance, context.shifted)
            vector = instance.key(context.lane) if context.lane is not None else None
            ((_, row),) = instance.rows.items()
            if vector not in squares:  # the instance is that of the first row
                loaded = self._state.instantiate(value, instance, context)
                assert isinstance(loaded, Load) and vector is not None, "of a load, in a lane tile"
                (offset,), memory = loaded.indices, self._state.memories[loaded.tensor]
                start = moved(*self._values.addresses.element(memory, offset.without(lane)))
                stride = self._values.dependence.lane_stride(offset)
                assert stride is not None, "`_is_square` wants one"
                squares[vector] = f"{registers.stem}_v{vector}"
                loading = call(f"opw_load_square_{memory.short}", start, self._values.indices.integers.value(stride))
                self._scopes.add(Define(f"opw_square_{vector_type(value.dtype)[1:]}", squares[vector], loading))
            name = registers.names[key] = f"{squares[vector]}.row[{row.key}]"
            self._values.dependence.varying.add(name)

    def let(self, item: Let, context: Context) -> None:
        """Names a value, once for each row and vector on which it depends."""
        axes = self._state.axes(item.value) & context.axes
        over = tuple(sorted(axes, key=lambda axis: axis.key))
        lane = context.lane if context.lane in axes else None
        registers = Registers(self._scopes.numbered("x"), item.value.dtype, over, lane)
        values = [
            (instance, self._state.instantiate(item.value, instance, context)) for instance in context.instances(axes)
        ]
        for instance, value in values:
            key = tuple(_number(instance, axis) for axis in over)
            name = registers.name(key)
            written = self._values.vector(value, instance.active)
            self._scopes.add(Define(f"const {vector_type(value.dtype)}", name, written))
            registers.names[key] = name
            if self._values.dependence.varies(value):
                self._values.dependence.varying.add(name)
        self._state.registers[item.name] = registers
        self._state.forget_instances()

    def accumulate(self, item: Accumulate, context: Context) -> None:
        """Combines the value of every row and vector with its register."""
        registers = self._state.registers[item.name]
        mixed = len(context.vectors) > 1 and any(self._is_half(vector.active) for vector in context.vectors)
        for instance in context.instances():
            name = registers.names[registers.key(instance, context.shifted)]
            value = self._state.instantiate(item.value, instance, context)
            active = instance.active
            if mixed:
                self._hold(value)
            if context.lane is not None and registers.lane is not context.lane:
                self._accumulate_lanes(item, name, value, active)
            elif item.kind.startswith("arg"):
                best = registers.best[registers.key(instance, context.shifted)]
                position = (item.position if item.position is not None else ZERO).substitute(instance.mapping)
                self._accumulate_position(item.kind, name, best, value, position, active)
            else:
                partial = active != ALL and registers.lane in registers.outside
                if item.kind == "sum" and is_dot(value) and not partial:
                    self._product(f"{value.op}_add", "i32", value, name, active)
                elif item.kind == "sum" and _is_product(value) and not partial and self._is_half(active):
                    self._product("multiply_add", "f32", value, name, active)
                else:
                    written = self._existing(item.kind, value, active if partial else ALL, active)
                    self._combine(item.kind, registers.dtype, name, written)
            self._scopes.forget(frozenset((name,)))

    def _product(self, function: str, short: str, value: Binary, name: str, active: Active) -> None:
        """A product, or a dot product of words, added to a register by one instruction where there is such a one: of
        registers of half the length where no more lanes exist."""
        x, y = self._values.vector(value.x, active), self._values.vector(value.y, active)
        half = "_half" if self._is_half(active) else ""
        self._scopes.add(Assign(Name(name), call(f"opw_{function}{half}_{short}", Name(name), x, y)))

    def _hold(self, value: Expr) -> None:
        """Has the factor that is the same in all lanes in one register, for registers of either length."""
        for factor in value.operands:
            loaded = isinstance(factor, Load) and factor.indices and factor.dtype in (DType.F32, DType.I32)
            if loaded and not self._values.dependence.varies(factor):
                self._values.held.add(factor)

    def _is_half(self, active: Active) -> bool:
        """Whether the lanes that exist fill half of a vector at most, and there are registers of half its length."""
        count = active.count
        return isinstance(count, Literal) and active.mask is None and count.value <= HALF < self._state.lanes

    def _existing(self, kind: str, value: Expr, lanes: Active, active: Active) -> Expression:
        """A value, and in place of the lanes that do not exist one that changes nothing."""
        written = self._values.vector(value, active)
        mask = self._indices.lanes_mask(lanes)
        if mask is None:
            return written
        return select(mask, value.dtype, written, vector_literal(neutral(kind, value.dtype), value.dtype))

    def _combine(self, kind: str, dtype: DType, name: str, value: Expression) -> None:
        if kind in REDUCE_INFIX:
            self._scopes.add(Update(Name(name), REDUCE_INFIX[kind], value))
        else:
            self._scopes.add(Assign(Name(name), combine(kind, dtype, value, Name(name))))

    def _accumulate_lanes(self, item: Accumulate, name: str, value: Expr, active: Active) -> None:
        """A value that differs from lane to lane, into a register that does not."""
        if item.kind.startswith("arg") or not self._values.dependence.varies(value):
            raise ValueError(
                f"{self._state.kernel.name}: {item.name} must be held over the lane tile it is accumulated in"
            )
        written = self._existing(item.kind, value, active, active)
        self._combine(item.kind, value.dtype, name, across_lanes(item.kind, value.dtype, written))

    def _accumulate_position(self, kind: str, name: str, best: str, value: Expr, position: Dim, active: Active) -> None:
        """Remembers where the extreme element is. A NaN is more extreme than any number, as in NumPy."""
        dtype = register(value.dtype)
        short = dtype.short
        new = self._values.named(value, active)
        old = Name(best)
        last = kind.endswith("_last")
        order = ("ge" if last else "gt") if kind.startswith("argmax") else ("le" if last else "lt")
        better: Expression = call(f"opw_{order}_{short}", new, old)
        if dtype.is_float:
            unordered = call(f"opw_isnan_{short}", new)
            known = Prefix("~", call(f"opw_isnan_{short}", old))
            better = Infix("|", better, unordered if last else Infix("&", unordered, known))
        mask = self._indices.lanes_mask(active)
        if mask is not None:
            better = Infix("&", better, mask)
        chosen = Name(self._scopes.numbered("m"))
        where = self._values.named(cast(index(position), DType.I64), active)
        self._scopes.add(Define("const vi32", chosen.name, better))
        self._scopes.add(Assign(old, select(chosen, value.dtype, new, old)))
        self._scopes.add(Assign(Name(name), select(chosen, DType.I64, where, Name(name))))

    def collapse(self, item: Collapse) -> None:
        """Reduces vectors and lanes; from then on the first register holds the result in every lane."""
        registers = self._state.registers[item.name]
        if registers.lane is None:
            raise ValueError(f"{self._state.kernel.name}: {item.name} has no lanes to collapse")
        if registers.loops != len(self._state.outer):
            raise ValueError(f"{self._state.kernel.name}: {item.name} is declared outside the loop that collapses it")
        for group in registers.groups():
            names = [registers.names[key] for key in group]
            first = names[0]
            if item.kind.startswith("arg"):
                self._collapse_position(item.kind, registers, names, [registers.best[key] for key in group])
            else:
                joined: Expression = Name(first)
                for other in names[1:]:
                    joined = combine(item.kind, registers.dtype, joined, Name(other))
                self._scopes.add(Assign(Name(first), across_lanes(item.kind, registers.dtype, joined)))
            for key in group:
                registers.names[key] = first
            self._values.dependence.varying.discard(first)
        registers.collapsed = True
        self._scopes.forget(frozenset(registers.all_names()))
        self._state.forget_instances()

    def _collapse_position(self, kind: str, registers: Registers, names: list[str], best: list[str]) -> None:
        assert registers.best_dtype is not None
        how = Literal(int(kind.startswith("argmax"))), Literal(int(kind.endswith("_last")))
        to = Prefix("&", Name(best[0])), Prefix("&", Name(names[0]))
        short = register(registers.best_dtype).short
        for name, value in zip(names[1:], best[1:], strict=True):
            self._scopes.add(Do(call(f"opw_merge_positions_{short}", *to, Name(value), Name(name), *how)))
        self._scopes.add(Do(call(f"opw_collapse_positions_{short}", *to, *how)))


def _is_product(value: Expr) -> TypeGuard[Binary]:
    return isinstance(value, Binary) and value.op == "mul" and value.dtype is DType.F32


def is_dot(value: Expr) -> TypeGuard[Binary]:
    """Whether a value is a dot product of words."""
    return isinstance(value, Binary) and value.op in WORDS


def _keys(instance: Instance, over: tuple[Axis, ...]) -> list[int | None]:
    return [instance.key(axis) for axis in over]


def _number(instance: Instance, axis: Axis) -> int:
    number = instance.key(axis)
    assert number is not None
    return number


@dataclass(frozen=True)
class _Site:
    """A store of a vector: of what, where, under which guards, of which lanes."""

    value: Expr
    offset: Dim
    guards: tuple[Dim, ...]
    active: Active


class Stores:
    """Writes the stores of one function."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._values = state.values
        self._indices = state.values.indices
        self._scopes = state.scopes

    def store(self, item: Store, context: Context) -> None:
        """Stores the value of every row and vector."""
        memory = self._state.memories[item.buffer]
        if item.value.dtype is not memory.dtype:
            raise ValueError(
                f"{self._state.kernel.name}: {item.value.dtype} is stored in {item.buffer}, of {memory.dtype}"
            )
        done: dict[_Site, None] = {}
        for instance in context.instances():
            value = self._state.instantiate(item.value, instance, context)
            offset = self._state.instantiate_dim(item.offset, instance, context)
            guards = tuple(self._state.instantiate_dim(guard, instance, context) for guard in item.guards)
            guards = tuple(guard for guard in guards if not (guard.constant is not None and guard.constant >= 0))
            done.setdefault(_Site(value, offset, guards, instance.active))
        sites = list(done)
        while sites:
            beside = self._side_by_side(sites) if context.lane is not None else 1
            if beside > 1:
                self._store_narrowed(memory, sites[:beside])
            else:
                site = sites[0]
                self._guarded_store(memory, site, in_turn(site.guards), site.active, context.lane is not None)
            self._scopes.forget(frozenset((item.buffer,)))
            del sites[:beside]

    def _side_by_side(self, sites: Sequence[_Site]) -> int:
        """How many of the first stores are of bytes that saturate and lie side by side: four, two, or one."""
        first = sites[0]
        for count in (4, 2):
            if len(sites) >= count and all(
                saturated(site.value) is not None
                and site.value.dtype is first.value.dtype
                and site.active == ALL
                and not site.guards
                and (site.offset - first.offset).constant == number * self._state.lanes
                and self._values.dependence.lane_stride(site.offset) is ONE
                for number, site in enumerate(sites[:count])
            ):
                return count
        return 1

    def _store_narrowed(self, memory: Memory, sites: Sequence[_Site]) -> None:
        """Stores vectors of integers side by side as bytes, which are narrowed together."""
        wholes = [whole for site in sites if (whole := saturated(site.value)) is not None]
        written = [self._values.vector(whole) for whole in wholes]
        place = moved(*self._values.addresses.element(memory, sites[0].offset.without(self._state.lane)))
        self._scopes.add(Do(call(f"opw_store_narrow_{len(sites)}_{memory.short}", place, *written)))

    def _guarded_store(self, memory: Memory, site: _Site, groups: Groups, active: Active, in_lanes: bool) -> None:
        """A store where the guards of all groups hold, each tested where those before it do."""
        if not groups:
            self._write(memory, site.offset, site.value, active, in_lanes)
            return
        uniform, varying = self._indices.divided(groups[0], active)

        def write() -> None:
            self._guarded_store(memory, site, groups[1:], self._indices.restrict(active, varying), in_lanes)

        if not uniform:
            write()
            return
        condition = self._values.integers.all_positive(uniform)
        self._scopes.add(If(condition, self._scopes.block(write)))

    def _write(self, memory: Memory, offset: Dim, value: Expr, active: Active, in_lanes: bool) -> None:
        stride = self._values.dependence.lane_stride(offset)
        if stride is ZERO:
            if in_lanes and self._values.dependence.varies(value):
                raise ValueError(f"{self._state.kernel.name}: all lanes are stored at one place, {offset}")
            written = self._values.vector(value, active)
            element = Element(*self._values.addresses.element(memory, offset))
            self._scopes.add(Assign(element, call(f"opw_element_{memory.short}", written)))
            return
        written = self._values.vector(value, active)
        if stride is None:
            offsets = self._indices.vector(offset, active)
            self._scopes.add(Do(memory_call("scatter", memory, active, memory.name, written, offsets)))
            return
        place = moved(*self._values.addresses.element(memory, offset.without(self._state.lane)))
        if stride is ONE:
            self._scopes.add(Do(memory_call("store", memory, active, place, written)))
            return
        step = self._values.integers.value(stride)
        self._scopes.add(Do(memory_call("store_strided", memory, active, place, written, step)))
