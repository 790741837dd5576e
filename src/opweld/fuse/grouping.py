"""Rows: reductions over one row space, and the elementwise work around them, share a resident row."""

from __future__ import annotations

from dataclasses import replace
from heapq import heapify, heappop, heappush

from opweld.fuse.order import Group, Order
from opweld.fuse.prices import ElementWork, Price
from opweld.fuse.region import Kind, Region, is_view
from opweld.fuse.rows import RowSpace
from opweld.fuse.steps import fold_steps, recurrence
from opweld.fuse.use_def import UseDef, bytes_of, key_of, of_one_node, too_much
from opweld.tensor.axes import split
from opweld.tensor.dim import ZERO
from opweld.tensor.program import Extern, Item, Scan, Tensor, item_outputs

RULE = "fuse.rows"
"""The rule of every decision here."""


def join_rows(graph: UseDef) -> RowGroups:
    """Finds the row spaces of a program: tensors that are computed together, row by row."""
    rows = RowGroups(graph)
    rows.join()
    return rows


class RowGroups:
    """The row spaces of a program, found in one pass in program order, and the order of everything."""

    def __init__(self, graph: UseDef) -> None:
        self._graph = graph
        self._order = Order()
        self._space_of: dict[str, RowSpace] = {}
        self._nodes: dict[RowSpace, int] = {}
        self._operands: dict[RowSpace, set[str]] = {}
        self._works: dict[RowSpace, ElementWork] = {}

    def join(self) -> None:
        """Goes through the program once."""
        graph = self._graph
        for key, item in graph.items.items():
            self._order.add(key, (graph.producer[name] for name in graph.inputs(item) if name in graph.producer))
            if isinstance(item, Tensor) and graph.kind(item) in (Kind.MAP, Kind.ROWWISE):
                self._place(item)

    def space(self, name: str) -> RowSpace | None:
        """The row space that a tensor lies in, if any."""
        return self._space_of.get(name)

    def regions(self) -> tuple[Region, ...]:
        """A region for each row space and each other item, in an order in which all inputs exist."""
        made: dict[Group, Region] = {}
        for key, item in self._graph.items.items():
            group = self._order.group(key)
            if group not in made:
                space = self._space_of.get(key)
                made[group] = self._lone_region(item) if space is None else self._row_region(space)
        return tuple(made[group] for group in self._order.sequence())

    # ---------------------------------------------------------------------------------------------------- joining

    def _place(self, item: Tensor) -> None:
        """Adds a tensor to a row that it reads, or begins a row with it."""
        read = (self._space_of[name] for name in self._graph.inputs(item) if name in self._space_of)
        for space in reversed(list(dict.fromkeys(read))):
            if self._joins(item, space):
                return
        if self._graph.kind(item) is Kind.ROWWISE:
            space = RowSpace.of(item)
            self._count(item, space, self._graph.prices.work(item))
            self._pull_producers(space)

    def _joins(self, item: Tensor, space: RowSpace) -> bool:
        """Adds a user of a row to it when it runs over the same rows."""
        graph, last = self._graph, space.tensors[-1]
        failed: dict[str, int | str] = {}
        if graph.is_joined(item):
            failed["user"] = "concatenation"
        elif (misfit := space.misfit(item)) is not None:
            failed["rows"] = misfit
        else:
            failed = self._refusal(item, space)
        reads = [name for name in graph.inputs(item) if self._space_of.get(name) is space]
        graph.mark(reads, item.name)
        own = bool(item.origin) and all(tensor.origin == item.origin for tensor in space.tensors)
        work, price = self._with(item, space)
        saved = bytes_of(item)
        if "rows" in failed:  # what lies between is written, and read again
            saved = sum((2 * bytes_of(tensor) for tensor in space.tensors if tensor.name in reads), ZERO)
        if not graph.joins(RULE, last, item, "the row is resident", failed, price, saved, own=own):
            return False
        space.add(item)
        self._count(item, space, work)
        self._order.join(item.name, last.name)
        if space.picks(item):
            self._pull_row_values(item, space)
        return True

    def _pull_producers(self, space: RowSpace) -> None:
        """Elementwise tensors that a new row reads are computed while it is read (and stored if others need them)."""
        graph, first = self._graph, space.anchor
        for name in graph.inputs(first):
            if name in self._space_of and graph.asked(name, first.name):
                continue
            if (source := self._elementwise(name)) is not None:
                misfit = "" if space.accepts_producer(source) else f"{name} is not read once at the place in the row of"
                self._pull(source, first, space, misfit, "computed while the row is read")

    def _pull_row_values(self, item: Tensor, space: RowSpace) -> None:
        """Elementwise tensors with one value a row that a new member reads, and those that these read, are computed
        with it. The last come first: all that reads a value is there when it is looked at."""
        graph = self._graph
        reader = dict.fromkeys(graph.inputs(item), item)
        pending = [(-graph.position[name], name) for name in reader if self._elementwise(name) is not None]
        heapify(pending)
        while pending:
            _, name = heappop(pending)
            source = graph.tensor(name)
            if source is None or name in self._space_of or not space.accepts_row_value(source):
                continue
            if not self._pull(source, reader[name], space, "", "one value a row, which a member needs"):
                continue
            for inner in graph.inputs(source):
                if inner not in reader and self._elementwise(inner) is not None:
                    reader[inner] = source
                    heappush(pending, (-graph.position[inner], inner))

    def _elementwise(self, name: str) -> Tensor | None:
        source = self._graph.tensor(name)
        return source if source is not None and self._graph.kind(source) is Kind.MAP else None

    def _pull(self, source: Tensor, reader: Tensor, space: RowSpace, misfit: str, reason: str) -> bool:
        """Adds a tensor that a member of a row reads to the row; misfit: why it cannot be there."""
        graph, failed = self._graph, dict[str, int | str]()
        if source.name in self._space_of:
            failed["source"] = "computed with another row"
        elif graph.is_joined(source):
            failed["source"] = "concatenation"
        elif is_view(source):
            failed["source"] = "copied data, which is as well read where it is"
        elif misfit:
            failed["rows"] = f"{misfit} {reader.name}"
        else:
            failed = self._refusal(source, space)
        own = of_one_node(source.origin, reader.origin)
        work, price = self._with(source, space)
        if not graph.joins(RULE, source, reader, reason, failed, price, bytes_of(source), "producer", own=own):
            return False
        space.add_source(source)
        self._count(source, space, work)
        self._order.join(source.name, reader.name)
        return True

    def _refusal(self, item: Tensor, space: RowSpace) -> dict[str, int | str]:
        """Why a tensor that fits the rows is not computed with them: it is too much, or in the wrong order."""
        operands = self._operands[space] | set(self._graph.inputs(item))
        nodes = self._nodes[space] + self._graph.size(item)
        if failed := too_much(nodes=nodes, operands=len(operands - {item.name, *space.names})):
            return failed
        obstacle = self._order.obstacle(space.anchor.name, item.name)
        return {} if obstacle is None else {"order": obstacle}

    def _with(self, item: Tensor, space: RowSpace) -> tuple[ElementWork, Price]:
        """What a row takes with a tensor more, and beside it: together, each value is read once that either reads, and
        what only they read is not written."""
        graph, prices = self._graph, self._graph.prices
        row, own = self._works[space], prices.work(item)
        inner = {*space.names, item.name}
        read = [name for name in graph.inputs(item) if name in self._operands[space] or name in inner]
        read += [item.name] if item.name in self._operands[space] else []
        between = [item.name, *(name for name in graph.inputs(item) if name in inner)]
        gone = [n for n in between if n not in graph.kept and not self._read_outside(n, inner)]
        together = replace(
            row,
            cycles=row.cycles + own.cycles,
            reads=max(0.0, row.reads + own.reads - sum(map(prices.moved, read))),
            writes=max(0.0, row.writes + own.writes - sum(map(prices.moved, gone))),
        )
        return together, Price(prices.seconds(row, own), prices.seconds(together))

    def _count(self, item: Tensor, space: RowSpace, work: ElementWork) -> None:
        self._works[space] = work
        self._space_of[item.name] = space
        self._nodes[space] = self._nodes.get(space, 0) + self._graph.size(item)
        self._operands.setdefault(space, set()).update(self._graph.inputs(item))

    # ---------------------------------------------------------------------------------------------------- regions

    def _lone_region(self, item: Item) -> Region:
        """A region of one item; a tensor's axes are split where operands take them apart, so that each has its own."""
        if isinstance(item, Scan):
            return recurrence(fold_steps(item, self._graph.prices, self._graph.ledger), self._graph.constants)
        if isinstance(item, Extern):
            return Region((), item_outputs(item), extern=item)
        kind = self._graph.kind(item)
        assert kind is not None
        if kind not in (Kind.CONTRACTION, Kind.WINDOW):
            return Region.single(kind, (item,), (item.name,))
        axes, body, place = split(item.axes, item.body, tuple(axis.dim for axis in item.axes))
        return Region.single(kind, (replace(item, axes=axes, body=body),), (item.name,), place)

    def _row_region(self, space: RowSpace) -> Region:
        """A region of a row space; in memory is kept what others read."""
        inner = set(space.names)
        outputs = tuple(name for name in space.names if name in self._graph.kept or self._read_outside(name, inner))
        return Region.single(Kind.ROWWISE, tuple(space.tensors), outputs, space=space)

    def _read_outside(self, name: str, inner: set[str]) -> bool:
        return any(key_of(user) not in inner for user in self._graph.users(name))
