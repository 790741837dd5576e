"""What callers ask of a language model, and what they get: requests, choice of tokens, answers piece by piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Finish = Literal["stop", "length", "abort"]
"""Why an answer ends: the model said so, or a stop string was met; the limit of tokens, or of the context; the caller
went away."""


@dataclass(frozen=True)
class Grammar:
    """What an answer must be: `kind` says what `text` is, a JSON schema, any JSON, a regular expression or a grammar in
    Lark's form."""

    kind: Literal["json_schema", "json", "regex", "lark"]
    text: str = ""


@dataclass(frozen=True)
class Sampling:
    """How the tokens of an answer are chosen. Penalties and bias change logits first, then a grammar rules tokens out,
    then temperature divides them, then top-k, top-p and min-p keep the likeliest.

    Attributes:
        temperature: 0 takes the likeliest token, the first one of equals.
        top_k: of how many likeliest tokens one is drawn; 0 for all. top_p: of as few likeliest ones as have this
            probability together. min_p: of those that have this times the probability of the likeliest.
        repetition_penalty: divides positive logits, and multiplies negative ones, of tokens of prompt and answer.
        presence_penalty, frequency_penalty: subtracted from logits of tokens of the answer, once and for each time.
        bias: added to the logits of tokens.
        seed: makes the answer a function of the request; None draws one.
        limit: the most tokens of an answer; None: as many as the context has room for.
        stop: strings that end an answer, and are not a part of it.
        logprobs: how many of the likeliest tokens are told for each token; None tells nothing.
        to_the_limit: goes on where the model would end.
        grammar: what an answer must be.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bias: Mapping[int, float] = field(default_factory=dict[int, float])
    seed: int | None = None
    limit: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    to_the_limit: bool = False
    grammar: Grammar | None = None


@dataclass(frozen=True)
class Request:
    """A prompt, as tokens, to be continued."""

    id: str
    prompt: tuple[int, ...]
    sampling: Sampling = Sampling()


@dataclass(frozen=True)
class Chosen:
    """A token of an answer: its id and log-probability, and the likeliest tokens with theirs, before temperature."""

    token: int
    logprob: float = 0.0
    likeliest: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Delta:
    """A piece of an answer.

    Attributes:
        text: what is certain now: characters whose bytes are complete and that cannot begin a stop string.
        chosen: the tokens since the piece before.
        finish: None while the answer goes on.
        cached: tokens of the prompt that were in the cache already; told with the first piece.
    """

    text: str
    chosen: tuple[Chosen, ...]
    finish: Finish | None = None
    cached: int = 0
