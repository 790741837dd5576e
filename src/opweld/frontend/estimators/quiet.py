"""Calls into libraries that patch, or have patched, what the whole process shares."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager

_LOCK = threading.RLock()
"""An estimator may hold a function that compiles another one: reentrant."""


@contextmanager
def without_warnings() -> Generator[None]:
    """No warnings meanwhile, one thread at a time.

    `warnings.catch_warnings` puts back the filters that it found: where two threads overlap, the one that leaves last
    may put back those of the other, and the process stays without warnings."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
