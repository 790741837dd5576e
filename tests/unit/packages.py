"""Packages that are there for one test, as an installer leaves them: on the path, with their entry points; and what
they register, which goes with the test."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opweld import extensions
from opweld.ops import kernel, registry
from opweld.tensor.externs import EXTERNS

_TABLES: tuple[dict[Any, Any], ...] = (
    registry._infer,
    registry._lower,
    registry._compute,
    kernel._owners,
    extensions._noted,
    extensions._sources,
    EXTERNS,
)


@contextmanager
def registrations() -> Generator[None]:
    """What is registered inside is forgotten."""
    before = [dict(table) for table in _TABLES]
    try:
        yield
    finally:
        for table, items in zip(_TABLES, before, strict=True):
            table.clear()
            table.update(items)


@contextmanager
def installed(folder: Path, entry_points: Mapping[str, Mapping[str, str]], code: Path | None = None) -> Generator[None]:
    """The modules of the folder `code`, or of `folder` itself, with entry points by group and name."""
    text = [
        line
        for group, entries in entry_points.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    info = folder / f"{folder.name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {folder.name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(text) + "\n")
    path, modules = list(sys.path), set(sys.modules)
    sys.path[:0] = [str(folder), str(code or folder)]
    try:
        yield
    finally:
        sys.path[:] = path
        mine = {
            value.partition(":")[0].partition(".")[0] for group in entry_points.values() for value in group.values()
        }
        for name in set(sys.modules) - modules:
            if name.partition(".")[0] in mine:
                del sys.modules[name]
