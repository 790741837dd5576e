"""What compiled models have in common, made once in a test run: the runtime, and what zig links with.

It takes longer than to compile a small model. A test that needs a cache of its own begins with a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from opweld.runtime.build import build_runtime
from opweld.target import Target
from tests.once import once


def copy(kept: Path, folder: Path) -> None:
    """Writes a cache without models into `folder`, which is not there yet; `kept` is where the run keeps the one that
    it is copied from, and the same in all its processes."""
    cache = kept / "cache"

    def fill() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPWELD_CACHE", str(cache))
            patch.delenv("OPWELD_CC", raising=False)
            build_runtime(kept / "runtime.so", Target.native())

    once(kept, fill)
    shutil.copytree(cache, folder)
