"""The load that servers are measured with: what it counts, and from when."""

from __future__ import annotations

import asyncio
from collections import Counter

from benchmarks.serving.load import Result, capacity, open_loop


class Server:
    """Answers one request at a time, in so many seconds each; refuses those for which there is no room."""

    def __init__(self, seconds: float, room: int = 1000) -> None:
        self._seconds, self._room = seconds, room
        self._turn = asyncio.Lock()
        self._inside = 0

    async def send(self, request: bytes) -> int:
        if self._inside >= self._room:
            return 429
        self._inside += 1
        async with self._turn:
            await asyncio.sleep(self._seconds)
        self._inside -= 1
        return 200

    async def close(self) -> None:
        pass


def test_a_latency_counts_from_when_a_request_was_due() -> None:
    """100 come in a second, 20 are answered: the last ones have waited for those before them, and all are counted."""

    async def run() -> Result:
        return await open_loop(Server(0.05), [b"x"], 100, 0.5)

    result = asyncio.run(run())
    count = sum(result.statuses.values())
    assert result.statuses == {200: count} and count > 20 and len(result.latencies) == count
    assert max(result.latencies) > 0.05 * count - 0.5
    assert result.seconds >= 0.05 * count


def test_what_is_refused_has_no_latency() -> None:
    async def run() -> Result:
        return await open_loop(Server(0.05, room=1), [b"x"], 200, 0.3)

    result = asyncio.run(run())
    assert result.statuses[429] > 0 and len(result.latencies) == result.statuses[200]


def test_the_capacity_is_found_by_bisection() -> None:
    offered: list[float] = []

    async def run() -> Result | None:
        async def one(rate: float) -> Result:
            offered.append(rate)
            late = 0.02 if rate <= 60 else 0.2
            return Result(rate, 1.0, latencies=[late], statuses=Counter({200: 1}))

        return await capacity(lambda rate: asyncio.ensure_future(one(rate)), 100.0, 0.05, steps=12)

    best = asyncio.run(run())
    assert best is not None and 56 <= best.offered <= 60 and max(offered) <= 90
