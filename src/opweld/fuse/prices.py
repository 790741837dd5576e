"""What items are predicted to take as kernels of their own, and one computed inside another: closed forms over expected
sizes, before anything is scheduled or stored.

A kernel computes, reads each operand once, writes what it gives, and is launched (`schedule.cost.Cost`). Inside its
user a value is neither written nor read and needs no launch, but is computed once for each element that the user asks
for, and where the user finds its elements by expensive indices, each of its loads has these indices.

    apart       max(arithmetic, reads + writes) + launch, of the source and of each user
    together    the same of each user, with   + cycles of the source * elements asked for / its elements
                                              + cycles of the index * (loads of the source - 1)
                                              - reads of the source by the user + reads by the source

Bytes come from the smallest level of memory that holds the value. A vector is counted whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opweld.fuse.concatenation import concatenation_of
from opweld.schedule.cost import DIVISION, FUNCTIONS, GATHER, UNKNOWN, Cost, core_of, lookup_cycles, traffic
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import Axis, Dim, FloorDiv, Mod, TooLargeError, Value, as_dim, atoms_of, floordiv, row_major
from opweld.tensor.expr import Binary, Cast, Expr, Load, Lookup, Reduce, Select, Unary, walk
from opweld.tensor.externs import EXTERNS
from opweld.tensor.operators import is_expensive
from opweld.tensor.program import Constant, Extern, Item, Tensor, TensorProgram, item_inputs, item_outputs

_COMPUTED = Unary | Binary | Select | Cast | Lookup | Reduce
_DEAR = Value | FloorDiv | Mod

ROUNDING = 1e-9
"""Of two sums of the same numbers, the part by which they may differ."""


@dataclass(frozen=True)
class Site:
    """A load: for how many vectors it is done, and the cycles of its index for each of them."""

    vectors: float
    index: float


@dataclass(frozen=True)
class ElementWork:
    """What a kernel does.

    Attributes:
        vectors: of its elements. cycles: of its arithmetic, for all of them. loads: done for an element.
        finding: those of the cycles that find operands.
        reads, writes: seconds of moving operands and results.
        sites: the loads of each operand.
        parts: those of the values put side by side that can be written straight into their place.
        mixed: whether values are put side by side: once one of them is computed there, it is for all elements.
    """

    vectors: float
    cycles: float
    loads: int
    reads: float
    writes: float
    sites: Mapping[str, Sequence[Site]]
    parts: frozenset[str] = frozenset()
    mixed: bool = False
    finding: float = 0.0


@dataclass(frozen=True)
class Price:
    """Predicted seconds of items as kernels of their own, and with one of them computed inside the others. `equal`:
    whether they are better together where both take the same."""

    apart: float
    together: float
    equal: bool = True

    @property
    def pays(self) -> bool:
        """Whether they are better together."""
        return self.together <= self.apart * (1 + ROUNDING if self.equal else 1 - ROUNDING)


class Prices:
    """The predictions for one program. Names and shapes of values stay, whatever is computed where."""

    def __init__(self, program: TensorProgram, expected: Expected, target: Target) -> None:
        self._values = dict(program.signatures)
        self._expected = expected
        self._target = target
        self._lanes = target.vector_lanes_f32
        self._sizes: dict[str, int] = {}
        self._works: dict[Item, ElementWork] = {}

    def add_constants(self, constants: Iterable[Constant]) -> None:
        """More values, known when the model is compiled, that items read from now on."""
        self._values |= {one.name: (one.dtype, tuple(map(as_dim, one.shape))) for one in constants}

    def seconds(self, *works: ElementWork) -> float:
        """Of kernels one after the other."""
        return sum(self._cost(work).seconds for work in works)

    def of_steps(self, source: Tensor, user: Tensor, steps: Dim) -> Price:
        """Of two values of a recurrence, in so many steps: they are in scratch, and nothing is launched."""
        own, other = self.work(source), self.work(user)
        inside = self.inside(source.name, own, other)
        count = self._expected(steps)
        apart = self._cost(own).running + self._cost(other).running
        return Price(count * apart, count * self._cost(inside).running)

    def moved(self, name: str, elements: float | None = None) -> float:
        """Seconds to write a value or to read it once, or so many elements where these are fewer."""
        dtype, shape = self._values[name]
        size = self._sizes.get(name)
        if size is None:
            size = self._sizes[name] = self._expected.product(shape)
        return traffic(dtype.bytes * (size if elements is None else min(size, elements)), self._target)

    def work(self, item: Item) -> ElementWork:
        """An item as a kernel of its own."""
        found = self._works.get(item)
        if found is None:
            found = self._works[item] = self._measured(item)
        return found

    def keep(self, item: Item, work: ElementWork) -> None:
        """Notes what an item takes that others were put into: nothing is counted again."""
        self._works[item] = work

    def placed(self, name: str, user: ElementWork) -> ElementWork:
        """The user, where a value is written straight into its place in it and needs no copy, if it can be."""
        if name not in user.parts:
            return user
        moved = self.moved(name)
        return replace(user, reads=max(0.0, user.reads - moved), writes=max(0.0, user.writes - moved))

    def inside(self, name: str, source: ElementWork, user: ElementWork, shared: Iterable[str] = ()) -> ElementWork:
        """The user with the source, the value of that name, computed wherever it was loaded. `shared`: what
        both read."""
        # A load that came in with another source: once for each element, as far as that is known.
        sites = user.sites.get(name) or (Site(user.vectors, 0.0),)
        asked = sum(site.vectors for site in sites)
        again = asked / source.vectors
        # Of values put side by side the arithmetic is done for all elements; finding operands, measured, is not.
        every = len(sites) * user.vectors / source.vectors if user.mixed else again
        index = sum(site.vectors * site.index for site in sites) * (source.loads - 1)
        reads = user.reads - self.moved(name, asked * self._lanes) + source.reads * min(1.0, again)
        return replace(
            user,
            cycles=user.cycles + (source.cycles - source.finding) * every + source.finding * again + max(0.0, index),
            finding=user.finding + source.finding * again,
            loads=user.loads + len(sites) * (source.loads - 1),
            reads=max(0.0, reads - sum(map(self.moved, shared))),
        )

    def multiplied(self, work: ElementWork, products: float) -> ElementWork:
        """A kernel with so many products more for each of its elements."""
        return replace(work, cycles=work.cycles + products * work.vectors / core_of(self._target).products)

    def _cost(self, work: ElementWork) -> Cost:
        return Cost(
            work.cycles / core_of(self._target).hertz,
            traffic=work.reads + work.writes,
            launch=core_of(self._target).launch,
        )

    # ---------------------------------------------------------------------------------------------------- measuring

    def _measured(self, item: Item) -> ElementWork:
        whole = self._as_expressions(item)
        joined = concatenation_of(item) if isinstance(item, Tensor) and isinstance(item.body, Select) else None
        if joined is None or not isinstance(item, Tensor):
            return whole
        cycles, sites = 0.0, dict[str, list[Site]]()
        across = self._expected.product(extent for axis, extent in enumerate(item.shape) if axis != joined.axis)
        for part in joined.parts:
            vectors = max(1.0, across * self._expected(part.end - part.start) / self._lanes)
            index = self._index(part.load, item.axes)
            cycles += index * vectors
            sites.setdefault(part.source, []).append(Site(vectors, index))
        parts = frozenset(part.source for part in joined.parts if part.whole)
        return replace(
            whole, cycles=cycles, finding=cycles, reads=self._reads(item, sites), sites=sites, parts=parts, mixed=True
        )

    def _as_expressions(self, item: Item) -> ElementWork:
        cycles, finding, count, sites = 0.0, 0.0, 0, dict[str, list[Site]]()
        for body, axes, repeats in _bodies(item):
            elements = float(self._expected.product(axis.extent for axis in (*axes, *repeats)))
            for node, times in self._repeated(body):
                vectors = max(1.0, elements * times / self._lanes)
                if isinstance(node, _COMPUTED):
                    cycles += self._cycles(node) * vectors
                elif isinstance(node, Load):
                    index = self._index(node, axes if times == 1.0 else ())
                    finding += index * vectors
                    count += bool(node.indices)
                    sites.setdefault(node.tensor, []).append(Site(vectors, index))
        if isinstance(item, Extern):
            cycles += float(self._expected(as_dim(EXTERNS[item.function].work(item.numbers)) * item.rows))
        reads = self._reads(item, sites)
        outputs = item_outputs(item)
        elements = sum(self._expected.product(self._values[name][1]) for name in outputs)
        written = sum(map(self.moved, outputs))
        vectors = max(1.0, elements / self._lanes)
        return ElementWork(vectors, cycles + finding, count, reads, written, sites, finding=finding)

    def _reads(self, item: Item, sites: Mapping[str, Sequence[Site]]) -> float:
        asked = {name: sum(site.vectors for site in found) * self._lanes for name, found in sites.items()}
        return sum(self.moved(name, asked.get(name)) for name in item_inputs(item))

    def _repeated(self, body: Expr) -> Iterator[tuple[Expr, float]]:
        """Every node, and how often it is computed for an element: for each element of the reductions around it."""
        nodes = list(walk(body))
        if not any(isinstance(node, Reduce) for node in nodes):
            yield from ((node, 1.0) for node in nodes)
            return
        times: dict[Expr, float] = {}
        for node in reversed(nodes):
            own = times.setdefault(node, 1.0)
            inner = own * self._expected.product(axis.extent for axis in node.axes) if isinstance(node, Reduce) else own
            for operand in node.operands:
                times[operand] = max(times.get(operand, 0.0), inner)
        yield from times.items()

    def is_worth_a_table(self, nodes: Iterable[Expr]) -> bool:
        """Whether these nodes, a function of a byte, take longer than looking it up."""
        computed = sum(self._cycles(node) for node in nodes if isinstance(node, _COMPUTED))
        return computed > lookup_cycles(self._target)

    def _cycles(self, node: Unary | Binary | Select | Cast | Lookup | Reduce) -> float:
        """Of a vector of a node's values, as `tile.predict` counts them; the product of a sum is part of the sum."""
        each = self._target.registers_each(node.dtype)
        if isinstance(node, Unary | Binary) and is_expensive(node.op):
            if node.x.dtype.is_float:
                return float(FUNCTIONS.get(node.op, UNKNOWN) * each)
            return float(DIVISION * self._lanes * each)
        if isinstance(node, Lookup):
            return float(lookup_cycles(self._target))
        if isinstance(node, Reduce) and isinstance(node.body, Binary) and node.body.op == "mul":
            return 0.0
        return each / core_of(self._target).products

    def _index(self, node: Load, axes: Sequence[Axis]) -> float:
        """Cycles for a vector of elements that are found one by one: picked by run-time values, which are checked, or
        by divisions that no split of an axis removes. Once for all of the innermost axis where they do not follow
        it."""
        expensive = set(filter(_moves, _found(node.indices)))
        if any(not isinstance(atom, Value) for atom in expensive):
            expensive = set(filter(_moves, _found(self._address(node))))
        if not expensive:
            return 0.0
        cycles = (GATHER + sum(1 if isinstance(atom, Value) else DIVISION for atom in expensive)) * self._lanes
        inner = next((axis for axis in reversed(axes) if axis.extent.constant != 1), None)
        if inner is None or any(inner in atom.inside() for atom in expensive):
            return cycles
        return cycles / max(1, self._expected(inner.extent))

    def _address(self, node: Load) -> tuple[Dim, ...]:
        """Where the element is that is loaded, as if all were row-major: much that indices divide is put together."""
        _, shape = self._values.get(node.tensor, (node.dtype, ()))
        try:
            return (row_major(node.indices, shape),) if len(shape) == len(node.indices) else node.indices
        except TooLargeError:
            return node.indices


def _bodies(item: Item) -> Iterator[tuple[Expr, tuple[Axis, ...], tuple[Axis, ...]]]:
    """(expression, its axes, what it is repeated over) of everything that an item computes."""
    if isinstance(item, Tensor):
        yield item.body, item.axes, ()
    elif not isinstance(item, Extern):
        yield from ((state.initial, state.axes, ()) for state in item.states)
        yield from ((step.body, step.axes, (item.time,)) for step in item.steps)


def _found(dims: Sequence[Dim]) -> Iterator[Value | FloorDiv | Mod]:
    """What is looked up or divided in indices."""
    return (atom for dim in dims for atom in atoms_of(dim) if isinstance(atom, _DEAR))


def _moves(atom: Value | FloorDiv | Mod) -> bool:
    """Whether it differs from element to element. A division does not where splitting its axis removes it, see
    `tensor.axes.split`."""
    if not any(isinstance(inner, Axis) for inner in atom.inside()):
        return False
    if isinstance(atom, Value):
        return True
    axis, divisor = atom.left.atom, atom.right
    return not (isinstance(axis, Axis) and floordiv(axis.extent, divisor) * divisor is axis.extent)
