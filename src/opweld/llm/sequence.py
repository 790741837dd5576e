"""A request on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from opweld.llm.blocks import Table
from opweld.llm.requests import Request
from opweld.llm.sampler import Sampler
from opweld.llm.text import Text


@dataclass(eq=False)
class Sequence:
    """The tokens of a request and its answer so far, where their keys and values lie, and what its answer needs.

    Attributes:
        tokens: prompt and answer.
        limit: the most tokens of the answer.
        computed: the first tokens of which keys and values are in the cache.
        cached: tokens of the prompt that were in the cache when it was first admitted; None before.
    """

    request: Request
    limit: int
    sampler: Sampler
    text: Text
    tokens: list[int] = field(init=False)
    table: Table = field(default_factory=Table)
    computed: int = 0
    cached: int | None = None

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)

    @property
    def pending(self) -> int:
        """Known tokens that have to be computed: 1 while it decodes, more while a prompt is computed."""
        return len(self.tokens) - self.computed

    @property
    def left(self) -> int:
        """Tokens that the answer may still have."""
        return self.limit - (len(self.tokens) - len(self.request.prompt))
