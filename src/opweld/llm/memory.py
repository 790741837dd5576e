"""What a language model takes of memory, and how long its cache can be."""

from __future__ import annotations

from dataclasses import dataclass

from opweld.groups import free_memory
from opweld.llm.config import Config
from opweld.tensor.paged import padded_size

CONTEXTS = 4
"""Whole contexts that the cache holds where nobody says how much memory there is for it."""
SHARE = 0.5
"""The part of free memory that it takes at most then."""


@dataclass(frozen=True)
class Memory:
    """Bytes: of the weights, which are mapped from a file and shared by all processes that run the model; of a block of
    the cache, keys and values of all layers. blocks: how many there is room for."""

    weights: int
    block: int
    blocks: int

    @property
    def total(self) -> int:
        """With the whole cache in use."""
        return self.weights + self.block * self.blocks


def memory_for(
    config: Config,
    weights: int,
    block: int,
    context: int,
    given: int | None,
    element: int = 4,
    free: int | None = None,
) -> Memory:
    """The memory of a model whose weights take so many bytes, with blocks of so many tokens, where so many bytes are
    `given` for weights and cache together, and an element of the cache takes `element`. free: bytes that nobody uses,
    of the processor's memory where None. blocks is 0 where there is no room for any."""
    row = config.head_size + padded_size(config.head_size)
    size = element * config.layers * config.kv_heads * row * block
    if given is not None:
        return Memory(weights, size, max(0, (given - weights) // size))
    wanted = CONTEXTS * -(-context // block)
    return Memory(weights, size, min(wanted, max(0, int(SHARE * (free_memory() if free is None else free))) // size))
