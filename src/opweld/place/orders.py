"""Chooses lanes and axis orders, region by region in program order.

A contraction or window needs its lane axis innermost, which makes convolution networks channels-last; elementwise
regions and rows follow their operands. Graph inputs and outputs are row-major, as callers expect; if a reader goes
beyond the edges of one, it is first copied into a padded value.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from opweld.fuse.region import Kind, Member, Region, Regions, axes_in, counts_words, factors, reductions, word_of
from opweld.ledger import Alternative, Ledger
from opweld.place.halo import edge_tests, fill_of, halo_of
from opweld.place.lanes import Lanes, Memory, candidates, choose_lanes, lane_position, lanes_last, scattered
from opweld.place.products import products_of
from opweld.rules import LEVELS
from opweld.schedule.cost import COPY, GATHER, LINE, REFETCH, STREAMS, core_of, traffic
from opweld.schedule.expected import Expected
from opweld.schedule.schedule import WIDEST
from opweld.target import Target
from opweld.tensor.dim import Axis, Dim, FloorDiv, Mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, load, loads, substitute_loads
from opweld.tensor.program import Tensor, unused

ROW_MAJOR = "row-major"


class Orders:
    """The choices: `orders` by value, `lanes` by tensor, and the regions with the copies that were added.

    `dtypes` and `shapes` are those of every value, including copies; `readers` the loads of each; `fixed` the values
    whose storage is the caller's or an extern's."""

    def __init__(self, regions: Regions, expected: Expected, target: Target, ledger: Ledger) -> None:
        program = regions.program
        self.fixed = frozenset((*(v.name for v in program.inputs), *(v for _, v in program.outputs)))
        # Operands and results of externs are dense and row-major.
        externs = [region for region in regions.regions if region.extern is not None]
        self.fixed |= {name for region in externs for name in (*region.inputs, *region.outputs)}
        self.constants = frozenset(value.name for value in program.constants)
        self.shapes = {name: shape for name, (_, shape) in program.signatures.items()}
        self.dtypes: dict[str, DType] = {name: dtype for name, (dtype, _) in program.signatures.items()}
        self.orders = {v.name: tuple(range(len(v.shape))) for v in (*program.inputs, *program.constants)}
        self.lanes: dict[str, Lanes] = {}
        self.regions: list[Region] = []
        self._expected = expected
        self._target = target
        self._ledger = ledger
        self._copies: dict[tuple[str, str], str] = {}
        # The order in which values inside of a kernel are computed, for members that follow it.
        self._walked: dict[str, tuple[int, ...]] = {}
        self._reading = readers(regions.regions)
        self._words = words_of(regions.regions, self.constants)
        self._products = products_of(regions.regions, self.fixed)
        transforms = ledger.allows("schedule.algorithm")
        held = program.constant_bytes
        self._memory = Memory(self.orders, self.shapes, self.fixed, self.constants, held, transforms)
        for region in regions.regions:
            self._visit(region)
        self.readers = readers(self.regions)

    def _visit(self, region: Region) -> None:
        region = self._with_words(self._with_padded_inputs(region))
        self.regions.append(region)
        inner = {tensor.name for tensor in region.tensors} - set(region.outputs)
        if region.scan is not None:
            self.shapes |= {value.name: value.shape for value in (*region.scan.states, *region.tensors)}
            inner |= {state.name for state in region.scan.states}
        # Values inside of a kernel are row-major, and so are those in the caller's memory; except values between
        # register tiles, which have the layout of the producer's lanes.
        tiled = {member.tensor.name for member in region.members if region.of_tiles} & inner
        for name in (*inner - tiled, *region.outputs):
            if name in inner or name in self.fixed or region.scan is not None:
                self.orders[name] = tuple(range(len(self.shapes[name])))
        for number, member in enumerate(region.members):
            if member.reduces_tiles:
                self.lanes[member.tensor.name] = self._choose_lanes(member, region, number)
            for tensor in member.tensors:
                if tensor.name in tiled:
                    self.orders[tensor.name] = lanes_last(member, self.lanes[member.tensor.name])
                elif tensor.name not in self.orders:
                    self.orders[tensor.name] = self._order_of(member, tensor)
                elif tensor.name in inner:
                    self._walked[tensor.name] = self._order_like_inputs(tensor)

    def _choose_lanes(self, member: Member, region: Region, number: int) -> Lanes:
        # The first members of a recurrence's schedule set its states.
        first = 0 if region.scan is None else len(region.scan.states)
        field = (region.outputs[0], f"member {first + number}")
        axes = lane_axes(region, number)
        return choose_lanes(member, axes, self._memory, self._expected, self._target, self._ledger, field)

    # -------------------------------------------------------------------------------------------------- axis order

    def _order_of(self, member: Member, tensor: Tensor) -> tuple[int, ...]:
        natural = tuple(range(len(self.shapes[tensor.name])))
        lanes = self.lanes.get(tensor.name)
        if lanes is None or lanes.axis is None:
            return self._follow(tensor) if member.indices is None else natural
        position = lane_position(member, lanes)
        assert position is not None
        alone = (*(p for p in natural if p != position), position)
        joined = self._joined_order(tensor, alone)
        reason = f"axis {position} runs over vector lanes and is stored contiguously"
        if joined != alone:
            reason += ", next to it the axis that a reader iterates over with it as one"
        choices = {ROW_MAJOR: natural, "lanes-innermost": joined, "lanes-alone": alone}
        axis = lanes.axis

        def seconds(order: tuple[int, ...]) -> float:
            return self._written(tensor, order, position, axis) + self._walked_apart(tensor, order)

        return self._decide_order(tensor.name, tensor.origin, choices, joined, seconds, reason)

    def _written(self, tensor: Tensor, order: tuple[int, ...], position: int, lane: Axis) -> float:
        """Seconds of writing a value with lanes along the axis at a position: one by one, unless it is innermost."""
        elements = self._expected.product(tensor.shape)
        written = traffic(tensor.dtype.bytes * self._expected.product(self.shapes[tensor.name]), self._target)
        if order[-1] == position:
            return written
        return written + scattered(elements, self._expected(lane.extent), self._target) / core_of(self._target).hertz

    def _walked_apart(self, tensor: Tensor, order: tuple[int, ...]) -> float:
        """Seconds of additional loads of readers because vectors end at the innermost axis of the order."""
        if self._joined_order(tensor, order) == order:
            return 0.0
        inner = max(1, self._expected(self.shapes[tensor.name][order[-1]]))
        lanes, core = self._target.vector_lanes_f32, core_of(self._target)
        vectors = self._expected.product(self.shapes[tensor.name]) / inner * (-(-inner // lanes) - inner / lanes)
        return vectors / core.loads / core.hertz

    def _decide_order(
        self,
        name: str,
        origin: tuple[str, ...],
        choices: Mapping[str, tuple[int, ...]],
        wanted: tuple[int, ...],
        seconds: Callable[[tuple[int, ...]], float],
        reason: str,
        level: str = "",
    ) -> tuple[int, ...]:
        """Decides the order in which the axes of a value are stored, through the ledger, if there is more than one.

        choices: orders by name, row-major first; of equal ones the first is offered. wanted: the default
        unless another is faster. level: see `Ledger.decide`."""
        orders: dict[tuple[int, ...], str] = {}
        for called, order in choices.items():
            orders.setdefault(order, called)
        if len(orders) == 1:
            return wanted
        prices = {order: seconds(order) for order in orders}
        choice = self._ledger.decide(
            rule="place.order",
            site=origin,
            subject=(name,),
            alternatives=[Alternative(called, seconds=prices[order]) for order, called in orders.items()],
            prefer=orders[min(prices, key=lambda order: (prices[order], order != wanted))],
            reason=reason,
            level=level,
        )
        return choices[choice]

    def _follow(self, tensor: Tensor) -> tuple[int, ...]:
        """The order of elementwise work and rows: the order of most of their operands, at every level, so that results
        are stored in the order in which operands are read."""
        found = self._orders_of_inputs(tensor)
        natural = tuple(range(len(tensor.axes)))
        wanted = _largest(found.values(), natural)
        choices = {
            ROW_MAJOR: natural,
            **{f"like {self._ledger.label(name)}": order for name, (order, _) in found.items()},
        }
        reason = "the order of most of its operands, the first of equal ones"
        words = self._words.get(tensor.name)
        if words is not None:
            choices["words-innermost"] = _with_last(natural, words)

        def seconds(order: tuple[int, ...]) -> float:
            inner = _innermost(order, tensor.axes)
            walked = sum(size for own, size in found.values() if _innermost(own, tensor.axes) != inner)
            bytes_, elements = tensor.dtype.bytes, self._expected.product(tensor.shape)
            copied = 0.0 if words in (None, inner) else self._seconds_of_copy(elements)
            written = traffic(bytes_ * elements, self._target) + GATHER * walked / core_of(self._target).hertz
            return written + copied + self._multiplied(tensor.name, order)

        return self._decide_order(tensor.name, tensor.origin, choices, wanted, seconds, reason, LEVELS[0])

    def _multiplied(self, name: str, order: tuple[int, ...]) -> float:
        """Seconds of the contractions that multiply a value, or what is computed from it, if both are stored in this
        order."""
        seconds = 0.0
        for found in self._products.get(name, ()):
            member, axes = found.region.members[found.number], lane_axes(found.region, found.number)
            memory = replace(self._memory, orders=ChainMap({found.factor: order}, self.orders))
            prices = candidates(member, axes, memory, self._expected, self._target)
            seconds += min((price.seconds for price in prices), default=0.0)
        return seconds

    def _joined_order(self, tensor: Tensor, order: tuple[int, ...]) -> tuple[int, ...]:
        """Keeps together the axes that a reader derives from one index: for k // d and k % d, the first axis is placed
        next to the second, so that the reader iterates over both as one."""
        for node in self._reading.get(tensor.name, []):
            quotients = {d.atom.left: p for p, d in enumerate(node.indices) if isinstance(d.atom, FloorDiv)}
            for position, dim in enumerate(node.indices):
                if isinstance(dim.atom, Mod) and dim.atom.left in quotients and position == order[-1]:
                    outer = quotients[dim.atom.left]
                    return (*(p for p in order if p not in (outer, position)), outer, position)
        return order

    def _order_like_inputs(self, tensor: Tensor) -> tuple[int, ...]:
        """The order of the largest operand that spans all axes (the first of equal ones), in terms of the tensor's
        axes."""
        return _largest(self._orders_of_inputs(tensor).values(), tuple(range(len(tensor.axes))))

    def _orders_of_inputs(self, tensor: Tensor) -> dict[str, tuple[tuple[int, ...], int]]:
        """The order, in terms of the tensor's axes, and the size of each operand that spans all of them.

        Operands that span only some, such as the indices of a gather, are ignored."""
        natural = tuple(range(len(tensor.axes)))
        long = {position for position in natural if tensor.axes[position].extent.constant != 1}
        found: dict[str, tuple[tuple[int, ...], int]] = {}
        for node in loads(tensor.body):
            source_order = self._walked.get(node.tensor, self.orders.get(node.tensor))
            if source_order is None or node.tensor in self.constants:
                continue
            nested: list[int] = []
            for source_axis in source_order:
                index = node.indices[source_axis]
                nested += [p for p, axis in enumerate(tensor.axes) if p not in nested and index.depends_on(axis)]
            if long <= set(nested) and node.tensor not in found:
                order = (*(p for p in natural if p not in nested), *nested)
                found[node.tensor] = order, self._expected.product(self.shapes[node.tensor])
        return found

    # ------------------------------------------------------------------------------------------------------- words

    def _with_words(self, region: Region) -> Region:
        """Copies each value of which a contraction multiplies words, where the elements of a word are no neighbours in
        memory, and reads the copy instead."""
        moved: dict[str, str] = {}
        for name, position in words_of((region,), self.constants).items() if region.kind is not None else ():
            order = self.orders.get(name)
            if order is None or _innermost_of(order, self.shapes[name]) == position:
                continue
            (tensor,), elements = region.tensors, self._expected.product(self.shapes[name])
            choice = self._ledger.decide(
                rule="place.pack",
                site=tensor.origin,
                subject=(tensor.name, name, "words"),
                alternatives=(
                    Alternative("strided", 0, seconds=self._without_words(tensor)),
                    Alternative("copy", elements, seconds=self._seconds_of_copy(elements)),
                ),
                reason="products of the elements of a word are summed at once where these are neighbours",
            )
            if choice == "copy":
                moved[name] = self._copy_of_words(name, position, tensor)
        return region.rewritten(lambda t: _read_instead(t, moved)) if moved else region

    def _without_words(self, tensor: Tensor) -> float:
        """Seconds that products of words take more when each element is multiplied and added on its own."""
        node = reductions(tensor.body)[0]
        products = self._expected.product(axis.extent for axis in (*tensor.axes, *node.axes))
        core = core_of(self._target)
        return (2 - 1 / word_of(node)) * products / self._target.vector_lanes_f32 / core.products / core.hertz

    def _seconds_of_copy(self, elements: int) -> float:
        core = core_of(self._target)
        return core.launch + COPY * elements / core.hertz

    def _copy_of_words(self, source: str, position: int, reader: Tensor) -> str:
        key = source, "words"
        if key in self._copies:
            return self._copies[key]
        name = self._copies[key] = self._copied(key, reader)
        natural = tuple(range(len(self.shapes[source])))
        wanted = _with_last(natural, position)
        without = self._without_words(reader)

        def seconds(order: tuple[int, ...]) -> float:
            return 0.0 if order == wanted else without

        choices = {ROW_MAJOR: natural, "words-innermost": wanted}
        reason = "the elements of a word are neighbours"
        self.orders[name] = self._decide_order(name, reader.origin, choices, wanted, seconds, reason, LEVELS[0])
        return name

    # ----------------------------------------------------------------------------------------------- padded copies

    def _with_padded_inputs(self, region: Region) -> Region:
        """Copies each value of fixed storage that a contraction or window reads beyond its edges, and redirects the
        reader to the copy."""
        if region.scan is not None:
            return region
        sites = [(m.tensor, node) for m in region.members if m.reduces_tiles for node in loads(m.tensor.body)]
        asked: set[tuple[str, str]] = set()
        moved: dict[str, dict[str, str]] = {}
        for tensor, node in sites:
            name = node.tensor
            if not node.guards or name not in self.fixed or (name, tensor.name) in asked:
                continue
            if halo_of(node, self.shapes[name]) is None or fill_of(node) is None:
                continue
            asked.add((name, tensor.name))
            reason = "its storage is the caller's, and its readers go beyond its edges"
            key = name, "padded"
            if key in self._copies:
                reason = "a padded copy is there already, for another reader"
            size = self.dtypes[name].bytes * self._expected.product(self.shapes[name])
            copied = 0.0 if key in self._copies else core_of(self._target).launch + 2 * traffic(size, self._target)
            choice = self._ledger.decide(
                rule="place.halo",
                site=tensor.origin,
                subject=(name, tensor.name),
                alternatives=(
                    Alternative("test-edges", seconds=self._edge_tests(tensor, node)),
                    Alternative("copy-with-halo", seconds=copied),
                ),
                reason=reason,
            )
            if choice == "copy-with-halo":
                if key not in self._copies:
                    self._copies[key] = self._padded_copy(key, node, tensor)
                moved.setdefault(tensor.name, {})[name] = self._copies[key]
        return region.rewritten(lambda t: _redirected(t, moved[t.name]) if t.name in moved else t) if moved else region

    def _edge_tests(self, tensor: Tensor, node: Load) -> float:
        """Seconds of the guards of a load. A broadcast factor is loaded once for each tile."""
        single: dict[Load, float] = {}
        if node in (factors(reductions(tensor.body)[0]) or ()):
            others = self._expected.product(axis.extent for axis in tensor.axes if axis not in axes_in(node))
            single[node] = max(1.0, others / (WIDEST * self._target.vector_lanes_f32))
        return edge_tests([node], single, self._expected, self._target)

    def _padded_copy(self, key: tuple[str, str], node: Load, reader: Tensor) -> str:
        name = self._copied(key, reader)
        self.orders[name] = self._order_of_copy(name, node, reader)
        return name

    def _copied(self, key: tuple[str, str], reader: Tensor) -> str:
        """The name of a copy of a value, made before its reader is computed; its order is left to the caller.

        key: the value, and what the copy is called beside it."""
        source, how = key
        name = unused(f"{source}_{how}", self.shapes)
        shape, dtype = self.shapes[source], self.dtypes[source]
        axes = tuple(Axis(f"i{p}", extent) for p, extent in enumerate(shape))
        tensor = Tensor(name, dtype, axes, load(source, dtype, tuple(a.dim for a in axes)), reader.origin)
        self.shapes[name], self.dtypes[name] = shape, dtype
        self.regions.append(Region.single(Kind.MAP, (tensor,), (name,)))
        return name

    def _order_of_copy(self, name: str, node: Load, tensor: Tensor) -> tuple[int, ...]:
        """Sliding axes keep their order; the others (channels) become innermost if they are more than the prefetch
        streams of a core, since each tap would wait for every line. An image of few channels is best copied in its own
        order."""
        natural = tuple(range(len(node.indices)))
        slides = [p for p in natural if len(axes_in(_only(node, p))) > 1]
        last = [p for p in natural if slides and p not in slides and p > 0]
        choices = {ROW_MAJOR: natural, "channels-last": (*(p for p in natural if p not in last), *last)}
        # Those that each result reads one of are not read in parallel.
        summed = [p for p in last if axes_in(_only(node, p)) - set(tensor.axes)]
        channels = self._expected.product(self.shapes[name][p] for p in summed)
        taps = {axis for p in slides for axis in axes_in(_only(node, p)) if axis not in tensor.axes}
        elements = self._expected.product(self.shapes[name])
        copied = 2 * traffic(node.dtype.bytes * elements, self._target)
        turned = COPY * elements
        waited = 0.0
        words = self._words.get(node.tensor)
        if words is not None:
            choices["words-innermost"] = _with_last(natural, words)
        if channels > STREAMS:
            waited = REFETCH * node.dtype.bytes * elements / LINE * self._expected.product(a.extent for a in taps)

        def seconds(order: tuple[int, ...]) -> float:
            apart = 0.0 if words is None or order[-1] == words else self._without_words(tensor)
            return copied + (waited if order == natural else turned) / core_of(self._target).hertz + apart

        reason = f"{channels} channels are read in parallel, {STREAMS} of which are prefetched, or copied together"
        return self._decide_order(name, tensor.origin, choices, natural, seconds, reason, LEVELS[0])


def _innermost(order: Sequence[int], axes: Sequence[Axis]) -> int | None:
    return _innermost_of(order, [axis.extent for axis in axes])


def _innermost_of(order: Sequence[int], shape: Sequence[Dim]) -> int | None:
    """The last axis of an order that has more than one element."""
    return next((position for position in reversed(order) if shape[position].constant != 1), None)


def _with_last(order: tuple[int, ...], position: int) -> tuple[int, ...]:
    """An order with one axis moved to its end."""
    return (*(p for p in order if p != position), position)


def words_of(regions: Iterable[Region], constants: Container[str]) -> dict[str, int]:
    """For each value of which a contraction multiplies words by constants, the axis along which their elements lie."""
    found: dict[str, int] = {}
    for member in (member for region in regions for member in region.members if member.kind is Kind.CONTRACTION):
        node = reductions(member.tensor.body)[0]
        word = word_of(node)
        if word == 1:
            continue
        for site in loads(node.body):
            axes = [axis for axis in node.axes if site.tensor not in constants]
            places = [
                p for p, index in enumerate(site.indices) if any(counts_words(index, axis, word) for axis in axes)
            ]
            if places:
                found[site.tensor] = places[-1]
    return found


def _largest(found: Iterable[tuple[tuple[int, ...], int]], natural: tuple[int, ...]) -> tuple[int, ...]:
    """The order of the largest, the first of equal ones; the natural order if there is none."""
    return max(found, key=lambda entry: entry[1], default=(natural, 0))[0]


def lane_axes(region: Region, number: int) -> tuple[Axis, ...]:
    """The axes along which the lanes of a member may run: in a block, not those that all members share."""
    member = region.members[number]
    if region.block is None:
        return member.tensor.axes
    return tuple(axis for axis in member.tensor.axes if axis not in region.block.rows[number])


def readers(regions: tuple[Region, ...] | list[Region]) -> dict[str, list[Load]]:
    """The loads of each value."""
    found: dict[str, list[Load]] = {}
    for region in regions:
        for body in region.bodies:
            for node in loads(body):
                found.setdefault(node.tensor, []).append(node)
    return found


def _only(node: Load, position: int) -> Load:
    found = load(node.tensor, node.dtype, (node.indices[position],))
    assert isinstance(found, Load)
    return found


def _read_instead(tensor: Tensor, copies: Mapping[str, str]) -> Tensor:
    """The tensor with loads of copies of the same shape in place of what was copied."""

    def moved(node: Load) -> Expr | None:
        name = copies.get(node.tensor)
        return None if name is None else load(name, node.dtype, node.indices, node.guards, node.fill)

    return replace(tensor, body=substitute_loads(tensor.body, moved))


def _redirected(tensor: Tensor, copies: Mapping[str, str]) -> Tensor:
    """The tensor with loads beyond edges redirected to copies."""

    def moved(node: Load) -> Expr | None:
        if node.tensor in copies and node.guards:
            return load(copies[node.tensor], node.dtype, node.indices, node.guards, node.fill)
        return None

    return replace(tensor, body=substitute_loads(tensor.body, moved))
