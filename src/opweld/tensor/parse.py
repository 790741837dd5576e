"""The parser of tensor programs, by recursive descent. `text.py` describes the format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import ClassVar, NoReturn, TypeAlias, TypeVar

from opweld.errors import OpweldError
from opweld.tensor.dim import Axis, Dim, Symbol, Value, as_dim, floordiv, maximum, minimum, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Expr,
    binary,
    bitcast,
    cast,
    const,
    index,
    load,
    lookup,
    reduce,
    select,
    unary,
)
from opweld.tensor.operators import BINARY, REDUCTIONS, UNARY
from opweld.tensor.program import (
    Constant,
    Extern,
    Guard,
    Input,
    Item,
    Persistent,
    Result,
    Scan,
    State,
    SymbolSource,
    Tensor,
    TensorProgram,
)
from opweld.tensor.semantics import Array

Data: TypeAlias = Mapping[str, Array]
Element = TypeVar("Element")

_TABLE = re.compile(r"table_([0-9a-f]{512})\Z")
_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*|%[0-9]+)
    |(?P<sign>//|>=|==|!=|[-+*%()\[\],:=<>])
    |(?P<skip>\s+|\#[^\n]*)
    |(?P<wrong>.)""",
    re.VERBOSE,
)
_DTYPES = {dtype.short: dtype for dtype in DType}
_BITCASTS = {f"bits_{dtype.short}": dtype for dtype in DType}
_AXIS = re.compile(r"[irt][0-9]+\Z")


def parse_program(text: str, constants: Data | None = None, sizes: Mapping[str, int] | None = None) -> TensorProgram:
    """Parses a program.

    Args:
        text: in the format of `print_program`.
        constants: the data of constants by name; reading one that is missing raises OpweldError.
        sizes: numbers to substitute for symbols, by name.

    Raises OpweldError with the line of a syntax error.
    """
    parser = Parser(text, constants or {})
    parser.sizes = {name: as_dim(size) for name, size in (sizes or {}).items()}
    return parser.whole(parser.program)


def parse_size(text: str, symbols: Mapping[str, Symbol]) -> Dim:
    """Parses a polynomial of these symbols. Raises OpweldError for anything else."""
    parser = Parser(text, {})
    parser.symbols.update(symbols)
    return parser.whole(parser.size)


class Parser:
    """Parses one text; parsers of formats with such expressions derive from it."""

    form: ClassVar[str] = "tensor program"

    def __init__(self, text: str, constants: Data) -> None:
        self.text, self.constants = text, constants
        self.tokens = [
            (match.lastgroup or "", match.group(), match.start())
            for match in _TOKEN.finditer(text)
            if match.lastgroup != "skip"
        ]
        self.position = 0
        self.symbols: dict[str, Symbol] = {}
        self.sizes: dict[str, Dim] = {}
        self.axes: dict[str, Axis] = {}
        self.dtypes: dict[str, DType] = {}
        self.named: dict[str, Expr] = {}
        self.dtype = DType.F32

    def whole(self, read: Callable[[], Element]) -> Element:
        """The result of `read`, one of the parser's methods, on the whole text."""
        try:
            return read()
        except RecursionError:
            words = "an expression is nested too deeply; name its parts (%0 = ..)"
            raise OpweldError(f"{self.form}: {words}") from None

    # tokens

    def _fail(self, expected: str) -> NoReturn:
        found, start = ("the end", len(self.text))
        if self.position < len(self.tokens):
            _, found, start = self.tokens[self.position]
        line = self.text.count("\n", 0, start) + 1
        raise OpweldError(f"{self.form}, line {line}: expected {expected}, found {found!r}")

    def _next_is(self, *tokens: str) -> bool:
        return self.position < len(self.tokens) and self.tokens[self.position][1] in tokens

    def _kind(self) -> str:
        return self.tokens[self.position][0] if self.position < len(self.tokens) else ""

    def _take(self, kind: str, expected: str) -> str:
        if self._kind() != kind:
            self._fail(expected)
        self.position += 1
        return self.tokens[self.position - 1][1]

    def _accept(self, token: str) -> bool:
        if not self._next_is(token):
            return False
        self.position += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            self._fail(repr(token))

    def _string(self) -> str:
        text = self._take("string", "a quoted text")
        try:
            return str(json.loads(text))
        except json.JSONDecodeError:
            self.position -= 1
            self._fail("a quoted text")

    def _name(self) -> str:
        return self._string() if self._kind() == "string" else self._take("name", "a name")

    def _integer(self) -> int:
        negative = self._accept("-")
        text = self._take("number", "an integer")
        if not text.isdigit():
            self.position -= 1
            self._fail("an integer")
        return -int(text) if negative else int(text)

    def _dtype(self) -> DType:
        if not self._next_is(*_DTYPES):
            self._fail("an element type")
        return _DTYPES[self._take("name", "an element type")]

    def _reason(self) -> str:
        return self._string() if self._accept("because") else ""

    def _origin(self) -> tuple[str, ...]:
        names: list[str] = []
        if self._accept("from"):
            names.append(self._string())
            while self._accept(","):
                names.append(self._string())
        return tuple(names)

    # statements

    def program(self) -> TensorProgram:
        """The whole text as a program."""
        program = self._program()
        if self.position < len(self.tokens):
            self._fail("symbol, guard, input, constant, tensor, scan, extern or output")
        return program

    def size(self) -> Dim:
        """The whole text as a polynomial."""
        dim = self._dim()
        if self.position < len(self.tokens):
            self._fail("the end")
        return dim

    def _program(self) -> TensorProgram:
        """A program, up to the first line that is not part of it."""
        self._expect("program")
        name = self._name()
        symbols: list[SymbolSource] = []
        guards: list[Guard] = []
        inputs: list[Input] = []
        constants: list[Constant] = []
        items: list[Item] = []
        outputs: list[tuple[str, str]] = []
        states: list[Persistent] = []
        precision = self._name() if self._accept("precision") else "fp32"
        while self.position < len(self.tokens):
            if self._accept("symbol"):
                source = self._symbol_source()
                if source.symbol.name not in self.sizes:
                    symbols.append(source)
            elif self._accept("guard"):
                guards.append(self._guard())
            elif self._accept("input"):
                inputs.append(self._input())
            elif self._accept("constant"):
                constants.append(self._constant())
            elif self._accept("tensor"):
                items.append(self._tensor())
            elif self._accept("scan"):
                items.append(self._scan())
            elif self._accept("extern"):
                items.append(self._extern())
            elif self._accept("output"):
                outputs.append(self._pair())
            elif self._accept("state"):
                states.append(self._persistent())
            else:
                break
        return TensorProgram(
            name,
            tuple(inputs),
            tuple(constants),
            tuple(items),
            tuple(outputs),
            tuple(symbols),
            tuple(guards),
            tuple(states),
            precision=precision,
        )

    def _pair(self) -> tuple[str, str]:
        name = self._name()
        self._expect("=")
        return name, self._name()

    def _persistent(self) -> Persistent:
        value = self._name()
        self._expect("becomes")
        output = self._name()
        if not self._accept("along"):
            return Persistent(value, output)
        self._expect("axis")
        axis = self._integer()
        self._expect("behind")
        return Persistent(value, output, axis, self._dim())

    def _symbol_source(self) -> SymbolSource:
        name = self._name()
        least = self._integer() if self._accept(">=") else None
        self._expect("=")
        by_value = self._accept("value")
        if not by_value:
            self._expect("dim")
        position = self._integer()
        self._expect("of")
        source = self._name()
        divisor = self._integer() if self._accept("//") else 1
        self.symbols[name] = symbol = Symbol(name, least)
        return SymbolSource(symbol, source, position, by_value, divisor, self._reason())

    def _guard(self) -> Guard:
        dim = self._dim()
        kind = "zero" if self._accept("==") else "nonzero" if self._accept("!=") else "least"
        if kind == "least":
            self._expect(">=")
        self._expect("0")
        return Guard(kind, dim, self._reason())

    def _input(self) -> Input:
        name, dtype = self._name(), self._dtype()
        self._expect("[")
        self.dtypes[name] = dtype
        return Input(name, dtype, tuple(self._list("]", self._dim)))

    def _constant(self) -> Constant:
        name, dtype = self._name(), self._dtype()
        self._expect("[")
        shape = tuple(self._list("]", self._integer))
        self.dtypes[name] = dtype
        constants = self.constants

        def read() -> Array:
            if name not in constants:
                raise OpweldError(f"constant {name!r} was parsed from text without its data")
            return constants[name]

        return Constant(name, dtype, shape, read, self._origin())

    def _list(self, end: str, element: Callable[[], Element]) -> list[Element]:
        found: list[Element] = []
        while not self._accept(end):
            if found:
                self._expect(",")
            found.append(element())
        return found

    def _axis(self) -> Axis:
        name = self._take("name", "an axis")
        if not _AXIS.match(name):
            self.position -= 1
            self._fail("an axis (i0, r0, t0, ..)")
        self._expect(":")
        axis = Axis(name, self._dim())
        self.axes[name] = axis
        return axis

    def _header(self) -> tuple[str, DType, tuple[Axis, ...]]:
        """Name, dtype and axes of a tensor, step or state; replaces the axes of the one before."""
        self.axes = {name: axis for name, axis in self.axes.items() if name.startswith("t")}
        name, dtype = self._name(), self._dtype()
        self._expect("[")
        axes = tuple(self._list("]", self._axis))
        self.dtypes[name] = self.dtype = dtype
        return name, dtype, axes

    def _body(self) -> Expr:
        self.named = {}
        if self._accept("over"):
            self._axis()
            while self._accept(","):
                self._axis()
        while self._kind() == "name" and self.tokens[self.position][1].startswith("%"):
            name = self._take("name", "a name")
            self._expect("=")
            self.named[name] = self._expression()
        self._expect("=")
        return self._expression()

    def _tensor(self) -> Tensor:
        name, dtype, axes = self._header()
        origin = self._origin()
        return Tensor(name, dtype, axes, self._body(), origin)

    def _scan(self) -> Scan:
        time, origin, states = self._scan_head()
        steps: list[Tensor] = []
        while self._accept("step"):
            steps.append(self._tensor())
        stacked, final = self._scan_tail()
        return Scan(time, states, tuple(steps), stacked, final, origin)

    def _scan_head(self) -> tuple[Axis, tuple[str, ...], tuple[State, ...]]:
        """Time, origin and states; time is known from here to the tail."""
        self.axes = {}
        time = self._axis()
        origin = self._origin()
        states: list[State] = []
        while self._accept("state"):
            name, dtype, axes = self._header()
            self._expect("updated")
            self._expect("by")
            update = self._name()
            states.append(State(name, dtype, axes, self._body(), update))
        return time, origin, tuple(states)

    def _scan_tail(self) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        """The stacked and the final outputs."""
        stacked: list[tuple[str, str]] = []
        final: list[tuple[str, str]] = []
        while self._next_is("stack", "final"):
            pairs = stacked if self._accept("stack") else final
            if pairs is final:
                self._expect("final")
            pairs.append(self._pair())
            self.dtypes[pairs[-1][0]] = self.dtypes.get(pairs[-1][1], DType.F32)
        self.axes = {}
        return tuple(stacked), tuple(final)

    def _extern(self) -> Extern:
        function = self._name()
        self._expect("rows")
        rows = self._dim()
        self._expect("of")
        self._expect("(")
        numbers = tuple(self._list(")", self._dim))
        origin = self._origin()
        operands: list[str] = []
        results: list[Result] = []
        while self._next_is("operand", "result"):
            if self._accept("operand"):
                operands.append(self._name())
            else:
                self._expect("result")
                value = self._input()
                results.append(Result(value.name, value.dtype, value.shape))
        return Extern(function, tuple(operands), tuple(results), numbers, rows, origin)

    # expressions

    def _expression(self) -> Expr:
        if self._kind() == "number" or self._next_is("-", "inf", "nan"):
            return self._literal()
        if self._next_is("true", "false"):
            return const(self._take("name", "a literal") == "true", DType.BOOL)
        if self._next_is(*self.named):
            return self.named[self._take("name", "a name")]
        if self._kind() not in ("name", "string"):
            self._fail("an expression")
        name = self._name()
        if self._accept("["):
            return self._load(name)
        if name == "index":
            self._expect("(")
            dim = self._dim()
            self._expect(")")
            return index(dim)
        return self._call(name)

    def _literal(self) -> Expr:
        negative = self._accept("-")
        text = self._take("name" if self._next_is("inf", "nan") else "number", "a number")
        dtype = self._dtype() if self._accept(":") else self.dtype
        value = float(text) if dtype.is_float else int(text)
        return const(-value if negative else value, dtype)

    def _load(self, tensor: str) -> Expr:
        if tensor not in self.dtypes:
            self.position -= 2
            self._fail("the name of a value defined before")
        indices: list[Dim] = []
        guards: list[Dim] = []
        fill: Expr | None = None
        while not self._accept("]"):
            if self._accept("if"):
                guards.append(self._guarded())
                while self._accept(","):
                    guards.append(self._guarded())
                self._expect("else")
                fill = self._expression()
                self._expect("]")
                break
            if indices:
                self._expect(",")
            indices.append(self._dim())
        dtype = self._dtype() if self._accept(":") else self.dtypes[tensor]
        return load(tensor, dtype, tuple(indices), tuple(guards), fill)

    def _guarded(self) -> Dim:
        dim = self._dim()
        self._expect(">=")
        self._expect("0")
        return dim

    def _call(self, name: str) -> Expr:
        start = self.position - 1
        reduced: tuple[Axis, ...] = ()
        if self._accept("<"):
            reduced = tuple(self._list(">", self._known_axis))
        self._expect("(")
        operands = tuple(self._list(")", self._expression))
        if reduced and name in REDUCTIONS and len(operands) == 1:
            return reduce(name, reduced, operands[0])
        if name in UNARY and len(operands) == 1:
            return unary(name, operands[0])
        if name in BINARY and len(operands) == 2 and operands[0].dtype is operands[1].dtype:
            return binary(name, *operands)
        if name == "select" and len(operands) == 3:
            condition, x, y = operands
            if condition.dtype is DType.BOOL and x.dtype is y.dtype:
                return select(condition, x, y)
        if name in _DTYPES and len(operands) == 1:
            return cast(operands[0], _DTYPES[name])
        if name in _BITCASTS and len(operands) == 1 and operands[0].dtype.bits == _BITCASTS[name].bits:
            return bitcast(operands[0], _BITCASTS[name])
        if (table := _table(name)) is not None and len(operands) == 1 and operands[0].dtype is DType.U8:
            return lookup(table, operands[0])
        self.position = start
        return self._fail("an operator with operands of its types")

    def _known_axis(self) -> Axis:
        name = self._take("name", "an axis")
        if name not in self.axes:
            self.position -= 1
            self._fail("an axis of this tensor")
        return self.axes[name]

    # polynomials

    def _dim(self) -> Dim:
        total = -self._product() if self._accept("-") else self._product()
        while self._next_is("+", "-"):
            total = total + self._product() if self._accept("+") else total - self._subtracted()
        return total

    def _subtracted(self) -> Dim:
        self._expect("-")
        return self._product()

    def _product(self) -> Dim:
        total = self._factor()
        while self._accept("*"):
            total = total * self._factor()
        return total

    def _factor(self) -> Dim:
        if self._kind() == "number":
            return as_dim(self._integer())
        if self._accept("("):
            left = self._dim()
            if self._next_is("//", "%"):
                operator = floordiv if self._accept("//") else mod
                if operator is mod:
                    self._expect("%")
                left = operator(left, self._divisor())
            self._expect(")")
            return left
        if self._kind() == "string":
            return self._symbol(self._string())
        name = self._take("name", "a size or an index")
        if name in ("min", "max"):
            self._expect("(")
            left = self._dim()
            self._expect(",")
            right = self._dim()
            self._expect(")")
            return minimum(left, right) if name == "min" else maximum(left, right)
        if name == "at":
            self._expect("(")
            expr = self._expression()
            self._expect(",")
            extent = self._dim()
            self._expect(")")
            return Value(expr, extent).dim
        return self.axes[name].dim if name in self.axes else self._symbol(name)

    def _divisor(self) -> Dim:
        start = self.position
        divisor = self._dim()
        if divisor.constant is not None and divisor.constant <= 0:
            self.position = start
            self._fail("a divisor above zero")
        return divisor

    def _symbol(self, name: str) -> Dim:
        if name not in self.symbols:
            self.position -= 1
            self._fail("a size or an index that is known here")
        return self.sizes.get(name, self.symbols[name].dim)


def _table(name: str) -> bytes | None:
    """The table in the name of a function of bytes."""
    found = _TABLE.match(name)
    return None if found is None else bytes.fromhex(found[1])
