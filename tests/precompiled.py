"""The headers of kernels are compiled once in a test run, for all models, where the product compiles them once a model.

They are most of what the C compiler reads for a model of a few nodes, and take longer than the rest of its
compilation. Code is the same; its debugging information names another folder for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opweld.build import toolchain
from opweld.build.cache import Cache
from opweld.errors import ToolchainError
from tests.once import once

product = toolchain._precompile
"""What the product does, once a model."""


def keep(folder: Path) -> None:
    """From now on this process takes precompiled headers from a folder, and puts there what it misses."""

    def kept(compiler: toolchain.Compiler, flags: Sequence[str], workspace: Path, cache: Cache) -> str | None:
        texts = {path.name: path.read_text(encoding="utf-8") for path in workspace.glob("*.h")}
        place = folder / toolchain._key(compiler, flags, texts, "")
        made = place / f"{toolchain._COMMON}.pch"

        def make() -> None:
            for name, text in texts.items():
                (place / name).write_text(text, encoding="utf-8")
            if product(compiler, flags, place, cache) is None:
                raise ToolchainError("headers that cannot be compiled beforehand")

        try:
            once(place, make)
        except ToolchainError:
            return None
        return str(made)

    toolchain._precompile = kept
