"""Products of floats by weights of 8 bits as sums of integers: the floats in fixed point, with a scale for each row.

    sum<k>(mul(x[i, k], mul(f32(w_int8[k, j]), w_scales[j])))

with step[i] = max<k>(abs(x[i, k])) / 2 ** 23, and the three bytes of u[i, k] = x[i, k] / step[i] + 2 ** 23, becomes

    sums[i, p, j] = sum<k>(i32(bytes[i, p, k]) * i32(w_int8[k, j]))
    ((sums[i, 0, j] - 128 * sum<k>(w_int8[k, j])) * 65536 + sums[i, 1, j] * 256 + sums[i, 2, j]) * step[i] * w_scales[j]

Weights are multiplied as they lie in memory, four at a time where a processor has instructions for that (VNNI), and not
made floats first. x is held to 2 ** -24 of the largest of its row, as weights are held to 2 ** -8 of that of a channel;
sums of integers are exact. A row that holds an infinity or a NaN is one of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from opweld.fuse.factor_prices import lanes_and_rows
from opweld.fuse.integers import WORD
from opweld.fuse.prologues import folded
from opweld.fuse.quantized import LONGEST
from opweld.fuse.region import axes_in, has_words
from opweld.ledger import Ledger
from opweld.schedule.cost import Product, core_of, fetched_product
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import Atom, Axis, Dim, as_dim, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Expr,
    Load,
    Reduce,
    binary,
    cast,
    const,
    index,
    load,
    reduce,
    substitute,
    transform,
    unary,
)
from opweld.tensor.program import Constant, Tensor, unused

PLANES = 3
"""Bytes of a number."""
MIDDLE = 2 ** (8 * PLANES - 1)
"""What is added so that no byte is negative."""
LARGEST = MIDDLE - 8
"""What the largest element of a row becomes; the quotient of others may be rounded up."""
SPLITTING = 20
"""Plain operations that splitting a vector takes: its largest element, a division, three bytes stored."""
LEAST_STEP = 2.0**-126
"""Of a row of zeros too: a number by it is one."""


@dataclass(frozen=True)
class _Split:
    """The names of the bytes and of the steps of a tensor."""

    bytes: str
    step: str


_Key: TypeAlias = tuple[str, tuple[int | None, ...], tuple[int, ...]]
"""A tensor, where along axes it is read at one place, and the positions of the axes that have a step of their own."""


class FixedPoint:
    """Makes the sums of a program; a tensor that several products read is split once."""

    def __init__(self, expected: Expected, target: Target, ledger: Ledger, taken: set[str], weights_bytes: int) -> None:
        self._expected = expected
        self._target = target
        self._ledger = ledger
        self._taken = taken
        self._weights_bytes = weights_bytes
        self._splits: dict[_Key, _Split] = {}
        self._sums: dict[str, str] = {}
        self.made: dict[str, Constant] = {}
        """The constants that the sums need."""

    def refusal(self, item: Tensor, summed: Reduce, x: Expr, codes: Load) -> str:
        """Why a sum cannot be one of integers; "" where it can."""
        if not isinstance(x, Load) or x.guards:
            return "what multiplies the weights is no tensor that is read as it lies"
        along_axes = [place for place in x.indices if place.constant is None]
        if any(place.atom is None for place in along_axes) or len(set(along_axes)) < len(along_axes):
            return "the elements of a row of what multiplies the weights are not those along whole axes"
        wide = {axis for axis in item.axes if axis.extent.constant != 1}
        own, along = axes_in(x) - set(summed.axes), axes_in(codes) - set(summed.axes)
        if not set(summed.axes) <= axes_in(x) or own & along or (own | along) ^ wide:
            return "what multiplies the weights and the weights do not have all axes, each its own"
        count = product(axis.extent for axis in summed.axes).constant
        if count is None or count > LONGEST:
            return "how many products there are tells the run" if count is None else "sums may overflow"
        if not has_words(summed, WORD, x, codes):
            return f"no axis of the sum counts neighbours of both operands, {WORD} at a time"
        return ""

    def seconds(self, item: Tensor, summed: Reduce, x: Load, codes: Load, stored: int) -> float:
        """Of the sums, whose rows are as many for each byte, beside `stored` bytes of weights; and of splitting x,
        where no other product did."""
        along = axes_in(codes)
        lane, rows = lanes_and_rows(item, along, axes_in(x), self._expected)
        count = self._expected.product(axis.extent for axis in summed.axes)
        shape = Product(lane, PLANES * rows, max(1, count // WORD), 1, DType.I32, self._target, dot="dot4")
        taken = fetched_product(shape, stored, self._weights_bytes)
        if self._key(summed, x) in self._splits:
            return taken
        core = core_of(self._target)
        return (
            taken
            + 2 * core.launch
            + SPLITTING * rows * count / self._target.vector_lanes_f32 / core.products / core.hertz
        )

    def sums(
        self, item: Tensor, summed: Reduce, x: Load, codes: Load, scale: Load, weights: Constant
    ) -> tuple[Tensor, ...]:
        """The tensors that come in the place of a product; the last one has its name."""
        before, split = self._split(item, summed, x)
        rows = [place for place in x.indices if _is_row(place, summed)]
        along = [place for place in x.indices if place.atom in summed.axes]
        lanes = [axis for axis in item.axes if axis in axes_in(codes)]
        # Rows, bytes, lanes: an element of what multiplies the weights is the same for all lanes.
        plane = Axis(f"i{len(rows)}", as_dim(PLANES))
        outer = [Axis(f"i{n}", _axis(place).extent) for n, place in enumerate(rows)]
        inner = [Axis(f"i{len(rows) + 1 + n}", axis.extent) for n, axis in enumerate(lanes)]
        mapping: dict[Atom, Dim] = {_axis(old): new.dim for old, new in zip(rows, outer, strict=True)}
        mapping |= {old: new.dim for old, new in zip(lanes, inner, strict=True)}
        byte = load(split.bytes, DType.U8, (*rows, plane.dim, *along))
        weight = load(codes.tensor, DType.I8, codes.indices)
        terms = reduce("sum", summed.axes, binary("mul", cast(byte, DType.I32), cast(weight, DType.I32)))
        name = self._name(item.name, "sums")
        total = Tensor(name, DType.I32, (*outer, plane, *inner), substitute(terms, mapping), item.origin)
        parts = [load(name, DType.I32, (*rows, as_dim(n), *(axis.dim for axis in lanes))) for n in range(PLANES)]
        middle = load(self._middle(item, summed, codes, weights, lanes), DType.I32, tuple(a.dim for a in lanes))
        first = binary("sub", parts[0], middle)
        value = cast(first, DType.F32)
        for part in parts[1:]:
            value = binary("add", binary("mul", value, const(256.0, DType.F32)), cast(part, DType.F32))
        value = binary("mul", binary("mul", value, load(split.step, DType.F32, tuple(rows))), scale)
        last = replace(item, body=transform(item.body, lambda node: value if node is summed else None))
        return (*before, total, last)

    # ------------------------------------------------------------------------------------------------------- the parts

    def _split(self, item: Tensor, summed: Reduce, x: Load) -> tuple[tuple[Tensor, ...], _Split]:
        """What a tensor is split into, after the tensors that do it where nobody did before."""
        key = self._key(summed, x)
        if key in self._splits:
            return (), self._splits[key]
        rows = key[2]
        found = self._splits[key] = _Split(self._name(x.tensor, "bytes"), self._name(x.tensor, "step"))

        outer = [Axis(f"i{n}", _axis(x.indices[position]).extent) for n, position in enumerate(rows)]
        extents = [_axis(place).extent for place in x.indices if place.atom in summed.axes]
        along = [Axis(f"r{n}", extent) for n, extent in enumerate(extents)]
        reach = reduce("max", tuple(along), unary("abs", load(x.tensor, DType.F32, _places(x, rows, outer, along))))
        size = binary("max", binary("mul", reach, const(1.0 / LARGEST, DType.F32)), const(LEAST_STEP, DType.F32))
        step = Tensor(found.step, DType.F32, tuple(outer), size, item.origin)

        plane = Axis(f"i{len(rows)}", as_dim(PLANES))
        inner = [Axis(f"i{len(rows) + 1 + n}", extent) for n, extent in enumerate(extents)]
        element = load(x.tensor, DType.F32, _places(x, rows, outer, inner))
        quotient = binary("div", element, load(found.step, DType.F32, tuple(axis.dim for axis in outer)))
        number = binary("add", cast(unary("round", quotient), DType.I32), const(MIDDLE, DType.I32))
        shift = cast(index(as_dim(8 * (PLANES - 1)) - plane.dim * 8), DType.I32)
        byte = cast(binary("bitand", binary("shr", number, shift), const(255, DType.I32)), DType.U8)
        bytes_ = Tensor(found.bytes, DType.U8, (*outer, plane, *inner), byte, item.origin)
        return (step, bytes_), found

    @staticmethod
    def _key(summed: Reduce, x: Load) -> _Key:
        rows = tuple(n for n, place in enumerate(x.indices) if _is_row(place, summed))
        return x.tensor, tuple(place.constant for place in x.indices), rows

    def _middle(self, item: Tensor, summed: Reduce, codes: Load, weights: Constant, lanes: list[Axis]) -> str:
        """The sums of weights times what was added to the first byte of each number."""
        if codes.tensor not in self._sums:
            name = self._name(codes.tensor, "middle")
            axes = tuple(Axis(f"i{n}", axis.extent) for n, axis in enumerate(lanes))
            mapping: Mapping[Atom, Dim] = {old: new.dim for old, new in zip(lanes, axes, strict=True)}
            weight = cast(load(codes.tensor, DType.I8, codes.indices), DType.I32)
            total = binary("mul", reduce("sum", summed.axes, weight), const(MIDDLE >> 8 * (PLANES - 1), DType.I32))
            tensor = Tensor(name, DType.I32, axes, substitute(total, mapping), item.origin)
            self.made[name] = folded(tensor, {codes.tensor: weights})
            self._sums[codes.tensor] = name
        return self._sums[codes.tensor]

    def _name(self, source: str, kind: str) -> str:
        name = unused(f"{source}_{kind}", self._taken)
        self._taken.add(name)
        self._ledger.set_label(name, f"{self._ledger.label(source)} {kind}")
        return name


def _axis(place: Dim) -> Axis:
    """The axis that a place along a tensor is."""
    atom = place.atom
    assert isinstance(atom, Axis)
    return atom


def _is_row(place: Dim, summed: Reduce) -> bool:
    return place.constant is None and place.atom not in summed.axes


def _places(x: Load, rows: tuple[int, ...], outer: list[Axis], inner: list[Axis]) -> tuple[Dim, ...]:
    """Where a tensor is read by other axes: at the positions `rows` by `outer`, along what is summed by `inner`."""
    own, rest = iter(outer), iter(inner)
    return tuple(
        place if place.constant is not None else next(own if n in rows else rest).dim
        for n, place in enumerate(x.indices)
    )
