"""Prompts and texts as tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from opweld.serve.openai.protocols import Tokenizer
from opweld.serve.refusal import Refusal

_T = TypeVar("_T")

_LONG = 20_000
"""Characters from which a text is made tokens of in a thread (about 5 ms), lest other answers wait for it."""


async def tokenized(characters: int, work: Callable[[], _T], param: str) -> _T:
    """The tokens that `work` makes of so many characters."""
    try:
        return await asyncio.to_thread(work) if characters > _LONG else work()
    except UnicodeEncodeError as error:
        raise Refusal(
            400,
            f"Invalid '{param}': it is no text: it holds half of a surrogate pair.",
            param=param,
            code="invalid_value",
        ) from error


async def tokens_of(
    given: str | list[str] | list[int] | list[list[int]],
    tokenizer: Tokenizer,
    param: str = "prompt",
    shortened: Callable[[str | Sequence[int]], list[int]] | None = None,
) -> list[list[int]]:
    """The tokens of one text or several, given as text or as tokens.

    shortened: makes them where texts that are too long are to be cut."""
    if isinstance(given, str):
        texts: list[str | list[int]] = [given]
    elif given and isinstance(given[0], int):
        texts = [[token for token in given if isinstance(token, int)]]
    else:
        texts = [text for text in given if not isinstance(text, int)]
    for text in texts:
        if not isinstance(text, str) and max(text) >= tokenizer.vocabulary:
            raise Refusal(
                400,
                f"Invalid token in '{param}': {max(text)}. The model has tokens 0 to {tokenizer.vocabulary - 1}.",
                param=param,
                code="invalid_value",
            )
    size = sum(len(text) for text in texts if isinstance(text, str))

    def encoded(text: str | list[int]) -> list[int]:
        if shortened is not None:
            return shortened(text)
        return tokenizer.encode(text) if isinstance(text, str) else text

    return await tokenized(size, lambda: [encoded(text) for text in texts], param)
