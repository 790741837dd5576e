"""The members of a recurrence: one thread executes the steps, with states and step values in scratch.

    copy the initial states into scratch
    for each step: compute every step tensor into scratch; store what is stacked; move the updates into the states
    copy the states to the final outputs

Everything that does not depend on the state was hoisted out of the recurrence before; what remains is small, and a
barrier at every step would cost more than a second thread gains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from opweld.fuse.region import Kind, Region
from opweld.fuse.region import Member as RegionMember
from opweld.place.lanes import Lanes
from opweld.place.storage import Storage, Term, dense
from opweld.tensor.dim import Axis, Dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, load
from opweld.tensor.program import State, Tensor, unused
from opweld.tile.member import KernelBody, MapMember, Member, ReductionMember, sequential
from opweld.tile.nest import nest_of
from opweld.tile.tile import Loop, Scratch


@dataclass(frozen=True, eq=False)
class Recurrence:
    """Members before the first step, of each step, and after the last one."""

    time: Axis
    before: tuple[Member, ...]
    during: tuple[Member, ...]
    after: tuple[Member, ...]
    scratch: tuple[Scratch, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, in order."""
        return (*self.before, *self.during, *self.after)

    def compose(self, made: Sequence[KernelBody]) -> KernelBody:
        """The statements of all members, in order: loops, and around those of a step the loop over time."""
        first, last = len(self.before), len(self.before) + len(self.during)
        body = (*sequential(made[:first]), Loop(self.time, sequential(made[first:last])), *sequential(made[last:]))
        return KernelBody((), body, (*self.scratch, *(block for item in made for block in item.scratch)))


def recurrence_of(
    region: Region,
    storages: Mapping[str, Storage],
    shapes: Mapping[str, tuple[Dim, ...]],
    lanes: Mapping[str, Lanes],
) -> Recurrence:
    """The members of a recurrence, its states and steps in scratch."""
    scan = region.recurrence()
    inner: Sequence[State | Tensor] = (*scan.states, *scan.steps)
    local = {**storages, **{v.name: dense(unused(f"{v.name}_now", storages), v.dtype, v.shape) for v in inner}}
    scratch = tuple(Scratch(local[v.name].root, v.dtype, local[v.name].elements) for v in inner)
    sizes = {**shapes, **{value.name: value.shape for value in inner}}

    def element(axes: tuple[Axis, ...], body: Expr, storage: Storage, name: str) -> Member:
        nest = nest_of(axes, tuple(axis.dim for axis in axes), body, storage, local, sizes)
        return MapMember(nest, storage.root, (name,), serial=True)

    def copy(source: str, dtype: DType, axes: tuple[Axis, ...], storage: Storage, name: str) -> Member:
        return element(axes, load(source, dtype, tuple(a.dim for a in axes)), storage, name)

    def step_member(member: RegionMember) -> Member:
        step, kind = member.tensor, member.kind
        storage = local[step.name]
        if kind is Kind.MAP:
            return element(step.axes, step.body, storage, step.name)
        own = lanes[step.name]
        place = tuple(axis.dim for axis in step.axes)
        nest = nest_of(step.axes, place, step.body, storage, local, sizes, own.axis)
        return ReductionMember(nest, storage.root, kind, own.vectors, (step.name,), scan.time)

    steps = {step.name: step for step in scan.steps}
    states = {state.name: state for state in scan.states}
    before = [element(s.axes, s.initial, local[s.name], f"initial {s.name}") for s in scan.states]
    during = [step_member(member) for member in region.members]
    for name, source in scan.stacked:
        step = steps[source]
        during.append(copy(source, step.dtype, step.axes, _at_step(local[name], scan.time), f"stack {name}"))
    for state in scan.states:
        during.append(copy(state.update, state.dtype, state.axes, local[state.name], f"update {state.name}"))
    after: list[Member] = []
    for name, source in scan.final:
        state = states[source]
        after.append(copy(source, state.dtype, state.axes, local[name], f"final {name}"))
    return Recurrence(scan.time, tuple(before), tuple(during), tuple(after), scratch)


def _at_step(stacked: Storage, time: Axis) -> Storage:
    """The part of a stacked output that belongs to the current step."""
    address = stacked.offset
    terms: list[Term] = []
    for term in stacked.terms:
        if term.axis == 0:
            address = address + term.stride * (time.dim + term.shift)
        else:
            terms.append(replace(term, axis=term.axis - 1))
    return replace(stacked, terms=tuple(terms), offset=address)


Compose = Callable[[Sequence[KernelBody]], KernelBody]
"""Composes the members' statements to one kernel."""
