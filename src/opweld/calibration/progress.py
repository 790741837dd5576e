"""How far what takes long is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all, 0 where nobody knows)."""


def tell(progress: Progress | None, what: str, done: int, total: int) -> None:
    """Calls it, where somebody listens."""
    if progress is not None:
        progress(what, done, total)
