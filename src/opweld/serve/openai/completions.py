"""POST /v1/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opweld.llm.requests import Chosen, Finish
from opweld.serve.interface import EventStream
from opweld.serve.limits import Limits
from opweld.serve.openai.answers import Answers
from opweld.serve.openai.asked import FINGERPRINT, check_answers, engine_of, model_of
from opweld.serve.openai.errors import broken
from opweld.serve.openai.events import DONE, event, usage_so_far
from opweld.serve.openai.fields import CompletionBody, StreamOptions
from opweld.serve.openai.logprobs import of_completion
from opweld.serve.openai.metrics import TokenMetrics
from opweld.serve.openai.models import Models, Served
from opweld.serve.openai.prompts import tokens_of
from opweld.serve.openai.sampling import check_room, sampling_of
from opweld.serve.refusal import Refusal
from opweld.serve.visits import Visit

_USUAL_LIMIT = 16
"""Tokens of an answer where a request does not say, as OpenAI has it."""


class Completions:
    """Continues prompts."""

    def __init__(self, models: Models, limits: Limits, metrics: TokenMetrics) -> None:
        self._models, self._limits, self._metrics = models, limits, metrics

    async def create(self, body: CompletionBody, request: Request) -> Response:
        """The answers, or a stream of their pieces."""
        visit: Visit = request.state.visit
        model = model_of(self._models, body.model, visit)
        engine_of(model)
        n, best_of = body.n or 1, body.best_of or body.n or 1
        _check(body, n, best_of)
        prompts = await tokens_of(body.prompt, model.tokenizer)
        check_answers(len(prompts) * best_of, self._limits.answers, "best_of" if body.best_of else "n")
        limit = body.max_tokens or _USUAL_LIMIT
        for prompt in prompts:
            check_room(model, len(prompt), limit if body.max_tokens else None, self._limits.prompt, "prompt")
        logprobs = 0 if body.logprobs is None and best_of > n else body.logprobs
        sampling = sampling_of(body, model, limit=limit, logprobs=logprobs, grammar=None)
        answers = Answers(model, prompts, sampling, each=best_of, visit=visit, metrics=self._metrics)
        writer = _Writer(body, model, _echoes(body, prompts, model), n, best_of, visit)
        if body.stream:
            return EventStream(writer.events(answers), broken)
        return JSONResponse(await writer.whole(answers))


def _check(body: CompletionBody, n: int, best_of: int) -> None:
    def refused(message: str, param: str) -> Refusal:
        return Refusal(400, message, param=param, code="invalid_value")

    if body.suffix:
        raise refused("Invalid 'suffix': text is continued, not filled in, by models of this server.", "suffix")
    if body.echo and body.logprobs is not None:
        raise refused("Invalid 'echo': 'logprobs' are of tokens of the answer alone; leave one of them out.", "echo")
    if best_of < n:
        raise refused(f"Invalid 'best_of': {best_of} is less than 'n', which is {n}.", "best_of")
    if body.stream and best_of > n:
        raise refused("Invalid 'best_of': what is best is known at the end, and cannot be streamed.", "best_of")


def _echoes(body: CompletionBody, prompts: Sequence[Sequence[int]], model: Served) -> list[str]:
    """What the answers to each prompt begin with."""
    if not body.echo:
        return [""] * len(prompts)
    if isinstance(body.prompt, str):
        return [body.prompt]
    if body.prompt and isinstance(body.prompt[0], str):
        return cast("list[str]", body.prompt)
    return [model.tokenizer.decode(prompt) for prompt in prompts]


class _Writer:
    """Writes answers as OpenAI does: whole, or piece by piece."""

    def __init__(
        self, body: CompletionBody, model: Served, echoes: Sequence[str], n: int, best_of: int, visit: Visit
    ) -> None:
        self._options = body.stream_options or StreamOptions()
        self._with_logprobs, self._tokenizer = body.logprobs is not None, model.tokenizer
        self._echoes, self._n, self._best_of = echoes, n, best_of
        self._head = {
            "id": f"cmpl-{visit.id.removeprefix('req_')}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model.name,
            "system_fingerprint": FINGERPRINT,
        }

    async def whole(self, answers: Answers) -> dict[str, Any]:
        """The answers when they are complete: the likeliest `n` to each prompt."""
        complete = await answers.complete()
        choices: list[dict[str, Any]] = []
        for number, echo in enumerate(self._echoes):
            own = complete[number * self._best_of : (number + 1) * self._best_of]
            if self._best_of > self._n:
                own = sorted(own, key=lambda answer: -answer.logprob)[: self._n]
            choices += [
                self._choice(len(choices) + k, echo + answer.text, answer.chosen, len(echo), answer.finish)
                for k, answer in enumerate(own)
            ]
        return {**self._head, "choices": choices, "usage": answers.usage.told()}

    async def events(self, answers: Answers) -> AsyncGenerator[bytes]:
        """The pieces of the answers as they come."""
        offsets = [0] * (len(self._echoes) * self._n)
        begun = [False] * len(offsets)
        async with aclosing(answers.pieces()) as pieces:
            async for index, delta in pieces:
                echo = "" if begun[index] else self._echoes[index // self._n]
                begun[index] = True
                text = echo + delta.text
                if not text and delta.finish is None and not (self._with_logprobs and delta.chosen):
                    continue
                choice = self._choice(index, text, delta.chosen, offsets[index] + len(echo), delta.finish)
                offsets[index] += len(text)
                yield event({**self._head, "choices": [choice], **usage_so_far(answers.usage, self._options)})
        if self._options.include_usage:
            yield event({**self._head, "choices": [], "usage": answers.usage.told()})
        yield DONE

    def _choice(
        self, index: int, text: str, chosen: Sequence[Chosen], offset: int, finish: Finish | None
    ) -> dict[str, Any]:
        logprobs = of_completion(chosen, self._tokenizer, offset) if self._with_logprobs else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
