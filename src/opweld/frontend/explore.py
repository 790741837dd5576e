"""Finds the segments of a model and the variants of each.

The nodes that inference defers form the next segment, which is explored under the assumptions of the variant before
it. An If whose condition is data becomes a segment with variants of both bodies, a Loop one that follows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from opweld import ir
from opweld.errors import ModelError, UnspecifiedError, UnsupportedError
from opweld.frontend.assume import Assumptions
from opweld.frontend.environment import Element, Found, SegmentRef, finished
from opweld.frontend.exploration import Exploration, Start
from opweld.frontend.infer import Prelude, Trace
from opweld.frontend.interface import Interface, check_interface, interface_of
from opweld.frontend.loops import LoopParts, loop_parts
from opweld.frontend.names import Names
from opweld.frontend.segment import Variant, resolved
from opweld.frontend.values import initial_facts, is_unknown, values_read
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, required
from opweld.ops.registry import UnknownElementsError, required_attribute
from opweld.tensor.dim import ZERO, as_dim, product, symbols_of

MAX_SEGMENTS = 64


def segments(
    graph: ir.Graph, dims: Mapping[str, int] | None = None, states: Collection[str] = ()
) -> list[list[Variant]]:
    """The variants of each segment of a graph, in order of execution, the likeliest variant first. `states`: inputs
    whose values live between runs.

    `dims` fixes dynamic dims by name. A condition on sizes or on small integer values forks: both outcomes are tried,
    those that contradict the model are dropped. Raises the ModelError or UnsupportedError of the first outcome when
    none is left.
    """
    explored = _Model(graph, dims or {}, states)
    try:
        return explored.run()
    except UnknownElementsError as error:
        if not explored.open:
            raise
        sizes = sorted(error.sizes & explored.open) or ["NAME"]
        remedies = " or ".join(f"dims={{{size!r}: N}} (--dim {size}=N)" for size in sizes)
        raise UnspecifiedError(f"{error} Fixing sizes of its inputs may help: {remedies}", "dims") from error


def variants(graph: ir.Graph, dims: Mapping[str, int] | None = None) -> list[Variant]:
    """All variants of a graph that has one segment; UnsupportedError where it has several."""
    found = segments(graph, dims)
    if len(found) > 1:
        raise UnsupportedError(f"the model has data-dependent control flow or sizes: {len(found)} segments")
    return found[0]


class _Model:
    """Explores segment by segment, from the first one on."""

    def __init__(self, graph: ir.Graph, dims: Mapping[str, int], states: Collection[str]) -> None:
        self.graph, self.dims, self.states = graph, dims, states
        self.open: frozenset[str] = frozenset()  # the sizes that inputs determine
        self.found: list[list[Found]] = []
        self.names = Names(graph)
        self._loops: dict[ir.Node, LoopParts] = {}
        self._added: dict[ir.Value, list[Fact]] = {}

    def run(self) -> list[list[Variant]]:
        check_interface(self.graph)
        interface = interface_of(self.graph, self.dims, self.states)
        self.open = frozenset(symbol.name for symbol in interface.origins)
        known = {**initial_facts(self.graph), **interface.facts}
        first = Start(list(self.graph), self._done, interface, known, frozenset(self.graph.inputs), self._prelude)
        self._segment([lambda number: first])
        return finished(self.graph, self.found)

    def _done(self, found: Found) -> Found:
        for value in self.graph.outputs:
            found.trace.fact(value)
        return found

    def _segment(self, starts: Sequence[Callable[[int], Start]]) -> int:
        """Explores a segment, from each start in turn, and all segments after it; returns its number."""
        number = len(self.found)
        if number >= MAX_SEGMENTS:
            raise UnsupportedError(f"the model has more than {MAX_SEGMENTS} segments that depend on data")
        self.found.append([])
        for start in starts:
            self.found[number] += self._complete(start(number))
        return number

    def _complete(self, start: Start) -> list[Found]:
        """The variants from one start, with the segments that follow each."""
        complete: list[Found] = []
        errors: list[ModelError | UnsupportedError] = []
        for trace, interface in Exploration(start).run():
            kept = len(self.found)
            try:
                complete.append(self._followed(start, Found(trace, interface, start.there, start.before)))
            except (ModelError, UnsupportedError) as error:
                errors.append(error)
                del self.found[kept:]
        if not complete:
            raise errors[0]
        return complete

    def _followed(self, start: Start, found: Found) -> Found:
        trace = found.trace
        if not trace.deferred:
            return start.then(found)
        late = {value for node in trace.deferred for value in node.outputs}
        for node in trace.deferred:
            if any(trace.resolved(value) in late for value in values_read(node)):
                continue
            if node.op_type == "Loop":
                return self._looped(start, found, node)
            branched = self._branched(start, found, node) if node.op_type == "If" else None
            if branched is not None:
                return branched
        if not trace.nodes:
            raise trace.refused[0]  # nothing can be computed first
        following = self._after(start, found, trace.deferred)
        return replace(found, next=SegmentRef(self._segment([lambda number: following])))

    def _after(self, start: Start, found: Found, nodes: Sequence[ir.Node]) -> Start:
        """The start of the segment after a variant: `nodes`, and those that compute the elements they need."""
        trace = found.trace
        return replace(
            start,
            nodes=[*trace.replayed, *nodes],
            interface=found.interface,
            known=dict(trace.facts),
            there=found.there | found.made.keys(),
            aliases=dict(trace.aliases),
            assumptions=trace.assumptions,
            before=found.stated,
        )

    # ----------------------------------------------------------------------------------------------------- branches

    def _branched(self, start: Start, found: Found, node: ir.Node) -> Found | None:
        """A variant followed by an If on data: a segment with variants of both bodies, then one that follows either.

        None where the outputs of the bodies differ in rank, so that no common segment can follow; then each outcome
        has its own segments up to the end."""
        after = self._after(start, found, [other for other in found.trace.deferred if other is not node])
        condition = found.trace.resolved(required(node, 0))
        fact = after.known[condition]
        if not is_unknown(fact) or product(fact.shape).constant != 1:
            return None
        kept, place = len(self.found), SegmentRef()
        left: list[list[Fact]] = []

        def branch(body: ir.Graph, value: int) -> Start:
            def joined(inner: Found) -> Found:
                left.append([inner.trace.fact(output) for output in body.outputs])
                return replace(inner, next=place, moves=tuple(zip(node.outputs, body.outputs, strict=True)))

            interface = after.interface.tracking([condition], after.known)
            known = {**after.known, **initial_facts(body), condition: interface.facts[condition]}
            assumed = _decided(after.assumptions, interface, condition, value, f"{describe(node)} takes a branch")
            return replace(after, nodes=list(body), then=joined, interface=interface, known=known, assumptions=assumed)

        bodies = [required_attribute(node, name) for name in ("then_branch", "else_branch")]
        if any(body.inputs or len(body.outputs) != len(node.outputs) for body in bodies):
            raise ModelError(f"{describe(node)}: a branch must have no inputs and {len(node.outputs)} outputs")
        number = self._segment(
            [lambda _, body=body, value=value: branch(body, value) for body, value in zip(bodies, (1, 0), strict=True)]
        )
        if any(len({fact.rank for fact in facts}) > 1 for facts in zip(*left, strict=True)):
            del self.found[kept:]
            return None
        interface, known = after.interface, dict(after.known)
        for output, facts in zip(node.outputs, zip(*left, strict=True), strict=True):
            interface = interface.sized(output, _common(node, output, facts), _differing(facts, interface))
            known[output] = interface.facts[output]
        there = after.there | frozenset(node.outputs)
        rest = replace(after, interface=interface, known=known, there=there)
        place.number = self._segment([lambda _: rest])
        return replace(found, next=SegmentRef(number))

    # -------------------------------------------------------------------------------------------------------- loops

    def _parts(self, node: ir.Node) -> LoopParts:
        if node not in self._loops:
            self._loops[node] = loop_parts(node, self.names.fresh)
        return self._loops[node]

    def _prelude(self, node: ir.Node) -> Prelude:
        parts = self._parts(node)
        return parts.before, parts.constants

    def _looped(self, start: Start, found: Found, node: ir.Node) -> Found:
        """A variant followed by the segment of a Loop."""
        loop = self._parts(node)
        after = self._after(start, found, [other for other in found.trace.deferred if other is not node])
        kept = len(self.found)
        try:
            place = self._repeated(after, loop)
        except _RankError as error:
            if error.loop is not loop:
                raise
            del self.found[kept:]
            loop, place = self._peeled(after, loop)
        stacks = tuple((output, self._element(loop, added)) for output, added in loop.stacked)
        return replace(found, next=place, stacks=stacks, moves=loop.initial)

    def _repeated(self, after: Start, loop: LoopParts) -> SegmentRef:
        """The segment that runs each iteration of a loop, and after the last one the nodes that follow it.

        The states keep their initial shapes, unless an iteration changes a dim: then that dim is a symbol. Raises
        _RankError where an iteration changes a rank."""
        free: dict[ir.Value, frozenset[int]] = {}
        while True:
            kept = len(self.found)
            entered = self._entered(after, loop, free)

            def back(found: Found, number: int) -> Found:
                for name, _, following in loop.moves:
                    axes = _changed(loop, found.trace, name, following) - free.get(name, frozenset())
                    if axes:
                        raise _WidenError(loop, name, axes)
                for _, added in loop.stacked:
                    self._added.setdefault(added, []).append(found.trace.fact(added))
                moves = tuple((name, following) for name, _, following in loop.moves)
                return replace(found, next=SegmentRef(number), appends=loop.stacked, moves=moves)

            def again(number: int, entered: Start = entered, back: Callable[[Found, int], Found] = back) -> Start:
                return _iteration(entered, loop, lambda found: back(found, number))

            try:
                number = self._segment([again, lambda _, entered=entered: self._over(entered, loop)])
            except _WidenError as wider:
                if wider.loop is not loop:
                    raise
                del self.found[kept:]
                free[wider.state] = free.get(wider.state, frozenset()) | wider.axes
                continue
            return SegmentRef(number)

    def _peeled(self, after: Start, loop: LoopParts) -> tuple[LoopParts, SegmentRef]:
        """Peels the first iteration into a segment of its own, for a loop whose states change rank in it, as where
        exporters store a placeholder as the initial value. Returns the parts of that iteration."""
        copy = loop_parts(loop.node, self.names.fresh, self.names.copied(loop.body))
        first = replace(copy.beginning(loop.first_go, [begins for _, begins, _ in loop.carried]), stacked=loop.stacked)
        rest = loop.beginning(first.next_go, [following for _, _, following in first.carried])
        entered = self._entered(after, first, {})

        def on(found: Found) -> Found:
            for (_, added), (_, own) in zip(copy.stacked, loop.stacked, strict=True):
                self._added.setdefault(own, []).append(found.trace.fact(added))
            place = self._repeated(self._after(entered, found, entered.nodes), rest)
            return replace(found, next=place, appends=copy.stacked, moves=rest.initial)

        starts: list[Callable[[int], Start]] = [lambda _: _iteration(entered, first, on)]
        if after.known[resolved(after.aliases, first.first_go)].constant is None:
            starts.append(lambda _: self._over(entered, first))
        return first, SegmentRef(self._segment(starts))

    def _entered(self, after: Start, loop: LoopParts, free: Mapping[ir.Value, frozenset[int]]) -> Start:
        """The start of a segment before it is known whether another iteration follows."""
        interface, known = after.interface, {**after.known, **initial_facts(loop.body), **loop.constants}
        for name, first, _ in loop.moves:
            fact = known[resolved(after.aliases, first)]
            interface = interface.sized(name, fact, free.get(name, frozenset()))
            known[name] = interface.facts[name]
        interface = interface.tracking([loop.go], known)
        known[loop.go] = interface.facts[loop.go]
        there = after.there | {name for name, _, _ in loop.moves}
        aliases = {**after.aliases, **dict(loop.unchanged)}
        return replace(after, interface=interface, known=known, there=there, aliases=aliases)

    def _over(self, entered: Start, loop: LoopParts) -> Start:
        """The start of the nodes after the loop: final states, and stacks whose length is a symbol."""
        interface, known, aliases = entered.interface, dict(entered.known), dict(entered.aliases)
        for output, state in loop.results:
            aliases[output] = state
        for output, added in loop.stacked:
            dtype, dims = self._element(loop, added)
            fact = Fact(dtype, (ZERO, *(ZERO if dim is None else as_dim(dim) for dim in dims)))
            interface = interface.sized(output, fact, {0, *(i + 1 for i, dim in enumerate(dims) if dim is None)})
            known[output] = interface.facts[output]
        over = _decided(entered.assumptions, entered.interface, loop.go, 0, f"{describe(loop.node)} is over")
        there = entered.there | {output for output, _ in loop.stacked}
        return replace(entered, interface=interface, known=known, there=there, aliases=aliases, assumptions=over)

    def _element(self, loop: LoopParts, added: ir.Value) -> Element:
        """dtype and dims of the elements of a stack; None for dims that differ between iterations or are not known."""
        facts = self._added[added]
        if len({(fact.dtype, fact.rank) for fact in facts}) > 1:
            raise UnsupportedError(f"{describe(loop.node)}: it stacks {added.name!r} of several dtypes or ranks")
        columns = zip(*(fact.shape for fact in facts), strict=True)
        return facts[0].dtype, tuple(dims[0].constant if len(set(dims)) == 1 else None for dims in columns)


def _iteration(entered: Start, loop: LoopParts, then: Callable[[Found], Found]) -> Start:
    """The start of an iteration: the nodes of the loop's body, then `then`."""
    reason = f"{describe(loop.node)} goes on"
    goes_on = _decided(entered.assumptions, entered.interface, loop.go, 1, reason)
    return replace(entered, nodes=[*loop.body, *loop.after], then=then, assumptions=goes_on)


def _changed(loop: LoopParts, trace: Trace, name: ir.Value, following: ir.Value) -> frozenset[int]:
    """The axes of a state along which an iteration changes its size."""
    before, after = trace.fact(name), trace.fact(following)
    if before.dtype is not after.dtype or before.rank != after.rank:
        why = (
            f"{describe(loop.node)}: state {name.name!r} is {before.dtype!r}{list(before.shape)} before an iteration "
            f"and {after.dtype!r}{list(after.shape)} after it"
        )
        raise ModelError(why) if before.dtype is not after.dtype else _RankError(loop, why)
    pairs = enumerate(zip(before.shape, after.shape, strict=True))
    return frozenset(axis for axis, (old, new) in pairs if old is not new)


def _decided(assumptions: Assumptions, interface: Interface, value: ir.Value, outcome: int, reason: str) -> Assumptions:
    """The assumptions, and that the only element of a tracked value equals `outcome` (0 or 1)."""
    elements = interface.facts[value].elements
    assert elements is not None
    (element,) = elements.flat
    return assumptions.decided("zero", element - outcome, True, reason)


def _common(node: ir.Node, output: ir.Value, facts: Sequence[Fact]) -> Fact:
    """The dtype and shape of an output of both branches; where dims differ, those of the first branch."""
    if len({fact.dtype for fact in facts}) > 1:
        kinds = " and ".join(sorted({repr(fact.dtype) for fact in facts}))
        raise ModelError(f"{describe(node)}: output {output.name!r} is {kinds}")
    return Fact(facts[0].dtype, facts[0].shape)


def _differing(facts: Sequence[Fact], interface: Interface) -> frozenset[int]:
    """The axes along which the branches' sizes differ, or depend on symbols that exist only inside a branch."""
    columns = enumerate(zip(*(fact.shape for fact in facts), strict=True))
    known = interface.origins.keys()
    return frozenset(axis for axis, dims in columns if len(set(dims)) > 1 or not symbols_of(dims[0]) <= known)


class _WidenError(Exception):
    """An iteration of a loop changes dims of a state that were assumed constant."""

    def __init__(self, loop: LoopParts, state: ir.Value, axes: frozenset[int]) -> None:
        super().__init__()
        self.loop, self.state, self.axes = loop, state, axes


class _RankError(Exception):
    """An iteration of a loop changes the rank of a state."""

    def __init__(self, loop: LoopParts, why: str) -> None:
        super().__init__(why)
        self.loop = loop
