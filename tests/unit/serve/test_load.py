"""The load that servers are measured with: what it counts, and from when."""

from __future__ import annotations

import asyncio

from benchmarks.serving.load import Result, Staircase, open_loop


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


def test_a_staircase_finds_what_is_carried() -> None:
    stairs = Staircase(20.0)
    for _ in range(20):
        stairs.add(stairs.rate <= 60)
    assert 57 <= stairs.found <= 63


def test_a_pause_of_the_machine_moves_a_staircase_by_a_step() -> None:
    stairs = Staircase(60.0)
    for number in range(20):
        stairs.add(stairs.rate <= 60 and number % 7 != 3)
    assert 50 <= stairs.found <= 63


def test_a_staircase_where_nothing_is_carried() -> None:
    stairs = Staircase(60.0)
    for _ in range(5):
        stairs.add(False)
    assert stairs.found == 0
