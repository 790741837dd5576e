"""The steps of a run on a GPU: launches of kernels, copies, loops of recurrences, functions of the processor; and the
memory between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opweld.codegen.triton.adjoined import adjoined
from opweld.codegen.triton.kernel import Kernel
from opweld.codegen.triton.realise import Realiser
from opweld.fuse.region import Region
from opweld.ledger import Ledger
from opweld.place.placed import Placed
from opweld.place.storage import Storage, dense
from opweld.runtime import dtypes
from opweld.runtime.cuda.program import Argument, Assumption, Buffer, Fed, Kept, Launch, Source, Variant
from opweld.runtime.cuda.sizes import MARK, Size
from opweld.schedule.expected import Expected
from opweld.target import Gpu
from opweld.tensor.dim import Atom, Dim, FloorDiv, Max, Min, Mod, Symbol, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import substitute
from opweld.tensor.externs import EXTERNS
from opweld.tensor.program import Extern, Scan, Tensor, unused

STEP = "step"
"""What the symbol is called that counts the steps of a recurrence, unless a size has that name."""


def size_text(dim: Dim) -> Size:
    """A polynomial of symbols as the runtime evaluates it."""
    words: list[str] = []
    for number, (monomial, coefficient) in enumerate(dim.terms):
        words.append(str(coefficient))
        for atom in monomial:
            words += [_atom_text(atom), "*"]
        if number:
            words.append("+")
    return " ".join(words) or "0"


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, Symbol):
        return MARK + atom.name
    assert isinstance(atom, FloorDiv | Mod | Min | Max)  # a size has no other atoms
    sign = {FloorDiv: "//", Mod: "%", Min: "min", Max: "max"}[type(atom)]
    return f"{size_text(atom.left)} {size_text(atom.right)} {sign}"


class Steps:
    """The steps of a placed program."""

    def __init__(self, placed: Placed, expected: Expected, target: Gpu, ledger: Ledger) -> None:
        self._placed = placed
        self._storages: dict[str, Storage] = dict(placed.storages)
        self._realiser = Realiser(placed, expected, target, ledger)
        self._kernels: dict[str, Kernel] = {}
        self._buffers: dict[str, int] = {}
        self._steps: list[Launch] = []
        self._inner: list[Launch] = []
        self._memory: list[list[str]] = []
        """The memory that each step uses."""
        self._adjoined = adjoined(placed)
        for region in placed.regions:
            if not self._adjoined.has(region):
                self._region(region)

    @property
    def constants(self) -> tuple[str, ...]:
        """The constants that steps read, in order."""
        return tuple(name for name in self._buffers if name in self._placed.constants)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches of kernels."""
        return tuple(step for step in (*self._steps, *self._inner) if step.kind == "kernel")

    def variant(self, offsets: Mapping[str, int]) -> tuple[Variant, Mapping[str, Kernel]]:
        """The program as data, and its kernels by name; `offsets` of constants in the weights file."""
        program = self._placed.program
        states = {state.input: number for number, state in enumerate(program.states)}
        after = dict(program.outputs)
        kept = tuple(
            Kept(self._fed(s.input, s.input), tuple(map(size_text, program.shape_of(after[s.output]))))
            for s in program.states
        )
        fed = [value.name for value in program.inputs if value.name not in states]
        told = [(public, name) for public, name in program.outputs if all(public != s.output for s in program.states)]
        inputs = tuple(self._fed(name, name) for name in fed)
        outputs = tuple(self._fed(public, name) for public, name in told)
        for name in (*fed, *states, *(name for _, name in told)):
            self._buffer(name)
        given = {name: number for number, name in enumerate(fed)}
        made = {name: number for number, (_, name) in enumerate(told)}
        buffers: list[Buffer] = []
        roots = {storage.root: storage for storage in self._storages.values()}
        for name in self._buffers:
            storage = roots[name]
            used = [number for number, memory in enumerate(self._memory) if name in memory]
            kind, index = ("input", given[name]) if name in given else ("arena", 0)
            if name in offsets:
                kind, index = "constant", offsets[name]
            elif name in made:
                kind, index = "output", made[name]
            elif name in states:
                kind, index = "state", states[name]
            elements = size_text(storage.elements)
            buffers.append(
                Buffer(name, _name(storage.dtype), elements, kind, index, min(used, default=0), max(used, default=0))
            )
        symbols = tuple(
            Source(s.symbol.name, s.input, s.position, s.by_value, s.divisor, s.symbol.least, s.reason)
            for s in program.symbols
        )
        assumptions = tuple(Assumption(g.kind, size_text(g.dim), g.reason) for g in program.guards)
        variant = Variant(
            program.name,
            inputs,
            outputs,
            symbols,
            assumptions,
            tuple(buffers),
            tuple(self._steps),
            tuple(self._inner),
            kept,
        )
        return variant, self._kernels

    def _fed(self, public: str, name: str) -> Fed:
        program = self._placed.program
        return Fed(public, _name(program.dtype_of(name)), tuple(map(size_text, program.shape_of(name))))

    def _buffer(self, root: str) -> int:
        return self._buffers.setdefault(root, len(self._buffers))

    # --------------------------------------------------------------------------------------------------------- steps

    def _region(self, region: Region) -> None:
        if region.extern is not None:
            self._extern(region.extern, region.outputs)
        elif region.scan is not None:
            self._recurrence(region)
        else:
            for kernel in self._realiser.kernels(region):
                self._add(self._launch(kernel), [memory for _, memory, _, _ in kernel.pointers])

    def _add(self, step: Launch, memory: Sequence[str]) -> None:
        self._steps.append(step)
        self._memory.append(list(memory))

    def _launch(self, kernel: Kernel) -> Launch:
        name = f"k{len(self._kernels)}"
        self._kernels[name] = kernel
        arguments = [Argument(p, "buffer", self._buffer(memory)) for p, memory, _, _ in kernel.pointers]
        arguments += [Argument("error", "error")] if kernel.errors else []
        arguments += [Argument(p, "size", size=size_text(dim), wide=kernel.wide) for p, dim in kernel.sizes]
        nodes = ", ".join(filter(None, kernel.origin))
        errors = tuple(f"{nodes}: {message}" if nodes else message for message in kernel.errors)
        grid = tuple(map(size_text, kernel.grid))
        origin = tuple(filter(None, kernel.origin))
        return Launch("kernel", origin, name, name, grid, tuple(arguments), errors)

    def _copy(self, source: str, target: str, target_at: Dim | None = None) -> Launch:
        storage = self._storages[source]
        size = storage.elements * storage.dtype.bytes
        at = as_dim(0) if target_at is None else target_at * size
        buffers = self._buffer(storage.root), self._buffer(self._storages[target].root)
        return Launch("copy", buffers=buffers, offsets=("0", size_text(at)), bytes=size_text(size))

    def _extern(self, extern: Extern, outputs: Sequence[str]) -> None:
        beside = self._adjoined
        kernel = self._realiser.extern(
            extern, beside.before.get(extern.operands[-1]), beside.after.get(extern.results[0].name)
        )
        if kernel is None:
            self._add(self._host(extern), [self._storages[name].root for name in (*extern.operands, *outputs)])
            return
        if EXTERNS[extern.function].in_place:
            before, after = (self._storages[name].root for name in (extern.operands[0], extern.results[0].name))
            if before != after:
                self._add(self._copy(extern.operands[0], extern.results[0].name), [before, after])
        self._add(self._launch(kernel), [memory for _, memory, _, _ in kernel.pointers])

    def _host(self, extern: Extern) -> Launch:
        names = [self._storages[name].root for name in (*extern.operands, *(result.name for result in extern.results))]
        return Launch(
            "host",
            tuple(filter(None, extern.origin)),
            buffers=tuple(map(self._buffer, names)),
            function=extern.function,
            numbers=tuple(map(size_text, extern.numbers)),
            rows=size_text(extern.rows),
            offsets=(str(len(extern.operands)),),
        )

    def _recurrence(self, region: Region) -> None:
        """A loop of the launches of a step. States are written when a step has computed all that reads them."""
        scan = region.recurrence()
        counter = Symbol(unused(STEP, {source.symbol.name for source in self._placed.program.symbols}), 0)
        moved: Mapping[Atom, Dim] = {scan.time: counter.dim}
        for value in (*scan.states, *scan.steps):
            self._storages[value.name] = dense(value.name, value.dtype, value.shape)
        for state in scan.states:
            first = Tensor(state.name, state.dtype, state.axes, state.initial, scan.origin)
            kernel = self._realiser.single(first, self._storages, scan.origin)
            self._add(self._launch(kernel), [memory for _, memory, _, _ in kernel.pointers])
        body, memory = self._step(scan, moved, counter)
        first_inner = len(self._inner)
        self._inner += body
        numbers = tuple(range(first_inner, len(self._inner)))
        count = size_text(scan.time.extent)
        self._add(
            Launch("loop", tuple(filter(None, scan.origin)), symbol=counter.name, count=count, body=numbers), memory
        )
        for name, state in scan.final:
            self._add(self._copy(state, name), [state, name])

    def _step(self, scan: Scan, moved: Mapping[Atom, Dim], counter: Symbol) -> tuple[list[Launch], list[str]]:
        body: list[Launch] = []
        memory: dict[str, None] = dict.fromkeys(state.name for state in scan.states)
        for step in scan.steps:
            tensor = replace(step, body=substitute(step.body, dict(moved)))
            kernel = self._realiser.single(tensor, self._storages, scan.origin)
            body.append(self._launch(kernel))
            memory |= dict.fromkeys(name for _, name, _, _ in kernel.pointers)
        for name, step in scan.stacked:
            body.append(self._copy(step, name, counter.dim))
            memory |= {name: None, step: None}
        for state in scan.states:
            body.append(self._copy(state.update, state.name))
            memory |= {state.update: None}
        return body, list(memory)


def _name(dtype: DType) -> str:
    return dtypes.NAMES[dtype.onnx]
