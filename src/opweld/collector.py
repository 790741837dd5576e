"""Lowers the rate of Python's garbage collector while a model is compiled.

A compilation makes hundreds of thousands of objects, nearly all of which live to its end and refer to one another
without cycles. Looking through them at Python's usual rate takes up to an eighth of its time and finds nothing.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Generator

SELDOM = (100_000, 20, 100)
"""The collector's thresholds (`gc.set_threshold`) during compilation: a collection of the youngest generation costs
milliseconds, and a hundred thousand objects of garbage are some 10 MB."""

_lock = threading.Lock()
_inside = 0
_before = gc.get_threshold()


@contextlib.contextmanager
def collected_seldom() -> Generator[None]:
    """A context with these thresholds for all threads of the process; the last to leave restores the former ones.
    An application that collects less often, or never, is left alone, as is one that sets thresholds meanwhile."""
    global _inside, _before
    with _lock:
        if not _inside:
            _before = gc.get_threshold()
            if 0 < _before[0] < SELDOM[0]:
                gc.set_threshold(*SELDOM)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and gc.get_threshold() == SELDOM:
                gc.set_threshold(*_before)
