"""A model that says what it is told to, and a server of it."""

from __future__ import annotations

import asyncio
import codecs
import json
import math
import threading
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.errors import InputError, QueueFull, RunError
from opweld.llm.requests import Chosen, Delta, Request
from opweld.serve.limits import Keys, Limits
from opweld.serve.openai.interface import openai_interface
from opweld.serve.openai.models import Models, Served
from opweld.serve.server import Around, MakeInterface, Server, reserve
from tests.patience import PATIENCE_S

CONTEXT = 4096
STALL = "[stall]"
FAIL = "[fail]"


class FakeTokenizer:
    """A token is a byte. A conversation is a line for each message, and one for the tools."""

    vocabulary = 256

    def encode(self, text: str, /) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int], /) -> str:
        return bytes(tokens).decode(errors="replace")

    def token_bytes(self, token: int, /) -> bytes:
        return bytes([token])

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        if messages[0]["role"] == "tool":
            raise InputError("a conversation begins with no tool")
        lines = [f"tools: {json.dumps(tools)}"] if tools else []
        lines += [f"{one['role']}: {one['content']}{json.dumps(one.get('tool_calls', ''))[1:-1]}" for one in messages]
        return self.encode("\n".join(lines))


@dataclass
class FakeLoad:
    waiting: int = 0
    running: int = 0
    blocks: int = 100
    blocks_in_use: int = 0


class FakeEngine:
    """Answers with what the last message says, or with the prompt, byte by byte; at STALL it waits to be released, at
    FAIL it fails. It counts how answers end."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.requests: list[Request] = []
        self.finished = self.aborted = 0
        self.closing = False
        self.statistics = FakeLoad()
        self._released = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def release(self) -> None:
        """From any thread: lets those go on that wait."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._released.set)

    async def generate(self, request: Request) -> AsyncGenerator[Delta]:
        self._loop = asyncio.get_running_loop()
        if self.statistics.running >= self.most:
            raise QueueFull(f"{self.most} requests wait already")
        self.requests.append(request)
        self.statistics.running += 1
        ended = False
        try:
            text = bytes(request.prompt).decode().rpartition("user: ")[2]
            raw, limit = text.encode(), request.sampling.limit or 1 << 20
            letters = codecs.getincrementaldecoder("utf-8")()
            for number, byte in enumerate(raw[:limit]):
                await asyncio.sleep(0)
                if raw.startswith(STALL.encode(), number):
                    await self._released.wait()
                if raw.startswith(FAIL.encode(), number):
                    raise RunError("a secret of the server")
                finish = "stop" if number == len(raw) - 1 else "length" if number == limit - 1 else None
                ended = finish is not None
                yield Delta(
                    letters.decode(bytes([byte])), (self._chosen(byte, request),), finish, cached=0 if number else 3
                )
        finally:
            self.statistics.running -= 1
            if ended:
                self.finished += 1
            else:
                self.aborted += 1

    async def close(self, drain_seconds: float) -> None:
        await asyncio.sleep(0)
        self.closing = True

    def _chosen(self, byte: int, request: Request) -> Chosen:
        if request.sampling.logprobs is None:
            return Chosen(byte)
        others = [(byte, -0.5), (32, -2.0), (33, -math.inf)][: request.sampling.logprobs]
        return Chosen(byte, -0.5, tuple(others))


class FakeEmbedder:
    """Counts letters of the alphabet."""

    dimensions = 26

    def shortened(self, text: str | Sequence[int], /) -> list[int]:
        return [*(text.encode() if isinstance(text, str) else text)[:512]]

    def embed(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        counts = np.array([[text.count(97 + letter) for letter in range(26)] for text in texts], np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


@dataclass(frozen=True)
class FakePair:
    tokens: Sequence[int]
    shared: int


class FakeReranker:
    """Scores pairs by the letters of the query that the text has."""

    def pair(self, query: str, text: str, truncate: bool = False, /) -> FakePair:
        if truncate:
            text = text[: 61 - len(query)]
        return FakePair([0, *query.encode(), 0, *text.encode(), 0], len(set(query) & set(text)))

    def score(self, pairs: Sequence[FakePair], /) -> NDArray[np.float32]:
        return np.array([pair.shared for pair in pairs], np.float32)


@dataclass
class Running:
    """A server in a thread, with its models: `talker` continues, `embedder` embeds, `ranker` scores pairs."""

    server: Server
    engine: FakeEngine
    host: str
    port: int
    thread: threading.Thread

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def server_of(
    served: Sequence[Served],
    limits: Limits,
    keys: Sequence[str] = (),
    origins: Sequence[str] = (),
    interfaces: Sequence[MakeInterface] = (),
    around: Around | None = None,
) -> Server:
    """A server of language models."""
    models = Models(served)
    openai = partial(openai_interface, models)
    return Server([models], [openai, *interfaces], limits=limits, keys=Keys(keys), origins=origins, around=around)


@contextmanager
def serving(
    limits: Limits | None = None,
    keys: Sequence[str] = (),
    origins: Sequence[str] = (),
    most: int = 1000,
    interfaces: Sequence[MakeInterface] = (),
    around: Around | None = None,
) -> Generator[Running]:
    """A server at a free port, until the block ends; OpenAI's interface is before the others."""
    engine = FakeEngine(most)
    models = [
        Served("talker", FakeTokenizer(), CONTEXT, engine=engine),
        Served("embedder", FakeTokenizer(), 512, embedder=FakeEmbedder()),
        Served("ranker", FakeTokenizer(), 64, reranker=FakeReranker()),
    ]
    server = server_of(models, limits or Limits(drain=0.0), keys, origins, interfaces, around)
    with listening(server) as (host, port, thread):
        yield Running(server, engine, host, port, thread)


@contextmanager
def listening(server: Server) -> Generator[tuple[str, int, threading.Thread]]:
    """A server in a thread, until the block ends: its address."""
    socket = reserve("127.0.0.1", 0)
    host, port = socket.getsockname()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    try:
        yield host, port, thread
    finally:
        server.stop()
        thread.join(PATIENCE_S)


def eventually(holds: Any) -> None:
    """Waits until something holds that another thread brings about."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.002)
