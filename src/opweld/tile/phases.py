"""Launches in phases: what does not depend on each other runs at the same time, and threads meet once for all of it.

The launches come in an order that keeps values short-lived and warm in caches, so it is left only where that gains
something. A phase is opened by the first launch that is left. Others join it when they are ready and cannot wait: when
a chain of launches depends on them that is as long as any that is left, so that the program grows by every phase that
passes without them. (As early as possible would be simpler, but would compute far ahead of its use what is needed late,
the edges of padded values or every layer's projection of a shared input, and keep it.) Q beside K, a copy beside the
product that needs it and the two directions of a recurrence are joined so; a recurrence that has time waits for the one
that can run beside it.

A launch may join from nearby only, and only while the memory that lives at the same time stays within a bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opweld.ledger import Alternative, Ledger
from opweld.tile.kernels import ScheduledKernel

WINDOW = 16
"""How many launches ahead of its turn a launch may run: from further, what it reads would have left the caches."""

_ALTERNATIVES = (Alternative("alone"), Alternative("together"))

SMALL = 1 << 20
"""Bytes that may live at the same time in any case: a second-level cache holds them."""


def arrange(items: Sequence[ScheduledKernel], sizes: Mapping[str, int], ledger: Ledger) -> list[list[int]]:
    """The phases of launches that are given in a valid order, each as positions in `items`, ascending.

    Args:
        items: what is launched. Two that write to one piece of memory, nobody between them reading it, write different
            elements: an element has one value, unless it is computed in place, which reads it.
        sizes: estimated bytes of each piece of memory that lives only while it is used, by name.
        ledger: may keep a launch in a phase of its own.
    """
    arranger = _Arranger(items, sizes, ledger)
    phases: list[list[int]] = []
    while arranger.first < len(items):
        phases.append(arranger.phase())
    return phases


@dataclass(eq=False)
class _Run:
    """Uses of one piece of memory that follow each other and do not disturb each other: by readers, or by writers. All
    of them come after all of the run before. Who reads and writes is a run alone."""

    role: str
    members: list[int] = field(default_factory=list[int])
    left: int = 0
    later: _Run | None = None
    height: int = 0


class _Dependencies:
    """Which launches are ready, and how many launches the longest chain has that begins with each (`height`)."""

    def __init__(self, items: Sequence[ScheduledKernel]) -> None:
        self._runs: list[list[_Run]] = [[] for _ in items]
        self._waits = [0] * len(items)
        self._placed = [False] * len(items)
        self.height = [0] * len(items)
        current: dict[str, tuple[_Run, bool]] = {}  # of each memory, and whether there is a run before
        for number, item in enumerate(items):
            for buffer in item.kernel.buffers:
                run, follows = current.get(buffer.name, (None, False))
                if run is None or buffer.role == "update" or run.role != buffer.role:
                    new = _Run(buffer.role)
                    if run is not None:
                        run.later = new
                    run, follows = current[buffer.name] = new, run is not None
                run.members.append(number)
                run.left += 1
                self._runs[number].append(run)
                self._waits[number] += follows
        for number in reversed(range(len(items))):
            runs = self._runs[number]
            self.height[number] = 1 + max((run.later.height for run in runs if run.later is not None), default=0)
            for run in runs:
                run.height = max(run.height, self.height[number])

    def ready(self, number: int) -> bool:
        """Whether all that it depends on is done, and it is not."""
        return not self._waits[number] and not self._placed[number]

    def placed(self, number: int) -> bool:
        """Whether it has its phase."""
        return self._placed[number]

    def finish(self, number: int) -> None:
        """Its phase is over: what waits for it may be ready."""
        self._placed[number] = True
        for run in self._runs[number]:
            run.left -= 1
            if not run.left and run.later is not None:
                for member in run.later.members:
                    self._waits[member] -= 1


class _Live:
    """Estimated bytes alive while each launch runs, if those that are left ran one by one in the given order."""

    def __init__(self, items: Sequence[ScheduledKernel], sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._names = [[b.name for b in item.kernel.buffers if sizes.get(b.name)] for item in items]
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._uses: dict[str, int] = {}
        self._born: set[str] = set()
        for number, names in enumerate(self._names):
            for name in names:
                self._first.setdefault(name, number)
                self._last[name] = number
                self._uses[name] = self._uses.get(name, 0) + 1
        change = [0] * (len(items) + 1)
        for name, number in self._first.items():
            change[number] += sizes[name]
            change[self._last[name] + 1] -= sizes[name]
        self._bytes: list[int] = []
        alive = 0
        for number in range(len(items)):
            alive += change[number]
            self._bytes.append(alive)
        peak = max(self._bytes, default=0)
        self.bound = max(peak + peak // 2, SMALL)

    def peak_with(self, number: int, turn: int) -> int:
        """The most bytes alive from launch `turn` on, until `number` were due, if `number` ran with `turn`."""
        new = self._new(number, turn)
        until = max((self._first[name] for name in new), default=turn)
        return max(
            (
                self._bytes[at] + sum(self._sizes[name] for name in new if self._first[name] > at)
                for at in range(turn, until)
            ),
            default=0,
        )

    def start(self, number: int, turn: int) -> None:
        """`number` runs in the phase of launch `turn`."""
        for name in self._new(number, turn):
            for at in range(turn, self._first[name]):
                self._bytes[at] += self._sizes[name]
        self._born.update(self._names[number])

    def finish(self, number: int, turn: int) -> None:
        """The phase of `number` is over; launch `turn` is the first that is left."""
        for name in self._names[number]:
            self._uses[name] -= 1
            if not self._uses[name]:
                for at in range(turn, self._last[name] + 1):
                    self._bytes[at] -= self._sizes[name]

    def _new(self, number: int, turn: int) -> list[str]:
        return [name for name in self._names[number] if name not in self._born and self._first[name] > turn]


class _Arranger:
    """Makes one phase after another; `first` is the first launch that has none yet."""

    def __init__(self, items: Sequence[ScheduledKernel], sizes: Mapping[str, int], ledger: Ledger) -> None:
        self._items = items
        self._needs = _Dependencies(items)
        self._live = _Live(items, sizes)
        self._ledger = ledger
        self._alone: set[int] = set()
        self._early: set[int] = set()
        self.first = 0

    def phase(self) -> list[int]:
        """The next phase."""
        turn, height = self.first, self._needs.height
        near = [n for n in range(turn, min(turn + WINDOW, len(self._items))) if self._needs.ready(n)]
        urgent = max(height[n] for n in near)
        members = [turn]
        self._live.start(turn, turn)
        if turn not in self._alone:
            for number in near[1:]:
                if number not in self._alone and self._joins(number, turn, height[number] == urgent):
                    members.append(number)
        serial = self._items[turn].serial and height[turn] < urgent
        if len(members) > 1 and serial and self._waits(turn, members[1]):
            members = members[1:]
        self._close(members)
        return members

    def _joins(self, number: int, turn: int, urgent: bool) -> bool:
        """Whether a launch that is ready joins the phase of launch `turn`."""
        peak = self._live.peak_with(number, turn) if urgent else 0
        if not urgent:
            joins = self._joins_early(number, turn, "it has time: no longest chain of launches waits for it")
        elif peak > self._live.bound:
            why = f"what it writes would live too long: {peak:,} bytes at a time, of {self._live.bound:,}"
            joins = self._joins_early(number, turn, why)
        else:
            joins = self._joins_in_time(number, turn)
        if joins:
            self._live.start(number, turn)
        return joins

    def _joins_in_time(self, number: int, turn: int) -> bool:
        choice = self._ledger.decide(
            rule="schedule.phase",
            site=self._items[number].kernel.origin,
            subject=self._items[number].subject,
            alternatives=_ALTERNATIVES,
            prefer="together",
            reason=f"it can run beside {self._items[turn].kernel.name}, and the longest chain of launches waits for it",
        )
        if choice != "together":
            self._alone.add(number)
        return choice == "together"

    def _joins_early(self, number: int, turn: int, why: str) -> bool:
        """Whether a launch joins the first phase that it could be in, although it had better not."""
        if number in self._early:
            return False
        self._early.add(number)
        choice = self._ledger.decide(
            rule="schedule.phase",
            site=self._items[number].kernel.origin,
            subject=(*self._items[number].subject, "early"),
            alternatives=_ALTERNATIVES,
            prefer="alone",
            reason=f"it could run beside {self._items[turn].kernel.name}, but {why}",
        )
        return choice == "together"

    def _waits(self, turn: int, other: int) -> bool:
        """Whether a serial launch that has time leaves its phase to the others."""
        choice = self._ledger.decide(
            rule="schedule.phase",
            site=self._items[turn].kernel.origin,
            subject=(*self._items[turn].subject, "beside", *self._items[other].subject),
            alternatives=(Alternative("together"), Alternative("later")),
            prefer="later",
            reason="it has time, and a single thread: others would have none of it",
        )
        return choice == "later"

    def _close(self, members: list[int]) -> None:
        for number in members:
            self._needs.finish(number)
        while self.first < len(self._items) and self._needs.placed(self.first):
            self.first += 1
        for number in members:
            self._live.finish(number, self.first)
