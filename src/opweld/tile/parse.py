"""The parser of tile programs. `text.py` describes the format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from opweld.tensor.dim import ZERO, Axis, Dim, Symbol
from opweld.tensor.dtype import DType
from opweld.tensor.expr import REDUCTIONS, Expr, load
from opweld.tensor.parse import Parser
from opweld.tile.tile import (
    Accumulate,
    Buffer,
    Collapse,
    Declare,
    Fetch,
    Invoke,
    Kernel,
    Let,
    Loop,
    Scratch,
    Statement,
    Store,
    Tile,
)

ROLES = ("read", "write", "update")


def parse_kernel(text: str, name: str = "kernel") -> Kernel:
    """The kernel that a text says, under a name.

    Raises OpweldError with the line of what is not understood.
    """
    parser = _KernelParser(text)
    return parser.whole(lambda: parser.kernel(name))


class _KernelParser(Parser):
    form = "tile program"

    def __init__(self, text: str) -> None:
        super().__init__(text, {})
        self.registers: dict[str, DType] = {}

    def _column(self) -> int:
        """How far the next token is indented; -1 at the end."""
        if self.position >= len(self.tokens):
            return -1
        start = self.tokens[self.position][2]
        return start - (self.text.rfind("\n", 0, start) + 1)

    # statements

    def kernel(self, name: str) -> Kernel:
        self._expect("kernel")
        sizes: list[Symbol] = []
        buffers: list[Buffer] = []
        scratch: list[Scratch] = []
        grid: list[Axis] = []
        while self._next_is("size", "scratch", "grid", *ROLES):
            if self._accept("size"):
                sizes.append(self._size())
            elif self._accept("scratch"):
                scratch.append(self._scratch())
            elif self._accept("grid"):
                grid.append(self._new_axis())
                while self._accept(","):
                    grid.append(self._new_axis())
            else:
                role = cast(Literal["read", "write", "update"], self._take("name", "a role"))
                buffer = Buffer(self._name(), self._dtype(), role)
                self.dtypes[buffer.name] = buffer.dtype
                buffers.append(buffer)
        body = self._block(0)
        if self.position < len(self.tokens):
            self._fail("a statement")
        return Kernel(name, tuple(buffers), tuple(sizes), tuple(grid), body, tuple(scratch))

    def _size(self) -> Symbol:
        name = self._take("name", "a name")
        least = self._integer() if self._accept(">=") else None
        self.symbols[name] = symbol = Symbol(name, least)
        return symbol

    def _scratch(self) -> Scratch:
        name, dtype = self._name(), self._dtype()
        self._expect("[")
        elements = self._dim()
        self._expect("]")
        self.dtypes[name] = dtype
        return Scratch(name, dtype, elements)

    def _new_axis(self) -> Axis:
        name = self._take("name", "an axis")
        self._expect(":")
        extent = self._dim()
        known = self.axes.get(name)
        # An accumulator over the lanes of a later tile names them first.
        axis = known if known is not None and known.extent is extent else Axis(name, extent)
        self.axes[name] = axis
        return axis

    def _block(self, column: int) -> tuple[Statement, ...]:
        """Statements that begin at the column."""
        outer = dict(self.registers)
        found: list[Statement] = []
        while self._column() == column:
            found.append(self._statement(column))
        self.registers = outer
        return tuple(found)

    def _statement(self, column: int) -> Statement:
        statements: dict[str, Callable[[int], Statement]] = {
            "loop": self._loop,
            "row": self._tile,
            "lane": self._tile,
            "acc": self._declare,
            "let": self._let,
            "store": self._store,
            "collapse": self._collapse,
            "invoke": self._invoke,
        }
        if self._next_is(*REDUCTIONS):
            return self._accumulate()
        if not self._next_is(*statements):
            self._fail("loop, row, lane, acc, let, store, collapse, invoke or a reduction")
        word = self.tokens[self.position][1]
        return statements[word](column)

    def _inner(self, column: int) -> tuple[Statement, ...]:
        inner = self._column()
        return self._block(inner) if inner > column else ()

    def _loop(self, column: int) -> Loop:
        self._expect("loop")
        axis = self._new_axis()
        lower = self._dim() if self._accept("from") else ZERO
        upper = self._dim() if self._accept("to") else None
        unroll = self._integer() if self._accept("unroll") else 1
        separate = self._integer() if self._accept("separate") else None
        fetches: list[Fetch] = []
        while self._accept("fetch"):
            fetches.append(self._fetch())
        return Loop(axis, self._inner(column), lower, upper, unroll, tuple(fetches), separate)

    def _fetch(self) -> Fetch:
        name, start = self._place()
        self._expect("lines")
        lines = self._integer()
        self._expect("step")
        step = self._integer()
        return Fetch(name, start, lines, step, self._dim() if self._accept("passes") else None)

    def _tile(self, column: int) -> Tile:
        role: Literal["row", "lane"] = "row" if self._accept("row") else "lane"
        if role == "lane":
            self._expect("lane")
        axis = self._new_axis()
        self._expect("at")
        base = self._dim()
        limit = self._dim() if self._accept("below") else None
        return Tile(axis, role, base, self._inner(column), limit)

    def _declare(self, column: int) -> Declare:
        self._expect("acc")
        unit: Literal["vector", "matrix"] = "matrix" if self._accept("matrix") else "vector"
        name, dtype = self._name(), self._dtype()
        self._expect("<")
        over = tuple(self._list(">", self._axis_over))
        self.dtype = dtype
        initial = self._body()
        self.registers[name] = dtype
        return Declare(name, dtype, over, initial, unit)

    def _axis_over(self) -> Axis:
        """An axis in scope, or the lanes of a later tile, whose width stands there."""
        name = self.tokens[self.position][1] if self.position < len(self.tokens) else ""
        width = self._width_of_later_lanes(name)
        if name not in self.axes and width is not None:
            self.axes[name] = Axis(name, width)
        return self._known_axis()

    def _width_of_later_lanes(self, name: str) -> int | None:
        words = [word for _, word, _ in self.tokens]
        for lane, axis, colon, width in zip(words, words[1:], words[2:], words[3:], strict=False):
            if (lane, axis, colon) == ("lane", name, ":") and width.isdigit():
                return int(width)
        return None

    def _accumulate(self) -> Accumulate:
        kind = self._take("name", "a reduction")
        name = self._register()
        self.dtype = self.registers[name]
        position: Dim | None = None
        if kind.startswith("arg"):
            self.dtype = dtype = self._dtype()
            self._expect("at")
            position = self._dim()
            self.dtype = dtype
        return Accumulate(name, kind, self._body(), position)

    def _let(self, column: int) -> Let:
        self._expect("let")
        name = self._name()
        self.dtype = self._dtype()
        value = self._body()
        self.registers[name] = value.dtype
        return Let(name, value)

    def _collapse(self, column: int) -> Collapse:
        self._expect("collapse")
        kind = self._take("name", "a reduction")
        return Collapse(self._register(), kind)

    def _store(self, column: int) -> Store:
        self._expect("store")
        name = self._memory()
        self._expect("[")
        offset = self._dim()
        guards: list[Dim] = []
        if self._accept("if"):
            guards.append(self._guarded())
            while self._accept(","):
                guards.append(self._guarded())
        self._expect("]")
        self.dtype = self.dtypes[name]
        return Store(name, offset, self._body(), tuple(guards))

    def _invoke(self, column: int) -> Invoke:
        self._expect("invoke")
        function = self._name()
        parts: dict[str, list[tuple[str, Dim]]] = {}
        for word in ("read", "write"):
            self._expect(word)
            self._expect("(")
            parts[word] = self._list(")", self._place)
        self._expect("scratch")
        self._expect("(")
        scratch = tuple(self._list(")", self._name))
        self._expect("of")
        self._expect("(")
        numbers = tuple(self._list(")", self._dim))
        return Invoke(function, tuple(parts["read"]), tuple(parts["write"]), scratch, numbers)

    def _memory(self) -> str:
        """The name of a buffer or of scratch."""
        name = self._name()
        if name not in self.dtypes:
            self.position -= 1
            self._fail("a buffer or scratch")
        return name

    def _place(self) -> tuple[str, Dim]:
        """An element of memory."""
        name = self._memory()
        self._expect("[")
        offset = self._dim()
        self._expect("]")
        return name, offset

    def _register(self) -> str:
        if not self._next_is(*self.registers):
            self._fail("an accumulator in scope")
        return self._take("name", "an accumulator")

    def _expression(self) -> Expr:
        if self._next_is(*self.registers):
            name = self._take("name", "a register")
            return load(name, self.registers[name], ())
        return super()._expression()
