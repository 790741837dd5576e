"""Accumulators and named values: declared, combined with values, and reduced across lanes."""

from __future__ import annotations

from opweld.codegen.c.active import ALL, Active
from opweld.codegen.c.context import Context, Instance
from opweld.codegen.c.operators import neutral, register, vector_literal, vector_type
from opweld.codegen.c.registers import Registers, across_lanes, combine, declared_keys
from opweld.codegen.c.state import State
from opweld.codegen.c.values import plain
from opweld.codegen.c.vector import Assign, Define, Do
from opweld.tensor.dim import ZERO, Axis, Dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, cast, index
from opweld.tile.tile import Accumulate, Collapse, Declare, Let

_STEMS = frozenset(("acc", "sum", "total", "max", "min", "best", "mean", "square", "product", "count", "state"))


class Accumulators:
    """Writes everything that happens to registers in one function."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._values = state.values
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
        instances = {tuple(_keys(i, item.over)): i for i in context.instances(frozenset(item.over))}
        for key in declared_keys(item.over, context, lane, self._state.lanes):
            name = registers.name(key)
            pairs = zip(item.over, key, strict=True)
            instance = instances[tuple(k if axis not in registers.outside else None for axis, k in pairs)]
            text = plain(self._values.vector(self._state.instantiate(item.initial, instance, context), instance.active))
            registers.names[key] = name
            self._scopes.add(Define(vector_type(item.dtype), name, text))
            if lane is not None:
                self._values.dependence.varying.add(name)
            if registers.best_dtype is not None:
                best = f"{name}_best"
                registers.best[key] = best
                lowest = vector_literal(neutral(kind, registers.best_dtype), registers.best_dtype)
                self._scopes.add(Define(vector_type(registers.best_dtype), best, lowest))

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
            text = plain(self._values.vector(value, instance.active))
            self._scopes.add(Define(f"const {vector_type(value.dtype)}", name, text))
            registers.names[key] = name
            if self._values.dependence.varies(value):
                self._values.dependence.varying.add(name)
        self._state.registers[item.name] = registers
        self._state.forget_instances()

    def accumulate(self, item: Accumulate, context: Context) -> None:
        """Combines the value of every row and vector with its register."""
        registers = self._state.registers[item.name]
        for instance in context.instances():
            name = registers.names[registers.key(instance, context.shifted)]
            value = self._state.instantiate(item.value, instance, context)
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
            self._scopes.add(Do(f"{name} {sign}= {plain(text)}"))
        else:
            self._scopes.add(Assign(name, combine(kind, dtype, plain(text), name)))

    def _accumulate_lanes(self, item: Accumulate, name: str, value: Expr, active: Active) -> None:
        """A value that differs from lane to lane, into a register that does not."""
        if item.kind.startswith("arg") or not self._values.dependence.varies(value):
            raise ValueError(
                f"{self._state.kernel.name}: {item.name} must be held over the lane tile it is accumulated in"
            )
        text = self._values.vector(value, active)
        mask = self._values.lanes_mask(active)
        if mask is not None:
            other = vector_literal(neutral(item.kind, value.dtype), value.dtype)
            text = self._values.blend(mask, value.dtype, text, other)
        self._combine(item.kind, value.dtype, name, across_lanes(item.kind, value.dtype, plain(text)))

    def _accumulate_position(self, kind: str, name: str, best: str, value: Expr, position: Dim, active: Active) -> None:
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
                text = first
                for other in names[1:]:
                    text = combine(item.kind, registers.dtype, text, other)
                self._scopes.add(Assign(first, across_lanes(item.kind, registers.dtype, text)))
            for key in group:
                registers.names[key] = first
            self._values.dependence.varying.discard(first)
        registers.collapsed = True
        self._scopes.forget(frozenset(registers.all_names()))
        self._state.forget_instances()

    def _collapse_position(self, kind: str, registers: Registers, names: list[str], best: list[str]) -> None:
        assert registers.best_dtype is not None
        greatest, last = int(kind.startswith("argmax")), int(kind.endswith("_last"))
        short = register(registers.best_dtype).short
        for name, value in zip(names[1:], best[1:], strict=True):
            merge = f"opw_merge_positions_{short}(&{best[0]}, &{names[0]}, {value}, {name}, {greatest}, {last})"
            self._scopes.add(Do(merge))
        self._scopes.add(Do(f"opw_collapse_positions_{short}(&{best[0]}, &{names[0]}, {greatest}, {last})"))


def _keys(instance: Instance, over: tuple[Axis, ...]) -> list[int | None]:
    return [instance.key(axis) for axis in over]


def _number(instance: Instance, axis: Axis) -> int:
    number = instance.key(axis)
    assert number is not None
    return number
