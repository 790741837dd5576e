"""The constant tables by which a module describes a variant to the runtime: buffers, steps, outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from opweld.codegen.c.bind import Binder, guard_table
from opweld.codegen.c.literals import shortened, string_literal
from opweld.tensor.dim import Atom, Dim
from opweld.tile.module import Launch, Memory, ModuleVariant, StateMemory
from opweld.tile.tile import Kernel

_KINDS = {"input": "OPW_INPUT", "output": "OPW_OUTPUT", "constant": "OPW_CONSTANT", "arena": "OPW_ARENA"}


def array(ctype: str, name: str, items: Iterable[str]) -> str:
    """A constant table; nothing for an empty one, which C does not have."""
    rows = list(items)
    if not rows:
        return ""
    short = all(len(row) < 24 for row in rows)
    if short and sum(len(row) + 2 for row in rows) < 90:
        return f"static const {ctype} {name}[] = {{{', '.join(rows)}}};\n"
    body = "".join(f"    {row},\n" for row in rows)
    return f"static const {ctype} {name}[] = {{\n{body}}};\n"


def pointer(name: str, count: int) -> str:
    """A table as an initialiser: NULL for an empty one."""
    return name if count else "NULL"


class VariantTables:
    """Writes the tables of one variant; `prefix` starts the names of all of them."""

    def __init__(
        self, variant: ModuleVariant, prefix: str, binder: Binder, kernel_name: Callable[[Kernel], str]
    ) -> None:
        self._variant = variant
        self._prefix = prefix
        self._binder = binder
        self._kernel_name = kernel_name

    def text(self) -> str:
        """Everything that `initialiser` refers to, `bind` included."""
        tables = [
            array("opw_buffer", f"{self._prefix}_buffers", map(self._buffer, self._variant.memory)),
            *self._step_tables(),
            *self._output_tables(),
            array("int32_t", f"{self._prefix}_lengths", map(self._length, self._variant.states)),
            array("char *const", f"{self._prefix}_guards", guard_table(self._binder.guards)),
        ]
        # Last: the tables above ask for slots, and bind fills every slot asked for.
        return "".join(tables) + "\n" + self._binder.render(f"{self._prefix}_bind")

    def initialiser(self) -> str:
        """The `opw_variant`."""
        p, v = self._prefix, self._variant
        fields = [
            string_literal(shortened(v.name)),
            str(self._binder.slot_count),
            f"{p}_bind",
            f"{len(self._binder.guards)}, {pointer(f'{p}_guards', len(self._binder.guards))}",
            f"{len(v.memory)}, {pointer(f'{p}_buffers', len(v.memory))}",
            f"{len(v.launches)}, {pointer(f'{p}_steps', len(v.launches))}",
            f"{len(v.outputs)}, {pointer(f'{p}_outputs', len(v.outputs))}",
            pointer(f"{p}_lengths", len(v.states)),
        ]
        return "{" + ", ".join(fields) + "}"

    def _buffer(self, memory: Memory) -> str:
        index, offset, size_slot = memory.index, 0, -1
        if memory.kind == "constant":
            if memory.offset < 0:
                raise ValueError(f"constant {memory.name!r} has no place in the weights file")
            index, offset = 0, memory.offset
        elif memory.kind == "arena":
            if memory.size is None:
                raise ValueError(f"arena memory {memory.name!r} has no size")
            index, size_slot = 0, self._binder.slot(memory.size)
        fields = (_KINDS[memory.kind], index, offset, size_slot, memory.first, memory.last)
        return "{" + ", ".join(map(str, fields)) + "}"

    def _step_tables(self) -> Iterator[str]:
        steps: list[str] = []
        for number, launch in enumerate(self._variant.launches):
            buffers, params = f"{self._prefix}_b{number}", f"{self._prefix}_p{number}"
            yield array("int32_t", buffers, map(str, launch.memory))
            yield array("int32_t", params, (str(self._binder.slot(size)) for size in launch.sizes))
            steps.append(self._step(launch, buffers, params))
        yield array("opw_step", f"{self._prefix}_steps", steps)

    def _step(self, launch: Launch, buffers: str, params: str) -> str:
        kernel = launch.kernel
        if len(launch.memory) != len(kernel.buffers) or len(launch.sizes) != len(kernel.sizes):
            raise ValueError(f"{kernel.name}: launched with {len(launch.memory)} buffers and {len(launch.sizes)} sizes")
        sizes: dict[Atom, Dim] = dict(zip(kernel.sizes, launch.sizes, strict=True))
        slot = self._binder.slot
        scratch = slot(kernel.scratch_bytes.substitute(sizes)) if kernel.scratch else -1
        fields = [
            self._kernel_name(kernel),
            str(launch.phase),
            f"{len(launch.memory)}, {pointer(buffers, len(launch.memory))}",
            f"{len(launch.sizes)}, {pointer(params, len(launch.sizes))}",
            str(slot(kernel.iterations.substitute(sizes))),
            str(slot(launch.work)),
            str(scratch),
            str(slot(launch.bytes)),
            str(slot(launch.flops)),
            "1" if launch.serial else "0",
            string_literal(shortened(kernel.name)),
            string_literal(_origin(launch.origin or kernel.origin)),
        ]
        return "{" + ", ".join(fields) + "}"

    def _length(self, state: StateMemory) -> str:
        return "-1" if state.length is None else str(self._binder.slot(state.length))

    def _output_tables(self) -> Iterator[str]:
        rows: list[str] = []
        for number, (dtype, shape) in enumerate(self._variant.outputs):
            name = f"{self._prefix}_o{number}"
            yield array("int32_t", name, (str(self._binder.slot(dim)) for dim in shape))
            rows.append(f"{{{dtype.onnx}, {len(shape)}, {pointer(name, len(shape))}}}")
        yield array("opw_output", f"{self._prefix}_outputs", rows)


def _origin(names: tuple[str, ...]) -> str:
    return shortened(", ".join(shortened(name) for name in names[:16]), 500)
