"""Which waiting calls make the next run of a model, and when it begins."""

from __future__ import annotations

import itertools
import math
from bisect import insort
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from opweld.serve.inference.arrivals import Arrivals
from opweld.serve.inference.cost import Cost
from opweld.serve.inference.lengths import common, padded

Reason: TypeAlias = Literal["idle", "worker", "arrival", "target", "full"]
"""Why a batch was closed: "idle", there were processors when its call came, and nothing to wait for; "worker", its
calls waited for processors; "arrival", the next call was not expected soon enough; "target", its first call would have
become late; "full", it has as many rows as are useful."""

REASONS: Final[tuple[Reason, ...]] = ("idle", "worker", "arrival", "target", "full")

_KINDS: Final = 64
"""Kinds of calls whose cost and arrivals are remembered (least recently used)."""

_USEFUL: Final = 0.1
"""A run in which what is fixed is a smaller part gains too little from further rows for all that wait for its end."""

_EFFICIENT: Final = 0.5
"""A run has further threads while all together do useful work for such a part of their time; with less, another run
makes more of them. Two threads have it where they are faster than one: not more, as first runs of a size, which make
its plan, would tell that they are not worth it, and so none would follow."""

_TRIALS: Final = 1 / 128
"""Part of the time of runs that goes to numbers of threads which seem to be worse: what is known of them, perhaps from
when other programs had the cores, would never change again. Less than one call in a hundred, whose latencies decide on
the 99th percentile."""

_BLINK: Final = 50e-6
"""Seconds that are too short to wait: a thread sleeps longer."""

_SURE: Final = 1.5
"""Times what a run takes by what is known, which it hardly exceeds: calls that would be a moment late were computed for
nobody, and where more come than are answered, all that is begun is nearly late."""

_LEAST: Final = 2
"""Calls of equal length that are put together in any case where they wait: runs of one size would never show that
others are useful."""


@dataclass(eq=False, slots=True)
class Waiting:
    """A call that waits.

    Attributes:
        kind: calls of equal kind may share a run; None: with no other.
        rows: that it has. length: of each, in the unit of costs; 1 where lengths do not differ.
        arrived: when it came. due: when its answer should be there; deadline: when it must, or nobody wants it.
        call: what it is to who runs it.
        known: what the batcher knows of calls of its kind; None where it has not come yet.
    """

    kind: Hashable
    rows: int
    length: int
    arrived: float
    due: float
    deadline: float = math.inf
    call: Any = None
    known: _Kind | None = None


@dataclass(eq=False, slots=True)
class Batch:
    """Calls that make a run.

    Attributes:
        size: in the unit of costs, rows times the length that they have in the run.
        threads: that the run has.
    """

    calls: Sequence[Waiting]
    reason: Reason
    rows: int
    size: int
    threads: int = 1


@dataclass(eq=False)
class _Kind:
    """What is known of calls of a kind.

    Attributes:
        costs: of runs, by their threads.
        running: runs that are going on.
        held: since when they wait for another call while a worker is free; None: they do not.
        spent: seconds of all runs, as they were expected. used: what was spent when one last had so many threads.
    """

    costs: Mapping[int, Cost]
    arrivals: Arrivals = field(default_factory=Arrivals)
    waiting: list[Waiting] = field(default_factory=list[Waiting])
    running: int = 0
    held: float | None = None
    spent: float = 0.0
    used: dict[int, float] = field(default_factory=dict[int, float])


class Batcher:
    """The calls of one model that wait.

    A run takes `fixed + each * rows` (`Cost`), by the number of its threads, so two calls in one run save `fixed`, and
    one that waits for the next call pays the time until it comes, as do all that wait with it. Hence the rules:

    1. While the processors are busy, calls wait anyway, and batches form by themselves.
    2. Once they are free, waiting calls wait for one more only while (calls that wait) * (expected time to the next
       one) is less than what that saves: `fixed`, or the run's part of it where it leaves processors to others. What
       they have waited so counts too: nobody waits in vain for longer than would have been saved. The expected time is
       at least the time since the last call, so a call that comes alone waits for nothing.
    3. Nobody waits beyond the point at which the run has to begin to end when the first call is due: the target
       latency, or its deadline.
    4. A batch has no more rows than `max_rows`; than what takes as long as the target, for then it would be late by
       itself, or half of that where others can run beside it, for the calls behind it are better off there; and than
       useful: where `fixed` is 10% of a run, more rows gain nothing, and whoever is in it waits for all of them. Where
       the first call is late already, more come than are answered: then throughput is all that counts, and `max_rows`
       the only limit, but for the first deadline of its calls.
    5. Calls of unequal length share a run if the run that is saved takes longer than the padding, up to the length that
       they get.
    6. A run has as many threads, and as many runs begin beside each other on the processors that are free, as by these
       costs answer all waiting calls first, of those that make good use of their processors: a call that comes alone
       has all threads, if they do; where many wait, each processor has a run of its own, as threads that wait for each
       other get less done. Another number of threads is tried once a run of it takes a small part of what runs took
       since it had its last one: the worse it seems, the less often.
    7. A call whose deadline its own run cannot surely meet any more is not begun. Where nothing of its kind runs or
       waits before it, it is begun until the deadline has passed: what a run takes is only an estimate, and one that is
       too high would never be corrected if all calls were refused by it.

    Times are seconds of any clock that the caller has.
    """

    def __init__(
        self, max_rows: int, target: float, *, threads: Sequence[int] = (1,), processors: int = 1, pads: bool = False
    ) -> None:
        """
        Args:
            max_rows: of a run.
            target: seconds from a call to its answer that are aimed at.
            threads: numbers of threads that a run may have, in order; 1 is the first.
            processors: of the machine, which all models share.
            pads: whether calls of one kind may have unequal lengths, which are padded.
        """
        self.max_rows, self.target, self.pads = max_rows, target, pads
        self.threads, self._processors = threads, processors
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self._busy: list[_Kind] = []  # those of which calls wait
        self._count = self._deadlines = 0

    def __len__(self) -> int:
        return self._count

    def cost(self, kind: Hashable, threads: int = 0) -> Cost:
        """Of runs of a kind; with all threads where it is not said how many."""
        return self._of(kind).costs[threads or self.threads[-1]]

    def expected(self, batch: Batch) -> float:
        """Seconds that a run takes, by what is known; 0 where nothing is: calls of no kind may do anything."""
        first = batch.calls[0]
        return 0.0 if first.kind is None else _known(first).costs[batch.threads].seconds(batch.size)

    def observe(self, batch: Batch, seconds: float) -> None:
        """A run took so long."""
        _known(batch.calls[0]).costs[batch.threads].observe(batch.size, seconds)

    def add(self, one: Waiting) -> None:
        """A call came."""
        kind = one.known = self._of(one.kind)
        kind.arrivals.came(one.arrived)
        if not kind.waiting:
            self._busy.append(kind)
        insort(kind.waiting, one, key=_due)
        self._count += 1
        self._deadlines += one.deadline < math.inf

    def remove(self, one: Waiting) -> bool:
        """Takes back a call; whether it still waited."""
        kind = _known(one)
        if one not in kind.waiting:
            return False
        self._take(kind, [one])
        return True

    def ended(self, batch: Batch) -> None:
        """A run has ended."""
        _known(batch.calls[0]).running -= 1

    def late(self, now: float) -> list[Waiting]:
        """Takes out the calls whose deadline a run that begins now cannot meet (rule 7)."""
        if not self._deadlines:
            return []
        found: list[Waiting] = []
        for kind in list(self._busy):
            late = _late(kind, now)
            if late:
                self._take(kind, late)
                found += late
        return found

    def next(self, now: float, free: int = 1) -> Batch | float:
        """The run that begins now, or when to ask again; infinite where nothing waits.

        Args:
            free: processors that there are for its calls, 1 or more.
        """
        again = math.inf
        for kind in self._busy if len(self._busy) == 1 else sorted(self._busy, key=_first_due):
            found = self._closed(kind, now, free)
            if isinstance(found, Batch):
                self._take(kind, found.calls)
                kind.held = None
                kind.running += 1
                kind.spent += self.expected(found)
                kind.used[found.threads] = kind.spent
                return found
            again = min(again, found)
        return again

    @property
    def due(self) -> float:
        """When the answer to the first call is due; infinite where nothing waits."""
        return min(map(_first_due, self._busy), default=math.inf)

    def _closed(self, kind: _Kind, now: float, free: int) -> Batch | float:
        """The batch of a kind's calls if it begins now, else when to ask again."""
        threads, beside = self._threads(kind, free)
        first, cost = kind.waiting[0], kind.costs[threads]
        calls, full = self._together(kind, now, threads, beside)
        rows, length = first.rows, first.length
        if len(calls) > 1:
            rows, length = sum([one.rows for one in calls]), common({one.length for one in calls})
        held = now if kind.held is None else kind.held
        reason: Reason = "arrival" if kind.held is not None else "idle" if first.arrived == now else "worker"
        if full:
            reason = reason if len(calls) == 1 else "full"
        elif cost.fixed > 0:
            left = cost.fixed * threads / self._processors - sum([now - max(one.arrived, held) for one in calls])
            if len(calls) * kind.arrivals.expected(now) < left:
                slack = first.due - now - cost.seconds((rows + first.rows) * length)
                wait = min(slack, left / len(calls))
                if wait > _BLINK:
                    kind.held = held
                    return now + wait
                if kind.held is not None and slack <= _BLINK:
                    reason = "target"
        return Batch(calls, reason, rows, rows * length, threads)

    def _threads(self, kind: _Kind, free: int) -> tuple[int, int]:
        """The threads of the next run, and how many runs begin now (rule 6)."""
        count = len(kind.waiting)
        sizes = [one.rows * one.length for one in kind.waiting]
        largest, every = max(sizes), sum(sizes)
        best, least = (1, min(free, count)), math.inf
        for threads in self.threads:
            beside = min(free // threads, count)
            if not beside:
                break
            size = max(largest, every / beside)
            # What nothing is known of takes no time, and so is tried.
            seconds = kind.costs[threads].seconds(size)
            if kind.spent - kind.used.get(threads, 0.0) > seconds / _TRIALS:
                return threads, beside
            if seconds <= least and _EFFICIENT * threads * seconds <= kind.costs[1].seconds(size):
                best, least = (threads, beside), seconds
        return best

    def _together(self, kind: _Kind, now: float, threads: int, beside: int) -> tuple[list[Waiting], bool]:
        """The calls that share the next run, the first to be due among them, and whether it takes no more."""
        first, cost = kind.waiting[0], kind.costs[threads]
        if first.kind is None:
            return [first], True
        most = self._most(first, cost, threads, now)
        calls, rows, length = [first], first.rows, first.length
        longest, alike = length, True
        if len(kind.waiting) == 1:
            return calls, rows >= self.max_rows or (rows + 1) * length > most
        others = itertools.islice(kind.waiting, 1, None)
        if self.pads:
            others = sorted(others, key=lambda one: abs(one.length - first.length))
        share, deadline = -(-len(kind.waiting) // beside), first.deadline
        for one in others:
            if len(calls) == share:
                return calls, True
            alike = alike and one.length == first.length
            longest = max(longest, one.length)
            shared = longest if alike else padded(longest)
            size = (rows + one.rows) * shared
            if rows + one.rows > self.max_rows or size > most:
                return calls, True
            deadline = min(deadline, one.deadline)
            if deadline < math.inf and now + _SURE * cost.seconds(size) > deadline:
                return calls, True
            padding = size - rows * length - one.rows * one.length
            if padding * cost.each > cost.fixed:
                break
            calls.append(one)
            rows, length = rows + one.rows, shared
        return calls, rows >= self.max_rows or (rows + 1) * length > most

    def _take(self, kind: _Kind, calls: Sequence[Waiting]) -> None:
        """They do not wait any more."""
        if len(calls) == len(kind.waiting):
            kind.waiting, kind.held = [], None
            self._busy.remove(kind)
        elif kind.waiting[: len(calls)] == calls:
            del kind.waiting[: len(calls)]
        else:
            taken = set(map(id, calls))
            kind.waiting = [one for one in kind.waiting if id(one) not in taken]
        self._count -= len(calls)
        if self._deadlines:
            self._deadlines -= sum(one.deadline < math.inf for one in calls)

    def _most(self, first: Waiting, cost: Cost, threads: int, now: float) -> float:
        """The size that a batch may have, by the target and by what is useful."""
        alone = first.rows * first.length
        if not cost.known or not cost.each or now + cost.seconds(alone) > first.due:
            return math.inf
        timely = (self.target * (1 + threads / self._processors) / 2 - cost.fixed) / cost.each
        useful = cost.fixed / (_USEFUL * cost.each)
        if not self.pads:
            useful = max(useful, _LEAST * alone)
        return max(min(timely, useful), alone)

    def _of(self, name: Hashable) -> _Kind:
        if (kind := self._kinds.get(name)) is None:
            kind = self._kinds[name] = _Kind({threads: Cost() for threads in self.threads})
            if len(self._kinds) > _KINDS:
                unused = next((old for old, one in self._kinds.items() if not _is_used(one) and old != name), name)
                if unused != name:
                    del self._kinds[unused]
        self._kinds.move_to_end(name)
        return kind


def _late(kind: _Kind, now: float) -> list[Waiting]:
    """The calls of a kind that are too late, by rule 7."""
    found: list[Waiting] = []
    ahead = kind.running > 0
    for one in kind.waiting:
        size = one.rows * one.length
        least = _SURE * min([cost.seconds(size) for cost in kind.costs.values()]) if ahead else 0.0
        if now + least > one.deadline:
            found.append(one)
        else:
            ahead = True
    return found


def _known(one: Waiting) -> _Kind:
    """What is known of calls of its kind, of one that came."""
    assert one.known is not None
    return one.known


def _is_used(kind: _Kind) -> bool:
    return bool(kind.waiting or kind.running)


def _due(one: Waiting) -> float:
    return one.due


def _first_due(kind: _Kind) -> float:
    return kind.waiting[0].due
