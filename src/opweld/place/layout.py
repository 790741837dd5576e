"""Chooses where values live: axis order, padding, slices of a concatenation, packed operands.

Orders are chosen forwards, region by region. A contraction or window wants the axis of its lanes innermost, which makes
convolution nets channels-last; elementwise regions and rows follow what they read. Graph inputs and outputs are
row-major, as callers expect. Then, looking backwards from the readers: a value read beyond its edges gets a halo, a
value that is a part of a concatenation is written into it, an operand that lanes would read with a stride is packed.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from opweld.fuse.region import Kind, Region, Regions, axes_in, classify, factors, reductions
from opweld.ledger import Alternative, Ledger
from opweld.place.halo import halo_of
from opweld.place.pieces import Piece, pieces_of
from opweld.place.placed import Placed
from opweld.place.storage import Storage, dense, slice_of
from opweld.target import Target
from opweld.tensor.dim import Axis, Dim, FloorDiv, Mod, as_dim, product
from opweld.tensor.expr import Const, Load, load, loads, substitute_loads
from opweld.tensor.program import Constant, Tensor


def place(regions: Regions, target: Target, ledger: Ledger) -> Placed:
    """Storage for every value that lives in memory."""
    return _Placer(regions, target, ledger).run()


class _Placer:
    def __init__(self, regions: Regions, target: Target, ledger: Ledger) -> None:
        self._program = regions.program
        self._regions = list(regions.regions)
        self._target = target
        self._ledger = ledger
        self._fixed = {value.name for value in self._program.inputs} | {v for _, v in self._program.outputs}
        self._orders: dict[str, tuple[int, ...]] = {}
        self._storages: dict[str, Storage] = {}
        self._constants: dict[str, Constant] = {value.name: value for value in self._program.constants}
        self._shapes: dict[str, tuple[Dim, ...]] = {n: shape for n, (_, shape) in self._program.signatures.items()}
        self._dtypes = {n: dtype for n, (dtype, _) in self._program.signatures.items()}
        self._reading: dict[str, list[Load]] = {}

    def run(self) -> Placed:
        for value in (*self._program.inputs, *self._program.constants):
            self._orders[value.name] = tuple(range(len(value.shape)))
        self._reading = self._readers()
        for region in self._regions:
            self._choose_orders(region)
        self._copy_padded_inputs()
        halos = self._halos()
        self._reserve(halos)
        return Placed(self._program, tuple(self._regions), self._storages, self._constants)

    # ------------------------------------------------------------------------------------------------ axis order

    def _choose_orders(self, region: Region) -> None:
        for name in region.outputs:
            rank = len(self._shapes[name])
            if name in self._fixed or region.kind is Kind.SCAN:
                self._orders[name] = tuple(range(rank))
        for tensor in region.tensors:
            if tensor.name in self._orders:
                continue
            self._orders[tensor.name] = self._order_of(region, tensor)

    def _order_of(self, region: Region, tensor: Tensor) -> tuple[int, ...]:
        natural = tuple(range(len(self._shapes[tensor.name])))
        lane = None
        if region.kind in (Kind.CONTRACTION, Kind.WINDOW):
            lane = lane_axis(tensor, self._constants)
        if lane is None:
            return self._order_like_inputs(tensor) if region.indices is None else natural
        position = next(p for p, index in enumerate(region.place) if index.depends_on(lane))
        order = self._joined_order(tensor, (*(p for p in natural if p != position), position))
        choice = "row-major"
        if order != natural:
            choice = self._ledger.decide(
                rule="place.order",
                site=tensor.origin,
                alternatives=(Alternative("row-major"), Alternative("lanes-innermost")),
                prefer="lanes-innermost",
                reason=f"axis {position} runs over vector lanes and is stored contiguously",
            )
        return order if choice == "lanes-innermost" else natural

    def _joined_order(self, tensor: Tensor, order: tuple[int, ...]) -> tuple[int, ...]:
        """Keeps together what a reader takes apart: with indices k // d and k % d, the first axis goes just outside the
        second, so that the reader walks over both as one."""
        for node in self._reading.get(tensor.name, []):
            quotients = {d.atom.left: p for p, d in enumerate(node.indices) if isinstance(d.atom, FloorDiv)}
            for position, dim in enumerate(node.indices):
                if isinstance(dim.atom, Mod) and dim.atom.left in quotients and position == order[-1]:
                    outer = quotients[dim.atom.left]
                    return (*(p for p in order if p not in (outer, position)), outer, position)
        return order

    def _order_like_inputs(self, tensor: Tensor) -> tuple[int, ...]:
        """The order of the first operand that spans all axes, seen through the tensor's own; what spans only some, as
        the indices of a gather, says nothing about the others."""
        natural = tuple(range(len(tensor.axes)))
        long = {position for position in natural if tensor.axes[position].extent.constant != 1}
        for node in loads(tensor.body):
            source_order = self._orders.get(node.tensor)
            if source_order is None or node.tensor in self._constants:
                continue
            nested: list[int] = []
            for source_axis in source_order:
                index = node.indices[source_axis]
                nested += [p for p, axis in enumerate(tensor.axes) if p not in nested and index.depends_on(axis)]
            if long <= set(nested):
                return (*(p for p in natural if p not in nested), *nested)
        return natural

    # ----------------------------------------------------------------------------------------------------- halos

    def _readers(self) -> dict[str, list[Load]]:
        found: dict[str, list[Load]] = {}
        for region in self._regions:
            bodies = [tensor.body for tensor in region.tensors]
            if region.scan is not None:
                bodies += [s.initial for s in region.scan.states] + [s.body for s in region.scan.steps]
            for body in bodies:
                for node in loads(body):
                    found.setdefault(node.tensor, []).append(node)
        return found

    def _copy_padded_inputs(self) -> None:
        """A value of fixed storage that a contraction or window reads beyond its edges is first copied."""
        copies: dict[str, str] = {}
        rewritten: list[Region] = []
        for region in self._regions:
            if region.kind not in (Kind.CONTRACTION, Kind.WINDOW):
                rewritten.append(region)
                continue
            tensor = region.tensors[0]
            wanted = [
                node
                for node in loads(tensor.body)
                if node.guards
                and node.tensor in self._fixed
                and node.tensor not in copies
                and halo_of(node, self._shapes[node.tensor]) is not None
            ]
            for node in wanted:
                name = f"{node.tensor}_padded"
                choice = self._ledger.decide(
                    rule="place.halo",
                    site=tensor.origin,
                    alternatives=(Alternative("test-edges"), Alternative("copy-with-halo")),
                    prefer="copy-with-halo",
                    reason="its storage is the caller's, and its readers go beyond its edges",
                )
                if choice == "test-edges":
                    continue
                copies[node.tensor] = name
                rewritten.append(self._copy(node.tensor, name, tensor.origin, self._channels_last(node)))
            rewritten.append(_redirect(region, copies))
        self._regions = rewritten

    def _channels_last(self, node: Load) -> tuple[int, ...]:
        """Axes that slide stay in order, the others (channels) go innermost, unless they are too few to fill a vector:
        the readers broadcast single elements, and an image of three channels is copied best as it lies."""
        natural = tuple(range(len(node.indices)))
        slides = [p for p in natural if len(axes_in(_only(node, p))) > 1]
        if not slides or self._orders[node.tensor] != natural:
            return self._orders[node.tensor]
        last = [p for p in natural if p not in slides and p > 0]
        channels = product(self._shapes[node.tensor][p] for p in last).constant
        if channels is not None and channels < self._target.vector_lanes_f32 // 2:
            return natural
        return tuple(p for p in natural if p not in last) + tuple(last)

    def _copy(self, source: str, name: str, origin: tuple[str, ...], order: Sequence[int]) -> Region:
        shape = self._shapes[source]
        axes = tuple(Axis(f"i{p}", extent) for p, extent in enumerate(shape))
        dtype = self._dtypes[source]
        tensor = Tensor(name, dtype, axes, load(source, dtype, tuple(a.dim for a in axes)), origin)
        self._shapes[name], self._dtypes[name], self._orders[name] = shape, dtype, tuple(order)
        return Region(Kind.MAP, (tensor,), (name,))

    def _halos(self) -> dict[str, tuple[tuple[tuple[int, int], ...], float]]:
        """How far beyond its edges each value is read, where every reader agrees on what is there."""
        found: dict[str, tuple[tuple[tuple[int, int], ...], float]] = {}
        for name, nodes in self._readers().items():
            guarded = [node for node in nodes if node.guards]
            if not guarded or name in self._fixed or name in self._constants or name not in self._orders:
                continue
            if any(region.kind is Kind.SCAN and name in region.outputs for region in self._regions):
                continue
            halo = [(0, 0)] * len(self._shapes[name])
            fills: set[float] = set()
            legal = True
            for node in guarded:
                needed = halo_of(node, self._shapes[name])
                if needed is None or not isinstance(node.fill, Const):
                    legal = False
                    break
                fills.add(float(node.fill.value))
                halo = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(halo, needed, strict=True)]
            if not legal or len(fills) != 1:
                continue
            origin = next((t.origin for r in self._regions for t in r.tensors if t.name == name), ())
            choice = self._ledger.decide(
                rule="place.halo",
                site=origin,
                alternatives=(Alternative("test-edges"), Alternative("halo")),
                prefer="halo",
                reason=f"readers go beyond its edges by {halo}; padding in memory spares them the test",
            )
            if choice == "halo":
                found[name] = tuple(halo), fills.pop()
        return found

    # --------------------------------------------------------------------------------------------------- storage

    def _reserve(self, halos: dict[str, tuple[tuple[tuple[int, int], ...], float]]) -> None:
        for value in (*self._program.inputs, *self._program.constants):
            self._storages[value.name] = dense(value.name, value.dtype, tuple(map(as_dim, value.shape)))
        for region in reversed(self._regions):
            for name in region.outputs:
                if name not in self._storages:
                    halo, fill = halos.get(name, (None, 0.0))
                    self._storages[name] = dense(
                        name, self._dtypes[name], self._shapes[name], self._orders[name], halo, fill
                    )
            if region.kind is Kind.MAP:
                self._place_pieces(region.tensors[0], halos)

    def _place_pieces(self, tensor: Tensor, halos: dict[str, tuple[tuple[tuple[int, int], ...], float]]) -> None:
        """Values whose only place is inside this concatenation are written straight into it."""
        parts = pieces_of(tensor)
        if parts is None:
            return
        for part in parts.parts:
            failed = self._why_not_inside(tensor, parts.axis, part, halos)
            size = product(self._shapes[part.source]) * self._dtypes[part.source].bytes
            amount = size.constant if size.constant is not None else str(size)
            choice = self._ledger.decide(
                rule="place.slice",
                site=tensor.origin,
                alternatives=(Alternative("copy", amount), Alternative("slice", 0)),
                prefer="copy" if failed else "slice",
                reason="the part has to be copied" if failed else "the part is written straight into the whole",
                failed=failed,
            )
            if choice == "slice":
                self._storages[part.source] = slice_of(self._storages[tensor.name], parts.axis, part.start)

    def _why_not_inside(
        self,
        tensor: Tensor,
        axis: int,
        part: Piece,
        halos: dict[str, tuple[tuple[tuple[int, int], ...], float]],
    ) -> dict[str, int | str]:
        failed: dict[str, int | str] = {}
        shape = list(tensor.shape)
        shape[axis] = part.end - part.start
        if not part.whole or self._shapes[part.source] != tuple(shape):
            failed["part"] = "only some of it is taken"
        elif part.source in self._fixed or part.source in self._constants:
            failed["part"] = "a graph input, output or constant"
        elif part.source in self._storages:
            failed["part"] = "already lives elsewhere"
        elif part.source in halos:
            failed["part"] = "has a halo of its own"
        elif self._dtypes[part.source] is not tensor.dtype:
            failed["part"] = "has another element type"
        elif any(region.kind is Kind.SCAN and part.source in region.outputs for region in self._regions):
            failed["part"] = "made by a recurrence"
        return failed


def lane_axis(tensor: Tensor, constants: Container[str]) -> Axis | None:
    """The output axis that vector lanes run over, for a contraction or window; None when none stands out.

    A contraction: an axis that only one factor has, that of the constant factor when there is one. A window: the
    largest axis that neither slides nor is the batch."""
    own = [axis for axis in tensor.axes if axis.extent.constant != 1]
    found = reductions(tensor.body)
    pair = factors(found[0]) if found else None
    if pair is not None and classify(tensor, constants) is Kind.CONTRACTION:
        left, right = (axes_in(node) for node in pair)
        only = {0: [a for a in own if a in left - right], 1: [a for a in own if a in right - left]}
        constant = [side for side in (0, 1) if pair[side].tensor in constants and only[side]]
        if constant:
            return max(only[constant[0]], key=lambda a: (a.extent.constant or 1 << 20, own.index(a)))
        candidates = [a for a in own if a in only[0] or a in only[1]]
        return candidates[-1] if candidates else None
    sliding: set[Axis] = set()
    for reduce in found:
        reduced = set(reduce.axes)
        for node in loads(reduce.body):
            for position in range(len(node.indices)):
                inside = axes_in(_only(node, position))
                if inside & reduced:
                    sliding |= inside
    fixed = [axis for axis in own if axis not in sliding]
    return max(fixed, key=lambda a: (a.extent.constant or 0, own.index(a)), default=None)


def _only(node: Load, position: int) -> Load:
    found = load(node.tensor, node.dtype, (node.indices[position],))
    assert isinstance(found, Load)
    return found


def _redirect(region: Region, copies: dict[str, str]) -> Region:
    def moved(node: Load) -> object:
        if node.tensor in copies and node.guards:
            return load(copies[node.tensor], node.dtype, node.indices, node.guards, node.fill)
        return None

    tensors = tuple(
        replace(tensor, body=substitute_loads(tensor.body, moved))  # type: ignore[arg-type]
        for tensor in region.tensors
    )
    return replace(region, tensors=tensors)
