"""What the lowering of one kernel knows: its scopes, memories, registers, and how tile expressions become instances."""

from __future__ import annotations

from opweld.codegen.c.context import Context, Instance
from opweld.codegen.c.memory import Memory
from opweld.codegen.c.operators import MEMORY
from opweld.codegen.c.registers import Registers
from opweld.codegen.c.scope import Scopes
from opweld.codegen.c.values import Values
from opweld.codegen.c.vector import Define
from opweld.tensor.dim import ZERO, Atom, Axis, Dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, free_atoms, load, transform
from opweld.tile.tile import Accumulate, Collapse, Kernel, Loop, Statement, Store, Tile, walk_statements


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
        self.collapsed = frozenset(item.name for item in everything if isinstance(item, Collapse))
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
            self._add_memory(buffer.name, f"{stem}{number}", buffer.dtype, written, f"buffers[{position}]")
        offset = ZERO
        for number, block in enumerate(self.kernel.scratch):
            place = "scratch" if offset is ZERO else f"(scratch + {self.values.integers.text(offset)})"
            self._add_memory(block.name, f"tmp{number}", block.dtype, True, f"(void *){place}")
            offset = offset + (block.elements * block.dtype.bytes + 63) // 64 * 64

    def _add_memory(self, name: str, variable: str, dtype: DType, written: bool, place: str) -> None:
        self.memories[name] = Memory(variable, dtype, written)
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
            elif isinstance(item, Accumulate | Collapse) and item.name in self.registers:
                found.update(self.registers[item.name].all_names())
        return frozenset(found)
