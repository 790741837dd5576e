"""The headers of kernels are compiled once in a test run, for all models, where the product compiles them once a model.

They are most of what the C compiler reads for a model of a few nodes, and take longer than the rest of its
compilation. Code is the same; its debugging information names another folder for them."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from pathlib import Path

from opweld.build import toolchain
from opweld.build.cache import Cache

product = toolchain._precompile
"""What the product does, once a model."""


def keep(folder: Path) -> None:
    """From now on this process takes precompiled headers from a folder, and puts there what it misses."""

    def kept(compiler: toolchain.Compiler, flags: Sequence[str], workspace: Path, cache: Cache) -> str | None:
        texts = {path.name: path.read_text(encoding="utf-8") for path in workspace.glob("*.h")}
        place = folder / toolchain._key(compiler, flags, texts, "")
        place.mkdir(parents=True, exist_ok=True)
        made, done = place / f"{toolchain._COMMON}.pch", place / "done"
        with (place / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                for name, text in texts.items():
                    (place / name).write_text(text, encoding="utf-8")
                if product(compiler, flags, place, cache) is None:
                    return None
                done.touch()
        return str(made)

    toolchain._precompile = kept
