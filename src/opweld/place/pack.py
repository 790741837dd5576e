"""Packs the operand that vector lanes run over, so that a contraction reads it front to back.

A constant is packed when the artifact is made: [n / width][reduced axes][n % width], the reduced axes nested as the
other operand is read. A computed operand whose lanes are strided is copied once, with its lane axis innermost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from opweld.fuse.region import Kind, Region, axes_in, factors, reductions
from opweld.ledger import Alternative, Ledger
from opweld.place.placed import Placed
from opweld.place.storage import Storage, blocked, dense
from opweld.place.widths import lane_vectors
from opweld.target import Target
from opweld.tensor.dim import ONE, Axis, Dim, as_dim
from opweld.tensor.expr import Expr, Load, Reduce, load, loads, substitute_loads
from opweld.tensor.program import Constant, Tensor


@dataclass(frozen=True, eq=False)
class Operands:
    """The factors of a contraction: `lanes` has the lane axis, `rows` is broadcast along it."""

    lane: Axis
    lanes: Load
    rows: Load


def operands_of(
    tensor: Tensor,
    place: Sequence[Dim],
    storages: Mapping[str, Storage],
    constants: Mapping[str, Constant],
    lane_count: int,
) -> Operands | None:
    """Chooses the lane axis: of the constant factor if it fills half a vector, as packing that costs nothing at run
    time; else contiguous in the result if possible."""
    reduce = _single(tensor)
    pair = factors(reduce) if reduce is not None else None
    if pair is None:
        return None
    out = storages[tensor.name].address(place)
    best: tuple[tuple[int, ...], Operands] | None = None
    for lanes, rows in (pair, pair[::-1]):
        address = storages[lanes.tensor].address(lanes.indices)
        for axis in tensor.axes:
            if axis.extent.constant == 1 or axis in axes_in(rows) or axis not in axes_in(lanes):
                continue
            contiguous = out.coefficient(axis)
            stride = address.coefficient(axis)
            constant = lanes.tensor in constants
            score = (
                int(constant and 2 * (axis.extent.constant or lane_count) >= lane_count),
                int(contiguous is not None and contiguous.constant == 1),
                int(constant),
                int(stride is not None and stride.constant == 1),
                axis.extent.constant or 1 << 20,
            )
            if best is None or score > best[0]:
                best = (score, Operands(axis, lanes, rows))
    return None if best is None else best[1]


def pack(placed: Placed, target: Target, ledger: Ledger) -> Placed:
    """Rewrites every contraction to read packed operands."""
    storages, constants = dict(placed.storages), dict(placed.constants)
    regions: list[Region] = []
    packed: dict[tuple[str, Storage], str] = {}
    for region in placed.regions:
        if region.kind is Kind.CONTRACTION:
            tensor = region.tensors[0]
            found = operands_of(tensor, region.place, storages, constants, target.vector_lanes_f32)
            if found is not None:
                region = _pack_one(region, found, storages, constants, packed, regions, target, ledger)
        elif region.kind is Kind.WINDOW:
            region = _pack_window(region, storages, constants, packed, ledger)
        elif region.kind is Kind.SCAN and region.scan is not None:
            region = _pack_scan(region, storages, constants, packed, target, ledger)
        regions.append(region)
    return replace(placed, regions=tuple(regions), storages=storages, constants=constants)


def _pack_window(
    region: Region,
    storages: dict[str, Storage],
    constants: dict[str, Constant],
    packed: dict[tuple[str, Storage], str],
    ledger: Ledger,
) -> Region:
    """Constants that the lanes of a window walk with a stride, as depthwise weights, get their lane axis innermost."""
    tensor = region.tensors[0]
    out = storages[tensor.name].address(region.place)
    lane = next((axis for axis in tensor.axes if axis.extent.constant != 1 and out.coefficient(axis) is ONE), None)
    if lane is None:
        return region
    body = tensor.body
    for node in loads(body):
        positions = [p for p, dim in enumerate(node.indices) if dim.depends_on(lane)]
        if node.tensor not in constants or len(positions) != 1 or node.guards:
            continue
        if storages[node.tensor].address(node.indices).coefficient(lane) is ONE:
            continue
        choice = ledger.decide(
            rule="place.pack",
            site=tensor.origin,
            alternatives=(Alternative("strided"), Alternative("lanes-innermost")),
            prefer="lanes-innermost",
            reason="the lanes of a window read neighbours",
        )
        if choice == "strided":
            continue
        shape = constants[node.tensor].shape
        order = (*(p for p in range(len(shape)) if p != positions[0]), positions[0])
        storage = dense("", node.dtype, tuple(map(as_dim, shape)), order)
        new = load(_repacked(node.tensor, storage, storages, constants, packed), node.dtype, node.indices)
        body = substitute_loads(body, lambda found, old=node, new=new: new if found is old else None)
    return replace(region, tensors=(replace(tensor, body=body),))


def _repacked(
    source: str,
    storage: Storage,
    storages: dict[str, Storage],
    constants: dict[str, Constant],
    packed: dict[tuple[str, Storage], str],
) -> str:
    """The name of a constant's copy in this storage; `storage.root` is empty."""
    name = packed.get((source, storage))
    if name is None:
        name = f"{source}_packed{sum(key[0] == source for key in packed)}"
        packed[source, storage] = name
        storages[name] = replace(storage, root=name)
        constants[name] = replace(constants[source], name=name)
    return name


def _pack_scan(
    region: Region,
    storages: dict[str, Storage],
    constants: dict[str, Constant],
    packed: dict[tuple[str, Storage], str],
    target: Target,
    ledger: Ledger,
) -> Region:
    scan = region.scan
    assert scan is not None
    inner = {v.name: dense(v.name, v.dtype, v.shape) for v in (*scan.states, *scan.steps)}
    steps: list[Tensor] = []
    for step in scan.steps:
        found = operands_of(
            step, [axis.dim for axis in step.axes], storages | inner, constants, target.vector_lanes_f32
        )
        if found is not None and found.lanes.tensor in constants:
            name = _pack_constant(step, found, storages | inner, storages, constants, packed, target, ledger)
            step = replace(step, body=_renamed(step, found.lanes, name))
        steps.append(step)
    return replace(region, scan=replace(scan, steps=tuple(steps)))


def _pack_one(
    region: Region,
    found: Operands,
    storages: dict[str, Storage],
    constants: dict[str, Constant],
    packed: dict[tuple[str, Storage], str],
    regions: list[Region],
    target: Target,
    ledger: Ledger,
) -> Region:
    tensor = region.tensors[0]
    if found.lanes.tensor in constants:
        name = _pack_constant(tensor, found, storages, storages, constants, packed, target, ledger)
    else:
        address = storages[found.lanes.tensor].address(found.lanes.indices)
        stride = address.coefficient(found.lane)
        if stride is not None and stride.constant == 1 and not found.lanes.guards:
            return region
        copy = _copy_of(tensor, found, storages, ledger)
        if copy is None:
            return region
        name = copy.name
        order = tuple(range(len(copy.axes)))
        storages[name] = dense(name, copy.dtype, copy.shape, order)
        regions.append(Region(Kind.MAP, (copy,), (name,)))
        new = load(name, copy.dtype, tuple(a.dim for a in _operand_axes(found)))
        body = substitute_loads(tensor.body, lambda node: new if node is found.lanes else None)
        return replace(region, tensors=(replace(tensor, body=body),))
    return replace(region, tensors=(replace(tensor, body=_renamed(tensor, found.lanes, name)),))


def _renamed(tensor: Tensor, old: Load, name: str) -> Expr:
    new = load(name, old.dtype, old.indices, old.guards, old.fill)
    return substitute_loads(tensor.body, lambda node: new if node is old else None)


def _operand_axes(found: Operands) -> tuple[Axis, ...]:
    """Axes of a packed copy: those of the result first, then the reduced ones, lanes last."""
    axes = sorted(axes_in(found.lanes) - {found.lane}, key=lambda a: a.number)
    return (*axes, found.lane)


def _copy_of(tensor: Tensor, found: Operands, storages: Mapping[str, Storage], ledger: Ledger) -> Tensor | None:
    axes = _operand_axes(found)
    size: Dim = as_dim(found.lanes.dtype.bytes)
    for axis in axes:
        size = size * axis.extent
    choice = ledger.decide(
        rule="place.pack",
        site=tensor.origin,
        alternatives=(Alternative("strided", 0), Alternative("copy", size.constant or str(size))),
        prefer="copy",
        reason="its lanes are not neighbours in memory, and each is read once for every row",
    )
    if choice == "strided":
        return None
    name = f"{found.lanes.tensor}_lanes_{axes[-1].number}"
    return Tensor(name, found.lanes.dtype, axes, found.lanes, tensor.origin)


def _pack_constant(
    tensor: Tensor,
    found: Operands,
    known: Mapping[str, Storage],
    storages: dict[str, Storage],
    constants: dict[str, Constant],
    packed: dict[tuple[str, Storage], str],
    target: Target,
    ledger: Ledger,
) -> str:
    node = found.lanes
    constant = constants[node.tensor]
    position = next(p for p, dim in enumerate(node.indices) if dim.depends_on(found.lane))
    reduce = _single(tensor)
    assert reduce is not None
    order = _nesting(node, position, reduce, known[found.rows.tensor].address(found.rows.indices))
    width = target.vector_lanes_f32 * lane_vectors(tensor, found.lane, found.rows, target)
    slope, others = node.indices[position].coefficient(found.lane), node.indices[position].without(found.lane)
    fits = slope is ONE and all(coefficient % width == 0 for _, coefficient in others.terms)
    choice = ledger.decide(
        rule="place.pack",
        site=tensor.origin,
        alternatives=(Alternative("lanes-innermost"), Alternative("blocked")),
        prefer="blocked" if fits else "lanes-innermost",
        reason=f"blocks of {width} lanes are read front to back" if fits else "blocks would straddle heads",
        failed={} if fits else {"index": str(node.indices[position])},
    )
    shape = constant.shape
    storage = (
        blocked("", constant.dtype, shape, order, position, width)
        if choice == "blocked"
        else dense("", constant.dtype, tuple(map(as_dim, shape)), (*order, position))
    )
    return _repacked(constant.name, storage, storages, constants, packed)


def _nesting(node: Load, lane: int, reduce: Reduce, rows: Dim) -> tuple[int, ...]:
    """The other dims of the constant, outermost first: axes of the result, then reduced axes as the rows nest them."""
    loops = nested_by_stride(reduce.axes, rows)

    def depth(position: int) -> int:
        return max((i + 1 for i, axis in enumerate(loops) if node.indices[position].depends_on(axis)), default=0)

    return tuple(sorted((p for p in range(len(node.indices)) if p != lane), key=lambda p: (depth(p), p)))


def nested_by_stride(axes: tuple[Axis, ...], address: Dim) -> tuple[Axis, ...]:
    """Reduced axes from the widest step through memory to the narrowest."""

    def step(axis: Axis) -> int:
        stride = address.coefficient(axis)
        if stride is None or stride.constant is None:
            return 1 << 40
        return abs(stride.constant)

    return tuple(sorted(axes, key=lambda axis: (-step(axis), axes.index(axis))))


def _single(tensor: Tensor) -> Reduce | None:
    found = reductions(tensor.body)
    return found[0] if len(found) == 1 else None
