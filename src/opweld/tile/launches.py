"""The launches of a variant as text, and back, and what must hold of them.

    variant main
    symbol batch >= 1 = dim 0 of x
    input x f32[batch, 64]
    output logits f32[batch, 10]

    state input 1 replaced
    state input 2 as long as past + 1

    memory x input 0
    memory w_packed0 constant at 64
    memory relu arena 256*batch bytes from phase 0 to 1
    memory result output 0

    phase 0
      launch k1_contraction reads x, w_packed0 writes relu from "MatMul_0"
        bytes 512*batch + 16384 flops 8192*batch work 60*batch + 300 sizes batch
    phase 1
      launch k2_map reads relu writes result from "Relu_1"
        bytes 296*batch flops 64*batch work 9*batch + 300 sizes batch

Kernels have a text of their own, `tile.text`; here they are called by name. With the kernels of v,
`parse_launches(print_launches(v), kernels)` means the same and prints the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NoReturn, TypeVar, cast

from opweld.errors import OpweldError
from opweld.tensor.dim import Dim
from opweld.tensor.parse import Parser
from opweld.tensor.text import guard_line, name_text, origin_text, size_text, symbol_line, value_line
from opweld.tile.kernels import ScheduledKernel
from opweld.tile.module import Launch, Memory, ModuleVariant, StateMemory
from opweld.tile.tile import Kernel

_VERBS = {"read": "reads", "write": "writes", "update": "updates"}

Element = TypeVar("Element")


def print_launches(variant: ModuleVariant) -> str:
    """The interface of a variant, its memory and its launches, phase by phase."""
    lines = [f"variant {name_text(variant.name)}"]
    lines += map(symbol_line, variant.symbols)
    lines += map(guard_line, variant.guards)
    lines += [value_line("input", value.name, value.dtype, value.shape) for value in variant.inputs]
    outputs = zip(variant.names, variant.outputs, strict=True)
    lines += [value_line("output", name, dtype, shape) for name, (dtype, shape) in outputs]
    lines += map(_state_line, variant.states)
    lines += ["", *map(_memory_line, variant.memory), ""]
    phase = -1
    for launch in variant.launches:
        if launch.phase != phase:
            phase = launch.phase
            lines.append(f"phase {phase}")
        lines += [f"  {line}" for line in _launch_lines(launch, variant.memory)]
    return "\n".join(lines) + "\n"


def _state_line(state: StateMemory) -> str:
    line = f"state input {state.index} "
    return line + ("replaced" if state.length is None else f"as long as {size_text(state.length)}")


def _memory_line(memory: Memory) -> str:
    line = f"memory {name_text(memory.name)} {memory.kind}"
    if memory.kind == "constant":
        return f"{line} at {memory.offset}"
    if memory.kind == "arena":
        assert memory.size is not None
        return f"{line} {size_text(memory.size)} bytes from phase {memory.first} to {memory.last}"
    return f"{line} {memory.index}"


def _launch_lines(launch: Launch, memory: Sequence[Memory]) -> list[str]:
    line = f"launch {launch.kernel.name}"
    for role, verb in _VERBS.items():
        bound = zip(launch.kernel.buffers, launch.memory, strict=True)
        names = ", ".join(name_text(memory[number].name) for buffer, number in bound if buffer.role == role)
        line += f" {verb} {names}" if names else ""
    line += (" serial" if launch.serial else "") + origin_text(launch.origin)
    costs = f"  bytes {size_text(launch.bytes)} flops {size_text(launch.flops)} work {size_text(launch.work)}"
    sizes = ", ".join(map(size_text, launch.sizes))
    return [line, costs + (f" sizes {sizes}" if sizes else "")]


def parse_launches(text: str, kernels: Mapping[str, Kernel]) -> ModuleVariant:
    """The variant that a text says, of kernels by name.

    Raises OpweldError with the line of what is not understood."""
    parser = _LaunchesParser(text, kernels)
    return parser.whole(parser.variant)


class _LaunchesParser(Parser):
    form = "launches"

    def __init__(self, text: str, kernels: Mapping[str, Kernel]) -> None:
        super().__init__(text, {})
        self.kernels = kernels
        self.numbers: dict[str, int] = {}

    def variant(self) -> ModuleVariant:
        """The whole text."""
        self._expect("variant")
        name = self._name()
        symbols = self._each("symbol", self._symbol_source)
        guards = self._each("guard", self._guard)
        inputs = self._each("input", self._input)
        outputs = self._each("output", self._input)
        states = self._each("state", self._state_memory)
        memory = self._each("memory", self._memory)
        launches: list[Launch] = []
        while self.position < len(self.tokens):
            self._expect("phase")
            phase = self._integer()
            if not self._next_is("launch"):
                self._fail("'launch'")
            launches += self._each("launch", partial(self._launch, phase))
        return ModuleVariant(
            name,
            inputs,
            symbols,
            guards,
            memory,
            tuple(launches),
            tuple((value.dtype, value.shape) for value in outputs),
            tuple(value.name for value in outputs),
            states,
        )

    def _state_memory(self) -> StateMemory:
        self._expect("input")
        index = self._integer()
        if self._accept("replaced"):
            return StateMemory(index, None)
        for word in ("as", "long", "as"):
            self._expect(word)
        return StateMemory(index, self._dim())

    def _each(self, word: str, read: Callable[[], Element]) -> tuple[Element, ...]:
        """What `read` makes of each statement that begins with the word."""
        found: list[Element] = []
        while self._accept(word):
            found.append(read())
        return tuple(found)

    def _after(self, word: str, read: Callable[[], Element]) -> tuple[Element, ...]:
        """What comes after a word, with commas between; nothing where the word is not there."""
        found: list[Element] = []
        while self._accept("," if found else word):
            found.append(read())
        return tuple(found)

    def _memory(self) -> Memory:
        name = self._name()
        if name in self.numbers:
            self.position -= 1
            self._fail("a name that no memory before has")
        self.numbers[name] = len(self.numbers)
        if self._accept("constant"):
            self._expect("at")
            return Memory("constant", offset=self._integer(), name=name)
        if self._accept("arena"):
            size = self._dim()
            for word in ("bytes", "from", "phase"):
                self._expect(word)
            first = self._integer()
            self._expect("to")
            return Memory("arena", size=size, first=first, last=self._integer(), name=name)
        if not self._next_is("input", "output"):
            self._fail("input, output, constant or arena")
        kind = cast(Literal["input", "output"], self._take("name", "a kind"))
        return Memory(kind, index=self._integer(), name=name)

    def _launch(self, phase: int) -> Launch:
        kernel = self._known(self.kernels, "one of the kernels")
        bound = {role: iter(self._bound(kernel, role)) for role in _VERBS}
        memory = tuple(next(bound[buffer.role]) for buffer in kernel.buffers)
        serial = self._accept("serial")
        origin = self._origin()
        moved, flops, work = (self._amount(word) for word in ("bytes", "flops", "work"))
        sizes = self._after("sizes", self._dim)
        return Launch(kernel, memory, sizes, work, moved, flops, serial, origin, phase)

    def _bound(self, kernel: Kernel, role: str) -> Sequence[int]:
        """The numbers of the memory that the buffers of one role are bound to, in their order."""
        found = self._after(_VERBS[role], lambda: self._known(self.numbers, "one of the pieces of memory"))
        wanted = sum(buffer.role == role for buffer in kernel.buffers)
        if len(found) != wanted:
            self._fail(f"memory for the {wanted} buffers that {kernel.name} {_VERBS[role]}")
        return found

    def _known(self, things: Mapping[str, Element], expected: str) -> Element:
        name = self._name()
        if name not in things:
            self.position -= 1
            self._fail(expected)
        return things[name]

    def _amount(self, word: str) -> Dim:
        self._expect(word)
        return self._dim()


def verify_launches(variant: ModuleVariant, scheduled: Sequence[ScheduledKernel]) -> None:
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
    def __init__(self, variant: ModuleVariant, scheduled: Sequence[ScheduledKernel]) -> None:
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

    def _fail(self, launch: Launch | ScheduledKernel, why: str) -> NoReturn:
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
            state = memory.kind == "input" and memory.index in (state.index for state in self.variant.states)
            if memory.kind in ("input", "constant") and not state and buffer.role != "read":
                self._fail(launch, f"{_VERBS[buffer.role]} {memory.name!r}, the {memory.kind}")
            if memory.kind == "arena" and not memory.first <= launch.phase <= memory.last:
                self._fail(launch, f"uses {memory.name!r} in phase {launch.phase}, when it does not live")

    def _in_order(self) -> list[Launch]:
        """The launches in the order of the kernels that were scheduled."""
        left: dict[str, list[Launch]] = {}
        for launch in reversed(self.variant.launches):
            left.setdefault(launch.kernel.name, []).append(launch)
        found: list[Launch] = []
        for item in self.scheduled:
            launches = left.get(item.kernel.name)
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
        every = {
            (self.variant.memory[number].kind, self.variant.memory[number].index)
            for launch in self.variant.launches
            for buffer, number in zip(launch.kernel.buffers, launch.memory, strict=True)
            if buffer.role != "read"
        }
        written = {index for kind, index in every if kind == "output"}
        for state in self.variant.states:
            if ("input", state.index) not in every:
                raise OpweldError(f"launches of {self.variant.name!r}: nothing writes the state, input {state.index}")
        for position, name in enumerate(self.variant.names):
            if position not in written:
                raise OpweldError(f"launches of {self.variant.name!r}: none writes the output {name!r}")
