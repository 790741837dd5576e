"""Chooses which nodes to compute with permuted axes, so that the fewest transpositions remain.

Each node is computed as written or permuted. A value that is needed in a form in which it is not computed takes a
transposition; one that is a transposition already exists in both forms. So the best choice is a minimum cut of a graph
whose ends are the nodes that must stay as written, and the values that are permuted anyway."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from opweld.rewrite.cut import sink_side
from opweld.rewrite.rules.permuted import Order, Permuted, inverse, keeps_elements, permuted_shape
from opweld.rewrite.scope import Scope, attribute, operand

LIMIT = 512
"""The most nodes of a region; others stay as written."""

FEWER = 1 << 60
"""The cost of a transposition in addition to its bytes: fewer ones are better than smaller ones."""

ASSUMED = 64
"""The assumed size of an unknown axis, for comparisons."""

Ways = Callable[[ir.Node], "Permuted | None"]
"""How nodes are written permuted."""


def order_of(node: ir.Node | None, scope: Scope) -> Order | None:
    """The order of a Transpose."""
    if node is None or node.op_type != "Transpose" or node.domain not in ("", "ai.onnx"):
        return None
    shape = scope.shape(operand(node, 0))
    given = attribute(node, "perm")
    if shape is None:
        return None
    return tuple(range(len(shape)))[::-1] if given is None else tuple(int(axis) for axis in given)


def transposes(node: ir.Node | None, order: Order, scope: Scope) -> bool:
    """Whether a node transposes by an order; a Reshape does too if it only moves axes of size 1."""
    if node is None or node.graph is not scope.graph:
        return False
    if node.op_type == "Reshape":
        before, after = scope.shape(operand(node, 0)), scope.shape(node.outputs[0])
        if before is None or after is None or len(before) != len(order) or len(after) != len(order):
            return False
        return after == tuple(before[axis] for axis in order) and keeps_elements(before, inverse(order))
    return order_of(node, scope) == order


@dataclass
class Use:
    """A value of a region: where it is computed, and in which form it is needed.

    Attributes:
        producer: the node of the region that computes it; None if it is an input of the region.
        entry: the value of which it is a transposition, so that the permuted form exists too.
        inner: nodes of the region that read it in the form in which they are computed.
        exits: transpositions of it.
        outer: whether another node needs it as written.
    """

    producer: ir.Node | None
    entry: ir.Value | None
    inner: list[ir.Node] = field(default_factory=list[ir.Node])
    exits: list[ir.Node] = field(default_factory=list[ir.Node])
    outer: bool = False


@dataclass(frozen=True)
class Region:
    """Nodes that could be permuted, unordered, and their operands and results."""

    order: Order
    ways: Mapping[ir.Node, Permuted]
    uses: Mapping[ir.Value, Use]

    def parts(self, chosen: set[ir.Node]) -> list[set[ir.Node]]:
        """The connected components of the chosen nodes, by shared values."""
        parts: list[set[ir.Node]] = []
        for use in self.uses.values():
            joined = {node for node in (use.producer, *use.inner) if node is not None and node in chosen}
            if joined:
                joined = joined.union(*(part for part in parts if part & joined))
                parts = [part for part in parts if not part & joined] + [joined]
        return parts

    def needs(self, permuted: set[ir.Node], value: ir.Value) -> tuple[bool, bool]:
        """Whether a value needs a transposition to be permuted, and whether it needs one back."""
        use = self.uses[value]
        there = use.entry is not None or use.producer in permuted
        other = bool(use.exits) or any(node in permuted for node in use.inner)
        written = use.outer or any(node not in permuted for node in use.inner)
        return other and not there, written and there

    def transposed(self, permuted: set[ir.Node]) -> list[ir.Value]:
        """The values that need a transposition, one entry for each."""
        return [value for value in self.uses for needed in self.needs(permuted, value) if needed]

    def more(self, permuted: set[ir.Node]) -> int:
        """The number of additional nodes of permuted ones."""
        return sum(self.ways[node].more for node in permuted)


def region_of(roots: Sequence[ir.Node], order: Order, ways: Ways, scope: Scope, *, after: bool) -> Region:
    """The region of nodes that could be permuted, connected to a node `after` a transposition by that order, or before
    its inverse. The difference matters if a transposition is both."""
    found: dict[ir.Node, Permuted] = {}
    uses: dict[ir.Value, Use] = {}
    pending = list(roots)
    while pending:
        node = pending.pop()
        if node in found or len(found) >= LIMIT:
            continue
        way = None if transposes(node, order, scope) or transposes(node, inverse(order), scope) else ways(node)
        if way is None:
            continue
        found[node] = way
        for value in _touched(node, way):
            if value in uses:
                continue
            producer = value.producer()
            producer = producer if producer is not None and producer.graph is scope.graph else None
            entry = producer.inputs[0] if producer is not None and transposes(producer, order, scope) else None
            uses[value] = Use(producer, entry)
            if producer is not None and entry is None:
                pending.append(producer)
            pending += [reader for reader in scope.readers(value) if reader.graph is scope.graph]
    both = {value for value, use in uses.items() if order == inverse(order) and use.entry in uses}
    for value in both if not after else ():
        uses[value].entry = None
    for value, use in uses.items():
        _fill(value, use, found, {producer for other in both if after and (producer := other.producer())}, order, scope)
    return Region(order, found, uses)


def _touched(node: ir.Node, way: Permuted) -> Iterator[ir.Value]:
    yield from (value for at in way.operands if (value := node.inputs[at]) is not None)
    if way.results:
        yield from (value for value in node.outputs if value.name)


def _fill(
    value: ir.Value, use: Use, found: Mapping[ir.Node, Permuted], entries: set[ir.Node], order: Order, scope: Scope
) -> None:
    """The uses of a value; `entries` do not count as exits, though they could be."""
    if use.producer is not None and (use.producer not in found or not found[use.producer].results):
        use.producer = None
    use.outer = value.is_graph_output()
    named = False
    for reader, position in value.uses():
        way = found.get(reader)
        if way is not None and position in way.operands:
            use.inner.append(reader)
        elif reader in entries or position != 0 or not transposes(reader, inverse(order), scope):
            use.outer = True
        elif not reader.outputs[0].is_graph_output():
            use.exits.append(reader)
        elif use.producer is not None and not named:
            use.exits.append(reader)  # the node's result takes the name of the output
            named = True
        else:
            use.outer = True


def best(region: Region, scope: Scope) -> set[ir.Node]:
    """The nodes to permute so that the fewest transpositions remain, and of equal numbers the smallest; none if their
    number does not decrease."""
    edges: dict[tuple[Hashable, Hashable], int] = {}
    never = FEWER * FEWER

    def cost(start: Hashable, end: Hashable, amount: int) -> None:
        """Adds the cost of a start as written with a permuted end."""
        edges[start, end] = edges.get((start, end), 0) + amount

    for node, way in region.ways.items():
        if way.more:
            cost("written", node, way.more * FEWER)
    for value, use in region.uses.items():
        price, permuted, back = FEWER + weight(value, scope), ("permuted", value), ("back", value)
        producer: Hashable = "permuted" if use.entry is not None else use.producer or "written"
        cost(producer, permuted, price)
        cost(back, producer, price)
        for node in use.inner:
            cost(permuted, node, never)
            cost(node, back, never)
        if use.exits:
            cost(permuted, "permuted", never)
        if use.outer:
            cost("written", back, never)
    side = sink_side(edges, "written", "permuted")
    return {node for node in region.ways if node in side}


def weight(value: ir.Value, scope: Scope) -> int:
    """Bytes of a value, with a guess where a size is not known."""
    fact = scope.fact(value)
    size = 1 if fact is None else fact.dtype.bytes
    for dim in () if fact is None else fact.shape:
        size *= ASSUMED if dim.constant is None else dim.constant
    return size


def turn(region: Region, chosen: set[ir.Node], scope: Scope) -> None:
    """Writes the chosen nodes permuted, and the transpositions that are needed then."""
    nodes = _in_order(chosen)
    back, there = inverse(region.order), dict[ir.Value, ir.Value]()

    def as_turned(value: ir.Value, near: ir.Node) -> ir.Value:
        if value not in there:
            entry = region.uses[value].entry
            there[value] = entry if entry is not None else _transposed(value, back, near, scope)
        return there[value]

    for node in nodes:
        way = region.ways[node]
        inputs = [
            as_turned(value, node) if value is not None and at in way.operands else value
            for at, value in enumerate(node.inputs)
        ]
        for old, new in zip(node.outputs, way.write(inputs), strict=True):
            shape = scope.shape(old)
            if way.results and new.name:
                there[old] = scope.tell(new, permuted_shape(shape, region.order), old) if shape is not None else new
            elif new.name:
                scope.replace(old, new)
    for value in list(there):
        use = region.uses[value]
        for reader in use.exits:
            scope.replace(reader.outputs[0], there[value])
        producer = use.producer if use.producer in chosen else None
        written = use.outer or any(node not in chosen for node in use.inner)
        if producer is not None and written:
            scope.replace(value, _transposed(there[value], region.order, producer, scope))
    for node in reversed(nodes):
        if node.graph is scope.graph:
            scope.drop(node)


def _in_order(chosen: set[ir.Node]) -> list[ir.Node]:
    """The nodes in topological order."""
    done: dict[ir.Node, None] = {}
    pending = list(chosen)
    while pending:
        producers = (value.producer() for value in pending[-1].inputs if value is not None)
        first = next((producer for producer in producers if producer in chosen and producer not in done), None)
        if first is not None:
            pending.append(first)
        else:
            done[pending.pop()] = None
    return list(done)


def _transposed(value: ir.Value, order: Order, near: ir.Node, scope: Scope) -> ir.Value:
    shape = scope.shape(value)
    made = scope.add(near, "Transpose", [value], perm=order)
    return made if shape is None else scope.tell(made, tuple(shape[axis] for axis in order), value)
