"""What the engine asks of a model: one step, which computes some tokens of several sequences at once.

Sequences are ragged: any mix of prompts, parts of prompts and single tokens. Keys and values of a sequence lie in
blocks of a pool; its block table says in which. Block b of a sequence holds its tokens [b * block_size,
(b + 1) * block_size).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told while a model is compiled: what is being done, steps done, steps in all."""


@dataclass(frozen=True)
class Span:
    """Consecutive tokens of one sequence that a step computes.

    Attributes:
        tokens: their ids.
        start: the position of the first one: how many tokens of the sequence have keys and values in the cache.
        blocks: the block table of the sequence, with room for start + len(tokens) tokens; those that no token of it
            sees may be any.
        outputs: of how many of the last tokens logits are wanted: 0 for a part of a prompt that is not its last.
    """

    tokens: Sequence[int]
    start: int
    blocks: Sequence[int]
    outputs: int = 1


class Runner(Protocol):
    """A model with its key/value cache."""

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        ...

    @property
    def blocks(self) -> int:
        """Blocks of the pool."""
        ...

    @property
    def vocabulary(self) -> int:
        """Logits of a token."""
        ...

    @property
    def context(self) -> int:
        """The most tokens of a sequence."""
        ...

    @property
    def window(self) -> int | None:
        """The most of the last keys that a token sees in any layer, its own included; None where one sees all."""
        ...

    def run(self, spans: Sequence[Span]) -> NDArray[np.float32]:
        """Computes the tokens of all spans, writes their keys and values into the cache, and returns the logits that
        are wanted, [sum of outputs, vocabulary], in the order of the spans.

        The logits of a token are the same bits whatever else is in the step, and however its sequence was divided into
        steps."""
        ...
