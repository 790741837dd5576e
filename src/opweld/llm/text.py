"""The text of an answer while its tokens come, and where it ends."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Protocol

from opweld.llm.requests import Finish, Request

HALF = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON can write and no text holds."""


class Pieces(Protocol):
    """Turns tokens into text as they come."""

    def feed(self, tokens: Sequence[int], /) -> str:
        """The characters that these tokens complete."""
        ...

    def flush(self) -> str:
        """What is left at the end: bytes that are no whole character, as replacement characters."""
        ...


class Tokenizer(Protocol):
    """What an engine needs of a tokenizer."""

    @property
    def vocabulary(self) -> int:
        """Tokens that it knows: ids are below."""
        ...

    @property
    def ends(self) -> Collection[int]:
        """Tokens that end an answer."""
        ...

    @property
    def special(self) -> Collection[int]:
        """Tokens that are no text, `ends` among them."""
        ...

    def token_bytes(self, token: int, /) -> bytes:
        """The bytes of a token's text, or of a special one's name."""
        ...

    def pieces(self, after: Sequence[int], /) -> Pieces:
        """The text of the tokens that come after these."""
        ...


class Text:
    """The text of one answer.

    What could begin a stop string is held back until it is known whether it does, and what comes before one is told.
    A token that ends the answer is no part of its text."""

    def __init__(self, tokenizer: Tokenizer, request: Request, limit: int) -> None:
        sampling = request.sampling
        self._pieces = tokenizer.pieces(request.prompt)
        self._ends = frozenset[int]() if sampling.to_the_limit else frozenset(tokenizer.ends)
        self._stops = sampling.stop
        self._left = limit
        self._held = ""

    def feed(self, token: int, last: bool = False) -> tuple[str, Finish | None]:
        """What is certain after one more token, and why the answer ends with it, if it does. last: that nothing can
        follow it, for another reason than the text's."""
        self._left -= 1
        ends = token in self._ends
        if not ends:
            self._held += self._pieces.feed((token,))
            if (told := self._stopped()) is not None:
                return told, "stop"
        if not ends and not last and self._left:
            return self._certain(), None
        self._held += self._pieces.flush()
        if (told := self._stopped()) is not None:
            return told, "stop"
        told, self._held = self._held, ""
        return told, "stop" if ends or last else "length"

    def _stopped(self) -> str | None:
        """What comes before the first stop string in what is held, if there is one."""
        found = [at for at in map(self._held.find, self._stops) if at >= 0]
        return self._held[: min(found)] if found else None

    def _certain(self) -> str:
        """Takes what cannot begin a stop string from what is held."""
        longest = max(map(len, self._stops), default=1) - 1
        for at in range(max(0, len(self._held) - longest), len(self._held)):
            if any(stop.startswith(self._held[at:]) for stop in self._stops):
                break
        else:
            at = len(self._held)
        told, self._held = self._held[:at], self._held[at:]
        return told
