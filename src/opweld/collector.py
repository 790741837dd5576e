"""Python's garbage collector: looks seldom while a model is compiled, and past what a server keeps.

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


def pass_over_what_is_new(look: bool = False) -> None:
    """Has the collector look at nothing any more that exists now; look: once it has looked at what came since it was
    called before. What has been imported has left next to nothing that nobody refers to."""
    if look:
        gc.collect()
    gc.freeze()


def pass_over_what_there_is() -> None:
    """Has the collector look at nothing any more that exists now, once it has looked at all of it.

    What a server has imported and loaded is some 70,000 objects that stay: a full collection took 43 to 82 ms to go
    through them, in which no request goes on. What was passed over before is looked at once more, so that whoever gives
    up something large calls this again."""
    gc.unfreeze()
    pass_over_what_is_new(look=True)
