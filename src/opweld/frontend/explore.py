"""The variants of a model: inference makes the assumptions it needs, and then runs once more under them.

That last pass needs none, so it sees every node under all of them; a model without any is inferred once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.assume import Assumptions
from opweld.frontend.infer import Again, Fork, Trace, free_symbols
from opweld.frontend.interface import Interface, check_interface, interface_of, may_be_shape
from opweld.ops.fact import Fact
from opweld.tensor.dim import Symbol, symbols_of
from opweld.tensor.program import Guard, SymbolSource

MAX_VARIANTS = 16
MAX_ASSUMPTIONS = 256


@dataclass(frozen=True, eq=False)
class Variant:
    """A model under assumptions: a flat list of nodes, with the chosen bodies of Ifs in place of the Ifs.

    `aliases` maps outputs of such Ifs to the values of their bodies. `outputs` are (public name, value).
    """

    name: str
    graph: ir.Graph
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[tuple[str, ir.Value], ...]
    facts: Mapping[ir.Value, Fact]
    aliases: Mapping[ir.Value, ir.Value]
    symbols: tuple[SymbolSource, ...]
    guards: tuple[Guard, ...]

    def resolve(self, value: ir.Value) -> ir.Value:
        """The value itself, or what it is another name of."""
        while value in self.aliases:
            value = self.aliases[value]
        return value


def variants(model: ir.Model, dims: Mapping[str, int] | None = None) -> list[Variant]:
    """All variants of a loaded model, the likeliest first; `dims` fixes dynamic dims by name.

    A condition on sizes or on small integer inputs forks: both outcomes are tried, those that contradict the model are
    dropped. Raises ModelError or UnsupportedError of the first outcome when none is left.
    """
    return _Exploration(model, dims or {}).run()


class _Exploration:
    def __init__(self, model: ir.Model, dims: Mapping[str, int]) -> None:
        self.graph, self.dims = model.graph, dims
        self.by_value: set[str] = set()
        self.todo: list[Assumptions] = []
        self.general: list[Assumptions] = []
        self.found: list[Variant] = []
        self.errors: list[ModelError | UnsupportedError] = []
        self.assumed = 0

    def run(self) -> list[Variant]:
        check_interface(self.graph)
        while True:
            self.todo, self.general, self.found, self.errors = [Assumptions()], [], [], []
            try:
                while self.todo:
                    self._settle(self.todo.pop())
                while self.general and self.found and len(self.found) < MAX_VARIANTS:
                    self.todo.append(self.general.pop(0))
                    while self.todo:
                        self._settle(self.todo.pop())
            except _ByValue as demand:
                self.by_value |= demand.inputs
                continue
            break
        if not self.found:
            raise self.errors[0]
        only = len(self.found) == 1
        return [
            replace(variant, name="main" if only else f"variant{number}") for number, variant in enumerate(self.found)
        ]

    def _settle(self, assumptions: Assumptions) -> None:
        """Infers until a pass makes no assumption, and keeps the variant, or the error that ended it."""
        interface = interface_of(self.graph, self.dims, self.by_value)
        self.assumed = 0
        while True:
            trace = Trace(assumptions, self._extended)
            try:
                _check_consistent(assumptions)
                trace.run(self.graph, interface.facts)
            except _ContradictionError as error:
                self.errors.append(error)
                return
            except _TooManyError:
                raise
            except (ModelError, UnsupportedError) as error:
                if trace.assumptions is assumptions:
                    self._demand_values(trace)
                    self.errors.append(error)
                    return
            else:
                if trace.assumptions is assumptions:
                    self.found.append(self._variant(trace, interface))
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

    def _demand_values(self, trace: Trace) -> None:
        """Starts all over when the failed node depends on small integer inputs whose values are not tracked yet."""
        if trace.current is None:
            return
        wanted = {value.name for value in _integer_ancestors(trace) if value.is_graph_input() and may_be_shape(value)}
        missing = {name for name in wanted if name is not None} - self.by_value
        if missing:
            raise _ByValue(missing)

    def _variant(self, trace: Trace, interface: Interface) -> Variant:
        guards = (*trace.assumptions.guards(), *trace.guards.values())
        used: frozenset[Symbol] = free_symbols(trace.facts)
        for guard in guards:
            used |= symbols_of(guard.dim)
        return Variant(
            name="",
            graph=self.graph,
            nodes=tuple(trace.nodes),
            inputs=tuple(self.graph.inputs),
            outputs=tuple((value.name or "", value) for value in self.graph.outputs),
            facts=trace.facts,
            aliases=trace.aliases,
            symbols=interface.sources(trace.assumptions, used),
            guards=guards,
        )


class _ContradictionError(ModelError):
    """No sizes fulfil the assumptions."""


class _TooManyError(UnsupportedError):
    """The model needs more assumptions or variants than there may be."""


def _check_consistent(assumptions: Assumptions) -> None:
    broken = assumptions.contradiction()
    if broken is not None:
        raise _ContradictionError(f"{broken.reason}: this contradicts the other sizes")


class _ByValue(Exception):  # noqa: N818 - control flow, no error
    def __init__(self, inputs: set[str]) -> None:
        super().__init__()
        self.inputs = inputs


def _integer_ancestors(trace: Trace) -> set[ir.Value]:
    """The integer and bool values that the failed node depends on, through integer and bool values only."""
    assert trace.current is not None
    seen: set[ir.Value] = set()
    stack = [value for value in trace.current.inputs if value is not None]
    while stack:
        value = stack.pop()
        value = trace.aliases.get(value, value)
        fact = trace.facts.get(value)
        if value in seen or fact is None or fact.dtype.is_float:
            continue
        seen.add(value)
        producer = value.producer()
        if producer is not None:
            stack.extend(parent for parent in producer.inputs if parent is not None)
    return seen
