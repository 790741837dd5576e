"""POST /v1/responses: what a chat answers, as items. Nothing is kept: a conversation is sent whole."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opweld.llm.requests import Chosen, Finish
from opweld.serve.interface import EventStream
from opweld.serve.openai.conversation import Begun, Conversations, Names
from opweld.serve.openai.errors import broken
from opweld.serve.openai.events import event
from opweld.serve.openai.logprobs import of_chat
from opweld.serve.openai.output import Event, Output
from opweld.serve.openai.response_fields import ResponseBody
from opweld.serve.openai.tools import found_in, reader_of
from opweld.serve.openai.turns import as_chat
from opweld.serve.visits import Visit

NAMES = Names("input", "text.format", "text.format")

_REASONS = {"length": "max_output_tokens"}
"""Why an answer is incomplete, by how it ended."""


class Responses:
    """Answers the next turn of a conversation."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def create(self, body: ResponseBody, request: Request) -> Response:
        """An answer, or the events by which it grows."""
        visit: Visit = request.state.visit
        chat = as_chat(body)
        begun = await self._conversations.begin(chat, visit, NAMES)
        writer = _Writer(body, begun, visit, logprobs=bool(chat.logprobs))
        if body.stream:
            return EventStream(writer.events(), broken)
        return JSONResponse(await writer.whole())


class _Writer:
    """Writes an answer as OpenAI does: whole, or event by event."""

    def __init__(self, body: ResponseBody, begun: Begun, visit: Visit, *, logprobs: bool) -> None:
        self._begun, self._output, self._count, self._with_logprobs = begun, Output(), 0, logprobs
        self._untold: list[Chosen] = []
        """Tokens whose text has not come yet."""
        self._reader = reader_of(begun.tools, body.tool_choice)
        told = body.model_dump(
            include={
                "instructions", "max_output_tokens", "max_tool_calls", "metadata", "reasoning", "safety_identifier",
                "prompt_cache_key", "temperature", "text", "tool_choice", "tools", "top_logprobs",
                "top_p", "user",
            },
            by_alias=True,
        )  # fmt: skip
        self._head: dict[str, Any] = {
            **told,
            "id": f"resp_{visit.id.removeprefix('req_')}",
            "object": "response",
            "created_at": int(time.time()),
            "model": begun.model.name,
            "error": None,
            "previous_response_id": None,
            "background": False,
            "store": False,
            "truncation": "disabled",
            "service_tier": "default",
            "tools": told["tools"] or [],
            "text": told["text"] or {"format": {"type": "text"}},
            "tool_choice": told["tool_choice"] or "auto",
            "parallel_tool_calls": body.parallel_tool_calls is not False,
        }

    async def whole(self) -> dict[str, Any]:
        """The answer when it is complete."""
        (answer,) = await self._begun.answers.complete()
        for _ in self._added(answer.text, answer.chosen, answer.finish):
            pass
        return self._response(answer.finish)

    async def events(self) -> AsyncGenerator[bytes]:
        """The events of the answer as it comes."""
        begun = self._response(None)
        yield self._told({"type": "response.created", "response": begun})
        yield self._told({"type": "response.in_progress", "response": begun})
        finish: Finish = "stop"
        async with aclosing(self._begun.answers.pieces()) as pieces:
            async for _, delta in pieces:
                finish = delta.finish or finish
                written = b"".join(self._told(one) for one in self._added(delta.text, delta.chosen, delta.finish))
                if written:
                    yield written
        made = self._response(finish)
        yield self._told({"type": f"response.{made['status']}", "response": made})

    def _added(self, text: str, chosen: Iterable[Chosen], finish: Finish | None) -> Iterator[Event]:
        """What a piece of the answer adds; `finish`: that it is the last one, and why."""
        self._untold += chosen
        for one in found_in(self._reader, text, ended=finish is not None):
            if isinstance(one, str):
                yield from self._output.text(one, self._logprobs())
            else:
                yield from self._output.call(one)
                self._untold.clear()
        if finish:
            yield from self._output.end("incomplete" if finish in _REASONS else "completed")

    def _logprobs(self) -> list[dict[str, Any]]:
        """Of tokens that have not been told yet."""
        told: list[dict[str, Any]] = []
        if self._with_logprobs:
            told = of_chat(self._untold, self._begun.model.tokenizer)["content"]
        self._untold.clear()
        return told

    def _told(self, made: Event) -> bytes:
        self._count += 1
        return event({**made, "sequence_number": self._count - 1}, made["type"])

    def _response(self, finish: Finish | None) -> dict[str, Any]:
        """The response: as it began, or as it has ended."""
        if finish is None:
            return {**self._head, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        reason, usage = _REASONS.get(finish), self._begun.answers.usage
        return {
            **self._head,
            "status": "completed" if reason is None else "incomplete",
            "incomplete_details": None if reason is None else {"reason": reason},
            "output": self._output.items,
            "usage": {
                "input_tokens": usage.prompt,
                "input_tokens_details": {"cached_tokens": usage.cached},
                "output_tokens": usage.completion,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.prompt + usage.completion,
            },
        }
