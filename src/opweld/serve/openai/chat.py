"""POST /v1/chat/completions."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opweld.llm.requests import Grammar
from opweld.serve.interface import EventStream
from opweld.serve.limits import Limits
from opweld.serve.openai.answers import Answers
from opweld.serve.openai.asked import FINGERPRINT, check_answers, engine_of, model_of
from opweld.serve.openai.choice import Choice
from opweld.serve.openai.errors import broken
from opweld.serve.openai.events import DONE, event, usage_so_far
from opweld.serve.openai.fields import ChatBody, StreamOptions, Tool
from opweld.serve.openai.messages import for_template, tools_for_template
from opweld.serve.openai.metrics import TokenMetrics
from opweld.serve.openai.models import Models, Served
from opweld.serve.openai.prompts import tokenized
from opweld.serve.openai.sampling import check_room, sampling_of
from opweld.serve.openai.tools import forced, offered
from opweld.serve.refusal import Refusal
from opweld.serve.visits import Visit


class Chat:
    """Answers the next message of a conversation."""

    def __init__(self, models: Models, limits: Limits, metrics: TokenMetrics) -> None:
        self._models, self._limits, self._metrics = models, limits, metrics

    async def create(self, body: ChatBody, request: Request) -> Response:
        """An answer, or a stream of its pieces."""
        visit: Visit = request.state.visit
        model = model_of(self._models, body.model, visit)
        engine_of(model)
        check_answers(body.n or 1, self._limits.answers, "n")
        tools = offered(body)
        grammar = _grammar(body, tools)
        if body.top_logprobs is not None and not body.logprobs:
            raise Refusal(
                400,
                "Invalid 'top_logprobs': it takes 'logprobs' to be true.",
                param="top_logprobs",
                code="invalid_value",
            )
        messages, told = for_template(body.messages), tools_for_template(tools)
        size = sum(len(message["content"]) for message in messages)
        prompt = await tokenized(size, lambda: model.tokenizer.chat(messages, told), "messages")
        limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        check_room(model, len(prompt), limit, self._limits.prompt, "messages")
        sampling = sampling_of(
            body,
            model,
            limit=limit,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            grammar=grammar,
        )
        answers = Answers(model, [prompt], sampling, each=body.n or 1, visit=visit, metrics=self._metrics)
        writer = _Writer(body, model, tools, visit)
        if body.stream:
            return EventStream(writer.events(answers), broken)
        return JSONResponse(await writer.whole(answers))


def _grammar(body: ChatBody, tools: Sequence[Tool]) -> Grammar | None:
    """What the answer must be: a call, or of the form that is asked for."""
    form = body.response_format
    grammar = forced(body, tools)
    if form is None or form.type == "text":
        return grammar
    if tools:
        raise Refusal(
            400,
            f"Invalid 'response_format': {form.type} leaves no room for calls of tools; send 'tool_choice': 'none'.",
            param="response_format",
            code="invalid_value",
        )
    if form.type == "json_object":
        return Grammar("json")
    if form.json_schema is None or form.json_schema.json_schema is None:
        param = "response_format.json_schema" + ("" if form.json_schema is None else ".schema")
        raise Refusal(400, f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
    return Grammar("json_schema", json.dumps(form.json_schema.json_schema))


class _Writer:
    """Writes answers as OpenAI does: whole, or piece by piece."""

    def __init__(self, body: ChatBody, model: Served, tools: Sequence[Tool], visit: Visit) -> None:
        self._options = body.stream_options or StreamOptions()
        self._choices = [
            Choice(index, model.tokenizer, tools, chosen=body.tool_choice, logprobs=bool(body.logprobs))
            for index in range(body.n or 1)
        ]
        self._head = {
            "id": f"chatcmpl-{visit.id.removeprefix('req_')}",
            "created": int(time.time()),
            "model": model.name,
            "system_fingerprint": FINGERPRINT,
        }

    async def whole(self, answers: Answers) -> dict[str, Any]:
        """The answers when they are complete."""
        complete = await answers.complete()
        choices = [choice.whole(answer) for choice, answer in zip(self._choices, complete, strict=True)]
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": answers.usage.told()}

    async def events(self, answers: Answers) -> AsyncGenerator[bytes]:
        """The pieces of the answers as they come."""
        head = {**self._head, "object": "chat.completion.chunk"}
        async with aclosing(answers.pieces()) as pieces:
            async for number, delta in pieces:
                usage = usage_so_far(answers.usage, self._options)
                written = [event({**head, "choices": [one], **usage}) for one in self._choices[number].pieces(delta)]
                if written:
                    yield b"".join(written)
        if self._options.include_usage:
            yield event({**head, "choices": [], "usage": answers.usage.told()})
        yield DONE
