"""Prints vector programs as C."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opweld.codegen.c.vector import Assign, Define, Do, For, Function, GridAxis, If, Note, VectorStatement, While

_INDENT = "    "


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
            yield f"{_INDENT}int64_t {axis.variable} = rest % {axis.extent};"
            yield f"{_INDENT}rest /= {axis.extent};"


def _grid_step(grid: tuple[GridAxis, ...]) -> Iterator[str]:
    if len(grid) < 2:
        return
    text = f"++{grid[0].variable};"
    for axis in grid[1:]:
        text = f"if (++{axis.variable} == {axis.extent}) {{ {axis.variable} = 0; {text} }}"
    yield _INDENT * 2 + text


def _block(statements: Iterable[VectorStatement], depth: int) -> Iterator[str]:
    for statement in statements:
        yield from _statement(statement, depth)


def _statement(statement: VectorStatement, depth: int) -> Iterator[str]:
    indent = _INDENT * depth
    if isinstance(statement, Define):
        if statement.value is None:
            yield f"{indent}{_declarator(statement)};"
        else:
            yield f"{indent}{_declarator(statement)} = {statement.value};"
    elif isinstance(statement, Assign):
        yield f"{indent}{statement.name} = {statement.value};"
    elif isinstance(statement, Do):
        yield f"{indent}{statement.text};"
    elif isinstance(statement, Note):
        yield f"{indent}// {statement.text}"
    elif isinstance(statement, For):
        if statement.unroll > 1:
            yield f"{indent}OPW_UNROLL({statement.unroll})"
        variable = statement.variable
        step = f"++{variable}" if statement.step == 1 else f"{variable} += {statement.step}"
        yield f"{indent}for (int64_t {variable} = {statement.lower}; {variable} < {statement.upper}; {step}) {{"
        yield from _block(statement.body, depth + 1)
        yield indent + "}"
    elif isinstance(statement, While):
        yield f"{indent}while ({statement.condition}) {{"
        yield from _block(statement.body, depth + 1)
        yield indent + "}"
    else:
        yield f"{indent}if ({statement.condition}) {{"
        yield from _block(statement.then, depth + 1)
        other = statement.otherwise
        while len(other) == 1 and isinstance(other[0], If):
            yield f"{indent}}} else if ({other[0].condition}) {{"
            yield from _block(other[0].then, depth + 1)
            other = other[0].otherwise
        if other:
            yield indent + "} else {"
            yield from _block(other, depth + 1)
        yield indent + "}"


def _declarator(statement: Define) -> str:
    space = "" if statement.type.endswith("*") else " "
    return f"{statement.type}{space}{statement.name}"
