"""Answers to the prompts of one request, as their pieces come, and what they cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from opweld.llm.requests import Chosen, Delta, Finish, Request, Sampling
from opweld.serve.openai.asked import engine_of
from opweld.serve.openai.metrics import TokenMetrics
from opweld.serve.openai.models import Served
from opweld.serve.refusal import stopping
from opweld.serve.visits import Visit


@dataclass
class Usage:
    """Tokens of a request: each prompt counts once, however many answers it has."""

    prompt: int
    completion: int = 0
    cached: int = 0

    def told(self) -> dict[str, Any]:
        """As OpenAI writes it."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


@dataclass
class Answer:
    """An answer that is complete."""

    text: str = ""
    chosen: list[Chosen] = field(default_factory=list[Chosen])
    finish: Finish = "stop"

    @property
    def logprob(self) -> float:
        """The mean of its tokens."""
        return sum(one.logprob for one in self.chosen) / max(len(self.chosen), 1)


class Answers:
    """`each` answers to each of some prompts, which come at once: answer i is one to prompt i // each.

    With a seed, the answers to a prompt have consecutive ones."""

    def __init__(
        self,
        model: Served,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        each: int,
        visit: Visit,
        metrics: TokenMetrics,
    ) -> None:
        self._engine, self._model, self._metrics, self._visit, self._each = (
            engine_of(model),
            model,
            metrics,
            visit,
            each,
        )
        self.usage = Usage(sum(map(len, prompts)))
        visit.prompt_tokens = self.usage.prompt
        self._requests = [
            Request(f"{visit.id}-{number * each + k}", tuple(prompt), _sown(sampling, k))
            for number, prompt in enumerate(prompts)
            for k in range(each)
        ]

    async def pieces(self) -> AsyncGenerator[tuple[int, Delta]]:
        """Number of an answer and a piece of it."""
        streams = [
            self._metrics.measured(self._model.name, len(one.prompt), self._engine.generate(one))
            for one in self._requests
        ]
        async with aclosing(_merged(streams)) as merged:
            async for number, delta in merged:
                if delta.finish == "abort":
                    raise stopping()
                self.usage.completion += len(delta.chosen)
                if number % self._each == 0:
                    self.usage.cached += delta.cached
                self._visit.completion_tokens = self.usage.completion
                yield number, delta

    async def complete(self) -> list[Answer]:
        """All of them, when the last one has ended."""
        answers = [Answer() for _ in self._requests]
        async with aclosing(self.pieces()) as pieces:
            async for number, delta in pieces:
                answer = answers[number]
                answer.text += delta.text
                answer.chosen += delta.chosen
                answer.finish = delta.finish or answer.finish
        return answers


def _sown(sampling: Sampling, number: int) -> Sampling:
    if sampling.seed is None or not number:
        return sampling
    return replace(sampling, seed=(sampling.seed + number) % (1 << 63))


async def _merged(streams: Sequence[AsyncGenerator[Delta]]) -> AsyncGenerator[tuple[int, Delta]]:
    """What streams give, in the order in which it comes; all of them are closed at the end."""
    if len(streams) == 1:  # no task and no queue for the usual request
        async with aclosing(streams[0]) as stream:
            async for delta in stream:
                yield 0, delta
        return
    come: asyncio.Queue[tuple[int, Delta] | asyncio.Task[None]] = asyncio.Queue()

    async def feed(number: int, stream: AsyncGenerator[Delta]) -> None:
        async with aclosing(stream):
            async for delta in stream:
                come.put_nowait((number, delta))

    feeds = [asyncio.create_task(feed(number, stream)) for number, stream in enumerate(streams)]
    for one in feeds:
        one.add_done_callback(come.put_nowait)
    try:
        left = len(feeds)
        while left:
            piece = await come.get()
            if isinstance(piece, tuple):
                yield piece
            else:
                piece.result()
                left -= 1
    finally:
        for one in feeds:
            one.cancel()
        await asyncio.gather(*feeds, return_exceptions=True)
