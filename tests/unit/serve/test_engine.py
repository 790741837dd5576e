"""The server with a real engine: clients that come, go and err at random get their own answers, and leave nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from types import SimpleNamespace
from typing import Any

import openai
import pytest

from opweld.llm.async_engine import AsyncEngine
from opweld.llm.engine import Engine
from opweld.llm.requests import Request, Sampling
from opweld.llm.settings import Settings
from opweld.serve.limits import Limits
from opweld.serve.openai.models import Served
from tests.unit.llm.fake import FakeRunner, Words, alone
from tests.unit.serve.fakes import eventually, listening, server_of
from tests.unit.serve.raw import Address, ask, connect, post

CONTEXT = 200


class Letters(Words):
    """Each token is a letter, but for the first, which ends an answer."""

    def __init__(self) -> None:
        super().__init__([bytes([65 + at]) for at in range(39)])

    def decode(self, tokens: Sequence[int], /) -> str:
        return b"".join(map(self.token_bytes, tokens)).decode()

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        return self.encode("".join(message["content"] for message in messages))


LETTERS = Letters()


def expected(prompt: list[int], limit: int) -> str:
    return alone(Request("", tuple(prompt), Sampling(temperature=0.0, limit=limit)), LETTERS)[1]


def one(number: int, address: Address, client: openai.OpenAI) -> None:
    """One client, who may go away, err, or wait for the answer."""
    random = Random(number)
    prompt = [random.randrange(1, 40) for _ in range(random.randrange(1, 40))]
    limit = random.randrange(1, 30)
    asked: dict[str, Any] = {"model": "m", "prompt": prompt, "max_tokens": limit, "temperature": 0}
    key = {"Authorization": "Bearer k"}
    match random.randrange(7):
        case 0:
            with connect(address) as connection:
                connection.sendall(post("/v1/completions", {**asked, "max_tokens": 150, "stream": True}, **key))
                connection.recv(random.choice([1, 500, 2000]))
        case 1:
            with connect(address) as connection:
                connection.sendall(post("/v1/completions", {**asked, "n": 3}, **key))
        case 2:
            assert ask(address, post("/v1/completions", b'{"model": "m"', **key))[0] == 400
            assert ask(address, post("/v1/completions", asked, Authorization="Bearer x"))[0] == 401
        case 3:
            beyond: Any = asked | {"prompt": prompt * CONTEXT}
            with pytest.raises(openai.BadRequestError) as caught:
                client.completions.create(**beyond)
            assert caught.value.code == "context_length_exceeded"
        case 4:
            with client.completions.create(**asked, stream=True) as stream:
                assert "".join(chunk.choices[0].text for chunk in stream) == expected(prompt, limit)
        case 5:
            text = LETTERS.decode(prompt)
            messages: Any = [{"role": "user", "content": text}]
            answer = client.chat.completions.create(model="m", messages=messages, temperature=0, max_tokens=limit)
            assert answer.choices[0].message.content == expected(prompt, limit)
        case _:
            choices = client.completions.create(**asked, n=2).choices
            assert [choice.text for choice in choices] == [expected(prompt, limit)] * 2


def test_clients_at_random() -> None:
    engine = AsyncEngine(Engine(FakeRunner(blocks=120, context=CONTEXT), LETTERS, Settings(budget=64, rows=16)))
    server = server_of([Served("m", LETTERS, CONTEXT, engine=engine)], Limits(drain=0.0), ["k"])
    with listening(server) as (host, port, _):
        address: Any = SimpleNamespace(host=host, port=port)
        with (
            openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key="k", max_retries=0) as client,
            ThreadPoolExecutor(32) as pool,
        ):
            for done in [pool.submit(one, number, address, client) for number in range(200)]:
                done.result()
        eventually(lambda: engine.unfinished == 0)
        statistics = engine.statistics
        assert (statistics.running, statistics.waiting, statistics.blocks_in_use) == (0, 0, 0)
        assert not engine.closing


def test_a_full_queue_and_a_grammar_that_is_wrong() -> None:
    engine = AsyncEngine(Engine(FakeRunner(context=CONTEXT), LETTERS, Settings(budget=8, rows=1, queue=0)))
    server = server_of([Served("m", LETTERS, CONTEXT, engine=engine)], Limits(drain=0.0))
    with listening(server) as (host, port, _):
        address: Any = SimpleNamespace(host=host, port=port)
        status, _, answer = ask(address, post("/v1/completions", {"model": "m", "prompt": [1], "n": 2}))
        assert (status, answer["error"]["code"]) == (429, "queue_full")
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "strange"}}}
        body = {"model": "m", "messages": [{"role": "user", "content": "A"}], "response_format": form}
        eventually(lambda: engine.unfinished == 0)
        status, _, answer = ask(address, post("/v1/chat/completions", body))
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
        eventually(lambda: engine.unfinished == 0)
