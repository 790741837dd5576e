"""How fast an answer came, beside what the machine's memory allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opweld.cli.language import LanguageModel

_GB = 1e9


@dataclass
class Speed:
    """Measures one answer.

    A token of an answer reads the weights once, and the cache of the tokens before it; how long that takes at least is
    what the memory's bandwidth allows."""

    model: LanguageModel
    prompt: int
    clock: Callable[[], float] = time.perf_counter
    begun: float = field(init=False)
    first: float | None = None
    last: float = 0.0
    tokens: int = 0
    cached: int = 0
    _tokens_at_first: int = 0

    def __post_init__(self) -> None:
        self.begun = self.clock()

    def count(self, tokens: int, cached: int = 0) -> None:
        """Some tokens have come."""
        self.cached += cached
        if not tokens:
            return
        self.last = self.clock()
        self.tokens += tokens
        if self.first is None:
            self.first, self._tokens_at_first = self.last, tokens

    @property
    def per_second(self) -> float | None:
        """Tokens of the answer after the first piece; None where there are none."""
        if self.first is None or self.last <= self.first:
            return None
        return (self.tokens - self._tokens_at_first) / (self.last - self.first)

    @property
    def bytes_per_token(self) -> float:
        """Read for a token of the answer: weights, and the cache of the mean number of tokens before it."""
        return self.model.weight_bytes + self.model.token_bytes * (self.prompt + self.tokens / 2)

    def told(self, bandwidth: float | None) -> dict[str, Any]:
        """As JSON. bandwidth: bytes a second that the memory gives at most, where that is known."""
        per_second = self.per_second
        return {
            "prompt_tokens": self.prompt,
            "cached_tokens": self.cached,
            "answer_tokens": self.tokens,
            "first_token_seconds": None if self.first is None else self.first - self.begun,
            "tokens_per_second": per_second,
            "bytes_per_token": self.bytes_per_token,
            "part_of_bandwidth": self._part(bandwidth),
        }

    def line(self, bandwidth: float | None) -> str:
        """The same for people."""
        if self.first is None:
            return f"{self.prompt} tokens of prompt, no answer"
        found = f"{self.prompt} tokens of prompt, the first of {self.tokens} after {self.first - self.begun:.3g} s"
        if (per_second := self.per_second) is None:
            return found
        found += f"; then {per_second:.4g} tokens/s, of {self.bytes_per_token / 1e6:.4g} MB each"
        part = self._part(bandwidth)
        if part is None or bandwidth is None:
            return (
                f"{found}: {per_second * self.bytes_per_token / _GB:.3g} GB/s (opweld machine measures what there is)"
            )
        return f"{found}: {part:.0%} of {bandwidth / _GB:.3g} GB/s, which memory gives at most"

    def _part(self, bandwidth: float | None) -> float | None:
        per_second = self.per_second
        return None if per_second is None or bandwidth is None else per_second * self.bytes_per_token / bandwidth


def bandwidth_of(model: LanguageModel, threads: int | None) -> float | None:
    """Bytes a second that so many threads read at most of what holds the weights: the level of memory that has room for
    them. None where `opweld machine` has not measured it, and of a GPU."""
    from opweld.analysis.machine import Machine

    if model.on_gpu or (machine := Machine.remembered()) is None:
        return None
    found = next((level for level in machine.levels if level.bytes >= model.weight_bytes), machine.level("DRAM"))
    return None if found is None else found.read.at(threads or machine.threads)
