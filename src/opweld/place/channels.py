"""Where values lie for a GPU: dense, and channels last behind a convolution.

A product is written with the axis of its constant operand innermost, which is where the next one reads it: its programs
load neighbours of what they sum, and store neighbours of what they compute. Other values lie in the order of what they
read most of. Inputs and outputs are row-major, as callers expect; constants that only products read lie in the order in
which these read them."""

from __future__ import annotations

from collections.abc import Container, Mapping

from opweld.fuse.region import Kind, Region, Regions, axes_in, factors, reductions
from opweld.ledger import Alternative, Ledger
from opweld.place.placed import Placed
from opweld.place.storage import Storage, dense
from opweld.tensor.dim import as_dim, axes_of
from opweld.tensor.expr import Load, loads
from opweld.tensor.program import Tensor

Order = tuple[int, ...]


def place_for_gpu(regions: Regions, ledger: Ledger) -> Placed:
    """Storage for every value in memory."""
    program = regions.program
    signatures = program.signatures
    fixed = {value.name for value in program.inputs} | {name for _, name in program.outputs}
    constants = {value.name: value for value in program.constants}
    orders: dict[str, Order] = {}
    for region in regions.regions:
        for name in region.outputs:
            shape = signatures[name][1] if name in signatures else ()
            wanted = (
                None
                if region.scan is not None or region.extern is not None
                else _wanted(region, name, orders, constants)
            )
            row_major = tuple(range(len(shape)))
            if wanted is None or wanted == row_major or name in fixed:
                continue
            choice = ledger.decide(
                rule="place.order",
                site=region.origin,
                subject=(name,),
                alternatives=(Alternative("row-major"), Alternative("channels-last")),
                prefer="channels-last",
                reason="programs of products load and store neighbours",
                failed={},
            )
            if choice != "row-major":
                orders[name] = wanted
    storages: dict[str, Storage] = {}
    for value in program.inputs:
        storages[value.name] = dense(value.name, value.dtype, value.shape)
    packed = _constants(regions, orders)
    for constant in program.constants:
        shape = tuple(map(as_dim, constant.shape))
        storages[constant.name] = dense(constant.name, constant.dtype, shape, packed.get(constant.name))
    for region in regions.regions:
        made = {tensor.name: (tensor.dtype, tensor.shape) for member in region.members for tensor in member.tensors}
        for name in region.outputs:
            dtype, shape = signatures.get(name) or made[name]
            storages[name] = dense(name, dtype, shape, orders.get(name))
    return Placed(program, regions.regions, storages, constants, {})


def _wanted(region: Region, name: str, orders: Mapping[str, Order], constants: Container[str]) -> Order | None:
    """The order of a region's value, outermost axis first; None where nothing asks for any."""
    tensor = next(tensor for tensor in region.tensors if tensor.name == name)
    if region.kind is Kind.CONTRACTION:
        return _channels_last(region, constants)
    inherited = [
        orders[node.tensor]
        for node in loads(tensor.body)
        if node.tensor in orders and len(orders[node.tensor]) == len(tensor.axes) and _walks(node, tensor)
    ]
    return inherited[0] if inherited else None


def _walks(node: Load, tensor: Tensor) -> bool:
    """Whether a load walks through a value as the result does, shifts and steps aside."""
    return all(
        index.depends_on(axis) or axis.extent.constant == 1
        for index, axis in zip(node.indices, tensor.axes, strict=True)
    )


def _channels_last(region: Region, constants: Container[str]) -> Order | None:
    """A product's value with the axes of its constant operand last."""
    member = region.members[0]
    pair = factors(reductions(member.tensor.body)[0])
    if pair is None or len(member.place) < 3:
        return None
    a, b = pair
    for own, other in ((a, b), (b, a)):
        alone = axes_in(own) - axes_in(other)
        last = [position for position, dim in enumerate(member.place) if alone & dim.atoms]
        if own.tensor in constants and last:
            return (*(position for position in range(len(member.place)) if position not in last), *last)
    return None


def _constants(regions: Regions, orders: Mapping[str, Order]) -> dict[str, Order]:
    """Weights with what is summed innermost, in the order in which it lies in the other operand."""
    known = {constant.name for constant in regions.program.constants}
    readers: dict[str, set[Order | None]] = {}
    for region in regions.regions:
        for tensor in region.tensors:
            pair = factors(reductions(tensor.body)[0]) if region.kind is Kind.CONTRACTION else None
            for node in loads(tensor.body):
                if node.tensor in known:
                    mine = None if pair is None or node not in pair else pair[pair[0] is node]
                    wanted = None if mine is None else _as_summed(node, mine, orders)
                    readers.setdefault(node.tensor, set()).add(wanted)
    return {name: wanted for name, found in readers.items() if len(found) == 1 and (wanted := next(iter(found)))}


def _as_summed(weights: Load, other: Load, orders: Mapping[str, Order]) -> Order | None:
    """The axes of weights, those that are summed in the order in which the other operand lies; None where it lies
    row-major."""
    order = orders.get(other.tensor)
    if order is None:
        return None
    walked = [axis for position in order for axis in sorted(axes_of(other.indices[position]), key=lambda a: a.key)]
    places: dict[int, int] = {}
    for position, index in enumerate(weights.indices):
        found = [walked.index(axis) for axis in axes_of(index) if axis in walked]
        places[position] = min(found) if found else -1
    return tuple(sorted(places, key=lambda position: places[position]))
