"""Who owns which block of the key/value cache, and which blocks hold a prefix that another request may use.

A block is in use (tables refer to it), idle (nobody does, but its contents are known and may be wanted again) or free.
Blocks that are wanted are taken from the free ones first, then from those idle for longest.

Where every layer sees a window of the last keys alone, a table gives back the blocks behind it while its sequence goes
on, and a prefix is of use where the blocks in the window before its end are there.

A full block is known by a digest of all tokens up to its end: the SHA-256 of the digest of the block before and its
own tokens. Digests are as good as the tokens themselves; nobody can find two prefixes that share one.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class Table:
    """The blocks of one sequence.

    Attributes:
        blocks: block b holds tokens [b * size, (b + 1) * size).
        digests: of its first blocks, those that are full and computed.
        first: the blocks before are none of its own: it has given them back, and nobody reads them.
    """

    blocks: list[int] = field(default_factory=list[int])
    digests: list[bytes] = field(default_factory=list[bytes])
    first: int = 0


class BlockManager:
    """Blocks of a pool, with counts of references, and the index of cached prefixes."""

    def __init__(self, count: int, size: int, window: int | None = None) -> None:
        """window: the most of the last keys that a token sees, its own included; all where None."""
        self.count, self.size, self._window = count, size, window
        self._references = [0] * count
        self._free = list(range(count - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._cached: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}  # of the blocks in the index

    @property
    def available(self) -> int:
        """Blocks that can be had: free and idle ones."""
        return len(self._free) + len(self._idle)

    @property
    def in_use(self) -> int:
        """Blocks that tables refer to."""
        return self.count - self.available

    @property
    def cached(self) -> int:
        """Blocks in the index of prefixes, in use or idle."""
        return len(self._cached)

    def blocks_of(self, length: int) -> int:
        """Blocks that so many tokens take."""
        return -(-length // self.size)

    def match(self, table: Table, tokens: Sequence[int]) -> int:
        """Fills an empty table with the cached blocks of the longest known prefix, and returns its length in tokens.

        It never covers the last token: what follows it is wanted, so it must be computed."""
        found: list[int | None] = []
        digests: list[bytes] = []
        begin = known = first = 0  # of blocks that are all there
        for at in range((len(tokens) - 1) // self.size):
            digests.append(self._digest(digests, tokens, at))
            found.append(self._cached.get(digests[-1]))
            if found[-1] is None:
                if self._window is None:
                    break
                begin = at + 1
            elif begin <= self._needed((at + 1) * self.size):
                known, first = at + 1, max(begin, self._needed((at + 1) * self.size))
        for block in found[first:known]:
            assert block is not None, "they are all there"
            if not self._references[block]:
                del self._idle[block]
            self._references[block] += 1
        table.blocks += [block or 0 for block in found[:known]]
        table.digests += digests[:known]
        table.first = first
        return known * self.size

    def give_back(self, table: Table, computed: int) -> None:
        """Gives back the blocks that no token from `computed` on sees; their contents stay known to others."""
        for at in range(table.first, self._needed(computed)):
            self._drop(table.blocks[at])
            table.first = at + 1

    def _needed(self, position: int) -> int:
        """The first block that a token at a position sees."""
        return 0 if self._window is None else max(0, position - self._window + 1) // self.size

    def extend(self, table: Table, length: int) -> bool:
        """Makes room for so many tokens in a table; False, and nothing is changed, where blocks are lacking."""
        wanted = self.blocks_of(length) - len(table.blocks)
        if wanted > self.available:
            return False
        for _ in range(wanted):
            block = self._free.pop() if self._free else self._evict()
            self._references[block] = 1
            table.blocks.append(block)
        return True

    def register(self, table: Table, tokens: Sequence[int], computed: int) -> None:
        """Makes the full blocks among the first `computed` tokens known to others. They are never written again.

        A block with the contents of one that is known already stays its owner's alone."""
        for at in range(len(table.digests), computed // self.size):
            digest = self._digest(table.digests, tokens, at)
            table.digests.append(digest)
            if digest not in self._cached:
                self._cached[digest] = table.blocks[at]
                self._digests[table.blocks[at]] = digest

    def release(self, table: Table) -> None:
        """Empties a table. Of its blocks that become idle, those at its end are evicted first: a prefix is of use
        without what follows it, but not the other way round."""
        for block in reversed(table.blocks[table.first :]):
            self._drop(block)
        table.blocks.clear()
        table.digests.clear()
        table.first = 0

    def _drop(self, block: int) -> None:
        self._references[block] -= 1
        if self._references[block]:
            return
        if block in self._digests:
            self._idle[block] = None
        else:
            self._free.append(block)

    def _evict(self) -> int:
        block, _ = self._idle.popitem(last=False)
        del self._cached[self._digests.pop(block)]
        return block

    def _digest(self, before: Sequence[bytes], tokens: Sequence[int], at: int) -> bytes:
        """That of a block behind those whose digests are `before`."""
        own = array("q", tokens[at * self.size : (at + 1) * self.size]).tobytes()
        return hashlib.sha256((before[at - 1] if at else b"") + own).digest()
