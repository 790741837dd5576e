"""Explores a segment from one start: inference makes the assumptions it needs, then runs once more under all of them.

The last pass makes no new one, so it infers every node under all assumptions; without any, inference runs once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.assume import Assumptions
from opweld.frontend.environment import Found, Stated
from opweld.frontend.infer import Again, Fork, Prelude, Trace
from opweld.frontend.interface import Interface
from opweld.frontend.values import is_unknown
from opweld.ops.fact import Fact
from opweld.tensor.dim import ZERO, Dim

MAX_VARIANTS = 16
MAX_VISITS = 64
"""The limit of variants times nodes, which allows small segments more variants."""

MAX_ASSUMPTIONS = 256


@dataclass(frozen=True, eq=False)
class Start:
    """The state in which a segment, or some of its variants, begins.

    Attributes:
        nodes: the remaining nodes, in order. then: completes a variant after them.
        known: facts of earlier values. there: the values in the environment.
        prelude: the nodes that must run before the segments of a Loop.
        before: guards that hold already.
    """

    nodes: Sequence[ir.Node]
    then: Callable[[Found], Found]
    interface: Interface
    known: Mapping[ir.Value, Fact]
    there: frozenset[ir.Value]
    prelude: Callable[[ir.Node], Prelude]
    aliases: Mapping[ir.Value, ir.Value] = field(default_factory=dict[ir.Value, ir.Value])
    assumptions: Assumptions = field(default_factory=Assumptions)
    before: frozenset[Stated] = frozenset()


class Exploration:
    """The variants from one start: each from a pass without new assumptions, and its interface."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.by_value: dict[ir.Value, None] = {}
        self.assumptions = start.assumptions
        self.todo: list[Assumptions] = []
        self.optional: list[Assumptions] = []
        self.found: list[tuple[Trace, Interface]] = []
        self.errors: list[ModelError | UnsupportedError] = []
        self.assumed = 0

    def run(self) -> list[tuple[Trace, Interface]]:
        """All variants, the likeliest first. Raises ModelError or UnsupportedError if there is none."""
        while True:
            self.todo, self.optional, self.found, self.errors = [self.assumptions], [], [], []
            try:
                while self.todo:
                    self._settle(self.todo.pop())
                while self.optional and len(self.found) < MAX_VARIANTS:
                    self._try(self.optional.pop(0))
            except _ByValue as demand:
                for value in sorted(demand.shapes, key=lambda value: value.name or ""):
                    self._track(value, demand.shapes[value])
                continue
            break
        if not self.found:
            raise self.errors[0]
        return self.found

    def _track(self, value: ir.Value, shape: Sequence[Dim]) -> None:
        """Tracks the elements of a value, as many as the operator that needs them assumed."""
        self.by_value[value] = None
        for declared, dim in zip(self.start.known[value].shape, shape, strict=True):
            left = self.assumptions.rewrite(declared - dim)
            if left is not ZERO:
                self.assumptions = self.assumptions.equal(left, f"the elements of {value.name!r} determine shapes")

    def _try(self, assumptions: Assumptions) -> None:
        """The variants under additional assumptions; none, if they would be too many."""
        if not self.found and not assumptions.unexpected:
            return  # general sizes fail as multiples did
        self.todo.append(assumptions)
        try:
            while self.todo:
                self._settle(self.todo.pop())
        except _TooManyError as error:
            self.todo.clear()
            self.errors.append(error)

    def _settle(self, assumptions: Assumptions) -> None:
        """Infers until a pass makes no assumption, and keeps the variant, or the error that ended it."""
        start = self.start
        shaped = {value: _reshaped(start.known[value], self.assumptions) for value in self.by_value}
        interface = start.interface.tracking(self.by_value, shaped)
        known = {**start.known, **{value: interface.facts[value] for value in self.by_value}}
        self.assumed = 0
        while True:
            trackable = {
                value
                for value in start.there
                if value not in self.by_value and is_unknown(_reshaped(known[value], assumptions))
            }
            trace = Trace(assumptions, self._extended, aliases=start.aliases, trackable=trackable, before=start.prelude)
            try:
                _check_consistent(assumptions)
                trace.run(start.nodes, known)
            except _ContradictionError as error:
                self.errors.append(error)
                return
            except _TooManyError:
                raise
            except (ModelError, UnsupportedError) as error:
                if trace.assumptions is assumptions:
                    self._demand_values(trace, error)
                    self.errors.append(error)
                    return
            else:
                if trace.assumptions is assumptions:
                    self.found.append((trace, interface))
                    return
            # Nodes that failed, or were inferred, before the assumption may have better facts under it.
            assumptions = trace.assumptions

    def _extended(self, assumptions: Assumptions, demand: Again | Fork) -> Assumptions:
        """The assumptions with the one that a node needs; of a fork, the likelier outcome: the other is queued."""
        self.assumed += 1
        if self.assumed > MAX_ASSUMPTIONS:
            raise _TooManyError(
                f"the sizes of this model need more than {MAX_ASSUMPTIONS} assumptions. "
                "Fix some dims (dims={NAME: N}, --dim NAME=N)."
            )
        if isinstance(demand, Fork):
            if not demand.expected:
                self.todo.append(self._otherwise(assumptions, demand))
            elif not (assumptions.unexpected or assumptions.general):
                self.optional.append(replace(self._otherwise(assumptions, demand), unexpected=True))
            extended = assumptions.decided(demand.kind, demand.dim, True, demand.reason)
        else:
            extended = demand.assumptions
            if extended.divides and not assumptions.divides:
                # Divisible sizes give the simplest program; others get a variant of their own.
                self.optional.append(replace(assumptions, general=True))
        _check_consistent(extended)
        return extended

    def _otherwise(self, assumptions: Assumptions, fork: Fork) -> Assumptions:
        """The assumptions with the other outcome of a fork."""
        most = max(MAX_VARIANTS, MAX_VISITS // len(self.start.nodes))
        if not fork.expected and len(self.todo) + len(self.found) + 1 >= most:
            raise _TooManyError(
                f"{fork.reason}: the model has more than {most} variants that depend on sizes or small inputs. "
                "Fix some dims (dims={NAME: N}, --dim NAME=N)."
            )
        return assumptions.decided(fork.kind, fork.dim, False, fork.otherwise)

    def _demand_values(self, trace: Trace, error: Exception) -> None:
        """Starts over when the failed node depends on small integer values that are not tracked yet."""
        if trace.current is not None:
            wanted = trace.unknown_elements(trace.current, error).given
            if wanted:
                raise _ByValue({value: trace.fact(value).shape for value in wanted})


def _reshaped(fact: Fact, assumptions: Assumptions) -> Fact:
    return replace(fact, shape=tuple(map(assumptions.rewrite, fact.shape)))


class _ContradictionError(ModelError):
    """No sizes satisfy the assumptions."""


class _TooManyError(UnsupportedError):
    """The model needs more assumptions or variants than the limit."""


def _check_consistent(assumptions: Assumptions) -> None:
    broken = assumptions.contradiction()
    if broken is not None:
        raise _ContradictionError(f"{broken.reason}: this contradicts the other sizes")


class _ByValue(Exception):  # noqa: N818 - control flow, not an error
    def __init__(self, shapes: Mapping[ir.Value, Sequence[Dim]]) -> None:
        super().__init__()
        self.shapes = shapes
