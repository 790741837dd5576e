"""Steps of one token of each of some sequences, which differ from one another in little.

Between two of them a model's weights have passed through the caches, so that what a step does in Python it does at the
speed of memory, and a small model takes four milliseconds for one. What a step is fed stays where it is, and is changed
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opweld.llm.angles import Angles
from opweld.llm.step import Span
from opweld.tensor.paged import CHUNK

Array: TypeAlias = NDArray[Any]
Run: TypeAlias = Callable[[], "list[Array]"]


class Limits(NamedTuple):
    """What bounds a step: tokens of the vocabulary, of a block and of a sequence."""

    vocabulary: int
    block: int
    context: int


class Decoding:
    """A step that is the next one, too, where the same sequences have one token more each, in the same block and the
    same chunk of keys: then the tokens and their positions are all that is new.

    Attributes:
        run: computes it.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        feeds: Mapping[str, Array],
        angles: Sequence[Angles],
        limits: Limits,
        bind: Callable[[Mapping[str, Array]], Run],
    ) -> None:
        """feeds: of a first step, whose spans have one token each, that are there. bind: makes the runs with some."""
        self._feeds = {name: array.copy() for name, array in feeds.items()}
        self.run = bind(self._feeds)
        self._angles, self._limits = angles, limits
        self._tables = [copy(span.blocks) for span in spans]  # which may be lists that grow
        self._positions = [alike(span.start, limits) for span in spans]
        self._token_of_work = self._feeds["work"][:, 0].copy()

    def follow(self, spans: Sequence[Span]) -> bool:
        """Whether these are the next step, which `run` then computes. Nothing is changed where they are not."""
        if len(spans) != len(self._tables):
            return False
        tokens: list[int] = []
        for span, table, positions in zip(spans, self._tables, self._positions, strict=True):
            if len(span.tokens) != 1 or span.outputs != 1 or span.start not in positions or span.blocks != table:
                return False
            tokens += span.tokens
        if min(tokens) < 0 or max(tokens) >= self._limits.vocabulary:
            return False
        feeds = self._feeds
        at = np.array([span.start for span in spans], np.int64)
        feeds["tokens"][:] = tokens
        feeds["places"][:, 1] = at % self._limits.block
        feeds["work"][:, 2] = at[self._token_of_work]
        if "positions" in feeds:
            feeds["positions"][:] = at
        for number, own in enumerate(self._angles):
            feeds[f"cosines.{number}"][:], feeds[f"sines.{number}"][:] = own.at(at)
        return True


def alike(position: int, limits: Limits) -> range:
    """The positions that share a block and a chunk of keys with this one."""
    sizes = limits.block, CHUNK
    begin = max(position // size * size for size in sizes)
    return range(begin, min(limits.context, *(position // size * size + size for size in sizes)))
