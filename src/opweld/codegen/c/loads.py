"""Loads as vectors: broadcast, contiguous, strided or gathered, and only of memory that the guards allow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from opweld.codegen.c.active import ALL, Active
from opweld.codegen.c.memory import Memory
from opweld.codegen.c.operators import vector_literal, vector_type
from opweld.codegen.c.scope import Scopes
from opweld.codegen.c.vector import Assign, Define, If
from opweld.tensor.dim import ONE, ZERO, Dim
from opweld.tensor.expr import Const, Expr, Load

if TYPE_CHECKING:
    from opweld.codegen.c.values import Values


class Loads:
    """Writes the loads of one function."""

    def __init__(self, values: Values, scopes: Scopes, memories: Mapping[str, Memory]) -> None:
        self._values = values
        self._scopes = scopes
        self._memories = memories
        self._lane_count = int(values.lane.extent)

    def text(self, node: Load, active: Active) -> str:
        """A load from memory as C text; the name of a variable where it takes a branch."""
        memory = self._memories[node.tensor]
        offset = node.indices[0]
        assert node.dtype is memory.dtype, f"{node!r} loads {node.dtype} from a buffer of {memory.dtype}"
        uniform = tuple(guard for guard in node.guards if not self._values.dependence.dim_varies(guard))
        varying = tuple(guard for guard in node.guards if self._values.dependence.dim_varies(guard))
        if not uniform:
            return self._where(node, memory, varying, active)
        fill = node.fill
        assert fill is not None
        simple = not varying and not self._values.dependence.dim_reads(offset) and active.mask is None
        stride = self._values.dependence.lane_stride(offset)
        if simple and stride in (ZERO, ONE) and isinstance(fill, Const) and not self._values.dependence.touches(fill):
            if _is_plain_zero(fill):
                span = 1 if stride is ZERO else self._lane_count
                found = self._values.addresses.guarded(memory, offset.without(self._values.lane), uniform, span)
                if found is not None:
                    return self._read(memory, found[0], found[1], stride is ONE, active)
            condition, _ = self._values.addresses.condition(uniform)
            pointer, position = self._values.addresses.element(memory, offset.without(self._values.lane))
            text = self._read(memory, pointer, position, stride is ONE, active)
            return f"{condition} ? {text} : {vector_literal(fill.value, fill.dtype)}"
        condition = " && ".join(self._values.integers.positive(guard) for guard in uniform)
        return self._values.either(
            node,
            active,
            condition,
            lambda: self._where(node, memory, varying, active),
            lambda: self._values.vector(fill, active),
        )

    def _where(self, node: Load, memory: Memory, guards: tuple[Dim, ...], active: Active) -> str:
        """A load whose remaining guards differ from lane to lane."""
        if not guards:
            return self._lanes(memory, node.indices[0], active)
        inside = self._values.restrict(active, guards)
        mask = self._values.lanes_mask(inside)
        assert mask is not None
        loaded = self._lanes(memory, node.indices[0], inside)
        fill = node.fill
        # Memory that is read lane by lane leaves zeros in lanes that are masked; one element for all lanes does not.
        moves = self._values.dependence.lane_stride(node.indices[0]) is not ZERO
        if fill is None or (moves and _is_plain_zero(fill)):
            return loaded
        return self._values.blend(mask, node.dtype, loaded, self._values.vector(fill, active))

    def _lanes(self, memory: Memory, offset: Dim, active: Active) -> str:
        stride = self._values.dependence.lane_stride(offset)
        kind = memory.dtype.short
        if stride is None:
            offsets = self._values.indices.vector(offset, active)
            if active.mask is not None:
                return f"opw_gather_masked_{kind}({memory.name}, {offsets}, {active.mask})"
            if active.count is not None:
                return f"opw_gather_partial_{kind}({memory.name}, {offsets}, {active.count})"
            return f"opw_gather_{kind}({memory.name}, {offsets})"
        if stride is ZERO and active.mask is not None:
            # An index that is checked or a load that is made although no lane wants it would be an error.
            zero = vector_literal(0, memory.dtype)
            name = self._scopes.numbered("t")
            self._scopes.add(Define(vector_type(memory.dtype), name, zero))
            self._scopes.open()
            pointer, position = self._values.addresses.element(memory, offset)
            self._scopes.add(Assign(name, self._read(memory, pointer, position, False, ALL)))
            self._scopes.add(If(f"opw_any({active.mask})", self._scopes.close()))
            return name
        pointer, position = self._values.addresses.element(memory, offset.without(self._values.lane))
        if stride is ZERO or stride is ONE:
            return self._read(memory, pointer, position, stride is ONE, active)
        place = pointer if position == "0" else f"{pointer} + {position}"
        step = self._values.integers.operand(stride)
        if active.mask is not None:
            return f"opw_load_strided_masked_{kind}({place}, {step}, {active.mask})"
        if active.count is not None:
            return f"opw_load_strided_partial_{kind}({place}, {step}, {active.count})"
        return f"opw_load_strided_{kind}({place}, {step})"

    def _read(self, memory: Memory, pointer: str, position: str, contiguous: bool, active: Active) -> str:
        kind = memory.dtype.short
        if not contiguous:
            return f"opw_splat_{kind}({pointer}[{position}])"
        place = pointer if position == "0" else f"{pointer} + {position}"
        if active.mask is not None:
            return f"opw_load_masked_{kind}({place}, {active.mask})"
        if active.count is not None:
            return f"opw_load_partial_{kind}({place}, {active.count})"
        return f"opw_load_{kind}({place})"


def _is_plain_zero(fill: Expr) -> bool:
    """Whether the fill is what masked memory and the page of zeros hold; a negative zero is not."""
    return isinstance(fill, Const) and fill.value == 0 and math.copysign(1, fill.value) > 0
