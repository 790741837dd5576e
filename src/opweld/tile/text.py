"""Tile programs as text, and back: `parse_kernel(print_kernel(k))` means the same and prints the same.

    kernel
    size n0 >= 1
    read b0 f32
    read b1 f32
    write b2 f32
    grid g0: 4, g1: (n0 + 5) // 6
    lane l0: 16 at 16*g0
      row r0: 6 at 6*g1 below n0
        acc a0 f32<l0, r0> = 0.0
        loop k0: 64
          sum a0 = mul(b0[64*r0 + 384*g1 + k0], b1[16*k0 + 1024*g0 + l0])
        store b2[64*r0 + 384*g1 + 16*g0 + l0] = max(a0, 0.0)

Everything is called by what it is and numbered in order of appearance: sizes n, buffers b, scratch s, grid axes g,
loops k, row tiles r, lane tiles l, accumulators a, named values v. So kernels that do the same print the same, whatever
the model called things. `lane l0: 16 at p below q` is a tile of 16 lanes that stand for the indices p + l0, of which
only those below q exist. `loop k0: 64 unroll 4 separate 16 fetch b1[p] lines 2 step 8 passes n` says how the loop is
to be written, see `tile.Loop`. Expressions are written as in `tensor.text`; a part that is used twice has its own line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opweld.tensor.dim import ZERO, Atom, Dim, Symbol, Value, atoms_of
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, walk
from opweld.tensor.text import Names
from opweld.tile.parse import parse_kernel
from opweld.tile.tile import Accumulate, Collapse, Declare, Invoke, Kernel, Let, Loop, Statement, Tile

__all__ = ["parse_kernel", "print_kernel"]


def print_kernel(kernel: Kernel) -> str:
    """The kernel as text, without its own name and those of the graph."""
    return _Printer(kernel).run()


@dataclass(eq=False)
class _Called:
    """What things are called: atoms, and memory and registers by their own names."""

    atoms: dict[Atom, str] = field(default_factory=dict[Atom, str])
    values: dict[str, str] = field(default_factory=dict[str, str])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    memory: dict[str, DType] = field(default_factory=dict[str, DType])

    def fresh(self, letter: str) -> str:
        """The next name that starts with the letter."""
        number = self.counts.get(letter, 0)
        self.counts[letter] = number + 1
        return f"{letter}{number}"

    def atom(self, atom: Atom, letter: str) -> str:
        """The name of an axis or size, a new one unless it has one."""
        if atom not in self.atoms:
            self.atoms[atom] = self.fresh(letter)
        return self.atoms[atom]

    def value(self, name: str, letter: str) -> str:
        """A new name for memory or a register; an older register of that name is not meant any more."""
        self.values[name] = self.fresh(letter)
        return self.values[name]


class _Names(Names):
    """The text of the polynomials and expressions of one statement."""

    def __init__(self, called: _Called) -> None:
        super().__init__(called.atoms)
        self.values: Mapping[str, str] = called.values
        self.memory: Mapping[str, DType] = called.memory

    def _expression(self, node: Expr) -> str:
        if not isinstance(node, Load):
            return super()._expression(node)
        name = self.values.get(node.tensor, f"?{node.tensor}")
        if not node.indices:
            return name
        text = ", ".join(map(self.dim, node.indices))
        if node.fill is not None:
            guards = ", ".join(f"{self.dim(guard)} >= 0" for guard in node.guards)
            text = f"{text} if {guards} else {self.done[node.fill]}"
        words = "" if node.dtype is self.memory.get(node.tensor, node.dtype) else f":{node.dtype.short}"
        return f"{name}[{text}]{words}"

    def _atom(self, atom: Atom) -> str:
        return self.names.get(atom, f"?{atom.text}") if isinstance(atom, Symbol) else super()._atom(atom)

    def header_dim(self, dim: Dim) -> str:
        """A polynomial outside of an expression: run-time indices in it are written out."""
        for value in sorted((a for a in atoms_of(dim) if isinstance(a, Value)), key=lambda a: a.key):
            self.dtype = value.expr.dtype
            for node in walk(value.expr):
                self.done[node] = self._expression(node)
        return self.dim(dim)


class _Printer:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.called = _Called()
        self.lines: list[str] = ["kernel"]

    def run(self) -> str:
        """All lines."""
        kernel = self.kernel
        self.called.memory = {block.name: block.dtype for block in (*kernel.buffers, *kernel.scratch)}
        for symbol in kernel.sizes:
            least = "" if symbol.least is None else f" >= {symbol.least}"
            self.lines.append(f"size {self.called.atom(symbol, 'n')}{least}")
        for buffer in kernel.buffers:
            self.lines.append(f"{buffer.role} {self.called.value(buffer.name, 'b')} {buffer.dtype.short}")
        for block in kernel.scratch:
            name = self.called.value(block.name, "s")
            self.lines.append(f"scratch {name} {block.dtype.short}[{self._dim(block.elements)}]")
        if kernel.grid:
            axes = [f"{self.called.atom(axis, 'g')}: {self._dim(axis.extent)}" for axis in kernel.grid]
            self.lines.append("grid " + ", ".join(axes))
        self._block(kernel.body, 0)
        return "\n".join(self.lines) + "\n"

    def _dim(self, dim: Dim) -> str:
        return _Names(self.called).header_dim(dim)

    def _block(self, body: tuple[Statement, ...], depth: int) -> None:
        outer = dict(self.called.values)
        for statement in body:
            self._statement(statement, depth)
        self.called.values = outer

    def _statement(self, statement: Statement, depth: int) -> None:
        if isinstance(statement, Loop):
            self._line(depth, self._loop(statement))
            self._block(statement.body, depth + 1)
        elif isinstance(statement, Tile):
            limit = "" if statement.limit is None else f" below {self._dim(statement.limit)}"
            base = self._dim(statement.base)
            name = self.called.atom(statement.axis, statement.role[0])
            self._line(depth, f"{statement.role} {name}: {statement.width} at {base}{limit}")
            self._block(statement.body, depth + 1)
        elif isinstance(statement, Declare):
            # The lanes of a later tile may not have a name yet.
            over = [self.called.atom(axis, "l") for axis in statement.over]
            name = self.called.value(statement.name, "a")
            unit = "" if statement.unit == "vector" else f" {statement.unit}"
            head = f"acc{unit} {name} {statement.dtype.short}<{', '.join(over)}>"
            self._with_value(depth, head, statement.initial)
        elif isinstance(statement, Accumulate):
            name = self.called.values.get(statement.name, f"?{statement.name}")
            head = f"{statement.kind} {name}"
            if statement.position is not None:
                head += f" {statement.value.dtype.short} at {self._dim(statement.position)}"
            self._with_value(depth, head, statement.value)
        elif isinstance(statement, Collapse):
            self._line(depth, f"collapse {statement.kind} {self.called.values.get(statement.name, statement.name)}")
        elif isinstance(statement, Let):
            names = _Names(self.called)
            head = f"let {self.called.value(statement.name, 'v')} {statement.value.dtype.short}"
            self._with_value(depth, head, statement.value, names)
        elif isinstance(statement, Invoke):
            self._line(depth, self._invoke(statement))
        else:
            guards = ", ".join(f"{self._dim(guard)} >= 0" for guard in statement.guards)
            where = f"{self._dim(statement.offset)} if {guards}" if guards else self._dim(statement.offset)
            buffer = self.called.values.get(statement.buffer, f"?{statement.buffer}")
            self._with_value(depth, f"store {buffer}[{where}]", statement.value)

    def _invoke(self, call: Invoke) -> str:
        def places(memory: Sequence[tuple[str, Dim]]) -> str:
            return ", ".join(f"{self.called.values.get(n, f'?{n}')}[{self._dim(at)}]" for n, at in memory)

        scratch = ", ".join(self.called.values.get(name, f"?{name}") for name in call.scratch)
        numbers = ", ".join(map(self._dim, call.numbers))
        return (
            f"invoke {call.function} read ({places(call.read)}) write ({places(call.written)}) scratch ({scratch}) "
            f"of ({numbers})"
        )

    def _loop(self, loop: Loop) -> str:
        lower = "" if loop.lower is ZERO else f" from {self._dim(loop.lower)}"
        upper = "" if loop.upper is None else f" to {self._dim(loop.upper)}"
        extent = self._dim(loop.axis.extent)
        unroll = "" if loop.unroll == 1 else f" unroll {loop.unroll}"
        separate = "" if loop.separate is None else f" separate {loop.separate}"
        head = f"loop {self.called.atom(loop.axis, 'k')}: {extent}{lower}{upper}{unroll}{separate}"
        fetches = (
            f" fetch {self.called.values.get(fetch.buffer, f'?{fetch.buffer}')}[{self._dim(fetch.start)}]"
            f" lines {fetch.lines} step {fetch.step}"
            f"{'' if fetch.passes is None else f' passes {self._dim(fetch.passes)}'}"
            for fetch in loop.fetches
        )
        return head + "".join(fetches)

    def _with_value(self, depth: int, head: str, value: Expr, names: _Names | None = None) -> None:
        lines = (names or _Names(self.called)).body_lines(value)
        if len(lines) == 1:
            self._line(depth, f"{head} {lines[0].strip()}")
            return
        self._line(depth, head)
        for line in lines:
            self._line(depth, line)

    def _line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)
