"""Detects whether a machine is too busy for meaningful timings."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_STAT = Path("/proc/stat")

MOST_STEAL = 0.02
"""The part of the processors' time that a hypervisor may give to other machines."""

MOST_OTHERS = 0.1
"""The part of the processors' time that other programs may take."""

MOST_SWITCHES = 50.0
"""Times a second that threads of this process may be preempted."""

MOST_SPREAD = 1.5
"""The largest ratio of the 90th percentile of runs to the median."""


@dataclass(frozen=True)
class Disturbance:
    """Interference with timed runs.

    Attributes:
        steal: the part of the processors' time that went to other virtual machines; None if unknown.
        others: the part that other programs took; None likewise.
        switches: involuntary context switches a second, of all threads of this process.
        spread: the 90th percentile of runs as a multiple of the median.
    """

    steal: float | None
    others: float | None
    switches: float
    spread: float

    @property
    def reasons(self) -> tuple[str, ...]:
        """The signs that the machine was too busy to measure on, each in a few words; empty if it was quiet."""
        found: list[str] = []
        if self.steal is not None and self.steal > MOST_STEAL:
            found.append(f"other virtual machines took {self.steal:.0%} of the processors")
        if self.others is not None and self.others > MOST_OTHERS:
            found.append(f"other programs took {self.others:.0%} of the processors")
        if self.switches > MOST_SWITCHES:
            found.append(f"this process was preempted {self.switches:,.0f} times a second")
        if self.spread > MOST_SPREAD:
            found.append(f"the slowest tenth of the runs took over {self.spread:.1f} times the median")
        return tuple(found)

    @property
    def busy(self) -> bool:
        """Whether timings are unreliable. A spread alone is no sign: a model with dynamic control flow has one too."""
        return bool(self.reasons) and not (len(self.reasons) == 1 and self.spread > MOST_SPREAD and self.known)

    @property
    def known(self) -> bool:
        """Whether the system reports the use of the processors."""
        return self.others is not None

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        return {**vars(self), "busy": self.busy, "reasons": list(self.reasons), "warning": self.warning}

    @property
    def warning(self) -> str:
        """The warning before any result; "" if the machine was quiet."""
        if not self.busy:
            return ""
        return (
            f"this machine is too busy to measure on: {'; '.join(self.reasons)}. "
            "Times, verdicts and overheads are those of a machine under load; close other programs and try again"
        )


class Watch:
    """Observes the processors of this process from its construction on."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._switches = _switches()
        self._own = sum(os.times()[:4])
        self._ticks = _ticks()

    def seen(self, spread: float) -> Disturbance:
        """The interference since then; `spread` as in `Disturbance`."""
        wall = max(time.perf_counter() - self._began, 1e-9)
        steal, others, now = None, None, _ticks()
        if self._ticks is not None and now is not None and now[0] > self._ticks[0]:
            total, busy, stolen = (after - before for after, before in zip(now, self._ticks, strict=True))
            own = (sum(os.times()[:4]) - self._own) * os.sysconf("SC_CLK_TCK")
            steal, others = stolen / total, max(0.0, (busy - own) / total)
        return Disturbance(steal, others, (_switches() - self._switches) / wall, spread)


def spread_of(seconds: npt.NDArray[np.float64]) -> float:
    """The 90th percentile of these times as a multiple of the median."""
    return float(np.percentile(seconds, 90) / np.median(seconds)) if len(seconds) else 1.0


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _ticks() -> tuple[int, int, int] | None:
    """Ticks of the processors of this process together: all, those in which something ran, those stolen. None if the
    system does not report them."""
    try:
        lines = _STAT.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    own = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    total = busy = stolen = 0
    for line in lines:
        name, _, rest = line.partition(" ")
        if name not in own:
            continue
        fields = [int(field) for field in rest.split()[:8]]
        if len(fields) < 8:
            return None
        user, nice, system, _idle, _waiting, interrupts, soft, steal = fields
        total += sum(fields)
        busy += user + nice + system + interrupts + soft
        stolen += steal
    return (total, busy, stolen) if total else None
