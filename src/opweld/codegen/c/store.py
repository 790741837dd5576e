"""Stores: contiguous, strided, scattered or single, under guards."""

from __future__ import annotations

from opweld.codegen.c.active import Active
from opweld.codegen.c.context import Context
from opweld.codegen.c.memory import Memory
from opweld.codegen.c.state import State
from opweld.codegen.c.values import plain
from opweld.codegen.c.vector import Do, If
from opweld.tensor.dim import ONE, ZERO, Dim
from opweld.tensor.expr import Expr
from opweld.tile.tile import Store


class Stores:
    """Writes the stores of one function."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._values = state.values
        self._scopes = state.scopes

    def store(self, item: Store, context: Context) -> None:
        """Stores the value of every row and vector."""
        memory = self._state.memories[item.buffer]
        if item.value.dtype is not memory.dtype:
            raise ValueError(
                f"{self._state.kernel.name}: {item.value.dtype} is stored in {item.buffer}, of {memory.dtype}"
            )
        done: set[object] = set()
        for instance in context.instances():
            value = self._state.instantiate(item.value, instance, context)
            offset = self._state.instantiate_dim(item.offset, instance, context)
            guards = tuple(self._state.instantiate_dim(guard, instance, context) for guard in item.guards)
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
                raise ValueError(f"{self._state.kernel.name}: all lanes are stored at one place, {offset}")
            text = plain(self._values.vector(value, active))
            pointer, position = self._values.addresses.element(memory, offset)
            self._scopes.add(Do(f"{pointer}[{position}] = opw_element_{kind}({text})"))
            return
        text = plain(self._values.vector(value, active))
        how = "masked" if active.mask is not None else "partial" if active.count is not None else ""
        suffix = f"{how}_{kind}" if how else kind
        which = f", {active.mask or active.count}" if how else ""
        if stride is None:
            offsets = self._values.indices.vector(offset, active)
            self._scopes.add(Do(f"opw_scatter_{suffix}({memory.name}, {text}, {offsets}{which})"))
            return
        pointer, position = self._values.addresses.element(memory, offset.without(self._state.lane))
        place = pointer if position == "0" else f"{pointer} + {position}"
        if stride is ONE:
            self._scopes.add(Do(f"opw_store_{suffix}({place}, {text}{which})"))
            return
        step = self._values.integers.operand(stride)
        self._scopes.add(Do(f"opw_store_strided_{suffix}({place}, {text}, {step}{which})"))
