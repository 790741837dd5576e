"""Times of a GPU by its own events."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

SLEEP_PER_CALL_US = 400
"""How long a processor takes to enqueue a call, at most: so long the GPU is held up, that it never waits for calls."""

CYCLES_PER_US = 2000


def median_ms(calls: Sequence[Callable[[], Any]], samples: int = 20) -> float:
    """Milliseconds of a call: the median over some samples, which take the calls, equal but for inputs, in turn."""
    for call in calls:
        call()
    starts, ends = ([torch.cuda.Event(enable_timing=True) for _ in range(samples)] for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(samples * SLEEP_PER_CALL_US * CYCLES_PER_US)  # pyright: ignore[reportPrivateUsage]
    for sample, (start, end) in enumerate(zip(starts, ends, strict=True)):
        start.record()
        calls[sample % len(calls)]()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in zip(starts, ends, strict=True))


def peak_bytes(call: Callable[[], Any]) -> int:
    """The most memory that a call has beyond what was there before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before
