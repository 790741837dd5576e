"""Nodes that could be computed in another order of axes, and which of them best are: the fewest transpositions.

Each node is computed as written or permuted. A value that is needed in an order in which nobody computes it takes a
transposition; one that is transposed already is there in both. So the best choice is a cheapest cut of a graph whose
two ends are what can only be as written, and what is permuted anyway."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from opweld.rewrite.cut import sink_side
from opweld.rewrite.rules.permuted import Order, Permuted, inverse, keeps_elements, permuted_shape
from opweld.rewrite.scope import Scope, attribute, operand

LIMIT = 512
"""Nodes that are looked at from one transposition: what lies further is left as it is written."""

FEWER = 1 << 60
"""What a node counts, in bytes: first there are to be fewer, then smaller ones."""

ASSUMED = 64
"""The size of an axis of which nothing is known, where sizes are compared."""

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
    """Whether a node transposes by an order; a Reshape does too where only axes of one element change places."""
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
    """A value of a region: where it is computed, and what needs it how.

    Attributes:
        maker: the node of the region that computes it; None where it is given.
        entry: what it is a transposition of, so that it is there permuted too.
        inner: nodes of the region that read it in their own order.
        exits: nodes that turn it.
        outer: whether something else needs it as written.
    """

    maker: ir.Node | None
    entry: ir.Value | None
    inner: list[ir.Node] = field(default_factory=list[ir.Node])
    exits: list[ir.Node] = field(default_factory=list[ir.Node])
    outer: bool = False


@dataclass(frozen=True)
class Region:
    """Nodes that could be permuted, in no certain order, and the values that they read and give."""

    order: Order
    ways: Mapping[ir.Node, Permuted]
    uses: Mapping[ir.Value, Use]

    def parts(self, chosen: set[ir.Node]) -> list[set[ir.Node]]:
        """Those of the chosen nodes apart that share no value."""
        parts: list[set[ir.Node]] = []
        for use in self.uses.values():
            joined = {node for node in (use.maker, *use.inner) if node is not None and node in chosen}
            if joined:
                joined = joined.union(*(part for part in parts if part & joined))
                parts = [part for part in parts if not part & joined] + [joined]
        return parts

    def needs(self, permuted: set[ir.Node], value: ir.Value) -> tuple[bool, bool]:
        """Whether a value has to be permuted by a transposition, and whether it has to be permuted back by one."""
        use = self.uses[value]
        there = use.entry is not None or use.maker in permuted
        other = bool(use.exits) or any(node in permuted for node in use.inner)
        written = use.outer or any(node not in permuted for node in use.inner)
        return other and not there, written and there

    def transposed(self, permuted: set[ir.Node]) -> list[ir.Value]:
        """The values that take a transposition, one entry each."""
        return [value for value in self.uses for needed in self.needs(permuted, value) if needed]

    def more(self, permuted: set[ir.Node]) -> int:
        """Nodes that permuted ones take beyond one each."""
        return sum(self.ways[node].more for node in permuted)


def region_of(roots: Sequence[ir.Node], order: Order, ways: Ways, scope: Scope, *, after: bool) -> Region:
    """What hangs together with nodes that could be permuted, `after` a transposition by that order, or before one that
    turns back. The difference matters where a transposition is both."""
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
            maker = value.producer()
            maker = maker if maker is not None and maker.graph is scope.graph else None
            entry = maker.inputs[0] if maker is not None and transposes(maker, order, scope) else None
            uses[value] = Use(maker, entry)
            if maker is not None and entry is None:
                pending.append(maker)
            pending += [reader for reader in scope.readers(value) if reader.graph is scope.graph]
    both = {value for value, use in uses.items() if order == inverse(order) and use.entry in uses}
    for value in both if not after else ():
        uses[value].entry = None
    for value, use in uses.items():
        _fill(value, use, found, {maker for other in both if after and (maker := other.producer())}, order, scope)
    return Region(order, found, uses)


def _touched(node: ir.Node, way: Permuted) -> Iterator[ir.Value]:
    yield from (value for at in way.operands if (value := node.inputs[at]) is not None)
    if way.results:
        yield from (value for value in node.outputs if value.name)


def _fill(
    value: ir.Value, use: Use, found: Mapping[ir.Node, Permuted], entries: set[ir.Node], order: Order, scope: Scope
) -> None:
    """Who needs a value, and how; `entries` are no exits, though they could be."""
    if use.maker is not None and (use.maker not in found or not found[use.maker].results):
        use.maker = None
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
        elif use.maker is not None and not named:
            use.exits.append(reader)  # the node's result takes the name of the output
            named = True
        else:
            use.outer = True


def best(region: Region, scope: Scope) -> set[ir.Node]:
    """The nodes that are permuted where the fewest transpositions are left, and of as many, the smallest; none where
    as many are left."""
    edges: dict[tuple[Hashable, Hashable], int] = {}
    never = FEWER * FEWER

    def cost(start: Hashable, end: Hashable, amount: int) -> None:
        """It costs so much where the start is as written and the end is permuted."""
        edges[start, end] = edges.get((start, end), 0) + amount

    for node, way in region.ways.items():
        if way.more:
            cost("written", node, way.more * FEWER)
    for value, use in region.uses.items():
        price, permuted, back = FEWER + weight(value, scope), ("permuted", value), ("back", value)
        maker: Hashable = "permuted" if use.entry is not None else use.maker or "written"
        cost(maker, permuted, price)
        cost(back, maker, price)
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
        maker = use.maker if use.maker in chosen else None
        written = use.outer or any(node not in chosen for node in use.inner)
        if maker is not None and written:
            scope.replace(value, _transposed(there[value], region.order, maker, scope))
    for node in reversed(nodes):
        if node.graph is scope.graph:
            scope.drop(node)


def _in_order(chosen: set[ir.Node]) -> list[ir.Node]:
    """Each node after those whose results it reads."""
    done: dict[ir.Node, None] = {}
    pending = list(chosen)
    while pending:
        makers = (value.producer() for value in pending[-1].inputs if value is not None)
        first = next((maker for maker in makers if maker in chosen and maker not in done), None)
        if first is not None:
            pending.append(first)
        else:
            done[pending.pop()] = None
    return list(done)


def _transposed(value: ir.Value, order: Order, near: ir.Node, scope: Scope) -> ir.Value:
    shape = scope.shape(value)
    made = scope.add(near, "Transpose", [value], perm=order)
    return made if shape is None else scope.tell(made, tuple(shape[axis] for axis in order), value)
