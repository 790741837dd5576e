"""Requests that come at random times, whether answers are there or not.

A closed loop of clients waits while its server is slow, and so hides the time that others would have waited. Here a
request's latency counts from when it was due.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.serving.transports import Transport


@dataclass
class Result:
    """What became of requests.

    Attributes:
        latencies: seconds of those that were answered with 200, in no order.
        statuses: requests by the status of their answers; 0 where there was none.
        offered: requests a second that were sent. seconds: that it took, to the last answer.
        held: seconds that the client itself was late in sending, at most: its own limit.
    """

    offered: float
    seconds: float = 0.0
    held: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter[int])

    @property
    def answered(self) -> float:
        """Requests a second that were answered with 200."""
        return self.statuses[200] / self.seconds

    def quantile(self, part: float) -> float:
        """Seconds; infinite where nothing was answered."""
        return float(np.quantile(self.latencies, part)) if self.latencies else float("inf")


async def open_loop(
    transport: Transport, requests: Sequence[bytes], rate: float, seconds: float, seed: int = 0
) -> Result:
    """Sends `rate` requests a second, as a Poisson process, and waits for all answers."""
    choose = random.Random(seed)
    result = Result(rate)
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def one(request: bytes, due: float) -> None:
        status = await transport.send(request)
        result.statuses[status] += 1
        if status == 200:
            result.latencies.append(time.perf_counter() - due)

    begin = due = time.perf_counter()
    while (due := due + choose.expovariate(rate)) < begin + seconds:
        if (ahead := due - time.perf_counter()) > 0:
            await asyncio.sleep(ahead)
        result.held = max(result.held, time.perf_counter() - due)
        task = loop.create_task(one(choose.choice(requests), due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(tasks)
    result.seconds = max(seconds, time.perf_counter() - begin)
    return result


async def closed_loop(transport: Transport, requests: Sequence[bytes], clients: int, seconds: float) -> Result:
    """So many clients, each of which sends when it has its answer."""
    result = Result(0.0)
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        choose = random.Random(number)
        while (begin := time.perf_counter()) < end:
            status = await transport.send(choose.choice(requests))
            result.statuses[status] += 1
            if status == 200:
                result.latencies.append(time.perf_counter() - begin)

    begin = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    result.seconds = time.perf_counter() - begin
    return result


async def capacity(
    offer: Callable[[float], asyncio.Future[Result]], most: float, allowed: float, steps: int = 6
) -> Result | None:
    """The highest rate whose 99th percentile is within `allowed` seconds and at which nothing is refused, by bisection
    up to `most`; None where no rate is."""
    low, high = 0.0, most
    best: Result | None = None
    for _ in range(steps):
        rate = (low + high) / 2 if best or high < most else most * 0.9
        result = await offer(rate)
        if result.quantile(0.99) <= allowed and set(result.statuses) <= {200}:
            low, best = rate, result
        else:
            high = rate
        if high - low < 0.03 * most:
            break
    return best
