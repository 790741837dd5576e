"""A kernel as C text: one function of the ABI `opw_kernel`, and a comment that says what it computes."""

from __future__ import annotations

from collections.abc import Iterator

from opweld.codegen.c.render import render_function
from opweld.codegen.c.vectorise import vectorise
from opweld.tile.tile import Accumulate, Collapse, Declare, Kernel, Let, Loop, Statement, Tile

_LONGEST_LINE = 150


def render_kernel(kernel: Kernel, lanes: int, name: str | None = None) -> str:
    """The C function of a kernel for vectors of `lanes` elements, called `name`, else `kernel.name`.

    The text uses `opweld_kernel.h`. Names that may come from a model occur in comments only.
    Raises ValueError when the kernel breaks the rules of `schedule.tile`."""
    return render_comment(kernel) + render_body(kernel, lanes, name or kernel.name)


def render_body(kernel: Kernel, lanes: int, name: str) -> str:
    """The function alone: equal for kernels that differ in names only."""
    if not name.isidentifier() or not name.isascii():
        raise ValueError(f"{name!r} is no name for a C function")
    return render_function(vectorise(kernel, name, lanes))


def render_comment(kernel: Kernel) -> str:
    """What a kernel computes, as its tile program."""
    lines = [f"{kernel.name}  ({', '.join(kernel.origin)})" if kernel.origin else kernel.name]
    lines.append("buffers: " + ", ".join(f"{b.name} {b.dtype!r} {b.role}" for b in kernel.buffers))
    if kernel.sizes:
        lines.append("sizes: " + ", ".join(symbol.name for symbol in kernel.sizes))
    lines.append("grid: " + ", ".join(f"{axis} < {axis.extent}" for axis in kernel.grid))
    lines.extend(_describe(kernel.body, 1))
    return "".join(f"// {comment_text(line)}\n" for line in lines)


def comment_text(text: str) -> str:
    """Text that is safe in a C line comment: printable ASCII of bounded length that does not end in a backslash."""
    plain = "".join(c if " " <= c <= "~" and c != "\\" else "?" for c in text[: 4 * _LONGEST_LINE])
    plain = plain.replace("??", "?.")  # no trigraphs
    return plain if len(plain) <= _LONGEST_LINE else plain[: _LONGEST_LINE - 3] + "..."


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
            yield f"{indent}{item.name}[{over}] = {item.initial!r}"
        elif isinstance(item, Accumulate):
            yield f"{indent}{item.name} = {item.kind}({item.name}, {item.value!r})"
        elif isinstance(item, Collapse):
            yield f"{indent}{item.name} = {item.kind} of the lanes of {item.name}"
        elif isinstance(item, Let):
            yield f"{indent}{item.name} = {item.value!r}"
        else:
            guards = "".join(f" if {guard} >= 0" for guard in item.guards)
            yield f"{indent}{item.buffer}[{item.offset}] = {item.value!r}{guards}"
