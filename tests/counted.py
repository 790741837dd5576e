"""Work counted in calls of functions: what a test may bound on any machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class TooMuchWorkError(Exception):
    """More functions were called than a test allows."""


def calls(run: Callable[[], Any], most: int | None = None) -> tuple[int, Any]:
    """How many functions a call makes, Python's and C's, iterations of generators included; and its result.

    Raises TooMuchWorkError as soon as there are more than `most`, so that what grows exponentially ends too."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")
        if most is not None and count > most:
            sys.setprofile(None)
            raise TooMuchWorkError(f"more than {most} calls")

    sys.setprofile(profile)
    try:
        made = run()
    finally:
        sys.setprofile(None)
    return count, made
