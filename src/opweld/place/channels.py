"""Where values lie for a GPU: dense, and channels last behind a convolution.

A product is written with the axis of its constant operand innermost, which is where the next one reads it: its programs
load neighbours of what they sum, and store neighbours of what they compute. Other values lie as what they read.
Inputs and outputs are row-major, as callers expect; constants that only products read lie in the order in which these
read them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from opweld.fuse.region import Kind, Member, Region, Regions, axes_in, factors, reductions
from opweld.ledger import Alternative, Ledger
from opweld.place.placed import Placed
from opweld.place.storage import Storage, dense, slice_of
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim, axes_of
from opweld.tensor.expr import Load, Reduce, loads
from opweld.tensor.program import Tensor

Order = tuple[int, ...]


def place_for_gpu(regions: Regions, row_major: Container[str], ledger: Ledger) -> Placed:
    """Storage for every value in memory; `row_major`: copies that were made for the order of their axes."""
    program = regions.program
    signatures = program.signatures
    fixed = {name for _, name in program.outputs}
    # Functions of the processor take their operands row by row.
    fixed |= {name for region in regions.regions if region.extern is not None for name in region.extern.operands}
    constants = {value.name: value for value in program.constants}
    storages: dict[str, Storage] = {}
    orders: dict[str, Order] = {}
    for value in (*program.inputs, *program.constants):
        storages[value.name] = dense(value.name, value.dtype, tuple(map(as_dim, value.shape)))
    values = dict(program.outputs)
    for state in program.states:
        if state.axis is not None:
            # What is there stays where it is, and what is appended lies behind it; rows are a capacity apart.
            storages[values[state.output]] = slice_of(storages[state.input], 0, ZERO)
    for region in regions.regions:
        made = {tensor.name: (tensor.dtype, tensor.shape) for member in region.members for tensor in member.tensors}
        for name in region.outputs:
            if name in storages:
                continue
            dtype, shape = signatures.get(name) or made[name]
            free = region.scan is None and region.extern is None and name not in fixed and name not in row_major
            wanted = _wanted(region, name, storages, constants) if free else None
            if wanted is not None and wanted != tuple(range(len(shape))):
                choice = ledger.decide(
                    rule="place.order",
                    site=region.origin,
                    subject=(name,),
                    alternatives=(Alternative("row-major"), Alternative("channels-last")),
                    prefer="channels-last",
                    reason="programs load and store neighbours",
                    failed={},
                )
                if choice == "channels-last":
                    orders[name] = wanted
            storages[name] = dense(name, dtype, shape, orders.get(name))
    for name, order in _constants(regions, storages).items():
        constant = constants[name]
        storages[name] = dense(name, constant.dtype, tuple(map(as_dim, constant.shape)), order)
    return Placed(program, regions.regions, storages, constants, {})


def _wanted(region: Region, name: str, storages: Mapping[str, Storage], constants: Container[str]) -> Order | None:
    """The order of a region's value, outermost axis first, in which it lies as what it is computed from; None where
    nothing asks for any."""
    member = next(member for member in region.members if any(tensor.name == name for tensor in member.tensors))
    if member.space is not None:
        places = member.space.places[name]
        steps = _steps_of_rows(member, storages, constants)
        return None if steps is None else _sorted([_LAST if place is None else steps[place] for place in places])
    if len(member.place) < 2:
        return None
    main, last = _main(member.tensor, storages, constants), frozenset[Axis]()
    if member.kind is Kind.CONTRACTION and (pair := factors(reductions(member.tensor.body)[0])) is not None:
        for own, other in (pair, pair[::-1]):
            if own.tensor in constants:
                main, last = other if other.tensor in storages else None, axes_in(own) - axes_in(other)
    if main is None:
        return None
    address = storages[main.tensor].address(main.indices)
    steps = [_LAST if last & dim.atoms else _step(address, axes_of(dim)) for dim in member.place]
    return _sorted(steps)


_LAST = 0
"""The step of an axis that lies innermost, and of one that is none."""


def _step(address: Dim, axes: Iterable[Axis]) -> int | None:
    """How far apart neighbours along the innermost of some axes lie; None where that is no number."""
    found = [address.coefficient(axis) for axis in axes]
    numbers = [abs(step.constant) for step in found if step is not None and step.constant]
    return min(numbers) if numbers else None


def _sorted(steps: Sequence[int | None]) -> Order:
    """Axes from the largest step to the smallest; unknown ones are large."""
    return tuple(sorted(range(len(steps)), key=lambda n: -(1 << 62 if (step := steps[n]) is None else step)))


def _main(tensor: Tensor, storages: Mapping[str, Storage], constants: Container[str]) -> Load | None:
    """The load that follows most axes of a tensor, of values that are no constants."""
    own = set(tensor.axes)
    found = [node for node in loads(tensor.body) if node.tensor in storages and node.tensor not in constants]
    return max(found, key=lambda node: len(own & axes_in(node)), default=None)


def _steps_of_rows(
    member: Member, storages: Mapping[str, Storage], constants: Container[str]
) -> dict[tuple[str, int], int | None] | None:
    """How far apart neighbours along each row and column lie in what a row is computed from."""
    space = member.space
    assert space is not None
    best: tuple[int, dict[tuple[str, int], int | None]] | None = None
    everything = [("row", n) for n in range(len(space.rows))] + [("column", n) for n in range(len(space.columns))]
    for tensor in member.tensors:
        node = _main(tensor, storages, constants)
        if node is None:
            continue
        address = storages[node.tensor].address(node.indices)
        places = space.places_in(tensor)
        steps: dict[tuple[str, int], int | None] = dict.fromkeys(everything)
        for axis, place in places.items():
            if place is not None and axis in axes_of(address):
                steps[place] = _step(address, (axis,))
        known = sum(step is not None for step in steps.values())
        if best is None or known > best[0]:
            best = known, steps
    return None if best is None else best[1]


def _constants(regions: Regions, storages: Mapping[str, Storage]) -> dict[str, Order]:
    """The order of weights that products alone read: what is summed innermost, as it lies in the other operand; and of
    windows, where the axis of the channels is innermost."""
    known = {constant.name for constant in regions.program.constants}
    readers: dict[str, set[Order | None]] = {}
    for region in regions.regions:
        for name in () if region.extern is None else region.extern.operands:
            readers.setdefault(name, set()).add(None)
        for member in region.members:
            for tensor in member.tensors:
                pair = factors(reductions(tensor.body)[0]) if member.reduces_tiles else None
                for node in loads(tensor.body):
                    if node.tensor not in known:
                        continue
                    other = None if pair is None or node not in pair else pair[pair[0] is node]
                    wanted = None
                    if other is not None and other.tensor in storages and member.kind is Kind.CONTRACTION:
                        wanted = _as_summed(node, storages[other.tensor].address(other.indices))
                    elif other is not None and member.kind is Kind.WINDOW:
                        wanted = _as_kept(node, reductions(tensor.body)[0])
                    readers.setdefault(node.tensor, set()).add(wanted)
    return {name: wanted for name, found in readers.items() if len(found) == 1 and (wanted := next(iter(found)))}


def _as_summed(weights: Load, address: Dim) -> Order:
    """The axes of weights, those that are summed in the order in which the other operand lies."""
    walked = axes_of(address)
    steps = [_step(address, axes) if (axes := axes_of(index)) & walked else None for index in weights.indices]
    return _sorted(steps)


def _as_kept(weights: Load, window: Reduce) -> Order:
    """The axes of weights of a window, those that are not summed last."""
    own = set(window.axes)
    return _sorted([1 if axes_of(index) & own else 0 for index in weights.indices])
