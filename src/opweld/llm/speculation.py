"""Drafts: tokens that probably follow, which one step verifies all at once.

A draft here is always certain of itself: it names one token for each position, not a distribution. Rejection sampling
then means: accept the drafted token d with its probability p(d), and else draw from p without d. Drawing from p as
without drafts, and accepting d if it is what was drawn, is the same; and it takes the same random number for a position
whether there was a draft or not. So drafts change the time that an answer takes, and neither its distribution nor,
with a seed, its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Protocol

from opweld.errors import OptionError
from opweld.llm.blocks import BlockManager, Table
from opweld.llm.scheduler import Work
from opweld.llm.sequence import Sequence
from opweld.llm.step import Runner, Span

SIZES = (3, 2)
"""Tokens of the n-grams that are looked up, in this order: a single token says too little of what follows."""


class Drafter(Protocol):
    """What drafts."""

    def draft(self, work: Tokens[Work]) -> None:
        """Gives drafts to those that have room for them, at most so many."""
        ...

    def forget(self, sequence: Sequence) -> None:
        """Says that a sequence has ended."""
        ...


class Lookup:
    """Drafts what followed the last tokens where they stood before: summaries, code and quotes repeat their prompt."""

    def __init__(self) -> None:
        self._seen: dict[Sequence, Seen] = {}

    def draft(self, work: Tokens[Work]) -> None:
        """Gives drafts to those that have room for them."""
        for item in work:
            if item.room:
                seen = self._seen.setdefault(item.sequence, Seen())
                item.drafts = seen.followed(item.sequence.tokens, item.room)

    def forget(self, sequence: Sequence) -> None:
        """Drops what it knows of a sequence."""
        self._seen.pop(sequence, None)


class Seen:
    """Where the n-grams of a sequence stood last. It grows with the sequence, and looks up at the same price."""

    def __init__(self) -> None:
        self._behind: dict[tuple[int, ...], int] = {}
        self._read = 0

    def followed(self, tokens: list[int], count: int) -> list[int]:
        """Up to `count` tokens that followed the last time that the last tokens stood before; none if they never did.
        tokens: those of the call before, and more."""
        for end in range(self._read + 1, len(tokens)):  # without the end of `tokens`, which nothing follows yet
            for size in SIZES:
                if size <= end:
                    self._behind[tuple(tokens[end - size : end])] = end
        self._read = len(tokens) - 1
        for size in SIZES:
            at = self._behind.get(tuple(tokens[-size:]))
            if at is not None:
                return tokens[at : at + count]
        return []


@dataclass(eq=False)
class Draft:
    """What the draft model has of a sequence.

    Attributes:
        tokens: those whose keys and values are in its cache; the first `certain` ones are the sequence's, those behind
            them were drafts when they were computed.
    """

    table: Table = field(default_factory=Table)
    tokens: list[int] = field(default_factory=list[int])
    certain: int = 0


class DraftModel:
    """Drafts the likeliest tokens of a smaller model of the same vocabulary, with a cache of its own.

    A sequence for which its cache has no room, or whose prompt it has not yet read, has no drafts."""

    def __init__(self, runner: Runner, vocabulary: int, budget: int) -> None:
        if runner.vocabulary < vocabulary:
            raise OptionError(
                f"the draft model has {runner.vocabulary} tokens, expected those of the model: {vocabulary}"
            )
        self._runner, self._vocabulary, self._budget = runner, vocabulary, budget
        self.blocks = BlockManager(runner.blocks, runner.block_size)
        self._drafts: dict[Sequence, Draft] = {}

    def draft(self, work: Tokens[Work]) -> None:
        """Gives drafts to those that have room for them."""
        ready = self._catch_up([item for item in work if item.room])
        while ready:
            spans = [self._next(item) for item in ready]
            logits = self._runner.run(spans)[:, : self._vocabulary]
            for item, token in zip(ready, logits.argmax(axis=1).tolist(), strict=True):
                self._computed(item)
                item.drafts.append(token)
            ready = [item for item in ready if len(item.drafts) < item.room]

    def forget(self, sequence: Sequence) -> None:
        """Frees what it has of a sequence."""
        if (draft := self._drafts.pop(sequence, None)) is not None:
            self.blocks.release(draft.table)

    def _catch_up(self, work: list[Work]) -> list[Work]:
        """Computes what it has not read, but for the last token; those that it now has read wholly."""
        spans: list[tuple[Work, Span]] = []
        ready: list[Work] = []
        left = self._budget
        for item in work:
            tokens = item.sequence.tokens
            draft = self._drafts.setdefault(item.sequence, Draft())
            if not draft.tokens and not draft.table.blocks:
                draft.certain = self.blocks.match(draft.table, tokens)
                draft.tokens = tokens[: draft.certain]
            start = draft.certain = agreed(draft.tokens, tokens, draft.certain)
            del draft.tokens[start:]
            fits = len(tokens) + item.room <= self._runner.context
            if not fits or not self.blocks.extend(draft.table, len(tokens) + item.room):
                continue
            chunk = tokens[start : min(len(tokens) - 1, start + left)]
            left -= len(chunk)
            if start + len(chunk) == len(tokens) - 1:
                ready.append(item)
            if chunk:
                spans.append((item, Span(chunk, start, tuple(draft.table.blocks), 0)))
        if spans:
            self._runner.run([span for _, span in spans])
        for item, span in spans:
            draft = self._drafts[item.sequence]
            draft.tokens.extend(span.tokens)
            draft.certain = len(draft.tokens)
            self.blocks.register(draft.table, draft.tokens, draft.certain)
        return ready

    def _next(self, item: Work) -> Span:
        draft = self._drafts[item.sequence]
        last = item.drafts[-1] if item.drafts else item.sequence.tokens[-1]
        return Span((last,), len(draft.tokens), draft.table.blocks)

    def _computed(self, item: Work) -> None:
        draft = self._drafts[item.sequence]
        draft.tokens.append(item.drafts[-1] if item.drafts else item.sequence.tokens[-1])


def agreed(known: Tokens[int], tokens: Tokens[int], certain: int) -> int:
    """How many of the first tokens are equal, without the last of `tokens`, whose logits are wanted. The first
    `certain` ones are known to be."""
    end = min(len(known), len(tokens) - 1)
    return next((at for at in range(certain, end) if known[at] != tokens[at]), end)
