"""Tensor programs as text, and back: `parse_program(print_program(p))` means the same and prints the same.

    program mlp
    symbol batch >= 1 = dim 0 of x
    input x f32[batch, 64]
    constant w f32[64, 10]
    tensor y f32[i0: batch, i1: 10] from "MatMul_0", "Relu_1"
      over r0: 64
      %0 = sum<r0>(mul(x[i0, r0], w[r0, i1]))
      = max(%0, 0.0)
    output logits = y

Axes are i0, i1, .. (the tensor's), r0, r1, .. (reduced) and t0 (a scan's time). Literals have the dtype of the tensor
unless they have a suffix (`3:i64`). `x[i0 - 1 if i0 - 1 >= 0 else 0.0]` is a guarded load, `x[at(e, n)]` one at the
run-time index e in [0, n), `index(p)` the polynomial p as an int64 value. Other names than identifiers are quoted.

    extern order rows batch of (1000, 5, 1) from "TopK_0"
      operand scores
      result places i64[batch, 5]

A persistent value names its input and its output, and the axis along which it grows:

    state count becomes next
    state keys becomes all_keys along axis 2 behind past
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from opweld.tensor.dim import Atom, Axis, Dim, FloorDiv, Max, Min, Mod, Symbol, Value, atoms_of
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Lookup,
    Reduce,
    Select,
    Unary,
    dims_of,
    walk,
)
from opweld.tensor.parse import parse_program
from opweld.tensor.program import (
    Constant,
    Extern,
    Guard,
    Item,
    Persistent,
    Scan,
    State,
    SymbolSource,
    Tensor,
    TensorProgram,
)

__all__ = ["parse_program", "print_program"]

LINE = 100
"""The most characters of a sub-expression without a line and a name of its own."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RESERVED = re.compile(r"([irt][0-9]+|min|max|at|index)\Z")


def print_program(program: TensorProgram) -> str:
    """The program as text; of constants, only names, dtypes and shapes."""
    blocks = [[f"program {name_text(program.name)}"]]
    if program.precision != "fp32":
        blocks[0].append(f"precision {name_text(program.precision)}")
    blocks[0].extend(symbol_line(source) for source in program.symbols)
    blocks[0].extend(guard_line(guard) for guard in program.guards)
    blocks.append([value_line("input", v.name, v.dtype, v.shape) for v in program.inputs])
    blocks.append([constant_line(constant) for constant in program.constants])
    for item in program.items:
        blocks.append(_item_lines(item))
    blocks.append([f"output {name_text(public)} = {name_text(value)}" for public, value in program.outputs])
    blocks.append([persistent_line(state) for state in program.states])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text)


def name_text(name: str) -> str:
    """A name, quoted if it is not an identifier."""
    return name if _PLAIN.match(name) and name.isascii() else _quoted(name)


def origin_text(origin: Sequence[str]) -> str:
    """The graph nodes of origin."""
    return " from " + ", ".join(map(_quoted, origin)) if origin else ""


def type_text(dtype: DType, shape: Iterable[str]) -> str:
    """A dtype and a shape whose dims are texts."""
    return f"{dtype.short}[{', '.join(shape)}]"


def size_text(dim: Dim) -> str:
    """A size that does not depend on axes."""
    return Names({}).dim(dim)


def _symbol(symbol: Symbol) -> str:
    return _quoted(symbol.name) if _RESERVED.match(symbol.name) else name_text(symbol.name)


def symbol_line(source: SymbolSource) -> str:
    """A symbol, and the source of its value."""
    least = "" if source.symbol.least is None else f" >= {source.symbol.least}"
    kind = "value" if source.by_value else "dim"
    divisor = "" if source.divisor == 1 else f" // {source.divisor}"
    reason = f" because {_quoted(source.reason)}" if source.reason else ""
    origin = f"{kind} {source.position} of {name_text(source.input)}{divisor}"
    return f"symbol {_symbol(source.symbol)}{least} = {origin}{reason}"


def guard_line(guard: Guard) -> str:
    """An assumption, and its reason."""
    relation = {"zero": "==", "nonzero": "!=", "least": ">="}[guard.kind]
    return f"guard {size_text(guard.dim)} {relation} 0 because {_quoted(guard.reason)}"


def persistent_line(state: Persistent) -> str:
    """A persistent value."""
    line = f"state {name_text(state.input)} becomes {name_text(state.output)}"
    if state.axis is None or state.length is None:
        return line
    return f"{line} along axis {state.axis} behind {size_text(state.length)}"


def value_line(keyword: str, name: str, dtype: DType, shape: Iterable[Dim]) -> str:
    """A value with its dtype and its sizes."""
    return f"{keyword} {name_text(name)} {type_text(dtype, map(size_text, shape))}"


def constant_line(constant: Constant, keyword: str = "constant") -> str:
    """A constant without its data."""
    shape = map(str, constant.shape)
    return f"{keyword} {name_text(constant.name)} {type_text(constant.dtype, shape)}{origin_text(constant.origin)}"


def tensor_lines(keyword: str, tensor: Tensor, outer: Mapping[Atom, str] | None = None) -> tuple[list[str], Names]:
    """A tensor, and the names of its axes and sub-expressions; `outer` names the axes around it."""
    names = Names({**(outer or {}), **own_axes(tensor.axes)})
    shape = type_text(tensor.dtype, names.axes(tensor.axes))
    head = f"{keyword} {name_text(tensor.name)} {shape}{origin_text(tensor.origin)}"
    return [head, *names.body_lines(tensor.body)], names


def _item_lines(item: Item) -> list[str]:
    if isinstance(item, Scan):
        return _scan_lines(item)
    return _extern_lines(item) if isinstance(item, Extern) else tensor_lines("tensor", item)[0]


def _extern_lines(extern: Extern) -> list[str]:
    numbers = ", ".join(map(size_text, extern.numbers))
    lines = [
        f"extern {name_text(extern.function)} rows {size_text(extern.rows)} of ({numbers}){origin_text(extern.origin)}"
    ]
    lines.extend(f"  operand {name_text(name)}" for name in extern.operands)
    for result in extern.results:
        lines.append(value_line("  result", result.name, result.dtype, result.shape))
    return lines


def own_axes(axes: Sequence[Axis]) -> dict[Atom, str]:
    """The names of the axes of a tensor."""
    return {axis: f"i{position}" for position, axis in enumerate(axes)}


def _scan_lines(scan: Scan) -> list[str]:
    time: dict[Atom, str] = {scan.time: "t0"}
    steps = [line for step in scan.steps for line in tensor_lines("step", step, time)[0]]
    return [*scan_head(scan), *("  " + line for line in steps), *scan_tail(scan)]


def scan_head(scan: Scan) -> list[str]:
    """A recurrence up to its steps, with time t0: its header and states."""
    states = [line for state in scan.states for line in _state_lines(state)]
    head = f"scan t0: {size_text(scan.time.extent)}{origin_text(scan.origin)}"
    return [head, *("  " + line for line in states)]


def scan_tail(scan: Scan) -> list[str]:
    """The outputs of a recurrence, after its steps."""
    lines = [f"  stack {name_text(name)} = {name_text(step)}" for name, step in scan.stacked]
    return [*lines, *(f"  final {name_text(name)} = {name_text(state)}" for name, state in scan.final)]


def _state_lines(state: State) -> list[str]:
    names = Names(own_axes(state.axes))
    shape = type_text(state.dtype, names.axes(state.axes))
    head = f"state {name_text(state.name)} {shape} updated by {name_text(state.update)}"
    return [head, *names.body_lines(state.initial)]


class Names:
    """The text of dims and expressions of one tensor: the names of its axes and sub-expressions."""

    def __init__(self, names: Mapping[Atom, str]) -> None:
        self.names = dict(names)
        self.done: dict[Expr, str] = {}
        self.dtype = DType.F32

    def axes(self, axes: Sequence[Axis]) -> list[str]:
        return [f"{self.names[axis]}: {self.dim(axis.extent)}" for axis in axes]

    def body_lines(self, body: Expr) -> list[str]:
        self.dtype = body.dtype
        users = Counter(child for node in walk(body) for child in _children(node))
        reduced = list(dict.fromkeys(axis for node in walk(body) if isinstance(node, Reduce) for axis in node.axes))
        self.names.update({axis: f"r{position}" for position, axis in enumerate(reduced)})
        lines = [f"  over {', '.join(self.axes(reduced))}"] if reduced else []
        count = 0
        for node in walk(body):
            text = self._expression(node)
            shared = users[node] > 1 and not isinstance(node, Const | Index)
            if node is not body and (shared or len(text) > LINE):
                lines.append(f"  %{count} = {text}")
                text = f"%{count}"
                count += 1
            self.done[node] = text
        return [*lines, f"  = {self.done[body]}"]

    def expression(self, expr: Expr) -> str:
        """An expression on one line; named sub-expressions are referred to by name."""
        for node in walk(expr):
            if node not in self.done:
                self.done[node] = self._expression(node)
        return self.done[expr]

    def _expression(self, node: Expr) -> str:
        if isinstance(node, Const):
            return self._literal(node)
        if isinstance(node, Index):
            return f"index({self.dim(node.dim)})"
        if isinstance(node, Load):
            text = ", ".join(map(self.dim, node.indices))
            if node.fill is not None:
                guards = ", ".join(f"{self.dim(guard)} >= 0" for guard in node.guards)
                text = f"{text} if {guards} else {self.done[node.fill]}".lstrip()
            return f"{name_text(node.tensor)}[{text}]"
        operands = ", ".join(self.done[operand] for operand in node.operands)
        if isinstance(node, Unary | Binary):
            return f"{node.op}({operands})"
        if isinstance(node, Select):
            return f"select({operands})"
        if isinstance(node, Cast):
            return f"{node.dtype.short}({operands})"
        if isinstance(node, Bitcast):
            return f"bits_{node.dtype.short}({operands})"
        if isinstance(node, Lookup):
            return f"table_{node.table.hex()}({operands})"
        assert isinstance(node, Reduce)
        return f"{node.kind}<{', '.join(self.names[axis] for axis in node.axes)}>({operands})"

    def _literal(self, node: Const) -> str:
        if node.dtype is DType.BOOL:
            return "true" if node.value else "false"
        text = repr(node.value)
        return text if node.dtype is self.dtype else f"{text}:{node.dtype.short}"

    def dim(self, dim: Dim) -> str:
        """A polynomial, with terms in an order that does not depend on names of axes elsewhere."""
        terms: list[tuple[int, list[str], int]] = []
        for monomial, coefficient in dim.terms:
            factors = sorted(map(self._atom, monomial))
            terms.append((-len(factors), factors, coefficient))
        text = ""
        for _, factors, coefficient in sorted(terms):
            shown = [str(abs(coefficient)), *factors] if abs(coefficient) != 1 or not factors else factors
            sign = (" - " if coefficient < 0 else " + ") if text else ("-" if coefficient < 0 else "")
            text += sign + "*".join(shown)
        return text or "0"

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return _symbol(atom)
        if isinstance(atom, FloorDiv | Mod):
            sign = "//" if isinstance(atom, FloorDiv) else "%"
            return f"({self._operand(atom.left)} {sign} {self._operand(atom.right)})"
        if isinstance(atom, Min | Max):
            operands = ", ".join(sorted((self.dim(atom.left), self.dim(atom.right))))
            return f"{'min' if isinstance(atom, Min) else 'max'}({operands})"
        if isinstance(atom, Value):
            return f"at({self.done[atom.expr]}, {self.dim(atom.extent)})"
        return self.names.get(atom, f"?{atom.text}")

    def _operand(self, dim: Dim) -> str:
        return f"({self.dim(dim)})" if len(dim.terms) > 1 else self.dim(dim)


def _children(node: Expr) -> tuple[Expr, ...]:
    values = (atom.expr for dim in dims_of(node) for atom in atoms_of(dim) if isinstance(atom, Value))
    return (*node.operands, *values)
