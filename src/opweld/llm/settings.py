"""How an engine shares a runner among requests."""

from __future__ import annotations

from dataclasses import dataclass, fields

from opweld.errors import OptionError


@dataclass(frozen=True)
class Settings:
    """Limits of an engine.

    Attributes:
        budget: the most tokens that a step computes, of decoding rows, chunks of prompts and drafts together. A longer
            step has a better throughput; whoever decodes waits for it.
        rows: the most requests that are computed at once, at most `budget`, so that prompts always have a part of it.
        queue: the most requests that wait for a row, of an `AsyncEngine`.
        lookup: the most tokens that a draft has, each step, for each decoding row; 0 drafts nothing.
    """

    budget: int = 256
    rows: int = 64
    queue: int = 1024
    lookup: int = 0

    def __post_init__(self) -> None:
        for name, least in zip((field.name for field in fields(self)), (1, 1, 0, 0), strict=True):
            if getattr(self, name) < least:
                raise OptionError(f"{name} is {getattr(self, name)}, expected at least {least}")
        if self.rows > self.budget:
            raise OptionError(f"rows is {self.rows}, more than the budget of {self.budget} tokens a step")
