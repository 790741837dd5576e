"""Which lanes of a vector exist."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Active:
    """Which lanes exist: all, the first `count`, or those of a mask (a name)."""

    count: str | None = None
    mask: str | None = None


ALL = Active()
