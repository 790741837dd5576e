"""What the API asks of language models, encoders and rerankers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from opweld.llm.requests import Delta, Request


class Load(Protocol):
    """How busy an engine is at this moment."""

    @property
    def waiting(self) -> int:
        """Requests that have not begun."""
        ...

    @property
    def running(self) -> int:
        """Requests that have."""
        ...

    @property
    def blocks_in_use(self) -> int:
        """Blocks of the cache that requests hold."""
        ...

    @property
    def blocks(self) -> int:
        """Blocks of the cache."""
        ...


class Engine(Protocol):
    """Continues prompts, many at once."""

    def generate(self, request: Request) -> AsyncGenerator[Delta]:
        """The pieces of an answer as they come. Closing it ends the request.

        Raises QueueFull if there are as many requests as the engine takes, ClosedError if it takes none any more,
        OptionError and InputError if it cannot do what is asked."""
        ...

    @property
    def statistics(self) -> Load:
        """How busy it is."""
        ...

    @property
    def closing(self) -> bool:
        """Whether it takes no more requests, as it was closed or has failed."""
        ...

    async def close(self, drain_seconds: float) -> None:
        """Ends, after requests have had this time."""
        ...


class Tokenizer(Protocol):
    """Text as tokens of a model."""

    @property
    def vocabulary(self) -> int:
        """Token ids are below."""
        ...

    def encode(self, text: str, /) -> list[int]:
        """The tokens of a prompt, with those that the model expects at its beginning."""
        ...

    def decode(self, tokens: Sequence[int], /) -> str:
        """Their text."""
        ...

    def token_bytes(self, token: int, /) -> bytes:
        """What a token adds to a text; no bytes for those that add none."""
        ...

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """The tokens of a conversation by the model's template, up to where an answer begins.

        Raises InputError if there is no template, or it refuses these messages."""
        ...


class Pair(Protocol):
    """A query and a text as a model reads them together."""

    @property
    def tokens(self) -> Sequence[int]:
        """Of both, with those around them."""
        ...


PairT = TypeVar("PairT", bound=Pair)


class Reranker(Protocol[PairT]):
    """Scores pairs of a query and a text."""

    def pair(self, query: str, text: str, truncate: bool = False, /) -> PairT:
        """The tokens of a pair; without the last ones of a text that is too long where `truncate`.

        Raises InputError where the query alone is too long to be truncated so."""
        ...

    def score(self, pairs: Sequence[PairT], /) -> NDArray[np.float32]:
        """[pairs]: the more, the better a text answers its query. Called in a thread, one call at a time."""
        ...


class Embedder(Protocol):
    """Texts as vectors."""

    @property
    def dimensions(self) -> int:
        """Of a vector."""
        ...

    def shortened(self, text: str | Sequence[int], /) -> list[int]:
        """The tokens of a text, without the last ones of one that is too long."""
        ...

    def embed(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """[texts, dimensions] of texts as tokens. Called in a thread, one call at a time."""
        ...
