"""The inputs and outputs of segments, determined after all are explored, from the values that later ones need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opweld import ir
from opweld.frontend.infer import Trace
from opweld.frontend.interface import Interface
from opweld.frontend.segment import Variant
from opweld.frontend.values import free_symbols, values_read
from opweld.tensor.dim import Dim, FloorDiv, Mod, Symbol, atoms_of, symbols_of
from opweld.tensor.dtype import DType
from opweld.tensor.flow import LAST, Ending, Stack
from opweld.tensor.program import Guard, SymbolSource

KNOWN_LIMIT = 64
"""Values with at most this number of known elements are recomputed in each segment that reads them."""

Element: TypeAlias = "tuple[DType, tuple[int | None, ...]]"
"""An element of a stack: dtype and dims, None for dims that are not known."""

Stated: TypeAlias = "tuple[str, Dim]"
"""kind and dim of a guard."""

Pairs: TypeAlias = "tuple[tuple[ir.Value, ir.Value], ...]"


@dataclass(eq=False)
class SegmentRef:
    """The number of a segment, which may be set after other segments refer to it."""

    number: int = -1


@dataclass(frozen=True, eq=False)
class Found:
    """An inferred variant, and how it ends.

    `there` are the values in the environment when it begins. `stacks`, `appends`, `moves` and `next` are those of
    `Ending`, of values instead of names."""

    trace: Trace
    interface: Interface
    there: frozenset[ir.Value]
    before: frozenset[Stated] = frozenset()
    next: SegmentRef | None = None
    stacks: tuple[tuple[ir.Value, Element], ...] = ()
    appends: Pairs = ()
    moves: Pairs = ()

    @property
    def made(self) -> dict[ir.Value, None]:
        """The values that its nodes define, in order."""
        return {value: None for node in self.trace.nodes for value in node.outputs}

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The guards to check before it is chosen; that a size is not zero comes before guards that divide by it."""
        made = (*self.trace.assumptions.guards(), *self.trace.guards.values())
        made = sorted(made, key=lambda guard: _divides_by_sizes(guard.dim))
        return tuple(guard for guard in made if (guard.kind, guard.dim) not in self.before)

    @property
    def stated(self) -> frozenset[Stated]:
        """The conditions that hold after it was chosen."""
        return self.before | {(guard.kind, guard.dim) for guard in self.guards}


def _divides_by_sizes(dim: Dim) -> bool:
    return any(isinstance(atom, FloorDiv | Mod) and atom.right.constant is None for atom in atoms_of(dim))


def finished(graph: ir.Graph, segments: Sequence[Sequence[Found]]) -> list[list[Variant]]:
    """The variants of all segments, each with its inputs, outputs and ending."""
    environment = _Environment(graph, segments)
    return [
        [environment.variant(number, position, found) for position, found in enumerate(variants)]
        for number, variants in enumerate(segments)
    ]


class _Environment:
    def __init__(self, graph: ir.Graph, segments: Sequence[Sequence[Found]]) -> None:
        self._graph = graph
        self._segments = segments
        self._inputs = {
            found: self._inputs_of(found, number == 0) for number, variants in enumerate(segments) for found in variants
        }
        # By name: an expanded operator has new nodes in every variant.
        self._needed = {value.name for inputs in self._inputs.values() for value in inputs}
        for found in self._inputs:
            ends = (*found.moves, *found.appends, *self._final(found))
            self._needed |= {found.trace.resolved(value).name for _, value in ends}

    def variant(self, number: int, position: int, found: Found) -> Variant:
        """One variant, complete."""
        inputs = self._inputs[found]
        guards = found.guards
        used = self._used(found, number == 0)
        for guard in guards:
            used |= symbols_of(guard.dim)
        outputs, ending = self._outputs(found, number)
        return Variant(
            name=self._name(number, position),
            graph=self._graph,
            nodes=tuple(found.trace.nodes),
            inputs=tuple(inputs),
            outputs=outputs,
            facts=found.trace.facts,
            aliases=found.trace.aliases,
            symbols=self._sources(found, used, inputs),
            guards=guards,
            ending=ending,
        )

    def _name(self, number: int, position: int) -> str:
        own = f"variant{position}" if len(self._segments[number]) > 1 else "main"
        return own if len(self._segments) == 1 else f"segment{number}_{own}"

    # -------------------------------------------------------------------------------------------------------- inputs

    def _inputs_of(self, found: Found, first: bool) -> list[ir.Value]:
        """The values that a variant reads from the environment: for its nodes, and for the sizes that they need."""
        if first:
            return list(self._graph.inputs)
        trace = found.trace
        read = dict.fromkeys(self._read(found))
        there = {value.name: value for value in found.there}
        used = self._used(found, False)
        for guard in found.guards:
            used |= symbols_of(guard.dim)
        while True:
            sources = self._sources(found, used, read)
            missing = [there[source.input] for source in sources if there[source.input] not in read]
            if not missing:
                return [value for value in read if trace.resolved(value) is value]
            for value in missing:
                read[value] = None
                for dim in trace.fact(value).shape:
                    used |= symbols_of(dim)

    def _read(self, found: Found) -> Iterator[ir.Value]:
        trace = found.trace
        reads = [value for node in trace.nodes for value in values_read(node)]
        tracked = {name for name, _, by_value in found.interface.origins.values() if by_value}
        for value in map(trace.resolved, (*reads, *(value for _, value in (*found.moves, *found.appends)))):
            fact = trace.facts.get(value)
            if value not in found.there or value in found.made or fact is None or fact.constant is not None:
                continue
            known = fact.elements is not None and fact.elements.size <= KNOWN_LIMIT and value.name not in tracked
            if not known:
                yield value

    def _used(self, found: Found, first: bool) -> frozenset[Symbol]:
        """The symbols in the shapes and elements of the values that a variant uses."""
        trace = found.trace
        if first:
            return free_symbols(trace.facts)
        touched = {trace.resolved(v) for node in trace.nodes for v in (*values_read(node), *node.outputs)}
        touched |= {trace.resolved(value) for _, value in (*found.moves, *found.appends, *self._final(found))}
        return free_symbols({value: trace.facts[value] for value in touched if value in trace.facts})

    def _sources(
        self, found: Found, used: frozenset[Symbol], given: Mapping[ir.Value, None] | Sequence[ir.Value]
    ) -> tuple[SymbolSource, ...]:
        return found.interface.sources(found.trace.assumptions, used, {value.name or "" for value in given})

    # ------------------------------------------------------------------------------------------------------- outputs

    def _final(self, found: Found) -> Iterator[tuple[ir.Value, ir.Value]]:
        """(output of the model, its value) where the run ends."""
        if found.next is None:
            yield from ((value, found.trace.resolved(value)) for value in self._graph.outputs)

    def _outputs(self, found: Found, number: int) -> tuple[tuple[tuple[str, ir.Value], ...], Ending]:
        """The values that a variant adds to the environment, and its ending."""
        if len(self._segments) == 1:
            return tuple((value.name or "", value) for value in self._graph.outputs), LAST
        trace = found.trace
        outputs = {value.name or "": value for value in found.made if value.name in self._needed}

        def name_of(value: ir.Value) -> str:
            """The name of a value in the environment, to which it is added if missing."""
            value = trace.resolved(value)
            if value not in found.there:
                outputs[value.name or ""] = value
            return value.name or ""

        moves = [(name.name or "", name_of(value)) for name, value in (*found.moves, *self._final(found))]
        appends = [(stack.name or "", name_of(value)) for stack, value in found.appends]
        stacks = [
            Stack(value.name or "", dtype, tuple(0 if dim is None else dim for dim in dims))
            for value, (dtype, dims) in found.stacks
        ]
        kept = tuple((to, value) for to, value in moves if to != value)
        following = None if found.next is None else found.next.number
        return tuple(outputs.items()), Ending(following, tuple(stacks), tuple(appends), kept)
