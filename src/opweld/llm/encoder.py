"""A compiled encoder: texts as vectors, or pairs of texts as scores."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.errors import InputError, OptionError
from opweld.llm.pooling import pooled
from opweld.llm.step import Progress, Span
from opweld.llm.work import Division, step_feeds
from opweld.tensor.paged import padded_size

Array = np.ndarray[Any, Any]
Float32 = NDArray[np.float32]

STEP = 512
"""Tokens that are computed together: enough that weights are read for many of them, few enough that what is between
layers stays in a processor's cache. A longer text is a step of its own."""


@dataclass(frozen=True)
class Pair:
    """A query and a text as a model reads them together.

    Attributes:
        tokens: of both, with those around them.
        types: of each token, 1 where it is of the text, else 0.
    """

    tokens: Sequence[int]
    types: Sequence[int]


class Encoder:
    """An encoder with its tokenizer, from a folder of Hugging Face. One thread at a time may call `embed` and `score`.

    A text gets the same bits whatever is computed beside it.

    Attributes:
        name: that of its folder. config: what it computes. tokenizer: its own. context: the most tokens of a text, or
        of a pair. weight_bytes: of its weights, which are mapped from a file and shared by all processes that run it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        memory: int | None = None,
        threads: int | None = None,
        context: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Loads an encoder; see `opweld.llm.load.load_encoder` for the arguments and errors."""
        from opweld.llm.load import BLOCK, load_encoder

        loaded = load_encoder(path, memory=memory, threads=threads, context=context, progress=progress)
        opened = loaded.opened
        self.name, self.config, self.tokenizer = opened.name, opened.config, opened.tokenizer
        self.context, self.weight_bytes = loaded.context, loaded.weights
        self._model, self._block, self._threads = loaded.model, BLOCK, loaded.model.session.threads
        # Room for the longest text, and for a step of texts that fill a quarter of their blocks. Steps write what they
        # read of it; memory comes from the system as it is first used.
        blocks, heads, size = (
            max(-(-self.context // BLOCK), 4 * STEP // BLOCK),
            self.config.heads,
            self.config.head_size,
        )
        self._keys = np.empty((blocks, heads, size, BLOCK), np.float32)
        self._values = np.empty((blocks, heads, BLOCK, padded_size(size)), np.float32)

    @property
    def dimensions(self) -> int:
        """Of a vector."""
        return self.config.hidden

    @property
    def scores(self) -> bool:
        """Whether it scores pairs; else it makes vectors."""
        return self.config.head is not None

    def embed(self, texts: Sequence[str | Sequence[int]], truncate: bool = False) -> Float32:
        """float32 [texts, dimensions]: the vectors of texts, or of their tokens with those that the model expects
        around them, pooled and normalised as its configuration says.

        truncate: whether the end of a text that is too long is left out.

        Raises InputError for a text without tokens, with unknown ones, or with more than the context has room for, and
        OptionError where the model scores pairs."""
        if self.scores:
            raise OptionError(
                f"this {self.config.architecture} scores pairs of texts, it makes no vectors; use `score`"
            )
        pairs = [Pair(self.shortened(text) if truncate else self._tokens(text), ()) for text in texts]
        steps = [np.empty((0, self.dimensions), np.float32)]
        for step in self._steps(pairs):
            counts = [len(pair.tokens) for pair in step] if self.config.whole else [1] * len(step)
            steps.append(pooled(self._run(step), counts, self.config.pooling))
        return np.concatenate(steps)

    def pair(self, query: str, text: str, truncate: bool = False) -> Pair:
        """A query and a text for `score`. truncate: whether the end of a text that is too long is left out."""
        return Pair(*self.tokenizer.encode_within(self.context if truncate else _ALL, query, text))

    def score(self, pairs: Sequence[Pair]) -> Float32:
        """float32 [pairs]: how well each text answers its query.

        Raises InputError as `embed` does, and OptionError where the model makes vectors."""
        head = self.config.head
        if head is None:
            raise OptionError(f"this {self.config.architecture} makes vectors, it scores no pairs; use `embed`")
        found = [np.empty(0, np.float32), *(self._run(step)[:, 0] for step in self._steps(pairs))]
        scores = np.concatenate(found)
        if head.sigmoid:
            with np.errstate(over="ignore"):
                scores = (1 / (1 + np.exp(-scores.astype(np.float64)))).astype(np.float32)
        return scores

    def shortened(self, text: str | Sequence[int]) -> list[int]:
        """The tokens of a text, or those given, without the last ones of a text that is too long."""
        return self.tokenizer.encode_within(self.context, text)[0] if isinstance(text, str) else [*text[: self.context]]

    def _tokens(self, text: str | Sequence[int]) -> Sequence[int]:
        return self.tokenizer.encode(text) if isinstance(text, str) else text

    def _steps(self, pairs: Sequence[Pair]) -> Generator[list[Pair]]:
        """Texts that are computed together; all are checked before the first is."""
        for pair in pairs:
            self._check(pair)
        step, tokens, blocks, room = list[Pair](), 0, 0, len(self._keys)
        for pair in pairs:
            count = len(pair.tokens)
            needed = -(-count // self._block)
            if step and (tokens + count > STEP or blocks + needed > room):
                yield step
                step, tokens, blocks = [], 0, 0
            step.append(pair)
            tokens, blocks = tokens + count, blocks + needed
        if step:
            yield step

    def _run(self, pairs: Sequence[Pair]) -> Float32:
        config = self.config
        types, positions, firsts = list[int](), list[int](), list[int]()
        spans, blocks = list[Span](), 0
        for pair in pairs:
            count = len(pair.tokens)
            firsts.append(len(positions))
            types += pair.types or (0,) * count
            positions += range(config.offset, config.offset + count)
            own = range(blocks, blocks := blocks - (-count // self._block))
            spans.append(Span(pair.tokens, 0, own))
        feeds: dict[str, Array] = {
            **step_feeds(spans, self._block, config.heads, Division(self._threads), causal=False),
            "positions": np.array(positions, np.int64),
            "keys": self._keys[:blocks],
            "values": self._values[:blocks],
        }
        if config.types:
            # A model with one type was never taught to tell two texts apart by it, whatever its tokenizer says.
            feeds["types"] = np.minimum(np.array(types, np.int64), config.types - 1)
        if not config.whole:
            feeds["wanted"] = np.array(firsts, np.int64)
        (found,) = self._model.run(feeds).values()
        return found

    def _check(self, pair: Pair) -> None:
        tokens = pair.tokens
        if not tokens:
            raise InputError("a text has no tokens")
        if min(tokens) < 0 or max(tokens) >= self.config.vocabulary:
            raise InputError(f"a token is not one of the {self.config.vocabulary} of the vocabulary")
        if len(tokens) > self.context:
            raise InputError(
                f"a text of {len(tokens)} tokens, where the model takes {self.context}: shorten it, or let it be "
                "truncated"
            )


_ALL = 1 << 62
"""A limit that no text reaches."""
