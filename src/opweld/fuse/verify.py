"""The invariants of regions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from opweld.errors import OpweldError
from opweld.fuse.region import Kind, Member, Region, Regions, factors, reductions
from opweld.tensor.dim import Axis, Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import loads
from opweld.tensor.program import Constant, Tensor, TensorProgram, item_outputs
from opweld.tensor.verify import Verifier, verify


def verify_regions(regions: Regions, constants: Iterable[Constant] = ()) -> None:
    """Checks the program, and that its regions compute each of its values once, in an order in which every region and
    every member finds what it reads, and that members are what their kinds say.

    constants: what regions may read beside the program's own. Regions may compute more than the program does.
    Raises OpweldError naming the region and what is wrong with it."""
    verify(regions.program)
    _Regions(regions, constants).run()


class _Regions:
    def __init__(self, regions: Regions, constants: Iterable[Constant]) -> None:
        self.program: TensorProgram = regions.program
        self.regions = regions.regions
        self.there = {value.name for value in (*self.program.inputs, *self.program.constants, *constants)}
        self.computed: set[str] = set()
        self.visible: dict[str, tuple[DType, tuple[Dim, ...]]] = dict(self.program.signatures)
        for value in constants:
            self.visible[value.name] = value.dtype, tuple(map(as_dim, value.shape))
        self.verifier = Verifier(self.program)

    def run(self) -> None:
        """Checks everything."""
        given = frozenset(self.there)
        for region in self.regions:
            for name in _computed(region):
                if name in self.computed:
                    self._fail(region, f"computes {name!r}, which is computed already")
                if name in given:
                    self._fail(region, f"computes {name!r}, which is an input or a constant")
                self.computed.add(name)
            self._check_outputs(region)
            for name in region.inputs:
                if name not in self.there:
                    self._fail(region, f"reads {name!r}, which no region before it keeps in memory")
            self._check_members(region)
            self.there.update(region.outputs)
        for name in (name for item in self.program.items for name in item_outputs(item)):
            if name not in self.computed:
                self._fail_whole(f"no region computes {name!r}")
        for public, name in self.program.outputs:
            if name not in self.there:
                self._fail_whole(f"no region keeps {name!r}, the output {public!r}, in memory")

    def _fail_whole(self, why: str) -> NoReturn:
        raise OpweldError(f"regions of {self.program.name!r}: {why}")

    def _fail(self, region: Region, why: str) -> NoReturn:
        self._fail_whole(f"region {', '.join(map(repr, region.outputs))} {why}")

    def _check_outputs(self, region: Region) -> None:
        if region.extern is not None and region.members:
            self._fail(region, "has members beside its extern")
        if region.extern is None and not region.members:
            self._fail(region, "has no members")
        if not region.outputs:
            self._fail(region, "keeps nothing in memory")
        for name in region.outputs:
            if name not in _computed(region):
                self._fail(region, f"keeps {name!r}, which it does not compute")

    def _check_members(self, region: Region) -> None:
        states = () if region.scan is None else region.scan.states
        time = () if region.scan is None else (region.scan.time,)
        waiting = {tensor.name for tensor in region.tensors} - {state.name for state in states}
        for member in region.members:
            problem = _misfit(member)
            if problem is not None:
                self._fail(region, f"has a member of {member.tensors[0].name!r} that {problem}")
            for tensor in member.tensors:
                self.verifier.check_tensor(tensor, self.visible, time)
                for node in loads(tensor.body):
                    if node.tensor in waiting:
                        self._fail(region, f"reads {node.tensor!r} in {tensor.name!r}, before it is computed")
                waiting.discard(tensor.name)
                self._check_place(region, member, tensor)
                self.visible.setdefault(tensor.name, (tensor.dtype, tensor.shape))
        if region.block is not None and len(region.block.rows) != len(region.members):
            self._fail(region, f"has the rows of {len(region.block.rows)} members in its block")

    def _check_place(self, region: Region, member: Member, tensor: Tensor) -> None:
        place = [axis.dim for axis in tensor.axes] if member.indices is None else member.indices
        dtype, shape = self.visible.get(tensor.name, (tensor.dtype, tensor.shape))
        if tensor.dtype is not dtype or len(place) != len(shape):
            what = f"{tensor.dtype!r} at {len(place)} indices"
            self._fail(region, f"computes {tensor.name!r}, {dtype!r} of rank {len(shape)}, as {what}")
        for dim in place:
            if not {atom for atom in dim.atoms if isinstance(atom, Axis)} <= set(tensor.axes):
                self._fail(region, f"has {tensor.name!r} at {dim}, which depends on no axis of it")


def _computed(region: Region) -> tuple[str, ...]:
    """What is there when the region is done, in memory or not: of recurrences and externs, their outputs."""
    whole = region.scan or region.extern
    return tuple(tensor.name for tensor in region.tensors) if whole is None else item_outputs(whole)


def _misfit(member: Member) -> str | None:
    """What keeps a member from being of its kind; None where nothing does."""
    if member.kind is Kind.ROWWISE:
        if member.space is None or [t.name for t in member.space.tensors] != [t.name for t in member.tensors]:
            return "has not its own tensors in its rows"
        return None if all(t.name in member.space.places for t in member.tensors) else "has no place in its rows"
    if len(member.tensors) != 1:
        return f"is a {member.kind.value} of {len(member.tensors)} tensors"
    found = reductions(member.tensor.body)
    if member.kind is Kind.MAP:
        return "is a map and reduces" if found else None
    if len(found) != 1:
        return f"is a {member.kind.value} with {len(found)} reductions"
    if member.kind is Kind.CONTRACTION and factors(found[0]) is None:
        return "is a contraction and no sum of products"
    return None
