"""docs/options.md is the table of options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opweld.option import Entry, entries
from opweld.options import CompileOptions, Options

HEAD = """# Options of a compilation

The table in `src/opweld/options.py`; `pytest tests/golden --update-golden` writes this page anew. Each is a keyword
argument of `opweld.compile`, `opweld.InferenceSession` and of every other function that compiles, and a flag of every
command that does. What is of the key tells compiled models in the cache apart.

"""


def row(entry: Entry) -> str:
    annotation: Any = CompileOptions.__annotations__[entry.name]
    flag = f"`{entry.option.flag} {entry.option.kind.metavar}`" if entry.option.flag else "-"
    key = "yes" if entry.option.key is None else "in part"
    cells = (f"`{entry.name}`", f"`{annotation.__forward_arg__}`", f"`{entry.default!r}`", flag, key)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} | {entry.option.documentation} |"


def page(table: type[Options]) -> str:
    heads = ("option", "type", "default", "command line", "key", "what it does")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *map(row, entries(table))]
    return HEAD + "\n".join(lines) + "\n"


def test_the_page_of_options(golden: Callable[[str, str], None]) -> None:
    golden("../../../docs/options.md", page(Options))
