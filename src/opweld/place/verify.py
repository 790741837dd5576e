"""The invariants of placed regions: every value has memory, and values that are live at the same time do not overlap.

Sizes are compared at the expected ones: polynomials of several symbols have no order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from opweld.errors import OpweldError
from opweld.fuse.concatenation import concatenation_of
from opweld.fuse.region import Kind, Region, Regions
from opweld.fuse.saturation import pairs_fit
from opweld.fuse.verify import verify_regions
from opweld.place.halo import inside_halo
from opweld.place.lanes import WIDEST
from opweld.place.placed import Placed
from opweld.place.storage import Storage, Term, dense, slice_of
from opweld.place.written import is_updated, producing_member, read_where_written
from opweld.schedule.expected import expected_sizes
from opweld.tensor.dim import ONE, Dim
from opweld.tensor.expr import loads

NEVER = 1 << 60
"""A region number after all others."""


def verify_placed(placed: Placed, *, lanes: bool = True) -> None:
    """Checks the regions, and that

    1. every value that regions read or keep has storage, of its dtype, in memory owned by a value;
    2. its elements and halo are inside that memory, at distinct addresses;
    3. inputs and outputs have the layout that callers expect, operands and results of externs are dense, and inputs and
       constants are not overwritten;
    4. of two values in one memory, one is a part of the other, or they are different parts of a third, or one is dead
        when
       the other is written, or read only where that is written;
    5. halos make the guards of all loads redundant;
    6. lanes run along an axis of their reduction, for a target that has `lanes`;
    7. packed bytes are multiplied by an instruction that saturates only where they cannot make it.

    Raises OpweldError naming the value and what is wrong with it."""
    own = {constant.name for constant in placed.program.constants}
    verify_regions(
        Regions(placed.program, placed.regions), [c for name, c in placed.constants.items() if name not in own]
    )
    checked = _Placed(placed)
    for name in checked.storages:
        checked.check_value(name)
    checked.check_fixed()
    checked.check_shared()
    checked.check_halos()
    if lanes:
        checked.check_lanes()
    checked.check_pairs()


@dataclass(frozen=True)
class _Part:
    """A value that is a part of a whole, and its position."""

    whole: str
    number: int


class _Placed:
    def __init__(self, placed: Placed) -> None:
        self.placed = placed
        self.program = placed.program
        self.storages = placed.storages
        self.shapes = placed.shapes
        self.expected = expected_sizes(placed.program)
        self.made = {name: number for number, region in enumerate(placed.regions) for name in region.outputs}
        self.last = {name: number for number, region in enumerate(placed.regions) for name in region.inputs}
        self.last |= {name: NEVER for _, name in placed.program.outputs}
        for name in (*self.last, *self.made, *placed.constants, *(value.name for value in self.program.inputs)):
            if name not in self.storages:
                self._fail(name, "has no storage")
        self.parts = dict(self._parts())

    def _fail(self, name: str, why: str) -> NoReturn:
        raise OpweldError(f"placed regions of {self.program.name!r}: value {name!r} {why}")

    # --------------------------------------------------------------------------------------------------- one value

    def check_value(self, name: str) -> None:
        """1 and 2."""
        storage = self.storages[name]
        root = self.storages.get(storage.root)
        if root is None or root.root != storage.root:
            self._fail(name, f"is in {storage.root!r}, which has no memory of its own")
        if name in self.program.signatures and self.program.dtype_of(name) is not storage.dtype:
            self._fail(name, f"is {self.program.dtype_of(name)!r}, but stored as {storage.dtype!r}")
        if root.dtype is not storage.dtype or root.elements is not storage.elements:
            self._fail(name, f"has memory of {storage.elements} {storage.dtype!r} in {storage.root!r}, which has other")
        shape = self.shapes[name]
        if storage.padded and len(storage.halo) != len(shape):
            self._fail(name, f"of rank {len(shape)} has a halo around {len(storage.halo)} axes")
        for axis in range(len(shape)):
            self._check_axis(name, storage, axis, shape[axis])
        self._check_addresses(name, storage, shape)

    def _check_axis(self, name: str, storage: Storage, axis: int, extent: Dim) -> None:
        """The terms of an axis are digits of its index that identify each element."""
        terms = sorted((term for term in storage.terms if term.axis == axis), key=lambda term: term.divisor)
        low, high = storage.halo[axis] if storage.padded else (0, 0)
        if not terms:
            if extent.constant != 1 or low or high:
                self._fail(name, f"has the same address for all of its axis {axis}")
            return
        if any(term.shift != low for term in terms):
            self._fail(name, f"is padded by {low} before axis {axis}, and its address by {terms[0].shift}")
        divisors = [term.divisor for term in terms]
        moduli = [None if term.modulus is None else term.divisor * term.modulus for term in terms]
        if [*divisors[1:], None] != moduli or divisors[0] != 1:
            self._fail(name, f"has an address that does not tell all of its axis {axis}")

    def _check_addresses(self, name: str, storage: Storage, shape: tuple[Dim, ...]) -> None:
        if any(term.axis >= len(shape) for term in storage.terms):
            self._fail(name, f"of rank {len(shape)} has more axes in its address")
        if not all(map(self.expected, shape)):
            return
        reach = 0
        for stride, term, most in sorted(self._digits(storage, shape), key=lambda digit: digit[0]):
            if stride <= reach:
                self._fail(name, f"has two elements at one address: axis {term.axis} steps by {term.stride}")
            reach += stride * most
        size = self.expected(storage.elements)
        if self.expected(storage.offset) + reach >= size:
            self._fail(name, f"ends at element {self.expected(storage.offset) + reach} of {size}")

    def _digits(self, storage: Storage, shape: tuple[Dim, ...]) -> Iterable[tuple[int, Term, int]]:
        """(stride, term, largest value) of the terms that are not always zero."""
        for term in storage.terms:
            high = storage.halo[term.axis][1] if storage.padded else 0
            most = (self.expected(shape[term.axis]) - 1 + term.shift + high) // term.divisor
            if term.modulus is not None:
                most = min(most, term.modulus - 1)
            if most > 0:
                yield self.expected(term.stride), term, most

    def check_fixed(self) -> None:
        """3."""
        dense_values = {value.name for value in self.program.inputs} | {name for _, name in self.program.outputs}
        for region in self.placed.regions:
            if region.extern is not None:
                dense_values.update((*region.inputs, *region.outputs))
        states = {value: self._memory_of(public) for public, value in self.program.outputs}
        states = {value: memory for value, memory in states.items() if memory}
        for name in dense_values - set(self.placed.constants) - states.keys():
            storage, wanted = self.storages[name], dense(name, self.storages[name].dtype, self.shapes[name])
            if storage.terms != wanted.terms or storage.padded:
                self._fail(name, "is not dense and row-major, as callers and externs expect")
        for _, name in self.program.outputs:
            memory = states.get(name, name)
            if self.storages[name].root not in (name, memory):
                self._fail(name, "is an output and has no memory of its own")
            if self.storages[name].root == memory != name and not self.storages[name].is_at(self.storages[memory]):
                self._fail(name, f"is not in the memory of its state {memory!r}")
        read_only = {value.name for value in self.program.inputs} | set(self.placed.constants)
        read_only -= set(states.values())
        for name, storage in self.storages.items():
            if storage.root in read_only and storage.root != name:
                self._fail(name, f"is in {storage.root!r}, which must not be overwritten")

    def _memory_of(self, output: str) -> str:
        """The input whose state an output updates; empty if none."""
        return next((state.input for state in self.program.states if state.output == output), "")

    # -------------------------------------------------------------------------------------------- several in one memory

    def check_shared(self) -> None:
        """4."""
        residents: dict[str, list[str]] = {}
        for name, storage in self.storages.items():
            residents.setdefault(storage.root, []).append(name)
        for names in residents.values():
            names.sort(key=lambda name: self.made.get(name, -1))
            for position, later in enumerate(names):
                for earlier in names[:position]:
                    if not self._apart(earlier, later):
                        self._fail(later, f"is written into the memory of {earlier!r}, which is read after it")

    def _apart(self, earlier: str, later: str) -> bool:
        """Whether neither overwrites the other while it is live."""
        if self._related(earlier, later):
            return True
        number, last = self.made[later], self.last.get(earlier, self.made.get(earlier, -1))
        if last != number or self.made.get(earlier) == number:
            return last < number
        region = self.placed.regions[number]
        if is_updated(region, earlier, later):
            return True
        member, storage = producing_member(region), self.storages[later]
        if member is None:
            return False
        return read_where_written(region, storage.root, self.storages, storage.address(member.place))

    def _related(self, a: str, b: str) -> bool:
        """Whether one is a part of the other, or both are parts of one whole, and different ones."""
        above_a, above_b = self._wholes(a), self._wholes(b)
        if a in above_b or b in above_a:
            return True
        common = next((whole for whole in above_a if whole in above_b), None)
        return common is not None and above_a[common] != above_b[common]

    def _wholes(self, name: str) -> dict[str, int]:
        """The wholes that contain a value, directly or not, and the index of its part in each."""
        found: dict[str, int] = {}
        while name in self.parts:
            part = self.parts[name]
            found[part.whole] = part.number
            name = part.whole
        return found

    def _parts(self) -> Iterable[tuple[str, _Part]]:
        """The values that are written directly into a whole."""
        for region in self.placed.regions:
            joined = concatenation_of(region.members[0].tensor) if region.kind is Kind.MAP else None
            if joined is None:
                continue
            whole = region.outputs[0]
            for number, part in enumerate(joined.parts):
                storage = self.storages[part.source]
                inside = slice_of(self.storages[whole], joined.axis, part.start)
                if part.whole and storage.is_at(inside):
                    yield part.source, _Part(whole, number)

    # ----------------------------------------------------------------------------------------------------- its readers

    def check_halos(self) -> None:
        """5."""
        for region in self.placed.regions:
            for node in loads(*region.bodies):
                storage = self.storages.get(node.tensor)
                if storage is None or not storage.padded or not node.guards:
                    continue
                if not inside_halo(node, storage, self.shapes[node.tensor]):
                    halo = ", ".join(map(str, storage.halo))
                    self._fail(node.tensor, f"has the halo {halo} of {storage.fill}, but is read further: {node!r}")

    def check_pairs(self) -> None:
        """7."""
        for name, storage in self.storages.items():
            words = [term.axis for term in storage.terms if term.stride is ONE and term.modulus is not None]
            if storage.pairs_fit and not (words and pairs_fit(self.placed.constants[name].read(), words[0])):
                self._fail(name, "has neighbours whose products with bytes do not sum to 16 bits")

    def check_lanes(self) -> None:
        """6."""
        axes = {tensor.name: tensor.axes for region in self.placed.regions for tensor in region.tensors}
        for region in self.placed.regions:
            for name in _reductions(region):
                if name not in self.placed.lanes:
                    self._fail(name, "has no lanes")
        for name, lanes in self.placed.lanes.items():
            if lanes.axis is not None and lanes.axis not in axes.get(name, ()):
                self._fail(name, f"has lanes along {lanes.axis}, which is not one of its axes")
            if not 1 <= lanes.vectors <= WIDEST:
                self._fail(name, f"has tiles of {lanes.vectors} vectors, expected 1 to {WIDEST}")


def _reductions(region: Region) -> list[str]:
    return [member.tensor.name for member in region.members if member.reduces_tiles]
