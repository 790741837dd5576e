"""What a kernel is predicted to take for each schedule that it may have: it is made as the schedule says, and read by
`tile.predict`. Kernels that are alike, as those of a model's layers, are asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opweld.place.placed import Placed
from opweld.schedule.expected import Expected
from opweld.schedule.schedule import MemberSchedule
from opweld.target import Target
from opweld.tile.loops import tune_loops
from opweld.tile.member import MapMember, ReductionMember
from opweld.tile.predict import predict
from opweld.tile.traffic import weights_of
from opweld.tile.unscheduled import UnscheduledKernel

Price = Callable[[MemberSchedule], tuple[float, ...]]
"""Seconds of a kernel on one core when its only member is computed so: at the expected sizes, and at others where any
may come (`Expected.elsewhere`)."""


class Pricing:
    """The predictions of one program."""

    def __init__(self, placed: Placed, expected: Expected, target: Target) -> None:
        self._dtypes = {storage.root: storage.dtype for storage in placed.storages.values()}
        self._weights = weights_of(placed)
        self._expected = expected
        self._target = target
        self._known: dict[object, dict[MemberSchedule, tuple[float, ...]]] = {}

    def of(self, kernel: UnscheduledKernel) -> Price | None:
        """The predictions for a kernel of one member, a nest; None for others."""
        member = kernel.members[0] if len(kernel.members) == 1 else None
        if not isinstance(member, ReductionMember | MapMember):
            return None
        alike: dict[MemberSchedule, tuple[float, ...]] | None = None
        elsewhere = self._expected.elsewhere(axis.extent for axis in member.nest.axes)

        def price(schedule: MemberSchedule) -> tuple[float, ...]:
            nonlocal alike
            if alike is None:
                alike = self._known.setdefault(self._identity(kernel.kind, member), {})
            if schedule not in alike:
                alike[schedule] = self._predicted(kernel, schedule, elsewhere)
            return alike[schedule]

        return price

    def _identity(self, kind: str, member: ReductionMember | MapMember) -> object:
        """What kernels have in common that take the same for the same schedule."""
        text, memory = member.identity()
        return kind, text, tuple((self._dtypes[name], name in self._weights.names) for name in memory)

    def _predicted(
        self, kernel: UnscheduledKernel, schedule: MemberSchedule, elsewhere: Sequence[Expected]
    ) -> tuple[float, ...]:
        realised = kernel.realise(kernel.kind, [schedule], self._target, self._dtypes)
        realised = tune_loops(realised, self._target, expected=self._expected, weights=self._weights.bytes)
        sizes = (self._expected, *elsewhere)
        return tuple(predict(realised, self._target, expected, self._weights).cost.seconds for expected in sizes)
