"""A compiled decoder with its key/value cache: the `Runner` of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.compile import Model
from opweld.errors import InputError
from opweld.llm.angles import Angles
from opweld.llm.config import Config
from opweld.llm.decoding import Decoding, Limits
from opweld.llm.padded import padded
from opweld.llm.step import Span
from opweld.llm.work import Division, step_feeds

Array = np.ndarray[Any, Any]


class CompiledRunner:
    """Runs the steps of a model. One thread at a time may call it.

    Attributes:
        model: the compiled graph of the decoder. block_size, blocks, vocabulary, context, window: see `Runner`.
    """

    def __init__(
        self,
        model: Model,
        config: Config,
        block_size: int,
        blocks: int,
        context: int,
        division: Division | None = None,
    ) -> None:
        """Memory for `blocks` blocks comes from the system as it is first used. division: of the work of attention;
        among the threads of the model where None."""
        self.model, self.block_size, self.blocks, self.context = model, block_size, blocks, context
        self.vocabulary = config.vocabulary
        windows = [window for window in config.windows if window is not None]
        # One table says where the keys of all layers lie: one that sees all of them keeps those of the others, too.
        self.window = max(windows) if len(windows) == config.layers else None
        self._kv_heads = config.kv_heads
        self._angles = [Angles(rope) for rope in config.different_ropes]
        self._has_positions = any(info.name == "positions" for info in model.inputs)
        self._division = division or Division(model.session.threads)
        # What pads a step is written to a block behind those of the sequences.
        self._state = model.new_state(dims={"blocks": blocks + self._division.padded})
        self._logits = model.session.output_names.index("logits")
        self._decoding: Decoding | None = None

    def run(self, spans: Sequence[Span]) -> NDArray[np.float32]:
        """See `Runner`. Raises InputError for tokens, positions or blocks that are not there."""
        if self._decoding is not None and self._decoding.follow(spans):
            return self._decoding.run()[self._logits]
        positions: list[int] = []
        wanted: list[int] = []
        for span in spans:
            self._check(span)
            positions += range(span.start, span.start + len(span.tokens))
            wanted += range(len(positions) - span.outputs, len(positions))
        division = self._division
        step = step_feeds(spans, self.block_size, self._kv_heads, division)
        # A step without logits still computes those of its last token: sizes are 1 or more.
        step["wanted"] = np.array(wanted or [len(positions) - 1], np.int64)
        step["positions"] = np.array(positions, np.int64)
        feeds: dict[str, Array] = {**(padded(step, self.blocks) if division.padded else step)}
        at = feeds["positions"] if self._has_positions else feeds.pop("positions")
        for number, angles in enumerate(self._angles):
            feeds[f"cosines.{number}"], feeds[f"sines.{number}"] = angles.at(at)
        session = self.model.session
        if len(wanted) == len(positions) == len(spans) and not division.padded:
            limits = Limits(self.vocabulary, self.block_size, self.context)
            self._decoding = Decoding(spans, feeds, self._angles, limits, lambda own: session.bind(own, self._state))
            return self._decoding.run()[self._logits]
        return session.run(feeds, self._state)[self._logits][: len(wanted)]

    def memory(self) -> Mapping[str, Array]:
        """The pools of keys and values, by name, as they lie in memory, where the next step changes them; of a GPU a
        copy."""
        return {name: self._state.memory(name) for name in self._state.names}

    def _check(self, span: Span) -> None:
        last = span.start + len(span.tokens)
        if not span.tokens or not span.start >= 0 or not 0 <= span.outputs <= len(span.tokens):
            raise InputError(f"a span of {len(span.tokens)} tokens from {span.start} on, {span.outputs} of them wanted")
        if min(span.tokens) < 0 or max(span.tokens) >= self.vocabulary:
            raise InputError(f"a token is not one of the {self.vocabulary} of the vocabulary")
        if last > self.context:
            raise InputError(f"a sequence of {last} tokens, where the model takes {self.context}")
        needed = -(-last // self.block_size)
        if len(span.blocks) < needed or min(span.blocks) < 0 or max(span.blocks) >= self.blocks:
            raise InputError(f"a sequence of {last} tokens needs {needed} blocks of the {self.blocks} of the pool")
