"""Packs operands in the order in which the lanes of a contraction or window read them.

A constant is packed at compile time: [n / width][reduced axes][n % width], with the reduced axes nested in the order of
the other operand. A computed operand with strided lanes is copied once, with its lane axis innermost. The lane axis was
chosen before, with the storage of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from opweld.fuse.region import Kind, Member, Region, axes_in, counts_words, reductions, word_of
from opweld.fuse.saturation import gains_by_pairs, pairs_fit
from opweld.ledger import Alternative, Crossover, Ledger
from opweld.place.halo import inside_halo
from opweld.place.lanes import Lanes, lanes_last, row_tiles
from opweld.place.placed import Placed
from opweld.place.storage import Storage, blocked, dense, dense_apart
from opweld.place.winograd import seconds_by_winograd, straight, taps_of, tiled, transformed
from opweld.schedule.cost import (
    GATHER,
    GUARD,
    LINE,
    copy_cycles,
    core_of,
    load_cycles,
    misses,
    padded,
    traffic,
)
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.axes import by_stride
from opweld.tensor.dim import ONE, Axis, Dim, Symbol, as_dim, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, Reduce, load, loads, substitute_loads
from opweld.tensor.program import Constant, Tensor, unused


def pack(placed: Placed, expected: Expected, target: Target, ledger: Ledger) -> Placed:
    """Rewrites contractions and windows to read packed operands."""
    return _Packer(placed, expected, target, ledger).run()


class _Packer:
    def __init__(self, placed: Placed, expected: Expected, target: Target, ledger: Ledger) -> None:
        self._placed = placed
        self._expected = expected
        self._target = target
        self._hertz = core_of(target).hertz
        self._ledger = ledger
        self._storages = dict(placed.storages)
        self._constants = dict(placed.constants)
        self._regions: list[Region] = []
        self._packed: dict[tuple[Constant, Storage], str] = {}
        self._copied: dict[str, int] = {}
        self._shapes = placed.shapes
        self._lanes = dict(placed.lanes)

    def run(self) -> Placed:
        for region in self._placed.regions:
            inner = {t.name: self._between(region, t) for t in region.tensors if t.name not in region.outputs}
            if region.scan is not None:
                inner |= {s.name: dense(s.name, s.dtype, s.shape) for s in region.scan.states}
            known = self._storages | inner if region.kind is None else self._storages
            change = partial(self._packed_reduction, known=known, copies=region.scan is None)
            if region.kind is Kind.CONTRACTION and self._by_winograd(region.members[0], region.outputs[0]):
                self._regions.append(region)
            else:
                self._regions.append(region.rewritten(change))
        return replace(
            self._placed,
            regions=tuple(self._regions),
            storages=self._storages,
            constants=self._constants,
            lanes=self._lanes,
        )

    def _between(self, region: Region, tensor: Tensor) -> Storage:
        """A value that is only passed between members, as scratch nests its axes: row-major, but with the lanes of the
        register tiles that make it innermost (see `block_of`)."""
        if not region.of_tiles:
            return dense(tensor.name, tensor.dtype, tensor.shape)
        (member,) = (member for member in region.members if member.tensor is tensor)
        order = lanes_last(member, self._lanes[tensor.name])
        return dense(tensor.name, tensor.dtype, self._shapes[tensor.name], order)

    def _by_winograd(self, member: Member, region: str) -> bool:
        """Whether a convolution is computed by Winograd's algorithm: with weights transformed at compile time."""
        tensor = member.tensor
        lanes = self._lanes[tensor.name]
        if lanes.along is None or lanes.across is None or lanes.axis is None:
            return False
        taps = taps_of(tensor, lanes.axis, lanes.along, lanes.across)
        if taps is None:
            return False
        known = lanes.along.tensor in self._constants
        source = self._constants[lanes.along.tensor] if known else None
        made = None if source is None else transformed("", source, lanes.along, taps, lanes.axis)
        failed: dict[str, int | str] = {}
        if not straight(tensor, member.place, taps, lanes.axis, lanes.across, self._storages):
            failed["channels"] = "they are not contiguous in memory"
        elif made is None:
            failed["weights"] = "known at run time only" if source is None else "only a part of them is read"
        held = self._placed.program.constant_bytes
        shape = tiled(tensor, lanes.axis, lanes.vectors, taps, held, self._expected, self._target)
        direct = shape.direct(self._expected(taps.y.extent), self._expected(taps.x.extent))
        choice = self._ledger.decide(
            rule="schedule.algorithm",
            site=tensor.origin,
            subject=(tensor.name,),
            alternatives=(
                Alternative("direct", seconds=direct),
                Alternative("winograd", seconds=None if failed else seconds_by_winograd(shape)),
            ),
            prefer="direct" if failed else None,
            reason="16 products for four results instead of 36, and transforms",
            failed=failed,
            field=(region, "member 0"),
            constant=lanes.along.tensor if known else "",
        )
        if choice == "direct" or made is None:
            return False
        width = self._target.vector_lanes_f32 * lanes.vectors
        name = self._added(lanes.along.tensor, made, blocked("", made.dtype, made.shape, (0, 2, 1), 1, width))
        self._lanes[tensor.name] = replace(lanes, winograd=name)
        return True

    def _packed_reduction(self, tensor: Tensor, known: Mapping[str, Storage], copies: bool) -> Tensor:
        """A reduction over packed operands; other tensors unchanged; `copies`: operands may be copied before."""
        lanes = self._placed.lanes.get(tensor.name)
        if lanes is None or lanes.axis is None:
            return tensor
        body = self._reduction(tensor, lanes, known, copies)
        return tensor if body is tensor.body else replace(tensor, body=body)

    def _reduction(self, tensor: Tensor, lanes: Lanes, known: Mapping[str, Storage], copies: bool) -> Expr:
        assert lanes.axis is not None
        if lanes.along is None or lanes.across is None:
            return self._beside(tensor, lanes.axis)
        old, new = lanes.along, None
        if old.tensor in self._constants:
            name = self._pack_constant(tensor, lanes, old, known[lanes.across.tensor].address(lanes.across.indices))
            new = load(name, old.dtype, old.indices, old.guards, old.fill)
        elif copies and old.tensor in self._storages:  # values in scratch are not copied
            new = self._copy(tensor, lanes, old)
        body = tensor.body if new is None else substitute_loads(tensor.body, lambda n: new if n is old else None)
        return self._beside(replace(tensor, body=body), lanes.axis, new or old)

    # ------------------------------------------------------------------------------------------------------ constants

    def _beside(self, tensor: Tensor, lane: Axis, packed: Expr | None = None) -> Expr:
        """Constants with strided lanes beside packed ones are stored with the lane axis innermost: depthwise weights,
        scales of blocks."""
        body = tensor.body
        for node in loads(body):
            positions = [p for p, dim in enumerate(node.indices) if dim.depends_on(lane)]
            if node is packed or node.tensor not in self._constants or len(positions) != 1 or node.guards:
                continue
            if self._storages[node.tensor].address(node.indices).coefficient(lane) is ONE:
                continue
            taps = (axis for reduce in reductions(body) for axis in reduce.axes)
            elements = self._expected.product(axis.extent for axis in (*tensor.axes, *taps))
            vectors = elements / self._target.vector_lanes_f32
            choice = self._ledger.decide(
                rule="place.pack",
                site=tensor.origin,
                subject=(tensor.name, node.tensor, str(node.indices)),
                alternatives=(
                    Alternative("strided", seconds=GATHER * elements / self._hertz),
                    Alternative("lanes-innermost", seconds=vectors / core_of(self._target).loads / self._hertz),
                ),
                reason="its lanes are contiguous",
                constant=node.tensor,
            )
            if choice == "strided":
                continue
            shape = self._constants[node.tensor].shape
            order = (*(p for p in range(len(shape)) if p != positions[0]), positions[0])
            storage = dense("", node.dtype, tuple(map(as_dim, shape)), order)
            new = load(self._repacked(self._constants[node.tensor], storage), node.dtype, node.indices)
            body = substitute_loads(body, lambda found, old=node, new=new: new if found is old else None)
        return body

    def _pack_constant(self, tensor: Tensor, lanes: Lanes, node: Load, across: Dim) -> str:
        assert lanes.axis is not None
        constant = self._constants[node.tensor]
        position = next(p for p, dim in enumerate(node.indices) if dim.depends_on(lanes.axis))
        order = _nesting(node, position, reductions(tensor.body)[0], across)
        width = self._target.vector_lanes_f32 * lanes.vectors
        slope, others = node.indices[position].coefficient(lanes.axis), node.indices[position].without(lanes.axis)
        fits = slope is ONE and all(coefficient % width == 0 for _, coefficient in others.terms)
        rows, blocks = self._weight_prices(tensor, lanes, node, position)
        words = _words(node, reductions(tensor.body)[0], across)
        gains = constant.dtype is DType.I8 and gains_by_pairs(self._target)
        fit = gains and words is not None and pairs_fit(constant.read(), words)
        choice = self._ledger.decide(
            rule="place.pack",
            site=tensor.origin,
            subject=(tensor.name, node.tensor),
            alternatives=(
                Alternative("lanes-innermost", seconds=rows),
                Alternative("blocked", seconds=blocks if fits else None),
            ),
            prefer="blocked" if fits and blocks <= rows else "lanes-innermost",
            reason=f"blocks of {width} lanes are read front to back" if fits else "blocks would straddle heads",
            failed={} if fits else {"index": str(node.indices[position])},
            constant=node.tensor,
        )
        shape = constant.shape
        if choice == "blocked" or words is not None:
            block = width if choice == "blocked" else shape[position]
            packed = blocked("", constant.dtype, shape, order, position, block, words)
            return self._repacked(constant, replace(packed, pairs_fit=fit))
        return self._repacked(constant, dense("", constant.dtype, tuple(map(as_dim, shape)), (*order, position)))

    def _weight_prices(self, tensor: Tensor, lanes: Lanes, node: Load, position: int) -> tuple[float, float]:
        """Seconds of loading weights in addition to their bytes, which are the same: (lanes innermost, blocked).

        Vectors of rows whose size is not a multiple of them cross cache lines, and each step goes to another row, which
        prefetchers do not predict if rows are far apart."""
        constant, core = self._constants[node.tensor], core_of(self._target)
        elements = self._expected.product(axis.extent for axis in axes_in(node))
        loaded = (
            elements
            / self._target.vector_lanes_f32
            * self._passes(tensor, lanes, self._expected)
            / core.loads
            / core.hertz
        )
        bytes_, width = constant.dtype.bytes, self._target.vector_bytes
        crossing = 0.0 if constant.shape[position] * bytes_ % width == 0 else (width - bytes_) / LINE
        steps = self._expected.product(axis.extent for axis in reductions(tensor.body)[0].axes)
        return loaded * (1 + crossing) + misses(steps, bytes_ * elements, self._target), loaded

    @staticmethod
    def _rows(tensor: Tensor, lanes: Lanes) -> Sequence[Dim]:
        """The sizes of the axes of rows that read an element of the vectorised operand. Axes of both operands, as those
        of a batch, are none."""
        assert lanes.along is not None and lanes.across is not None
        rows = axes_in(lanes.across) - axes_in(lanes.along)
        return [axis.extent for axis in tensor.axes if axis in rows]

    def _passes(self, tensor: Tensor, lanes: Lanes, expected: Expected) -> int:
        """The number of row tiles that read an element of the vectorised operand."""
        return row_tiles(self._rows(tensor, lanes), lanes.vectors, tensor.dtype, expected, self._target)

    def _repacked(self, constant: Constant, storage: Storage) -> str:
        """The name of a constant's copy in this storage; `storage.root` is empty."""
        key = (constant, storage)
        name = self._packed.get(key)
        if name is None:
            name = self._packed[key] = self._added(constant.name, constant, storage)
        return name

    def _added(self, source: str, made: Constant, storage: Storage) -> str:
        """The name of a new constant computed from another one."""
        number = self._copied.get(source, 0)
        # Names of inputs are chosen by the model and may collide.
        while f"{source}_packed{number}" in self._storages:
            number += 1
        self._copied[source] = number + 1
        name = f"{source}_packed{number}"
        self._storages[name] = replace(storage, root=name)
        self._constants[name] = replace(made, name=name)
        return name

    # -------------------------------------------------------------------------------------------------------- copies

    def _copy(self, tensor: Tensor, lanes: Lanes, node: Load) -> Expr | None:
        """The load of a copy with lanes innermost; None if the operand is not copied."""
        lane = lanes.axis
        assert lane is not None
        storage = self._storages[node.tensor]
        free = not node.guards or inside_halo(node, storage, self._shapes.get(node.tensor, ()))
        if storage.address(node.indices).coefficient(lane) is ONE and free:
            return None
        axes = (*sorted(axes_in(node) - {lane}, key=lambda a: a.number), lane)
        guards = 0 if free else len(node.guards)
        prices = partial(self._copy_prices, tensor, lanes, node, axes, guards)
        strided, copied = prices(self._expected)
        size = product((as_dim(node.dtype.bytes), *(axis.extent for axis in axes)))
        choice = self._ledger.decide(
            rule="place.pack",
            site=tensor.origin,
            subject=(tensor.name, node.tensor),
            alternatives=(
                Alternative("strided", 0, seconds=strided),
                Alternative("copy", size.constant or str(size), seconds=copied),
            ),
            reason="its lanes are not contiguous in memory; each is read "
            f"{self._passes(tensor, lanes, self._expected)} times",
            crossovers=partial(self._crossovers, tensor, lanes, prices),
        )
        if choice == "strided":
            return None
        copy = Tensor(unused(f"{tensor.name}_lanes", self._storages), node.dtype, axes, node, tensor.origin)
        self._storages[copy.name] = dense_apart(copy.name, copy.dtype, copy.shape)
        self._regions.append(Region.single(Kind.MAP, (copy,), (copy.name,)))
        return load(copy.name, copy.dtype, tuple(a.dim for a in axes))

    def _copy_prices(
        self, tensor: Tensor, lanes: Lanes, node: Load, axes: Sequence[Axis], guards: int, expected: Expected
    ) -> tuple[float, float]:
        """Seconds of loading an operand over these axes, the last of which is that of the lanes: (strided, copied
        before). `guards`: those that each load tests."""
        elements = expected.product(axis.extent for axis in axes)
        # Unused lanes are gathered like others.
        extent = max(1, expected(axes[-1].extent))
        passes = self._passes(tensor, lanes, expected)
        gathered = elements / extent * padded(extent, self._target.vector_lanes_f32) * passes
        width = self._target.vector_lanes_f32
        stride = self._storages[node.tensor].address(node.indices).coefficient(axes[-1])
        strided = (load_cycles(stride, width) / width + GUARD * guards) * gathered / self._hertz
        copied = (
            core_of(self._target).launch
            + copy_cycles(stride, width) * elements / self._hertz
            + 2 * traffic(elements * node.dtype.bytes, self._target)
        )
        return strided, copied

    def _crossovers(
        self, tensor: Tensor, lanes: Lanes, prices: Callable[[Expected], tuple[float, float]], taken: str
    ) -> Iterator[Crossover]:
        """Where one row reads an operand of many lanes that is copied for many rows: a decoder's queries, whose number
        is a symbol, are one in all its runs but the first."""
        if taken != "copy":
            return
        rows = {size.atom for size in self._rows(tensor, lanes)}
        for symbol in sorted((atom for atom in rows if isinstance(atom, Symbol)), key=lambda symbol: symbol.name):
            narrow = self._expected.where(symbol, 1)
            assert lanes.axis is not None
            if self._expected.known(symbol.dim) is not None or narrow(lanes.axis.extent) == 1:
                continue
            strided, copied = prices(narrow)
            if strided < copied:
                yield Crossover(symbol.name, 1, "strided", strided, copied)


def _words(node: Load, reduce: Reduce, across: Dim) -> int | None:
    """The axis of a constant along which the neighbours of a word are multiplied by those of the other operand; None
    where the sum is not one of products of words, or these do not lie so."""
    word = word_of(reduce)
    axis = next((a for a in reduce.axes if word > 1 and counts_words(across, a, word)), None)
    if axis is None:
        return None
    found = [position for position, dim in enumerate(node.indices) if dim.depends_on(axis)]
    return found[0] if len(found) == 1 and counts_words(node.indices[found[0]], axis, word) else None


def _nesting(node: Load, lane: int, reduce: Reduce, rows: Dim) -> tuple[int, ...]:
    """The other dims of the constant, outermost first: axes of the result, then reduced axes in the order of the
    broadcast operand."""
    loops = by_stride(reduce.axes, rows)

    def depth(position: int) -> int:
        return max((i + 1 for i, axis in enumerate(loops) if node.indices[position].depends_on(axis)), default=0)

    return tuple(sorted((p for p in range(len(node.indices)) if p != lane), key=lambda p: (depth(p), p)))
