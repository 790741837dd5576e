"""The part of a machine that one of several server processes has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from opweld.options import available_cores
from opweld.serve.inference.settings import Settings
from opweld.serve.limits import Limits, bytes_in_flight


@dataclass(frozen=True)
class Part:
    """One of `count` equal ones.

    Attributes:
        number: of the process, from 0.
    """

    number: int = 0
    count: int = 1

    @property
    def name(self) -> str:
        """What it is called in lines that people read."""
        return f"process {self.number + 1} of {self.count}"

    @property
    def processors(self) -> int:
        """How many threads its runs have together, at least one: where there are as many processors as processes, all
        parts together are the processors. It is a number: which processors these are is the system's matter, which
        moves a process away from one that another process needs."""
        every = available_cores()
        return max(1, every // self.count + (self.number < every % self.count))

    def settings(self, whole: Settings) -> Settings:
        """Those of a model in this process: its part of the queue, and no more threads than processors."""
        if self.count == 1:
            return whole
        threads = min(whole.threads or self.processors, self.processors)
        return replace(whole, queue=self._of(whole.queue), threads=threads)

    def limits(self, whole: Limits) -> Limits:
        """Those of this process: its part of the memory for requests, which holds one of the largest at least. What is
        free is looked for now, where the limits do not say how much it is."""
        if self.count == 1:
            return whole
        return replace(whole, in_flight=max(whole.body, self._of(bytes_in_flight(whole))))

    def _of(self, whole: int) -> int:
        return -(-whole // self.count)
