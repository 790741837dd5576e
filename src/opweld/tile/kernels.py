"""Lowers regions to tile programs: the members of each kernel, their schedules through the ledger, and the statements.

A region is one kernel, with two exceptions: each part of a concatenation is copied by a kernel of its own, and small
kernels before it fill the padding around its outputs. The schedule of a region has one entry for every member of all of
these kernels, those of the padding last.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from opweld.errors import OptionError
from opweld.fuse.concatenation import concatenation_of
from opweld.fuse.live import values_of
from opweld.fuse.region import Kind, Region
from opweld.fuse.region import Member as RegionMember
from opweld.ledger import Alternative, Ledger
from opweld.place.placed import Placed
from opweld.place.storage import Storage, slice_of
from opweld.place.winograd import taps_of
from opweld.schedule.choice import Choice
from opweld.schedule.expected import Expected
from opweld.schedule.schedule import LoopSchedule, MemberSchedule, Schedule
from opweld.target import Target
from opweld.tensor.cost import Count, bytes_loaded, flops, size_in_bytes
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim
from opweld.tensor.expr import substitute
from opweld.tensor.externs import EXTERNS
from opweld.tensor.program import Extern, Tensor, TensorProgram, unused
from opweld.tile.loops import tune_loops
from opweld.tile.member import KernelBody, MapMember, Member, ReductionMember, RowMember, WinogradMember, sequential
from opweld.tile.members.block import BlockTiling, block_of, choose_block
from opweld.tile.members.halo import sides_of
from opweld.tile.members.online_block import online_block_of
from opweld.tile.members.recurrence import recurrence_of
from opweld.tile.members.rowwise import RowwiseMember, RowWork
from opweld.tile.members.winograd import Winograd
from opweld.tile.nest import nest_of
from opweld.tile.predict import Prediction, nanoseconds_of, predict
from opweld.tile.pricing import Pricing
from opweld.tile.tile import (
    Invoke,
    Kernel,
    Scratch,
)
from opweld.tile.traffic import weights_of
from opweld.tile.unscheduled import UnscheduledKernel


@dataclass(frozen=True, eq=False)
class ScheduledKernel:
    """A realised kernel.

    Attributes:
        count: its operations. bytes, written: the bytes that it must move, and those that it writes among them.
        nanoseconds: its predicted time on one core, for any sizes. prediction: the same by cause, for expected sizes.
        serial: one thread executes it.
        subject: names it in decisions, see `UnscheduledKernel`. region: the first output of its region."""

    kernel: Kernel
    count: Count
    bytes: Dim
    written: Dim
    nanoseconds: Dim
    prediction: Prediction
    serial: bool = False
    subject: tuple[str, ...] = ()
    region: str = ""


@dataclass(frozen=True, eq=False)
class Plan:
    """A region, its kernels, and the schedule that was chosen for all of their members."""

    region: Region
    kernels: tuple[UnscheduledKernel, ...]
    schedule: Schedule


def schedule(placed: Placed, expected: Expected, target: Target, ledger: Ledger) -> list[Plan]:
    """The schedule of every region, in order; `realise` adds how loops are unrolled and prefetch."""
    plans: list[Plan] = []
    unscheduled, values = _Unscheduled(placed), values_of(placed.regions)
    pricing = Pricing(placed, expected, target)
    for region in placed.regions:
        name = region.outputs[0]
        choice = Choice(ledger, region.origin, (name,), expected, target, (name, ""))
        tiling = BlockTiling()
        if region.block is not None:
            tiling = choose_block(region, values, placed.program, choice.part("block"))
        kernels = tuple(unscheduled.of(region, tiling))
        members: list[MemberSchedule] = []
        for kernel in kernels:
            about = replace(choice, subject=kernel.subject, price=pricing.of(kernel))
            for member in kernel.members:
                members.append(member.choose(about.part(f"member {len(members)}")))
        plans.append(Plan(region, kernels, Schedule(tuple(members), tiling.rows, tiling.columns, tiling.masked)))
    return plans


def schedules_of(program: TensorProgram, plans: Iterable[Plan], ledger: Ledger) -> dict[tuple[str, str], Schedule]:
    """The schedule of every region by variant and label, as schedules files hold them."""
    return {(program.name, ledger.label(plan.region.outputs[0])): plan.schedule for plan in plans}


def realise(
    placed: Placed, plans: Sequence[Plan], expected: Expected, target: Target, ledger: Ledger
) -> tuple[list[Plan], list[ScheduledKernel]]:
    """The kernels of a placed program, in order, by their schedules. How innermost loops are unrolled and prefetch is
    decided on the realised kernels, and added to the schedules. Raises OptionError for a schedule of another region."""
    dtypes = {storage.root: storage.dtype for storage in placed.storages.values()}
    weights = weights_of(placed)
    result: list[ScheduledKernel] = []
    complete: list[Plan] = []

    for plan in plans:
        loops: list[LoopSchedule] = []
        expects = sum(len(item.members) for item in plan.kernels)
        if len(plan.schedule.members) != expects:
            raise OptionError(f"schedule: {plan.schedule} does not fit a region of {expects} members")
        schedules = iter(plan.schedule.members)
        own = [(item, tuple(itertools.islice(schedules, len(item.members)))) for item in plan.kernels]
        for item, members in sorted(own, key=lambda entry: not entry[0].first):
            name = f"k{len(result) + 1}_{item.kind}"
            kernel = item.realise(name, members, target, dtypes, plan.region.origin)
            decisions = _LoopDecisions(ledger, plan.region, item.subject, len(loops))
            kernel = tune_loops(kernel, target, decisions, expected, weights.bytes)
            prediction = predict(kernel, target, expected, weights)
            nanoseconds = nanoseconds_of(prediction.cost, item.count, item.bytes, expected)
            result.append(
                ScheduledKernel(
                    kernel,
                    item.count,
                    item.bytes,
                    item.written,
                    nanoseconds,
                    prediction,
                    item.serial,
                    item.subject,
                    plan.region.outputs[0],
                )
            )
            loops += decisions.schedules
        complete.append(replace(plan, schedule=replace(plan.schedule, loops=tuple(loops))))
    return complete, result


class _LoopDecisions:
    """Decides through the ledger how the loops of a kernel are unrolled and prefetch (`tile.loops.Decide`). `first`:
    the number of loops of the region's kernels before it."""

    def __init__(self, ledger: Ledger, region: Region, subject: tuple[str, ...], first: int) -> None:
        self._ledger = ledger
        self._region = region
        self._subject = subject
        self._first = first
        self._taken: dict[int, dict[str, str]] = {}

    def __call__(
        self, loop: int, rule: str, names: Sequence[str], prefer: str, reason: str, failed: Mapping[str, str]
    ) -> str:
        taken = self._ledger.decide(
            rule=rule,
            site=self._region.origin,
            subject=(*self._subject, f"loop {loop}"),
            alternatives=[Alternative(name) for name in names],
            prefer=prefer,
            reason=reason,
            failed=failed,
            field=(self._region.outputs[0], f"loop {self._first + loop}"),
        )
        self._taken.setdefault(loop, {})[rule] = taken
        return taken

    @property
    def schedules(self) -> list[LoopSchedule]:
        """The schedule of every loop, in order."""
        return [LoopSchedule.of(self._taken[loop]) for loop in sorted(self._taken)]


def _invoked(extern: Extern, storages: Mapping[str, Storage], made: Sequence[KernelBody]) -> KernelBody:
    """The call of an extern, with its rows as the grid."""
    function, row = EXTERNS[extern.function], Axis("row", extern.rows)
    names = (*extern.operands, *(result.name for result in extern.results))
    whole = function.whole(len(extern.operands), len(extern.results))
    starts = [0 if i in whole else row.dim * size for i, size in enumerate(function.parts(extern.numbers))]
    memory = [(storages[n].root, storages[n].offset + start) for n, start in zip(names, starts, strict=True)]
    blocks = enumerate(function.scratch(extern.numbers))
    scratch = tuple(
        Scratch(unused(f"own{number}", storages), dtype, as_dim(elements)) for number, (dtype, elements) in blocks
    )
    read, written = memory[: len(extern.operands)], memory[len(extern.operands) :]
    own = tuple(block.name for block in scratch)
    return KernelBody((row,), (Invoke(extern.function, tuple(read), tuple(written), own, extern.numbers),), scratch)


def _single_member(made: Sequence[KernelBody]) -> KernelBody:
    return made[0]


def _serial(made: Sequence[KernelBody]) -> KernelBody:
    """All members one after the other, by one thread."""
    return KernelBody((), sequential(made))


class _Unscheduled:
    """The kernels of each region, without schedules."""

    def __init__(self, placed: Placed) -> None:
        self._placed = placed
        self._shapes = placed.shapes

    def of(self, region: Region, tiling: BlockTiling) -> list[UnscheduledKernel]:
        """The kernels of a region, its block tiled so."""
        return [*self._own(region, tiling), *self._halos(region)]

    def _halos(self, region: Region) -> Iterator[UnscheduledKernel]:
        for name in region.outputs:
            storage, shape = self._placed.storages[name], self._shapes[name]
            if storage.padded and storage.root == name:
                filled = storage.elements * storage.dtype.bytes - size_in_bytes(storage.dtype, shape)
                sides = sides_of(storage, shape, self._placed.storages, self._shapes)
                yield UnscheduledKernel("halo", (name, "halo"), sides, _serial, Count(), filled, filled, True, True)

    def _own(self, region: Region, tiling: BlockTiling) -> list[UnscheduledKernel]:
        storages, lanes, subject = self._placed.storages, self._placed.lanes, region.outputs[:1]
        if region.extern is not None:
            count = flops(region.extern)
            return [
                UnscheduledKernel(
                    "extern", subject, (), partial(_invoked, region.extern, storages), count, *self._moved(region)
                )
            ]
        if region.scan is not None:
            made = recurrence_of(region, storages, self._shapes, lanes)
            count = flops(region.recurrence())
            return [
                UnscheduledKernel("scan", subject, made.members, made.compose, count, *self._moved(region), serial=True)
            ]
        if region.block is not None:
            if tiling.columns:
                block = online_block_of(region, tiling, storages, self._shapes, lanes)
            else:
                block = block_of(region, tiling.rows, storages, self._shapes, lanes)
            count = _flops(region.tensors)
            return [UnscheduledKernel("block", subject, block.members, block.compose, count, *self._moved(region))]
        return self._single(region, region.members[0])

    def _moved(self, region: Region) -> tuple[Dim, Dim]:
        """The bytes of all that a region reads and writes, each value once, and of those that it writes."""
        storages = self._placed.storages
        written = sum((size_in_bytes(storages[name].dtype, self._shapes[name]) for name in region.outputs), ZERO)
        return written + sum((self._read(region, name) for name in region.inputs), ZERO), written

    def _read(self, region: Region, name: str) -> Dim:
        dtype, shape = self._placed.storages[name].dtype, self._shapes[name]
        return size_in_bytes(dtype, shape) if region.extern else bytes_loaded(region.bodies, name, dtype, shape)

    def _single(self, region: Region, member: RegionMember) -> list[UnscheduledKernel]:
        storages, subject = self._placed.storages, region.outputs[:1]
        count, moved = _flops(region.tensors), self._moved(region)
        if member.kind is Kind.ROWWISE:
            assert member.space is not None
            work = RowWork(member.tensors, region.outputs, RowwiseMember.of(member.space), storages, self._shapes)
            return [UnscheduledKernel("rows", subject, (RowMember(work),), _single_member, count, *moved)]
        tensor = member.tensor
        storage = storages[tensor.name]
        if member.kind is Kind.MAP:
            parts = self._parts(tensor)
            if parts is not None:
                return [self._copy((*subject, f"part {n}"), part, target) for n, (part, target) in enumerate(parts)]
            return [
                UnscheduledKernel("map", subject, (self._map(tensor, storage),), _single_member, flops(tensor), *moved)
            ]
        lanes = self._placed.lanes[tensor.name]
        if lanes.winograd:
            assert lanes.axis is not None and lanes.along is not None and lanes.across is not None
            taps = taps_of(tensor, lanes.axis, lanes.along, lanes.across)
            assert taps is not None, f"{tensor.name} was packed for Winograd's algorithm"
            work = Winograd(member, lanes, taps, storages, self._shapes, self._placed.program)
            return [UnscheduledKernel("winograd", subject, (WinogradMember(work),), _single_member, count, *moved)]
        nest = nest_of(tensor.axes, member.place, tensor.body, storage, storages, self._shapes, lanes.axis)
        made = ReductionMember(nest, storage.root, member.kind, lanes.vectors, alone=True)
        return [UnscheduledKernel(member.kind.value, subject, (made,), _single_member, count, *moved)]

    def _copy(self, subject: tuple[str, ...], tensor: Tensor, storage: Storage) -> UnscheduledKernel:
        size = size_in_bytes(tensor.dtype, tensor.shape)
        return UnscheduledKernel(
            "map", subject, (self._map(tensor, storage),), _single_member, flops(tensor), size * 2, size
        )

    def _map(self, tensor: Tensor, storage: Storage) -> Member:
        indices = tuple(axis.dim for axis in tensor.axes)
        nest = nest_of(tensor.axes, indices, tensor.body, storage, self._placed.storages, self._shapes)
        return MapMember(nest, storage.root)

    def _parts(self, tensor: Tensor) -> list[tuple[Tensor, Storage]] | None:
        """The parts of a concatenation that have to be copied, and where to: all that are not written in place already.
        None where the tensor is no concatenation."""
        joined = concatenation_of(tensor)
        if joined is None:
            return None
        whole = self._placed.storages[tensor.name]
        made: list[tuple[Tensor, Storage]] = []
        for part in joined.parts:
            axes = list(tensor.axes)
            axes[joined.axis] = Axis(axes[joined.axis].name, part.end - part.start)
            target = slice_of(whole, joined.axis, part.start)
            body = substitute(part.load, {tensor.axes[joined.axis]: axes[joined.axis].dim + part.start})
            if part.whole and self._placed.storages[part.source].is_at(target):
                continue
            made.append((Tensor(tensor.name, tensor.dtype, tuple(axes), body, tensor.origin), target))
        return made


def _flops(tensors: Iterable[Tensor]) -> Count:
    return sum((flops(tensor) for tensor in tensors), Count())
