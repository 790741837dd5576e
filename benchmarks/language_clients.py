"""A server of a language model among clients that do what clients do: they ask, leave, send nonsense, and it is killed.

    python -m benchmarks.language_clients                       1,000 requests, 64 at once
    python -m benchmarks.language_clients --requests 200 --seed 7 --precision int8

`opweld serve` runs as a process, with a cache too small for all clients, so that requests are put back. Each complete
answer is compared with that to the same request alone; requests that are refused are expected to be so. In the end
nobody may hold a block of the cache. Then the server is killed, alone and together with its supervisor, and the time
until another one is ready is measured.
Exits with 1 where an answer is lost or wrong, or a block is held.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from benchmarks.language import ASKED
from benchmarks.zoo import fetch
from opweld.llm.load import Precision

KEY = "secret"
CONTEXT = 512
OPTIONS = ("--port", "0", "--api-key", KEY, "--context", str(CONTEXT), "--memory", "300M", "--queue", "8")
SAMPLE_S = 0.5

KINDS = {
    "answer": 30,
    "stream": 25,
    "leaves a stream": 15,
    "leaves before": 10,
    "prompt beyond the context": 5,
    "limit beyond the context": 3,
    "invalid JSON": 4,
    "wrong key": 4,
    "no such model": 2,
    "unknown field": 2,
}
"""What clients do, of a hundred."""
REFUSED = {
    "prompt beyond the context": 400,
    "limit beyond the context": 400,
    "invalid JSON": 400,
    "wrong key": 401,
    "no such model": 404,
    "unknown field": 400,
}
"""The status of what cannot be answered."""


@dataclass(frozen=True)
class Asked:
    """A request that can be answered: which prompt, as chat or not, and how many tokens."""

    prompt: str
    chat: bool
    tokens: int

    @property
    def path(self) -> str:
        """Where it goes."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self, **more: Any) -> dict[str, Any]:
        """What is sent: greedy."""
        text = {"messages": [{"role": "user", "content": self.prompt}]} if self.chat else {"prompt": self.prompt}
        return {"model": "small", "max_tokens": self.tokens, "temperature": 0} | text | more


ALL = [Asked(prompt, at % 2 == 0, 8 + 12 * (at % 4)) for at, prompt in enumerate(ASKED)]


@dataclass(frozen=True)
class Running:
    """A server: the process of its supervisor, and its port."""

    supervisor: subprocess.Popen[str]
    port: int

    @property
    def process(self) -> int:
        """The one that answers now: the supervisor's only child; 0 between two of them."""
        parent = self.supervisor.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
        return int(children[0]) if children else 0

    def resident(self) -> int:
        """Bytes of memory that is its own, files that it maps left out."""
        status = Path(f"/proc/{self.process}/status").read_text(encoding="ascii")
        return int(re.findall(r"RssAnon:\s+(\d+)", status)[0]) * 1024

    def killed(self) -> float:
        """Kills the one that answers; the seconds until the next one is ready."""
        before, begun = self.process, time.perf_counter()
        os.kill(before, signal.SIGKILL)
        while self.process in (0, before):
            time.sleep(0.001)
        asyncio.run(_ready(self))
        return time.perf_counter() - begun


@contextmanager
def serving(model: Path, precision: str) -> Generator[tuple[Running, float]]:
    """A server that is ready; it is killed in the end. Yields it and the seconds that it took."""
    command = [sys.executable, "-m", "opweld", "serve", f"small={model}", *OPTIONS, "--precision", precision]
    begun = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                    break
            else:
                raise SystemExit("the server did not start")
            running = Running(process, int(found[1]))
            asyncio.run(_ready(running))
            # Whoever writes to a pipe that nobody reads waits for ever.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield running, time.perf_counter() - begun
        finally:
            process.send_signal(signal.SIGKILL)


async def _ready(running: Running) -> None:
    while True:
        with suppress(OSError):
            if (await ask(running, "/health/ready", None))[0] == 200:
                return
        await asyncio.sleep(0.005)


async def send(
    running: Running, path: str, body: bytes | None, key: str = KEY
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Sends a request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=1 << 22)
    head = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: here", f"Authorization: Bearer {key}"]
    head += ["Connection: close", "Content-Type: application/json", f"Content-Length: {len(body or b'')}", "", ""]
    writer.write("\r\n".join(head).encode() + (body or b""))
    await writer.drain()
    return reader, writer


async def ask(running: Running, path: str, body: Any, key: str = KEY) -> tuple[int, bytes]:
    """The status and content of an answer; status 0 where there is none."""
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    reader, writer = await send(running, path, raw, key)
    try:
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    if not head:
        return 0, b""
    if b"transfer-encoding: chunked" in head.lower():
        rest = _joined(rest)
    return int(head.split()[1]), rest


def _joined(chunks: bytes) -> bytes:
    found = b""
    while chunks:
        size, _, chunks = chunks.partition(b"\r\n")
        length = int(size, 16)
        found, chunks = found + chunks[:length], chunks[length + 2 :]
    return found


def text_of(asked: Asked, content: bytes) -> str:
    """The text of a complete answer."""
    choice = json.loads(content)["choices"][0]
    return choice["message"]["content"] if asked.chat else choice["text"]


def streamed(asked: Asked, content: bytes) -> str:
    """The text of a stream, with a mark where it does not end as it should."""
    events = [line[6:] for line in content.decode().splitlines() if line.startswith("data: ")]
    if events[-1:] != ["[DONE]"]:
        return f"a stream without its end: {events[-1:]}"
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    return "".join((c["delta"].get("content") or "") if asked.chat else c["text"] for c in choices)


class Crowd:
    """Clients, and what became of their requests."""

    def __init__(self, running: Running, right: dict[Asked, str], seed: int) -> None:
        self.running, self.right, self.rng = running, right, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []
        self.again = 0  # requests that found the queue full, and came back
        self.resident: list[int] = []

    async def run(self, requests: int, clients: int) -> None:
        """So many requests, so many at once."""
        kinds = iter(self.rng.choices(list(KINDS), list(KINDS.values()), k=requests))

        async def client() -> None:
            for kind in kinds:
                await self._one(kind)

        sampling = asyncio.create_task(self._sample())
        await asyncio.gather(*(client() for _ in range(clients)))
        sampling.cancel()

    async def _sample(self) -> None:
        while True:
            self.resident.append(self.running.resident())
            await asyncio.sleep(SAMPLE_S)

    async def _one(self, kind: str) -> None:
        asked = self.rng.choice(ALL)
        try:
            fault = await self._asked(kind, asked)
        except (OSError, ValueError, LookupError, asyncio.IncompleteReadError) as error:
            fault = f"{type(error).__name__}: {error}"
        self.done[kind] += 1
        if fault:
            self.faults.append(f"{kind}: {fault}")

    async def _asked(self, kind: str, asked: Asked) -> str | None:
        if kind in ("leaves a stream", "leaves before"):
            return await self._leave(asked, self.rng.randrange(1, 6) if kind == "leaves a stream" else 0)
        body: Any = asked.body(stream=True) if kind == "stream" else asked.body()
        match kind:
            case "prompt beyond the context":
                body = Asked("many words " * CONTEXT, asked.chat, 5).body()
            case "limit beyond the context":
                body |= {"max_tokens": CONTEXT}
            case "invalid JSON":
                body = json.dumps(body).encode()[: self.rng.randrange(1, 40)]
            case "no such model":
                body |= {"model": "large"}
            case "unknown field":
                body |= {"temprature": 1}
            case _:
                pass
        wanted = REFUSED.get(kind, 200)
        while True:
            status, content = await ask(self.running, asked.path, body, "wrong" if kind == "wrong key" else KEY)
            if status != 429 or wanted != 200:
                break
            self.again += 1
            await asyncio.sleep(0.05 + 0.2 * self.rng.random())
        if status != wanted:
            return f"status {status} instead of {wanted}: {content[:200]!r}"
        if wanted != 200:
            return None if json.loads(content)["error"]["message"] else "an error that says nothing"
        found = streamed(asked, content) if kind == "stream" else text_of(asked, content)
        return None if found == self.right[asked] else f"{found!r} instead of {self.right[asked]!r}"

    async def _leave(self, asked: Asked, events: int) -> None:
        raw = json.dumps(asked.body(stream=bool(events), max_tokens=100)).encode()
        reader, writer = await send(self.running, asked.path, raw)
        for _ in range(events):
            with suppress(asyncio.IncompleteReadError):
                await reader.readuntil(b"\n\n")
        if not events:
            await asyncio.sleep(self.rng.random() * 0.3)
        writer.transport.abort()


async def metrics(running: Running) -> dict[str, float]:
    """What the server counts, by name, with all labels of a name added up."""
    found: dict[str, float] = {}
    for line in (await ask(running, "/metrics", None))[1].decode().splitlines():
        if not line.startswith("#"):
            name, _, number = line.rpartition(" ")
            name = name.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(number)
    return found


async def crowd(running: Running, requests: int, clients: int, seed: int) -> bool:
    """Answers alone, then the crowd, then what is left; whether all is right."""
    right: dict[Asked, str] = {}
    for asked in ALL:
        status, content = await ask(running, asked.path, asked.body())
        if status != 200:
            raise SystemExit(f"alone: status {status}: {content!r}")
        right[asked] = text_of(asked, content)
    begun, all_of_it = time.perf_counter(), Crowd(running, right, seed)
    await all_of_it.run(requests, clients)
    seconds = time.perf_counter() - begun
    held = 0.0
    for _ in range(100):  # aborted requests end between two steps
        after = await metrics(running)
        held = sum(after[f"opweld_{name}"] for name in ("requests_running", "requests_waiting", "cache_used_ratio"))
        if not held:
            break
        await asyncio.sleep(0.1)
    for kind in KINDS:
        print(f"{all_of_it.done[kind]:6}  {kind}")
    print(f"{sum(all_of_it.done.values()):6}  in all, in {seconds:.1f} s; {all_of_it.again} times the queue was full")
    print(f"{len(all_of_it.faults):6}  lost or wrong")
    for fault in all_of_it.faults[:10]:
        print(f"        {fault}")
    print(f"        running, waiting and part of the cache held in the end: {held:g}")
    quarter = max(1, len(all_of_it.resident) // 4)
    parts = [max(all_of_it.resident[at : at + quarter]) / 1e6 for at in range(0, 4 * quarter, quarter)]
    print("        memory of its own in each quarter, at most:", ", ".join(f"{part:.0f}" for part in parts), "MB")
    return not all_of_it.faults and not held and sum(all_of_it.done.values()) == requests


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a GGUF file; SmolLM2 from its wheel where it is left out")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=64, help="at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--precision", choices=get_args(Precision), default="fp32", help="of the server")
    arguments = parser.parse_args()
    model = arguments.model or fetch.path("smollm2")
    with serving(model, arguments.precision) as (running, _):
        right = asyncio.run(crowd(running, arguments.requests, arguments.clients, arguments.seed))
    for _ in range(3):
        with serving(model, arguments.precision) as (running, seconds):
            print(f"        killed with its supervisor, and ready again after {seconds:.2f} s")
            print(f"        killed alone, and ready again after {running.killed():.2f} s")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
