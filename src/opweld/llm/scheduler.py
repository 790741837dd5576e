"""Which tokens of which requests the next step computes.

First come, first served. Requests wait in the order in which they came, and nobody overtakes the first of them. Those
that run share a step's budget of tokens: decoding rows take one each, then prompts take chunks of what is left, the
oldest first, so that a long prompt is computed beside decoding rows and does not stall them. Drafts take the rest.

A request is admitted when its known tokens fit into blocks beside one more for each running row. Where a decoding row
then finds no block, the youngest running request is put back to the head of the queue, and what it has is computed
again later, but for what the prefix cache still holds. The oldest one always advances, so all of them end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from opweld.llm.blocks import BlockManager
from opweld.llm.sequence import Sequence
from opweld.llm.settings import Settings


@dataclass(eq=False)
class Work:
    """A part of a step: the next `count` known tokens of a sequence, and drafts of those after them.

    Attributes:
        last: whether they are all known tokens, so that their logits choose the next one.
        room: how many drafts it may have: there are blocks for them.
        drafts: none but where all known tokens are computed.
    """

    sequence: Sequence
    count: int
    last: bool
    room: int = 0
    drafts: list[int] = field(default_factory=list[int])

    @property
    def outputs(self) -> int:
        """Tokens whose logits are wanted: that of a chunk which is not the last of its prompt is none."""
        return 1 + len(self.drafts) if self.last else 0


class Scheduler:
    """Requests that wait and requests that run."""

    def __init__(self, blocks: BlockManager, settings: Settings) -> None:
        self.blocks, self.settings = blocks, settings
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # the oldest first; all are older than those that wait
        self.preemptions = 0

    def add(self, sequence: Sequence) -> None:
        """Puts a sequence at the end of the queue."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Takes a sequence out, wherever it is, and frees its blocks."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.blocks.release(sequence.table)
        else:
            self.waiting.remove(sequence)

    def schedule(self) -> list[Work]:
        """The next step; its blocks are allocated. Empty only if there are no requests."""
        work = self._decoding_rows()
        left = self.settings.budget - len(work)
        for sequence in self.running:
            if left and sequence.pending > 1:
                left -= self._chunk(sequence, left, work)
        while left and self._admit():
            left -= self._chunk(self.running[-1], left, work)
        self._grant_drafts(work, left)
        return work

    def advance(self, sequence: Sequence, count: int) -> None:
        """Says that `count` more tokens of a sequence are computed."""
        sequence.computed += count
        self.blocks.register(sequence.table, sequence.tokens, sequence.computed)
        self.blocks.give_back(sequence.table, sequence.computed)

    def _decoding_rows(self) -> list[Work]:
        work: list[Work] = []
        for sequence in [one for one in self.running if one.pending == 1]:
            # The youngest go first, so whoever is in `work` already is older than anyone who is put back here.
            while sequence in self.running and not self.blocks.extend(sequence.table, len(sequence.tokens)):
                self._preempt()
            if sequence in self.running:
                work.append(Work(sequence, 1, last=True))
        return work

    def _chunk(self, sequence: Sequence, left: int, work: list[Work]) -> int:
        count = min(sequence.pending, left)
        work.append(Work(sequence, count, last=count == sequence.pending))
        return count

    def _admit(self) -> bool:
        """Moves the first one that waits to those that run, if there is a row and there are blocks for it."""
        if not self.waiting or len(self.running) == self.settings.rows:
            return False
        sequence = self.waiting[0]
        known = self.blocks.match(sequence.table, sequence.tokens)
        wanted = self.blocks.blocks_of(len(sequence.tokens)) - len(sequence.table.blocks)
        if wanted + len(self.running) > self.blocks.available:
            self.blocks.release(sequence.table)
            return False
        self.blocks.extend(sequence.table, len(sequence.tokens))
        sequence.computed = known
        if sequence.cached is None:
            sequence.cached = known
        self.running.append(self.waiting.popleft())
        return True

    def _preempt(self) -> None:
        sequence = self.running.pop()
        self.blocks.release(sequence.table)
        sequence.computed = 0
        self.waiting.appendleft(sequence)
        self.preemptions += 1

    def _grant_drafts(self, work: list[Work], left: int) -> None:
        """Lets decoding rows draft with what is left of the budget, in blocks that nobody has to be put back for."""
        for item in work:
            sequence = item.sequence
            room = min(self.settings.lookup, left, sequence.left - 1)
            if not item.last or room <= 0:
                continue
            if not self.blocks.extend(sequence.table, len(sequence.tokens) + room):
                room = min(room, len(sequence.table.blocks) * self.blocks.size - len(sequence.tokens))
            item.room = room
            left -= room
