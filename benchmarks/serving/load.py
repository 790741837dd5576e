"""Requests that come at random times, whether answers are there or not.

A closed loop of clients waits while its server is slow, and so hides the time that others would have waited. Here a
request's latency counts from when it was due.
"""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
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


class Staircase:
    """The rate at which half of all windows keep a promise, found in as many windows as there is time for.

    A window that kept it is followed by one of a higher rate, one that did not by a lower one, in steps that are halved
    with each turn of direction. On a machine with neighbours one pause decides on a window: here that moves the rate by
    one step, where it would end a bisection.

    Attributes:
        rate: of the next window.
    """

    def __init__(self, rate: float, step: float = 0.3, least: float = 0.05) -> None:
        self.rate = rate
        self._step, self._least = step, least
        self._kept: list[bool] = []
        self._tried: list[float] = []

    def add(self, kept: bool) -> None:
        """How the window of `rate` ended."""
        if self._kept and kept != self._kept[-1]:
            self._step = max(self._step / 2, self._least)
        self._kept.append(kept)
        self._tried.append(self.rate)
        self.rate *= 1 + self._step if kept else 1 / (1 + self._step)

    @property
    def found(self) -> float:
        """The geometric mean of the second half of the rates; 0 where no window kept it."""
        if not any(self._kept):
            return 0.0
        last = [*self._tried, self.rate][len(self._tried) // 2 :]
        return math.exp(statistics.fmean(map(math.log, last)))
