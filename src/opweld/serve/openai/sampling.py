"""From fields of a request to how its tokens are chosen."""

from __future__ import annotations

from typing import TypeVar

from opweld.llm.requests import Grammar, Sampling
from opweld.llm.text import HALF
from opweld.serve.openai.fields import Generation
from opweld.serve.openai.models import Served
from opweld.serve.refusal import Refusal

_T = TypeVar("_T")


def sampling_of(
    body: Generation, model: Served, *, limit: int | None, logprobs: int | None, grammar: Grammar | None
) -> Sampling:
    """What a request says, and the model's own defaults for what it does not say."""
    own = model.sampling
    stop = own.stop if body.stop is None else (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
    wrong = "is empty" if "" in stop else "holds half of a surrogate pair" if HALF.search("".join(stop)) else None
    if wrong:
        raise Refusal(400, f"Invalid 'stop': a stop string {wrong}.", param="stop", code="invalid_value")

    return Sampling(
        temperature=_either(body.temperature, own.temperature),
        top_k=max(_either(body.top_k, own.top_k), 0),  # others write -1 for all
        top_p=_either(body.top_p, own.top_p),
        min_p=_either(body.min_p, own.min_p),
        repetition_penalty=_either(body.repetition_penalty, own.repetition_penalty),
        presence_penalty=_either(body.presence_penalty, own.presence_penalty),
        frequency_penalty=_either(body.frequency_penalty, own.frequency_penalty),
        bias=_bias(body, model),
        seed=body.seed,
        limit=limit,
        stop=stop,
        logprobs=logprobs,
        to_the_limit=bool(body.ignore_eos),
        grammar=grammar,
    )


def _either(given: _T | None, default: _T) -> _T:
    return default if given is None else given


def _bias(body: Generation, model: Served) -> dict[int, float]:
    bias: dict[int, float] = {}
    for token, value in (body.logit_bias or {}).items():
        if not token.isdecimal() or not token.isascii() or int(token[:20]) >= model.tokenizer.vocabulary:
            raise Refusal(
                400,
                f"Invalid key in 'logit_bias': {token[:40]!r}. Expected the id of a token, "
                f"0 to {model.tokenizer.vocabulary - 1}.",
                param="logit_bias",
                code="invalid_value",
            )
        bias[int(token)] = value
    return bias


def check_room(
    model: Served, prompt: int, limit: int | None, most: int | None, field: str, *, answered: bool = True
) -> None:
    """Refuses a prompt of more tokens than there is room for, and an answer for which none is left.

    Args:
        limit: tokens of the answer; None where the request does not say.
        most: tokens that the server takes of any prompt.
        answered: whether the prompt is continued, for which it takes room."""
    context = model.context
    if prompt + (limit or int(answered)) > context:
        asked = f"your {field} resulted in {prompt} tokens"
        if limit is not None and prompt < context:
            asked = f"you requested {prompt + limit} tokens ({prompt} in the {field}, {limit} in the completion)"
        raise Refusal(
            400,
            f"This model's maximum context length is {context} tokens. However, {asked}. "
            f"Please reduce the length of the {field}" + (" or completion." if limit is not None else "."),
            param=field,
            code="context_length_exceeded",
        )
    if most is not None and prompt > most:
        raise Refusal(
            400,
            f"This server takes prompts of {most} tokens at most. However, your {field} resulted in {prompt} tokens.",
            param=field,
            code="context_length_exceeded",
        )
    if prompt == 0:
        raise Refusal(400, f"Invalid '{field}': it holds no token.", param=field, code="invalid_value")
