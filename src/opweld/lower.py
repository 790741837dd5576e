"""Lowers the graph of a variant to a tensor program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opweld import ir
from opweld.errors import OpweldError, UnsupportedError
from opweld.frontend.segment import Variant
from opweld.ops.elements import to_array
from opweld.ops.fact import Elements, Fact
from opweld.ops.operands import describe
from opweld.ops.registry import fresh_axes, lowering_of
from opweld.tensor.dim import ONE, ZERO, Axis, Dim, DimLike, TooLargeError, as_dim, row_major
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, at_least_zero, cast, const, index, load, select
from opweld.tensor.flow import Flow, Segment
from opweld.tensor.program import (
    Constant,
    Extern,
    Input,
    Item,
    Result,
    Tensor,
    TensorProgram,
    item_inputs,
    item_outputs,
)

CHAIN_LIMIT = 64
"""Up to this number, known elements that are not constants are lowered to a chain of selects."""


def to_flow(segments: Sequence[Sequence[Variant]]) -> Flow:
    """The segments of a model as tensor programs; see `to_tensors`."""
    graph = segments[0][0].graph
    return Flow(
        tuple(value.name or "" for value in graph.inputs),
        tuple((value.name or "", value.name or "") for value in graph.outputs),
        tuple(Segment(tuple(map(to_tensors, own)), tuple(variant.ending for variant in own)) for own in segments),
    )


def to_tensors(variant: Variant) -> TensorProgram:
    """The tensor program of a variant: only what its outputs need.

    Inputs keep their public names; all other names are generated, safe and unique. Raises UnsupportedError for an
    operator that cannot be lowered.
    """
    return _Lowering(variant).run()


class _Lowering:
    """The `Lowering` that operators see, for one node after the other."""

    node: ir.Node

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.inputs = tuple(self._input(value) for value in variant.inputs)
        self.items: list[Item] = []
        self.constants: list[Constant] = []
        self._names: dict[ir.Value, str] = {value: value.name or "" for value in variant.inputs}
        self._taken = set(self._names.values())
        self._producers = {value: node for node in variant.nodes for value in node.outputs}
        self._count = 0

    def run(self) -> TensorProgram:
        """Lowers the nodes that the outputs need, in graph order, and drops items that turn out to be dead."""
        needed = self._needed([value for _, value in self.variant.outputs])
        for node in self.variant.nodes:
            if node in needed and not all(value in self._names for value in node.outputs):
                self._lower(node)
        outputs = tuple((name, self.tensor(value)) for name, value in self.variant.outputs)
        items = _alive(self.items, {name for _, name in outputs})
        used = {name for _, name in outputs} | {name for item in items for name in item_inputs(item)}
        return TensorProgram(
            name=self.variant.name,
            inputs=self.inputs,
            constants=tuple(constant for constant in self.constants if constant.name in used),
            items=items,
            outputs=outputs,
            symbols=self.variant.symbols,
            guards=self.variant.guards,
            values=self._values(items),
        )

    def _values(self, items: Sequence[Item]) -> dict[str, str]:
        """The graph's value names by tensor: the first of several, and that of the outer graph for a body's output."""
        computed = {name for item in items for name in item_outputs(item)}
        outside = ((alias, self._names.get(self.variant.resolve(alias))) for alias in self.variant.aliases)
        found: dict[str, str] = {}
        for value, name in (*outside, *self._names.items()):
            if name in computed and value.name:
                found.setdefault(name, value.name)
        return found

    def _needed(self, outputs: Sequence[ir.Value]) -> set[ir.Node]:
        """The nodes that values depend on, not counting values whose elements are known."""
        needed: set[ir.Node] = set()
        stack = list(outputs)
        while stack:
            value = self.variant.resolve(stack.pop())
            node = self._producers.get(value)
            if node is None or node in needed or self._known(value) is not None:
                continue
            needed.add(node)
            stack.extend(parent for parent in node.inputs if parent is not None)
            for body in node.bodies:
                stack.extend(_captured(body, set(body.all_nodes)))
        return needed

    def _input(self, value: ir.Value) -> Input:
        fact = self.variant.facts[value]
        return Input(value.name or "", fact.dtype, fact.shape)

    def _lower(self, node: ir.Node) -> None:
        outside = getattr(self, "node", None)
        self.node = node
        try:
            lowering_of(node)(self, node)
        except TooLargeError as error:
            raise UnsupportedError(f"{describe(node)}: {error}") from error
        if outside is not None:
            self.node = outside

    # ------------------------------------------------------------------------------------------- what operators ask

    def fact(self, value: ir.Value | None) -> Fact:
        """See `Lowering.fact`."""
        assert value is not None, f"{describe(self.node)}: an input is missing"
        return self.variant.facts[self.variant.resolve(value)]

    def tensor(self, value: ir.Value) -> str:
        """See `Lowering.tensor`."""
        value = self.variant.resolve(value)
        name = self._names.get(value)
        if name is None:
            name = self._names[value] = self._materialise(value)
        return name

    def load(
        self, value: ir.Value, indices: Sequence[DimLike], guards: Sequence[Dim] = (), fill: Expr | None = None
    ) -> Expr:
        """See `Lowering.load`. One known element is the literal or the polynomial itself."""
        value = self.variant.resolve(value)
        fact = self.variant.facts[value]
        offset = len(indices) - fact.rank
        assert offset >= 0, f"{describe(self.node)}: {len(indices)} indices for {value.name!r} of rank {fact.rank}"
        at = tuple(ZERO if dim is ONE else as_dim(i) for dim, i in zip(fact.shape, indices[offset:], strict=True))
        if not guards:
            single = self._single(value, at)
            if single is not None:
                return single
        return load(self.tensor(value), fact.dtype, at, tuple(guards), fill)

    def emit(self, axes: Sequence[Axis], body: Expr, hint: str = "") -> str:
        """See `Lowering.emit`."""
        name = self.unique(hint or self.node.op_type)
        self.items.append(Tensor(name, body.dtype, tuple(axes), body, (self.node.name or "",)))
        return name

    def constant(self, array: np.ndarray[Any, Any], hint: str = "") -> str:
        """See `Lowering.constant`."""
        name = self.unique(hint or "constant")
        dtype = DType.of_numpy(array.dtype)
        self.constants.append(Constant(name, dtype, array.shape, lambda: array, (self.node.name or "",)))
        return name

    def result(self, value: ir.Value, axes: Sequence[Axis], body: Expr) -> None:
        """See `Lowering.result`."""
        fact = self.fact(value)
        assert body.dtype is fact.dtype, f"{describe(self.node)}: {body.dtype!r} is not {fact.dtype!r}"
        extents = tuple(axis.extent for axis in axes)
        assert extents == fact.shape, f"{describe(self.node)}: {extents} is not {fact.shape}"
        self._names[value] = self.emit(axes, body)

    def alias(self, value: ir.Value, tensor: str) -> None:
        """See `Lowering.alias`."""
        self._names[value] = tensor

    def add(self, item: Item) -> None:
        """See `Lowering.add`."""
        self.items.append(item)

    def body(self, graph: ir.Graph, inputs: Mapping[ir.Value, str]) -> list[Item]:
        """See `Lowering.body`."""
        inside = set(graph.all_nodes)
        self._names.update(inputs)
        needed = self._needed(graph.outputs)
        for value in _captured(graph, inside):
            if value in self.variant.facts:
                self.tensor(value)
        outside, self.items = self.items, []
        for node in self.variant.nodes:
            if node in inside and node in needed and not all(value in self._names for value in node.outputs):
                self._lower(node)
        for value in graph.outputs:
            self.tensor(value)
        made, self.items = self.items, outside
        return made

    def extern(
        self,
        function: str,
        operands: Sequence[str],
        results: Sequence[tuple[DType, tuple[Dim, ...]]],
        numbers: Sequence[DimLike],
        rows: Dim = ONE,
    ) -> list[str]:
        """See `Lowering.extern`."""
        made = tuple(Result(self.unique(function), dtype, shape) for dtype, shape in results)
        sizes = tuple(map(as_dim, numbers))
        self.items.append(Extern(function, tuple(operands), made, sizes, rows, (self.node.name or "",)))
        return [result.name for result in made]

    def unique(self, hint: str) -> str:
        """See `Lowering.unique`."""
        plain = re.sub(r"[^a-z0-9]+", "_", hint.lower()).strip("_")[:40]
        while True:
            name = f"t{self._count}_{plain}" if plain else f"t{self._count}"
            self._count += 1
            if name not in self._taken:
                self._taken.add(name)
                return name

    # ------------------------------------------------------------------------------------------------- known elements

    def _known(self, value: ir.Value) -> Elements | None:
        """The known elements of a value, which make its node unnecessary; else None."""
        elements = self.variant.facts[value].elements
        if elements is None:
            return None
        small = elements.size <= CHAIN_LIMIT
        return elements if small or to_array(elements, self.variant.facts[value].dtype) is not None else None

    def _single(self, value: ir.Value, at: tuple[Dim, ...]) -> Expr | None:
        fact = self.variant.facts[value]
        places = tuple(i.constant for i in at)
        if value in self._names and value.is_input:
            return None
        if fact.elements is not None and all(place is not None for place in places):
            return _element(fact.elements[places], fact.dtype)
        if fact.constant is not None and fact.rank <= 8 and all(dim is ONE for dim in fact.shape):
            return const(fact.constant().reshape(-1)[0].item(), fact.dtype)
        return None

    def _materialise(self, value: ir.Value) -> str:
        fact = self.variant.facts[value]
        if fact.constant is not None:
            return self._stored(value, fact)
        elements = self._known(value)
        array = None if elements is None else to_array(elements, fact.dtype)
        if array is not None:
            return self._stored(value, Fact(fact.dtype, fact.shape, None, lambda: array))
        if elements is not None:
            return self._chosen(value, elements, fact)
        node = self._producers.get(value)
        if node is None:
            raise OpweldError(f"value {value.name!r} is neither an input nor computed")
        self._lower(node)
        return self._names[value]

    def _stored(self, value: ir.Value, fact: Fact) -> str:
        assert fact.constant is not None
        name = self.unique(value.name or "constant")
        shape = tuple(int(dim) for dim in fact.shape)
        self.constants.append(Constant(name, fact.dtype, shape, fact.constant, (value.name or "",)))
        return name

    def _chosen(self, value: ir.Value, elements: Elements, fact: Fact) -> str:
        """A tensor that selects each element by its position."""
        axes = fresh_axes(fact.shape)
        flat = row_major([axis.dim for axis in axes], fact.shape)
        flat_elements = list(elements.flat)
        body = _element(flat_elements[-1], fact.dtype)
        for position in range(len(flat_elements) - 2, -1, -1):
            body = select(at_least_zero(position - flat), _element(flat_elements[position], fact.dtype), body)
        producer = value.producer
        name = self.unique("elements")
        self.items.append(Tensor(name, fact.dtype, axes, body, ((producer.name or "") if producer else "",)))
        return name


def _captured(graph: ir.Graph, inside: set[ir.Node]) -> list[ir.Value]:
    """The computed values and inputs that a body reads of its surroundings."""
    own = {value for node in inside for body in node.bodies for value in body.inputs} | set(graph.inputs)
    read = [value for node in inside for value in node.inputs if value is not None]
    return [
        value for value in dict.fromkeys((*read, *graph.outputs)) if value not in own and value.producer not in inside
    ]


def _element(element: Any, dtype: DType) -> Expr:
    if isinstance(element, Dim):
        known = element.constant
        return cast(index(element), dtype) if known is None else const(known, dtype)
    return const(element, dtype)


def _alive(items: Sequence[Item], wanted: set[str]) -> tuple[Item, ...]:
    """The items that the wanted names depend on, in order."""
    alive: list[Item] = []
    wanted = set(wanted)
    for item in reversed(items):
        if any(name in wanted for name in item_outputs(item)):
            wanted.update(item_inputs(item))
            alive.append(item)
    return tuple(reversed(alive))
