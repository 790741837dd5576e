"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opweld.serve.interface import EventStream
from opweld.serve.openai.answers import Answers
from opweld.serve.openai.asked import FINGERPRINT
from opweld.serve.openai.choice import Choice
from opweld.serve.openai.conversation import Conversations, Names
from opweld.serve.openai.errors import broken
from opweld.serve.openai.events import DONE, event, usage_so_far
from opweld.serve.openai.fields import ChatBody, StreamOptions, Tool
from opweld.serve.openai.models import Served
from opweld.serve.visits import Visit

NAMES = Names("messages", "response_format", "response_format.json_schema")


class Chat:
    """Answers the next message of a conversation."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def create(self, body: ChatBody, request: Request) -> Response:
        """An answer, or a stream of its pieces."""
        visit: Visit = request.state.visit
        begun = await self._conversations.begin(body, visit, NAMES)
        writer = _Writer(body, begun.model, begun.tools, visit)
        if body.stream:
            return EventStream(writer.events(begun.answers), broken)
        return JSONResponse(await writer.whole(begun.answers))


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
