"""The launches of a variant: as text, and what must hold of them.

    variant main
    memory x input 0
    memory w_packed0 constant at 64
    memory relu arena 256*batch bytes from phase 0 to 1
    memory result output 0

    phase 0
      launch k0_contraction reads x, w_packed0 writes relu from "MatMul_0"
    phase 1
      launch k1_map reads relu writes result from "Relu_1"

Kernels have a text of their own, `tile.text`; here they are called by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from opweld.errors import OpweldError
from opweld.tensor.text import name_text, origin_text, size_text
from opweld.tile.kernels import Scheduled
from opweld.tile.module import Launch, Memory, Variant

_VERBS = {"read": "reads", "write": "writes", "update": "updates"}


def print_launches(variant: Variant) -> str:
    """The memory of a variant and its launches, phase by phase."""
    lines = [f"variant {name_text(variant.name)}", *map(_memory_line, variant.memory), ""]
    phase = -1
    for launch in variant.launches:
        if launch.phase != phase:
            phase = launch.phase
            lines.append(f"phase {phase}")
        lines.append("  " + _launch_line(launch, variant.memory))
    return "\n".join(lines) + "\n"


def _memory_line(memory: Memory) -> str:
    line = f"memory {name_text(memory.name)} {memory.kind}"
    if memory.kind == "constant":
        return f"{line} at {memory.offset}"
    if memory.kind == "arena":
        assert memory.size is not None
        return f"{line} {size_text(memory.size)} bytes from phase {memory.first} to {memory.last}"
    return f"{line} {memory.index}"


def _launch_line(launch: Launch, memory: Sequence[Memory]) -> str:
    line = f"launch {launch.kernel.name}"
    for role, verb in _VERBS.items():
        bound = zip(launch.kernel.buffers, launch.memory, strict=True)
        names = ", ".join(name_text(memory[number].name) for buffer, number in bound if buffer.role == role)
        line += f" {verb} {names}" if names else ""
    return line + (" serial" if launch.serial else "") + origin_text(launch.origin)


def verify_launches(variant: Variant, scheduled: Sequence[Scheduled]) -> None:
    """Checks that every kernel is launched once, in a later phase than all that it depends on, with memory for each of
    its buffers, which lives while it is used, and is written before it is read.

    scheduled: the kernels in an order in which each finds what it reads.
    Raises OpweldError naming the launch and what is wrong with it."""
    _Launches(variant, scheduled).run()


@dataclass(eq=False)
class _Uses:
    """The launches that used a piece of memory, so far: the latest phase of those that do not disturb each other (all
    read, or all write), and of all before them."""

    role: str = ""
    latest: int = -1
    before: int = -1


class _Launches:
    def __init__(self, variant: Variant, scheduled: Sequence[Scheduled]) -> None:
        self.variant = variant
        self.scheduled = scheduled

    def run(self) -> None:
        """Checks everything."""
        phase = 0
        for launch in self.variant.launches:
            if launch.phase not in (phase, phase + 1) or (launch is self.variant.launches[0] and launch.phase):
                self._fail(launch, f"is in phase {launch.phase} after phase {phase}")
            phase = launch.phase
            self._check_binding(launch)
        self._check_order(self._in_order())
        self._check_outputs()

    def _fail(self, launch: Launch | Scheduled, why: str) -> NoReturn:
        raise OpweldError(f"launches of {self.variant.name!r}: {launch.kernel.name} {why}")

    def _check_binding(self, launch: Launch) -> None:
        if len(launch.memory) != len(launch.kernel.buffers) or len(launch.sizes) != len(launch.kernel.sizes):
            what = f"{len(launch.memory)} pieces of memory and {len(launch.sizes)} sizes"
            wanted = f"{len(launch.kernel.buffers)} and {len(launch.kernel.sizes)}"
            self._fail(launch, f"is bound to {what}, expected {wanted}")
        for buffer, number in zip(launch.kernel.buffers, launch.memory, strict=True):
            if not 0 <= number < len(self.variant.memory):
                self._fail(launch, f"is bound to memory {number} of {len(self.variant.memory)}")
            memory = self.variant.memory[number]
            if memory.kind in ("input", "constant") and buffer.role != "read":
                self._fail(launch, f"{_VERBS[buffer.role]} {memory.name!r}, the {memory.kind}")
            if memory.kind == "arena" and not memory.first <= launch.phase <= memory.last:
                self._fail(launch, f"uses {memory.name!r} in phase {launch.phase}, when it does not live")

    def _in_order(self) -> list[Launch]:
        """The launches in the order of the kernels that were scheduled."""
        left: dict[int, list[Launch]] = {}
        for launch in reversed(self.variant.launches):
            left.setdefault(id(launch.kernel), []).append(launch)
        found: list[Launch] = []
        for item in self.scheduled:
            launches = left.get(id(item.kernel))
            if not launches:
                self._fail(item, "is not launched")
            found.append(launches.pop())
        for launches in left.values():
            for launch in launches:
                self._fail(launch, "is launched once more than it was scheduled")
        return found

    def _check_order(self, launches: Sequence[Launch]) -> None:
        uses = [_Uses() for _ in self.variant.memory]
        for launch in launches:
            for buffer, number in zip(launch.kernel.buffers, launch.memory, strict=True):
                memory, use = self.variant.memory[number], uses[number]
                if not use.role and buffer.role == "read" and memory.kind in ("arena", "output"):
                    self._fail(launch, f"reads {memory.name!r}, which nothing has written")
                if use.role != buffer.role or buffer.role == "update":
                    use.role, use.before = buffer.role, max(use.before, use.latest)
                if launch.phase <= use.before:
                    self._fail(launch, f"{_VERBS[buffer.role]} {memory.name!r} in a phase of what it depends on")
                use.latest = max(use.latest, launch.phase)

    def _check_outputs(self) -> None:
        written = {
            self.variant.memory[number].index
            for launch in self.variant.launches
            for buffer, number in zip(launch.kernel.buffers, launch.memory, strict=True)
            if buffer.role != "read" and self.variant.memory[number].kind == "output"
        }
        for position, name in enumerate(self.variant.names):
            if position not in written:
                raise OpweldError(f"launches of {self.variant.name!r}: none writes the output {name!r}")
