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
from opweld.tensor.paged import CHUNK, WORK

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
        self._alike = [alike(span.start, limits) for span in spans]
        self._rows = self._feeds["work"][:, 0].tolist()  # of each row of work, its token
        # A number is written through a view of memory in less code, which is not in the caches, than through NumPy.
        self._tokens, self._places, self._work = (self._view(name) for name in ("tokens", "places", "work"))

    def _view(self, name: str) -> memoryview[int]:
        """The numbers of a feed, in order."""
        numbers: Any = self._feeds[name].reshape(-1)
        return memoryview(numbers)

    def follow(self, spans: Sequence[Span]) -> bool:
        """Whether these are the next step, which `run` then computes. Nothing is changed where they are not."""
        if len(spans) != len(self._tables):
            return False
        for span, table, positions in zip(spans, self._tables, self._alike, strict=True):
            if len(span.tokens) != 1 or span.outputs != 1 or span.start not in positions or span.blocks != table:
                return False
            if not 0 <= span.tokens[0] < self._limits.vocabulary:
                return False
        starts = [span.start for span in spans]
        for number, span in enumerate(spans):
            self._tokens[number] = span.tokens[0]
            self._places[2 * number + 1] = span.start % self._limits.block
        for row, token in enumerate(self._rows):
            self._work[WORK * row + 2] = starts[token]
        feeds, at = self._feeds, np.array(starts, np.int64)
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
