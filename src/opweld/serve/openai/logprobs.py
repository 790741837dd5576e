"""Log-probabilities as OpenAI's two interfaces write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opweld.llm.requests import Chosen
from opweld.serve.openai.protocols import Tokenizer

_LEAST = -9999.0
"""OpenAI's number for a probability of 0, which JSON cannot say otherwise."""


def of_chat(chosen: Sequence[Chosen], tokenizer: Tokenizer) -> dict[str, Any]:
    """Of the tokens of a piece of a chat."""
    content = [
        _token(one.token, one.logprob, tokenizer)
        | {"top_logprobs": [_token(token, logprob, tokenizer) for token, logprob in one.likeliest]}
        for one in chosen
    ]
    return {"content": content, "refusal": None}


def of_completion(chosen: Sequence[Chosen], tokenizer: Tokenizer, offset: int) -> dict[str, Any]:
    """Of the tokens of a piece of a completion, which begins at a character of the text."""
    tokens = [_text(tokenizer.token_bytes(one.token)) for one in chosen]
    offsets: list[int] = []
    for text in tokens:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": tokens,
        "token_logprobs": [max(one.logprob, _LEAST) for one in chosen],
        "top_logprobs": [_likeliest(one, tokenizer) for one in chosen]
        if any(one.likeliest for one in chosen)
        else None,
        "text_offset": offsets,
    }


def _likeliest(one: Chosen, tokenizer: Tokenizer) -> dict[str, float]:
    """The likeliest tokens, and the chosen one if it is none of them."""
    both = dict(one.likeliest) | {one.token: one.logprob}
    return {_text(tokenizer.token_bytes(token)): max(logprob, _LEAST) for token, logprob in both.items()}


def _token(token: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    raw = tokenizer.token_bytes(token)
    return {"token": _text(raw), "logprob": max(logprob, _LEAST), "bytes": list(raw)}


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
