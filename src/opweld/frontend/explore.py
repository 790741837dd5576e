"""The segments of a model and the variants of each: inference makes the assumptions it needs, and then runs once more
under them.

That last pass needs none, so it sees every node under all of them; a model without any is inferred once. What it defers
becomes a segment after it, explored under what the variant assumes; a Loop becomes a segment that follows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.assume import Assumptions
from opweld.frontend.environment import Element, Found, Stated, finished
from opweld.frontend.infer import (
    Again,
    Fork,
    Prelude,
    Trace,
    initial_facts,
    is_unknown,
    values_read,
)
from opweld.frontend.interface import Interface, check_interface, interface_of
from opweld.frontend.loops import LoopParts, loop_parts
from opweld.frontend.names import Names
from opweld.frontend.segment import Variant
from opweld.ops.fact import Fact
from opweld.ops.operands import describe
from opweld.tensor.dim import ZERO, as_dim

MAX_VARIANTS = 16
MAX_ASSUMPTIONS = 256
MAX_SEGMENTS = 64


def segments(model: ir.Model, dims: Mapping[str, int] | None = None) -> list[list[Variant]]:
    """The segments of a loaded model, the first one first; of each all variants, the likeliest first.

    `dims` fixes dynamic dims by name. A condition on sizes or on small integer values forks: both outcomes are tried,
    those that contradict the model are dropped. Raises ModelError or UnsupportedError of the first outcome when none is
    left.
    """
    return _Model(model.graph, dims or {}).run()


def variants(model: ir.Model, dims: Mapping[str, int] | None = None) -> list[Variant]:
    """All variants of a model that is one segment; UnsupportedError for one that is several."""
    found = segments(model, dims)
    if len(found) > 1:
        raise UnsupportedError(f"the model decides as it runs: it has {len(found)} segments")
    return found[0]


@dataclass(frozen=True, eq=False)
class _Start:
    """Where a segment, or some of its variants, begins.

    Attributes:
        nodes: what is left to compute, in order. then: how a variant ends that has computed all of it.
        known: facts of everything that was inferred before. there: the values that are in the environment.
        prelude: what comes before the segments of a node.
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


class _Model:
    """Explores segment by segment, from the first one on."""

    def __init__(self, graph: ir.Graph, dims: Mapping[str, int]) -> None:
        self.graph, self.dims = graph, dims
        self.found: list[list[Found]] = []
        self.names = Names(graph)
        self._loops: dict[ir.Node, LoopParts] = {}
        self._added: dict[ir.Value, list[Fact]] = {}

    def run(self) -> list[list[Variant]]:
        check_interface(self.graph)
        interface = interface_of(self.graph, self.dims)
        known = {**initial_facts(self.graph), **interface.facts}
        first = _Start(list(self.graph), self._done, interface, known, frozenset(self.graph.inputs), self._prelude)
        self._segment([lambda number: first])
        return finished(self.graph, self.found)

    def _done(self, found: Found) -> Found:
        for value in self.graph.outputs:
            found.trace.fact(value)
        return found

    def _segment(self, starts: Sequence[Callable[[int], _Start]]) -> int:
        """Explores a segment, from each start in turn, and all that follow it; returns its number."""
        number = len(self.found)
        if number >= MAX_SEGMENTS:
            raise UnsupportedError(f"the model has more than {MAX_SEGMENTS} segments that hang on data")
        self.found.append([])
        for start in starts:
            self.found[number] += self._complete(start(number))
        return number

    def _complete(self, start: _Start) -> list[Found]:
        """The variants from one start, with the segments that follow each."""
        complete: list[Found] = []
        errors: list[ModelError | UnsupportedError] = []
        for trace, interface in _Exploration(start).run():
            kept = len(self.found)
            try:
                complete.append(self._followed(start, Found(trace, interface, start.there, start.before)))
            except (ModelError, UnsupportedError) as error:
                errors.append(error)
                del self.found[kept:]
        if not complete:
            raise errors[0]
        return complete

    def _followed(self, start: _Start, found: Found) -> Found:
        trace = found.trace
        if not trace.deferred:
            return start.then(found)
        late = {value for node in trace.deferred for value in node.outputs}
        for node in trace.deferred:
            if node.op_type == "Loop" and not any(trace.resolved(value) in late for value in values_read(node)):
                return self._looped(start, found, node)
        if not trace.nodes:
            raise trace.refused[0]  # nothing can be computed first
        following = self._after(start, found, [*trace.replayed, *trace.deferred])
        return replace(found, next=self._segment([lambda number: following]))

    def _after(self, start: _Start, found: Found, nodes: Sequence[ir.Node]) -> _Start:
        """The start of what follows a variant."""
        trace = found.trace
        return replace(
            start,
            nodes=nodes,
            interface=found.interface,
            known=dict(trace.facts),
            there=found.there | found.made.keys(),
            aliases=dict(trace.aliases),
            assumptions=trace.assumptions,
            before=found.stated,
        )

    # -------------------------------------------------------------------------------------------------------- loops

    def _parts(self, node: ir.Node) -> LoopParts:
        if node not in self._loops:
            self._loops[node] = loop_parts(node, self.names.fresh)
        return self._loops[node]

    def _prelude(self, node: ir.Node) -> Prelude:
        parts = self._parts(node)
        return parts.before, parts.constants

    def _looped(self, start: _Start, found: Found, node: ir.Node) -> Found:
        """A variant followed by a loop: a segment that is entered for each iteration, and then for what comes after.

        The states have the shapes that they begin with, unless an iteration changes a dim: then that dim is free."""
        loop = self._parts(node)
        after = self._after(start, found, [other for other in found.trace.deferred if other is not node])
        free: dict[ir.Value, frozenset[int]] = {}
        while True:
            kept = len(self.found)
            entered = self._entered(after, loop, free)
            try:
                number = self._segment(
                    [
                        lambda number, entered=entered: self._iteration(entered, loop, free, number),
                        lambda number, entered=entered: self._over(entered, loop),
                    ]
                )
            except _WidenError as wider:
                del self.found[kept:]
                free[wider.state] = free.get(wider.state, frozenset()) | wider.axes
                continue
            break
        stacks = tuple((output, self._element(loop, added)) for output, added in loop.stacked)
        moves = tuple((name, first) for name, first, _ in loop.moves)
        return replace(found, next=number, stacks=stacks, moves=moves)

    def _entered(self, after: _Start, loop: LoopParts, free: Mapping[ir.Value, frozenset[int]]) -> _Start:
        """What is known when an iteration begins, or the loop is over."""
        interface, known = after.interface, {**after.known, **initial_facts(loop.body), **loop.constants}
        for name, first, _ in loop.moves:
            fact = known[_resolved(after.aliases, first)]
            interface = interface.sized(name, fact, free.get(name, frozenset()))
            known[name] = interface.facts[name]
        interface = interface.tracking([loop.go], known)
        known[loop.go] = interface.facts[loop.go]
        there = after.there | {name for name, _, _ in loop.moves}
        return replace(after, interface=interface, known=known, there=there)

    def _iteration(
        self, entered: _Start, loop: LoopParts, free: Mapping[ir.Value, frozenset[int]], number: int
    ) -> _Start:
        """The body, after which the segment begins again."""

        def back(found: Found) -> Found:
            for name, _, following in loop.moves:
                axes = _changed(loop, found.trace, name, following) - free.get(name, frozenset())
                if axes:
                    raise _WidenError(name, axes)
            for _, added in loop.stacked:
                self._added.setdefault(added, []).append(found.trace.fact(added))
            moves = tuple((name, following) for name, _, following in loop.moves)
            return replace(found, next=number, appends=loop.stacked, moves=moves)

        goes_on = _deciding(entered, loop, 1, "goes on")
        return replace(entered, nodes=[*loop.body, *loop.after], then=back, assumptions=goes_on)

    def _over(self, entered: _Start, loop: LoopParts) -> _Start:
        """What comes after the loop: its states are what they are, its stacks as long as they have become."""
        interface, known, aliases = entered.interface, dict(entered.known), dict(entered.aliases)
        for output, state in loop.results:
            aliases[output] = state
        for output, added in loop.stacked:
            dtype, dims = self._element(loop, added)
            fact = Fact(dtype, (ZERO, *(ZERO if dim is None else as_dim(dim) for dim in dims)))
            interface = interface.sized(output, fact, {0, *(i + 1 for i, dim in enumerate(dims) if dim is None)})
            known[output] = interface.facts[output]
        over = _deciding(entered, loop, 0, "is over")
        there = entered.there | {output for output, _ in loop.stacked}
        return replace(entered, interface=interface, known=known, there=there, aliases=aliases, assumptions=over)

    def _element(self, loop: LoopParts, added: ir.Value) -> Element:
        """dtype and dims of what iterations add to a stack; None for dims that differ or are not known."""
        facts = self._added[added]
        if len({(fact.dtype, fact.rank) for fact in facts}) > 1:
            raise UnsupportedError(f"{describe(loop.node)}: what it stacks ({added.name!r}) has no one dtype and rank")
        columns = zip(*(fact.shape for fact in facts), strict=True)
        return facts[0].dtype, tuple(dims[0].constant if len(set(dims)) == 1 else None for dims in columns)


def _changed(loop: LoopParts, trace: Trace, name: ir.Value, following: ir.Value) -> frozenset[int]:
    """The axes of a state along which an iteration changes its size."""
    before, after = trace.fact(name), trace.fact(following)
    if before.dtype is not after.dtype or before.rank != after.rank:
        raise ModelError(
            f"{describe(loop.node)}: state {name.name!r} is {before.dtype!r}{list(before.shape)} before an iteration "
            f"and {after.dtype!r}{list(after.shape)} after it"
        )
    pairs = enumerate(zip(before.shape, after.shape, strict=True))
    return frozenset(axis for axis, (old, new) in pairs if old is not new)


def _deciding(entered: _Start, loop: LoopParts, value: int, what: str) -> Assumptions:
    elements = entered.interface.facts[loop.go].elements
    assert elements is not None
    (go,) = elements.flat
    return entered.assumptions.decided("zero", go - value, True, f"{describe(loop.node)} {what}")


def _resolved(aliases: Mapping[ir.Value, ir.Value], value: ir.Value) -> ir.Value:
    while value in aliases:
        value = aliases[value]
    return value


class _WidenError(Exception):
    """An iteration of a loop changes dims of a state that were taken to stay."""

    def __init__(self, state: ir.Value, axes: frozenset[int]) -> None:
        super().__init__()
        self.state, self.axes = state, axes


class _Exploration:
    """The variants from one start: each a pass that made no assumption of its own, and its interface."""

    def __init__(self, start: _Start) -> None:
        self.start = start
        self.by_value: dict[ir.Value, None] = {}
        self.todo: list[Assumptions] = []
        self.general: list[Assumptions] = []
        self.found: list[tuple[Trace, Interface]] = []
        self.errors: list[ModelError | UnsupportedError] = []
        self.assumed = 0

    def run(self) -> list[tuple[Trace, Interface]]:
        while True:
            self.todo, self.general, self.found, self.errors = [self.start.assumptions], [], [], []
            try:
                while self.todo:
                    self._settle(self.todo.pop())
                while self.general and self.found and len(self.found) < MAX_VARIANTS:
                    self.todo.append(self.general.pop(0))
                    while self.todo:
                        self._settle(self.todo.pop())
            except _ByValue as demand:
                self.by_value |= dict.fromkeys(sorted(demand.values, key=lambda value: value.name or ""))
                continue
            break
        if not self.found:
            raise self.errors[0]
        return self.found

    def _settle(self, assumptions: Assumptions) -> None:
        """Infers until a pass makes no assumption, and keeps the variant, or the error that ended it."""
        start = self.start
        interface = start.interface.tracking(self.by_value, start.known)
        known = {**start.known, **{value: interface.facts[value] for value in self.by_value}}
        trackable = {value for value in start.there if value not in self.by_value and is_unknown(known[value])}
        self.assumed = 0
        while True:
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
            # What failed after an assumption, or was inferred before it, may be better known under it.
            assumptions = trace.assumptions

    def _extended(self, assumptions: Assumptions, demand: Again | Fork) -> Assumptions:
        """The assumptions with the one that a node needs: of a fork the first outcome; the other is left to do."""
        self.assumed += 1
        if self.assumed > MAX_ASSUMPTIONS:
            raise _TooManyError(
                f"the sizes of this model need more than {MAX_ASSUMPTIONS} assumptions. Fix some dims (--dim NAME=N)."
            )
        if isinstance(demand, Fork):
            self._fork(assumptions, demand)
            extended = assumptions.decided(demand.kind, demand.dim, True, demand.reason)
        else:
            extended = demand.assumptions
            if extended.divides and not assumptions.divides:
                # Multiples make the simplest program; sizes that fit by rounding alone get one of their own.
                self.general.append(replace(assumptions, general=True))
        _check_consistent(extended)
        return extended

    def _fork(self, assumptions: Assumptions, fork: Fork) -> None:
        if len(self.todo) + len(self.found) + 1 >= MAX_VARIANTS:
            raise _TooManyError(
                f"{fork.reason}: the model has more than {MAX_VARIANTS} variants that hang on sizes or small inputs. "
                "Fix some dims (--dim NAME=N)."
            )
        negation = {"zero": "!=", "least": "<"}[fork.kind]
        reason = (
            fork.reason.replace("== 0", "!= 0") if fork.kind == "zero" else fork.reason.replace(">= 0", f"{negation} 0")
        )
        self.todo.append(assumptions.decided(fork.kind, fork.dim, False, reason))

    def _demand_values(self, trace: Trace, error: Exception) -> None:
        """Starts all over when the failed node depends on small integer values that nobody tracks yet."""
        if trace.current is not None:
            wanted = trace.unknown_elements(trace.current, error).given
            if wanted:
                raise _ByValue(wanted)


class _ContradictionError(ModelError):
    """No sizes fulfil the assumptions."""


class _TooManyError(UnsupportedError):
    """The model needs more assumptions or variants than there may be."""


def _check_consistent(assumptions: Assumptions) -> None:
    broken = assumptions.contradiction()
    if broken is not None:
        raise _ContradictionError(f"{broken.reason}: this contradicts the other sizes")


class _ByValue(Exception):  # noqa: N818 - control flow, no error
    def __init__(self, values: Set[ir.Value]) -> None:
        super().__init__()
        self.values = values
