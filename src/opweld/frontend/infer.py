"""One pass of inference: the facts of every value, under assumptions that grow as the pass goes on.

A node that needs an assumption is visited again once it is made, and earlier facts are rewritten when they are next
read. That loses only precision: a node visited earlier might infer more now. So the facts of a pass are final only when
it made no assumption at all; see `explore.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np

from opweld import ir
from opweld.errors import ModelError, OpweldError, UnsupportedError
from opweld.frontend.assume import Assumptions, primitive
from opweld.frontend.segment import resolved
from opweld.frontend.types import check_types
from opweld.frontend.values import initial_facts, is_unknown, values_read
from opweld.ops.elements import COMPARING, MOVING, TELLING, evaluate_elements, from_array, make, static_shape, to_array
from opweld.ops.fact import Elements, Fact
from opweld.ops.operands import describe
from opweld.ops.ratio import Ratio, as_ratio
from opweld.ops.registry import NeedsSegment, UnknownElementsError, inference_of
from opweld.tensor.dim import ONE, Dim, Symbol, TooLargeError, nonnegative, product, symbols_of
from opweld.tensor.dtype import DType
from opweld.tensor.program import Guard

MAX_RANK = 8
MAX_ELEMENTS = 1 << 62
"""The most elements of a value, by its known dims."""

SMALL_FLOATS = 64
"""The most elements of a float constant that is tracked for shape arithmetic (scales)."""


class Again(Exception):  # noqa: N818 - control flow, not an error
    """The node must be visited again under these assumptions."""

    def __init__(self, assumptions: Assumptions) -> None:
        super().__init__()
        self.assumptions = assumptions


class Fork(Exception):  # noqa: N818 - control flow, not an error
    """A condition that the assumptions do not determine: both outcomes are explored. If one is expected, the other is
    explored only below the limit of variants.

    Attributes:
        kind, dim: dim == 0 ("zero") or dim >= 0 ("least"). expected: whether it is expected to hold.
        reason, otherwise: the assumption if it holds, and if not, in words.
    """

    def __init__(self, kind: str, dim: Dim, about: str, why: str, *, why_not: str = "", expected: bool = False) -> None:
        holds, fails = ("==", "!=") if kind == "zero" else (">=", "<")
        self.reason, self.otherwise = f"{about} {holds} 0 ({why})", f"{about} {fails} 0 ({why_not or why})"
        super().__init__(self.reason)
        self.kind, self.dim, self.expected = kind, dim, expected


@dataclass
class Unknown:
    """Small integer values whose elements a node needs: `given` exist before the segment, `roots` are computed from
    other data, `links` are the nodes that compute the others from these."""

    given: set[ir.Value] = field(default_factory=set[ir.Value])
    roots: set[ir.Value] = field(default_factory=set[ir.Value])
    links: dict[ir.Node, None] = field(default_factory=dict[ir.Node, None])


Prelude: TypeAlias = "tuple[Sequence[ir.Node], Mapping[ir.Value, Fact]]"
"""Nodes, and the facts of the constants that they read."""

Demand: TypeAlias = Callable[[Assumptions, Again | Fork], Assumptions]
"""Called for a node that needs an assumption; returns the assumptions under which it is visited again."""


class Trace:
    """The `Inference` that operators see. After `run`: the `facts`, `nodes`, `aliases` and `guards` of one variant, and
    the `assumptions` as extended.

    A node whose shape needs the elements of a small integer value that this segment computes from data is `deferred`,
    with all that depends on it: it belongs to a later segment, which begins when the elements are known. So is a Loop.
    `replayed` are nodes of this segment that compute such elements, inferred again in the later segment once those of
    their inputs are known; `refused` are the errors of the deferred nodes."""

    def __init__(
        self,
        assumptions: Assumptions,
        demand: Demand,
        *,
        aliases: Mapping[ir.Value, ir.Value] | None = None,
        trackable: Set[ir.Value] = frozenset(),
        before: Callable[[ir.Node], Prelude] | None = None,
    ) -> None:
        self.assumptions = assumptions
        self._demand = demand
        self.facts: dict[ir.Value, Fact] = {}
        self.nodes: list[ir.Node] = []
        self.aliases: dict[ir.Value, ir.Value] = dict(aliases or {})
        self.guards: dict[Dim, Guard] = {}
        self.current: ir.Node | None = None
        self.deferred: list[ir.Node] = []
        self.replayed: dict[ir.Node, None] = {}
        self.refused: list[UnsupportedError] = []
        self._late: set[ir.Value] = set()
        self._made: dict[ir.Value, ir.Node] = {}
        self._trackable = trackable
        self._before = before
        self._floats: dict[ir.Value, Elements] = {}
        self._stale: set[ir.Value] = set()

    def run(self, nodes: Iterable[ir.Node], known: Mapping[ir.Value, Fact]) -> None:
        """Infers the nodes, given the facts of earlier values. Raises ModelError, UnsupportedError, and what the demand
        raises."""
        for value, fact in known.items():
            self.facts[value] = self._settled(value, self._rewritten(fact))
        self._walk(nodes)

    # ------------------------------------------------------------------------------------------- queries of operators

    def fact(self, value: ir.Value | None) -> Fact:
        """The fact of a value; ModelError when an optional input is absent that the operator needs."""
        if value is None:
            title = "the graph" if self.current is None else describe(self.current)
            raise ModelError(f"{title}: an input is missing")
        if value not in self.facts:
            value = self.resolved(value)
        found = self.facts.get(value)
        if found is None:
            raise ModelError(f"value {value.name!r} is used before it is defined")
        if value in self._stale:
            self._stale.discard(value)
            found = self.facts[value] = self._with_numbers(value, self._rewritten(found), self._rewritten_floats(value))
        return found

    def ratio(self, value: ir.Value) -> Ratio | None:
        """See `Inference.ratio`."""
        numbers = self._numbers(value)
        return None if numbers is None or numbers.size != 1 else as_ratio(numbers.item())

    def same(self, a: Dim, b: Dim, node: ir.Node, why: str) -> Dim:
        """See `Inference.same`."""
        a, b = self.assumptions.rewrite(a), self.assumptions.rewrite(b)
        if a is b:
            return a
        difference = primitive(a - b)
        if nonnegative(difference - 1) or nonnegative(-difference - 1):
            raise ModelError(f"{describe(node)}: {a} and {b} can never be equal ({why})")
        if self.assumptions.states(difference):
            return a if len(a.terms) <= len(b.terms) else b
        raise Again(self.assumptions.equal(difference, f"{describe(node)}: {a} == {b} ({why})"))

    def broadcast(self, shapes: Sequence[tuple[Dim, ...]], node: ir.Node) -> tuple[Dim, ...]:
        """See `Inference.broadcast`."""
        rank = max((len(shape) for shape in shapes), default=0)
        result: list[Dim] = []
        for position in range(rank):
            dim = ONE
            for shape in shapes:
                offset = position - rank + len(shape)
                if offset < 0 or shape[offset] is ONE:
                    continue
                dim = shape[offset] if dim is ONE else self.same(dim, shape[offset], node, "broadcasting")
            result.append(dim)
        return tuple(result)

    def at_least(self, dim: Dim, bound: int, node: ir.Node, why: str) -> None:
        """See `Inference.at_least`."""
        dim = self.assumptions.rewrite(dim)
        symbol = dim.atom
        if isinstance(symbol, Symbol) and symbol.least is None and bound in (0, 1):
            raise Again(self.assumptions.sized(symbol, bound, f"{describe(node)}: {why}"))
        margin = dim - bound
        answer = self.assumptions.answer("least", margin)
        if answer is False:
            raise ModelError(f"{describe(node)}: {dim} is less than {bound} ({why})")
        if answer is None and margin not in self.guards:
            self.guards[margin] = Guard("least", margin, f"{describe(node)}: {dim} >= {bound} ({why})")

    def decide(self, condition: Dim, kind: str, node: ir.Node, why: str) -> bool:
        """See `Inference.decide`."""
        return self._outcome(condition, kind, node, why, expected=False)

    def expect(self, condition: Dim, kind: str, node: ir.Node, why: str) -> bool:
        """See `Inference.expect`."""
        return self._outcome(condition, kind, node, why, expected=True)

    def _outcome(self, condition: Dim, kind: str, node: ir.Node, why: str, expected: bool) -> bool:
        dim = self.assumptions.rewrite(condition)
        if dim.constant is not None:
            return dim.constant == 0 if kind == "zero" else dim.constant >= 0
        answer = self.assumptions.answer(kind, dim)
        if answer is None:
            raise Fork(kind, dim, f"{describe(node)}: {dim}", why, expected=expected)
        return answer

    def is_data_dependent(self, dim: Dim) -> bool:
        """See `Inference.is_data_dependent`."""
        return any(self.assumptions.base(symbol).least is None for symbol in symbols_of(self.assumptions.rewrite(dim)))

    def inline(self, node: ir.Node, graph: ir.Graph) -> list[Fact]:
        """See `Inference.inline`."""
        self.facts |= initial_facts(graph)
        self._walk(graph)
        for output, inner in zip(node.outputs, graph.outputs, strict=True):
            self.aliases[output] = inner
            if self.resolved(inner) in self._late:
                self._late.add(output)
        return [self.fact(value) for value in graph.outputs if self.resolved(value) not in self._late]

    def body(self, graph: ir.Graph, inputs: Sequence[Fact]) -> list[Fact]:
        """See `Inference.body`."""
        waiting, refusals = len(self.deferred), len(self.refused)
        self.facts.update(zip(graph.inputs, inputs, strict=True))
        self.facts |= initial_facts(graph)
        self._walk(graph)
        if len(self.deferred) > waiting:
            self._refuse_to_wait(waiting, refusals)
        return [self.fact(value) for value in graph.outputs]

    def _refuse_to_wait(self, waiting: int, refusals: int) -> NoReturn:
        """Raises because a node of a body is deferred: the node that owns the body must be deferred as a whole."""
        late, self.deferred = self.deferred[waiting:], self.deferred[:waiting]
        self._late.difference_update(value for node in late for value in node.outputs)
        if len(self.refused) > refusals:
            raise self.refused.pop()
        raise UnsupportedError(f"{describe(late[0])}: it is not supported in a body that is run step by step")

    # -------------------------------------------------------------------------------------------------------- traversal

    def _walk(self, nodes: Iterable[ir.Node]) -> None:
        for node in nodes:
            outside, self.current = self.current, node
            self._settle(node)
            # After a failure `current` remains the failed node: the driver inspects its dependencies.
            self.current = outside

    def _settle(self, node: ir.Node) -> None:
        """Visits a node, again after each assumption that it needs, or defers it."""
        if any(self.resolved(value) in self._late for value in values_read(node)):
            self._defer(node)
            return
        visited, deferred = len(self.nodes), len(self.deferred)
        while True:
            try:
                self._visit(node)
            except (Again, Fork) as demand:
                # Nodes of its bodies are visited again.
                del self.nodes[visited:], self.deferred[deferred:]
                self._assume(demand)
            except NeedsSegment:
                self._prepare(node)
                self._defer(node)
                return
            except UnsupportedError as error:
                if not self._waits_for_elements(node, error):
                    raise
                del self.nodes[visited:]
                self.refused.append(error)
                self._defer(node)
                return
            else:
                return

    def _prepare(self, node: ir.Node) -> None:
        """Visits the prelude of a Loop, which runs before its segments."""
        if self._before is None:
            raise UnsupportedError(f"{describe(node)}: needs segments of its own, which are not supported here")
        nodes, constants = self._before(node)
        self.facts |= constants
        for inner in nodes:
            self._settle(inner)

    def _assume(self, demand: Again | Fork) -> None:
        self.assumptions = self._demand(self.assumptions, demand)
        self._stale.update(self.facts)

    def _settled(self, value: ir.Value, fact: Fact) -> Fact:
        """The fact of a value with tracked elements, with booleans replaced by the values assumed in this variant."""
        if fact.dtype is not DType.BOOL or fact.elements is None:
            return fact
        title = f"value {value.name!r}"
        return Fact(
            fact.dtype, fact.shape, make(fact.elements.shape, [self._truth(e, title) for e in fact.elements.flat])
        )

    def _truth(self, element: Dim | bool, title: str) -> bool:
        while isinstance(element, Dim):
            dim = self.assumptions.rewrite(element)
            answer = None if dim.constant is None else dim.constant == 0
            answer = self.assumptions.answer("zero", dim) if answer is None else answer
            if answer is not None:
                return not answer
            self._assume(Fork("zero", dim, title, "it is false", why_not="it is true"))
        return element

    # ------------------------------------------------------------------------------------------------- deferral

    def _defer(self, node: ir.Node) -> None:
        self.deferred.append(node)
        self._late.update(node.outputs)

    def _waits_for_elements(self, node: ir.Node, error: UnsupportedError) -> bool:
        """Whether a node that failed lacks the elements of small integer values that this segment computes."""
        unknown = self.unknown_elements(node, error)
        if unknown.given or not unknown.roots:
            return False  # tracking elements of existing values comes first
        self.replayed |= unknown.links
        return True

    def unknown_elements(self, node: ir.Node, error: Exception) -> Unknown:
        """The small integer and bool values that a failed node depends on and whose elements are not tracked."""
        found = Unknown()
        stack = [error.value] if isinstance(error, UnknownElementsError) else list(node.inputs)
        seen: set[ir.Value] = set()
        while stack:
            value = stack.pop()
            value = None if value is None else self.resolved(value)
            fact = None if value is None else self.facts.get(value)
            if value is None or fact is None or value in seen or not is_unknown(fact):
                continue
            seen.add(value)
            maker = self._made.get(value)
            if maker is None:
                if value in self._trackable:
                    found.given.add(value)
                continue
            parents = self._unknown_parents(maker)
            fed = all(map(self._is_fed, parents))
            if parents and (maker.op_type in TELLING or (maker.op_type in COMPARING and fed)):
                found.links[maker] = None
                stack.extend(parents)
            else:
                found.roots.add(value)
        return found

    def _is_fed(self, value: ir.Value) -> bool:
        """Whether a value exists before the segment begins, or holds such a value's elements reshaped or cast."""
        while (maker := self._made.get(value)) is not None:
            parents = self._unknown_parents(maker)
            if maker.op_type not in MOVING or len(parents) != 1:
                return False
            (value,) = parents
        return True

    def _unknown_parents(self, maker: ir.Node) -> list[ir.Value]:
        parents = [self.resolved(parent) for parent in maker.inputs if parent is not None]
        return [parent for parent in parents if is_unknown(self.facts[parent])]

    def resolved(self, value: ir.Value) -> ir.Value:
        """The value itself, or the value of which it is an alias."""
        return resolved(self.aliases, value)

    def _visit(self, node: ir.Node) -> None:
        for value in node.inputs:
            if value is not None and value.name != "" and self.resolved(value) not in self.facts:
                raise ModelError(f"{describe(node)}: input {value.name!r} is not defined")
        inputs = [None if value is None else self.resolved(value) for value in node.inputs]
        check_types(node, [None if v is None or v not in self.facts else self.facts[v].dtype for v in inputs])
        try:
            facts = inference_of(node)(self, node)
        except TooLargeError as error:
            raise UnsupportedError(f"{describe(node)}: {error}") from error
        except (Again, Fork, NeedsSegment, OpweldError):
            raise
        except (ArithmeticError, IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise ModelError(
                f"{describe(node)}: its inputs or attributes do not match ({type(error).__name__}: {error})"
            ) from error
        if any(output in self.aliases for output in node.outputs):
            return  # an If, replaced by its body
        present = [(value, fact) for value, fact in zip(node.outputs, facts, strict=False)]
        for value in node.outputs[len(facts) :]:
            if value.is_read:
                raise UnsupportedError(f"{describe(node)}: output {value.name!r} is not supported yet")
        numbers = self._evaluate(node, facts)
        for position, (value, fact) in enumerate(present):
            fact = self._with_numbers(value, fact, None if numbers is None else numbers[position])
            self.facts[value] = self._checked(self._rewritten(fact), node)
            self._made[value] = node
        self.nodes.append(node)

    def _evaluate(self, node: ir.Node, facts: Sequence[Fact]) -> list[Elements] | None:
        if node.domain not in ("", "ai.onnx") or all(fact.elements is not None for fact in facts):
            return None
        inputs = [None if value is None else self._numbers(value) for value in node.inputs]
        if not any(array is not None for array in inputs):
            return None
        operands = [None if value is None else self.fact(value) for value in node.inputs]
        return evaluate_elements(node.op_type, inputs, node.attributes, operands, facts)

    def _numbers(self, value: ir.Value) -> Elements | None:
        value = self.resolved(value)
        if value not in self.facts:
            return None
        fact = self.fact(value)
        if fact.elements is not None:
            return fact.elements
        if value not in self._floats and fact.constant is not None and fact.dtype.is_float:
            shape = static_shape(fact)
            if shape is not None and int(product(shape)) <= SMALL_FLOATS:
                self._floats[value] = from_array(fact.constant(), fact.dtype)
        return self._floats.get(value)

    def _with_numbers(self, value: ir.Value, fact: Fact, numbers: Elements | None) -> Fact:
        elements = fact.elements
        if elements is None and numbers is not None:
            if fact.dtype.is_float:
                self._floats[value] = numbers
            else:
                elements = numbers
        constant = fact.constant
        known = elements if elements is not None else numbers
        if constant is None and known is not None:
            array = to_array(known, fact.dtype)
            if array is not None:
                constant = _reader(array)
        return Fact(fact.dtype, fact.shape, elements, constant)

    def _rewritten_floats(self, value: ir.Value) -> Elements | None:
        floats = self._floats.get(value)
        if floats is None:
            return None
        return make(floats.shape, [self._rewritten_float(element) for element in floats.flat])

    def _rewritten_float(self, element: float | Ratio) -> float | Ratio:
        if not isinstance(element, Ratio):
            return element
        return Ratio(self.assumptions.rewrite(element.numerator), element.denominator)

    def _rewritten(self, fact: Fact) -> Fact:
        shape = tuple(self.assumptions.rewrite(dim) for dim in fact.shape)
        elements = fact.elements
        if elements is not None and not fact.dtype.is_float and fact.dtype is not DType.BOOL:
            elements = make(elements.shape, [self.assumptions.rewrite(dim) for dim in elements.flat])
        return Fact(fact.dtype, shape, elements, fact.constant)

    def _checked(self, fact: Fact, node: ir.Node) -> Fact:
        if fact.rank > MAX_RANK:
            raise UnsupportedError(
                f"{describe(node)}: its output has rank {fact.rank}; opweld supports up to {MAX_RANK}"
            )
        known = 1
        for dim in fact.shape:
            if nonnegative(-dim - 1):
                raise ModelError(
                    f"{describe(node)}: its output would have a negative size {dim}; the inputs are too small"
                )
            known *= dim.constant if dim.constant is not None else 1
        if known > MAX_ELEMENTS:
            raise ModelError(
                f"{describe(node)}: its output of shape {list(fact.shape)} has more elements than memory can hold"
            )
        assert fact.elements is None or fact.elements.shape == static_shape(fact), describe(node)
        return fact


def _reader(array: np.ndarray[Any, Any]) -> Any:
    return lambda: array
