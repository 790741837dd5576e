"""What compiled models have in common, made once in a test run: the runtime, and what zig links with.

It takes longer than to compile a small model. A test that needs a cache of its own begins with a copy."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest

from opweld.runtime.build import build_runtime
from opweld.target import Target


def copy(kept: Path, folder: Path) -> None:
    """Writes a cache without models into `folder`, which is not there yet; `kept` is where the run keeps the one that
    it is copied from, and the same in all its processes."""
    kept.mkdir(parents=True, exist_ok=True)
    cache, done = kept / "cache", kept / "done"
    with (kept / "lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            patch.setenv("OPWELD_CACHE", str(cache))
            patch.delenv("OPWELD_CC", raising=False)
            build_runtime(kept / "runtime.so", Target.native())
            done.touch()
    shutil.copytree(cache, folder)
