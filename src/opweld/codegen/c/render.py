"""Prints kernels as C, from their vector programs (`vector.py`: a small syntax tree of C), with the tile program as a
comment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opweld.codegen.c.literals import comment_text, number_literal
from opweld.codegen.c.vector import (
    Assign,
    Bytes,
    Call,
    Conditional,
    Convert,
    Define,
    Do,
    Element,
    Expression,
    For,
    Function,
    GridAxis,
    If,
    Infix,
    Literal,
    Name,
    Prefix,
    Return,
    Update,
    VectorStatement,
    While,
)
from opweld.codegen.c.vectorise import vectorise
from opweld.tile.tile import Accumulate, Collapse, Declare, Invoke, Kernel, Let, Loop, Statement, Tile

_INDENT = "    "
_BYTES_A_LINE = 16


def render_kernel(kernel: Kernel, lanes: int, name: str | None = None) -> str:
    """The C function of a kernel for vectors of `lanes` elements, called `name`, else `kernel.name`.

    The text uses `opweld_kernel.h`. Names from a model occur in comments only, and as a part of `name`. Raises
    ValueError when the kernel breaks the rules of `tile.check`."""
    return render_comment(kernel) + render_body(kernel, lanes, name or kernel.name)


def render_body(kernel: Kernel, lanes: int, name: str) -> str:
    """The function without the comment: equal for kernels that differ in names only."""
    if not name.isidentifier() or not name.isascii():
        raise ValueError(f"{name!r} is not a valid name of a C function")
    return render_function(vectorise(kernel, name, lanes))


def render_function(function: Function) -> str:
    """The C text of one kernel, without its comment."""
    counter = function.grid[0].variable if len(function.grid) == 1 else "iteration"
    lines = [
        f"void {function.name}(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, "
        "int64_t *error) {",
        _INDENT + "(void)buffers, (void)p, (void)scratch, (void)error;",
        _INDENT + "if (begin >= end) return;",
        *_block(function.header, 1),
        *_grid_start(function.grid),
        f"{_INDENT}for (int64_t {counter} = begin; {counter} < end; ++{counter}) {{",
        *_block(function.body, 2),
        *_grid_step(function.grid),
        _INDENT + "}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _grid_start(grid: tuple[GridAxis, ...]) -> Iterator[str]:
    if len(grid) < 2:
        return
    yield _INDENT + "int64_t rest = begin;"
    for position, axis in reversed(list(enumerate(grid))):
        if position == 0:
            yield f"{_INDENT}int64_t {axis.variable} = rest;"
        else:
            yield f"{_INDENT}int64_t {axis.variable} = rest % {expression_text(axis.extent)};"
            yield f"{_INDENT}rest /= {expression_text(axis.extent)};"


def _grid_step(grid: tuple[GridAxis, ...]) -> Iterator[str]:
    if len(grid) < 2:
        return
    text = f"++{grid[0].variable};"
    for axis in grid[1:]:
        text = f"if (++{axis.variable} == {expression_text(axis.extent)}) {{ {axis.variable} = 0; {text} }}"
    yield _INDENT * 2 + text


def _block(statements: Iterable[VectorStatement], depth: int) -> Iterator[str]:
    for statement in statements:
        yield from _statement(statement, depth)


def _statement(statement: VectorStatement, depth: int) -> Iterator[str]:
    indent = _INDENT * depth
    if isinstance(statement, Define):
        value = "" if statement.value is None else f" = {expression_text(statement.value)}"
        yield f"{indent}{_declarator(statement)}{value};".replace("\n", f"\n{indent}")
    elif isinstance(statement, Assign):
        yield f"{indent}{expression_text(statement.target)} = {expression_text(statement.value)};"
    elif isinstance(statement, Update):
        yield f"{indent}{statement.name.name} {statement.sign}= {expression_text(statement.value)};"
    elif isinstance(statement, Do):
        yield f"{indent}{expression_text(statement.call)};"
    elif isinstance(statement, Return):
        yield f"{indent}return;"
    elif isinstance(statement, For):
        if statement.unroll > 1:
            yield f"{indent}OPW_UNROLL({statement.unroll})"
        variable, lower, upper = statement.variable, expression_text(statement.lower), expression_text(statement.upper)
        step = f"++{variable}" if statement.step == 1 else f"{variable} += {statement.step}"
        yield f"{indent}for (int64_t {variable} = {lower}; {variable} < {upper}; {step}) {{"
        yield from _block(statement.body, depth + 1)
        yield indent + "}"
    elif isinstance(statement, While):
        yield f"{indent}while ({expression_text(statement.condition)}) {{"
        yield from _block(statement.body, depth + 1)
        yield indent + "}"
    else:
        yield from _branches(statement, depth)


def _branches(statement: If, depth: int) -> Iterator[str]:
    indent = _INDENT * depth
    yield f"{indent}if ({expression_text(statement.condition)}) {{"
    yield from _block(statement.then, depth + 1)
    other = statement.otherwise
    while len(other) == 1 and isinstance(other[0], If):
        yield f"{indent}}} else if ({expression_text(other[0].condition)}) {{"
        yield from _block(other[0].then, depth + 1)
        other = other[0].otherwise
    if other:
        yield indent + "} else {"
        yield from _block(other, depth + 1)
    yield indent + "}"


def _declarator(statement: Define) -> str:
    space = "" if statement.type.endswith("*") else " "
    return f"{statement.type}{space}{statement.name}"


# ---- expressions -----------------------------------------------------------------------------------------------------

_LEVELS = ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "+ -", "* / %")
_PRECEDENCE = {sign: level for level, signs in enumerate(_LEVELS) for sign in signs.split()}
_PREFIX, _ATOM = 10, 11
_PARENTHESISED = ("&", "^", "|", "||")
"""Operators whose operands are parenthesised for readability."""


def expression_text(expression: Expression) -> str:
    """The expression in C, with necessary parentheses, and some for readability."""
    if isinstance(expression, Name):
        return expression.name
    if isinstance(expression, Literal):
        return number_literal(expression.value, expression.dtype)
    if isinstance(expression, Call):
        return f"{expression.function}({', '.join(map(expression_text, expression.operands))})"
    if isinstance(expression, Prefix):
        return expression.sign + _operand(expression.operand, _PREFIX)
    if isinstance(expression, Convert):
        return f"({expression.type}){_operand(expression.operand, _PREFIX)}"
    if isinstance(expression, Element):
        return f"{_operand(expression.pointer, _ATOM)}[{expression_text(expression.index)}]"
    if isinstance(expression, Bytes):
        return _table_text(expression.data)
    if isinstance(expression, Conditional):
        condition = _operand(expression.condition, 0)
        return f"{condition} ? {expression_text(expression.then)} : {expression_text(expression.otherwise)}"
    return _infix_text(expression)


def _table_text(data: bytes) -> str:
    """The initialiser of a structure of bytes, some of them a line."""
    lines = (data[start : start + _BYTES_A_LINE] for start in range(0, len(data), _BYTES_A_LINE))
    return "{{\n" + "".join(f"{_INDENT}{', '.join(map(str, line))},\n" for line in lines) + "}}"


def _infix_text(expression: Infix) -> str:
    # Long sums are left-deep: iteration instead of recursion.
    parts: list[str] = []
    node: Expression = expression
    while isinstance(node, Infix) and _joins(node.sign, expression.sign):
        parts += [_operand(node.right, _PRECEDENCE[node.sign] + 1, node.sign), f" {node.sign} "]
        node = node.left
    parts.append(_operand(node, _PRECEDENCE[expression.sign], expression.sign))
    return "".join(reversed(parts))


def _joins(inner: str, outer: str) -> bool:
    """Whether a left operand belongs to the same sum or product."""
    return inner == outer or {inner, outer} == {"+", "-"}


def _operand(expression: Expression, least: int, sign: str = "") -> str:
    """An operand of an operator: in parentheses unless its precedence is at least `least`."""
    text = expression_text(expression)
    if isinstance(expression, Infix):
        mixed = sign != expression.sign and (sign in _PARENTHESISED or expression.sign in _PARENTHESISED)
        needed = _PRECEDENCE[expression.sign] < least or mixed
    elif isinstance(expression, Prefix | Literal) and text.startswith("-"):
        needed = sign in ("+", "-") or least >= _PREFIX
    else:
        needed = isinstance(expression, Conditional) or (least == _ATOM and isinstance(expression, Prefix | Convert))
    return f"({text})" if needed else text


# ---- comments --------------------------------------------------------------------------------------------------------


def render_comment(kernel: Kernel) -> str:
    """The tile program of a kernel, as a comment."""
    lines = [f"{kernel.name}  ({', '.join(kernel.origin)})" if kernel.origin else kernel.name]
    lines.append("buffers: " + ", ".join(f"{b.name} {b.dtype!r} {b.role}" for b in kernel.buffers))
    if kernel.sizes:
        lines.append("sizes: " + ", ".join(symbol.name for symbol in kernel.sizes))
    lines.append("grid: " + ", ".join(f"{axis} < {axis.extent}" for axis in kernel.grid))
    lines.extend(_describe(kernel.body, 1))
    return "".join(f"// {comment_text(line)}\n" for line in lines)


def _describe(body: tuple[Statement, ...], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for item in body:
        if isinstance(item, Loop):
            start = "" if item.lower.constant == 0 else f"from {item.lower} "
            yield f"{indent}for {item.axis} {start}below {item.end}:"
            yield from _describe(item.body, depth + 1)
        elif isinstance(item, Tile):
            limit = "" if item.limit is None else f", below {item.limit}"
            yield f"{indent}{item.role} tile {item.axis} of {item.width} from {item.base}{limit}:"
            yield from _describe(item.body, depth + 1)
        elif isinstance(item, Declare):
            over = ", ".join(map(repr, item.over))
            unit = "" if item.unit == "vector" else f"  in the {item.unit} unit"
            yield f"{indent}{item.name}[{over}] = {item.initial!r}{unit}"
        elif isinstance(item, Accumulate):
            yield f"{indent}{item.name} = {item.kind}({item.name}, {item.value!r})"
        elif isinstance(item, Collapse):
            yield f"{indent}{item.name} = {item.kind} of the lanes of {item.name}"
        elif isinstance(item, Let):
            yield f"{indent}{item.name} = {item.value!r}"
        elif isinstance(item, Invoke):
            memory = ", ".join(f"{name}[{offset}]" for name, offset in (*item.read, *item.written))
            yield f"{indent}{item.function}({memory}; {', '.join(map(str, item.numbers))})"
        else:
            guards = "".join(f" if {guard} >= 0" for guard in item.guards)
            yield f"{indent}{item.buffer}[{item.offset}] = {item.value!r}{guards}"
