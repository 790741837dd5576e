"""One part of `benchmarks.gpu`, in a process of its own.

    python -m benchmarks.gpu_part MODULE FILE [--quick]

Runs MODULE.main(quick) and writes what it returns to FILE as JSON; where it yields, the list of that, after each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


def run_part(module: str, file: Path, quick: bool) -> None:
    """Runs a part and keeps what it measures."""
    answer = import_module(module).main(quick)
    if not isinstance(answer, Iterator):
        _write(answer, file)
        return
    found: list[Any] = []
    for one in answer:
        found.append(one)
        _write(found, file)


def _write(found: Any, file: Path) -> None:
    whole = file.with_name(f".{file.name}")
    whole.write_text(json.dumps(found, default=_plain), encoding="utf-8")
    whole.replace(file)


def _plain(value: Any) -> Any:
    """What JSON has no type for: the fields of a dataclass, the number of an array's scalar, else its text."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    item: Any = getattr(value, "item", None)
    return str(value) if item is None else item()


if __name__ == "__main__":
    run_part(sys.argv[1], Path(sys.argv[2]), "--quick" in sys.argv[3:])
