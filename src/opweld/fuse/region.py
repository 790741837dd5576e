"""Regions: blocks of members that one kernel computes one after the other.

A member is a tensor, or tensors over one row space, and its kind says which template computes it. Most regions have one
member, whose own axes are the grid of its kernel. The members of a block share outer axes (batch, head, a block of
rows) and are computed one after the other over the part that the next one needs; what lies between them never leaves
the cache. A recurrence is a block whose outer axis is time, with states that are carried from step to step.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opweld.tensor.axes import split
from opweld.tensor.dim import ONE, ZERO, Axis, Dim, FloorDiv, atoms_of, axes_of, mod, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Bitcast, Cast, Const, Expr, Index, Load, Reduce, Unary, dims_of, loads, walk
from opweld.tensor.operators import WORDS, is_expensive
from opweld.tensor.program import Extern, Scan, Tensor, TensorProgram

if TYPE_CHECKING:
    from opweld.fuse.rows import RowSpace
    from opweld.schedule.expected import Expected


MOST_PROLOGUE = 12
"""Expressions of a factor of a contraction that depend on what it loads: each register tile computes them anew."""


class Kind(enum.Enum):
    """What a member is; each kind has one template."""

    MAP = "map"
    """no reduction: every element on its own"""
    CONTRACTION = "contraction"
    """a sum of products in which the factors have axes of their own: matrix products and convolutions"""
    WINDOW = "window"
    """a reduction over a window that slides over the output's own axes: pooling, depthwise convolution"""
    ROWWISE = "rowwise"
    """reductions over a row that stays resident, and what is done with the row"""


@dataclass(frozen=True, eq=False)
class Member:
    """What one template computes: one tensor, or those of a row in order.

    A contraction's or window's axes may be finer than its value's: `indices` then says which element of the value each
    combination of axes is. `space`: the rows and columns that rowwise tensors lie on."""

    kind: Kind
    tensors: tuple[Tensor, ...]
    indices: tuple[Dim, ...] | None = None
    space: RowSpace | None = None

    @property
    def tensor(self) -> Tensor:
        """The only tensor."""
        (tensor,) = self.tensors
        return tensor

    @property
    def place(self) -> tuple[Dim, ...]:
        """The element of the value that the axes of the only tensor stand for."""
        return tuple(axis.dim for axis in self.tensor.axes) if self.indices is None else self.indices

    @property
    def reduces_tiles(self) -> bool:
        """Whether it is computed by register tiles: a contraction or a window."""
        return self.kind in (Kind.CONTRACTION, Kind.WINDOW)


@dataclass(frozen=True)
class Reach:
    """The rows of a block's first member that a tile of its rows needs: `step` for each row and `over` more (a halo),
    starting at step * first row - before. A sliding window needs the rows under it; other members need their own."""

    step: int = 1
    over: int = 0
    before: int = 0

    def rows(self, height: int) -> int:
        """How many rows of the first member `height` rows of the block need."""
        return self.step * height + self.over


@dataclass(frozen=True, eq=False)
class Block:
    """What the members of a block share.

    Attributes:
        space: rows and columns; each member has all rows, and is computed for a tile of rows at a time.
        row: the position of the row axis that is tiled; the other row axes are the grid.
        rows: of each member, the position among the row axes of each of its axes that is one.
        reach: the rows of the first member that a tile of rows of the others needs.
    """

    space: RowSpace
    row: int
    rows: tuple[dict[Axis, int], ...]
    reach: Reach = Reach()


@dataclass(frozen=True, eq=False)
class Region:
    """Members that one kernel computes, in order. `outputs` are kept in memory, the others in registers or scratch.

    `scan`: the members are the steps of this recurrence. `block`: what several members share. `extern`: there are no
    members, but this function."""

    members: tuple[Member, ...]
    outputs: tuple[str, ...]
    scan: Scan | None = None
    block: Block | None = None
    extern: Extern | None = None

    @staticmethod
    def single(
        kind: Kind,
        tensors: tuple[Tensor, ...],
        outputs: tuple[str, ...],
        indices: tuple[Dim, ...] | None = None,
        space: RowSpace | None = None,
    ) -> Region:
        """A region of one member."""
        return Region((Member(kind, tensors, indices, space),), outputs)

    @property
    def kind(self) -> Kind | None:
        """The kind of the only member; None for recurrences, blocks of several and externs."""
        return self.members[0].kind if len(self.members) == 1 and self.scan is None else None

    @property
    def of_tiles(self) -> bool:
        """Whether it is a block whose members are all computed by register tiles."""
        return self.block is not None and all(member.reduces_tiles for member in self.members)

    @property
    def is_pair(self) -> bool:
        """Whether it is a block of two whose first is a contraction, a window or elementwise, see `pairs.py`."""
        return self.block is not None and len(self.members) == 2 and self.members[0].kind is not Kind.ROWWISE

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of all members, in order."""
        return tuple(tensor for member in self.members for tensor in member.tensors)

    @property
    def origin(self) -> tuple[str, ...]:
        """The graph nodes it computes, each once."""
        own = [name for tensor in self.tensors for name in tensor.origin]
        whole = self.scan or self.extern
        return tuple(dict.fromkeys((*own, *(whole.origin if whole else ()))))

    @property
    def bodies(self) -> tuple[Expr, ...]:
        """The expressions it computes, initial states included."""
        initial = () if self.scan is None else tuple(state.initial for state in self.scan.states)
        return (*initial, *(tensor.body for tensor in self.tensors))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names it reads from memory, once each, in order."""
        if self.extern is not None:
            return tuple(dict.fromkeys(self.extern.operands))
        inner = {tensor.name for tensor in self.tensors}
        if self.scan is not None:
            inner |= {state.name for state in self.scan.states}
        read = dict.fromkeys(node.tensor for body in self.bodies for node in loads(body))
        return tuple(name for name in read if name not in inner)

    def rewritten(self, change: Callable[[Tensor], Tensor]) -> Region:
        """The region with other bodies of the same tensors."""
        members: list[Member] = []
        for member in self.members:
            tensors = tuple(map(change, member.tensors))
            same = all(new is old for new, old in zip(tensors, member.tensors, strict=True))
            members.append(member if same else replace(member, tensors=tensors))
        return replace(self, members=tuple(members))

    def recurrence(self) -> Scan:
        """The scan with its steps as the members have them."""
        assert self.scan is not None
        return replace(self.scan, steps=self.tensors)


@dataclass(frozen=True, eq=False)
class Regions:
    """A program partitioned: each region reads inputs, constants and outputs of regions before it."""

    program: TensorProgram
    regions: tuple[Region, ...]


def is_zero(value: Expr | None) -> bool:
    """Whether an optional value (the fill of guarded loads, or a zero point) is absent or the constant 0."""
    return value is None or (isinstance(value, Const) and value.value == 0)


def reductions(body: Expr) -> list[Reduce]:
    """The reductions of an expression, inner ones first."""
    return [node for node in walk(body) if isinstance(node, Reduce)]


def factors(reduce: Reduce) -> tuple[Load, Load] | None:
    """The loads that the two factors of a sum of products are computed from, or None: each has all axes of its factor.

    A factor is a load, or cheap elementwise arithmetic around one: a cast of a narrower type, a scale."""
    body = reduce.body
    if reduce.kind != "sum" or not isinstance(body, Binary) or body.op != "mul":
        return None
    x, y = operand_of(body.x), operand_of(body.y)
    if x is None or y is None or not (body.dtype.is_float or word_of(reduce) > 1):
        return None
    return x, y


def dot_of(reduce: Reduce) -> str:
    """The operator on words of 32 bits that a sum of products of numbers narrower than it is one of: `dot4` of integers
    of 8 bits summed in 32, `dot2i` of 16 bits, see `integers.py`; `dot2` of bfloat16 summed in float32; "" of any other
    sum."""
    body = reduce.body
    if reduce.kind != "sum" or not isinstance(body, Binary) or body.op != "mul":
        return ""
    narrow = [factor.x.dtype for factor in (body.x, body.y) if isinstance(factor, Cast)]
    if len(narrow) < 2:
        return ""
    if reduce.dtype is DType.I32 and all(dtype in (DType.U8, DType.I8) for dtype in narrow):
        return "dot4"
    if reduce.dtype is DType.I32 and all(dtype is DType.I16 for dtype in narrow):
        return "dot2i"
    return "dot2" if reduce.dtype is DType.F32 and all(dtype is DType.BF16 for dtype in narrow) else ""


def word_of(reduce: Reduce) -> int:
    """Elements of a word of 32 bits that are multiplied and summed at once; 1 where none are."""
    return WORDS.get(dot_of(reduce), 1)


def counts_words(index: Dim, axis: Axis, word: int) -> bool:
    """Whether an axis steps through neighbours at an index, in whole groups of `word` that begin at multiples of it."""
    size, others = axis.extent.constant, index.without(axis)
    if size is None or size % word or index.coefficient(axis) is not ONE:
        return False
    return all(factor % word == 0 for _, factor in others.terms)


def has_words(summed: Reduce, word: int, *elements: Load) -> bool:
    """Whether some axis of a sum steps through neighbours of all of these loads, in whole groups of `word`."""
    return any(all(_counts(element, axis, word) for element in elements) for axis in summed.axes)


def _counts(element: Load, axis: Axis, word: int) -> bool:
    found = [dim for dim in element.indices if dim.depends_on(axis)]
    return (
        len(found) == 1 and counts_words(found[0], axis, word) and not any(g.depends_on(axis) for g in element.guards)
    )


def steps_of(reduce: Reduce, expected: Expected) -> int:
    """Multiply-adds of a sum of products for each result: one for each word."""
    return max(1, expected.product(axis.extent for axis in reduce.axes) // word_of(reduce))


def operand_of(factor: Expr) -> Load | None:
    """The load that has all axes of a factor; None where there is none, or where computing it takes long."""
    if isinstance(factor, Load):
        return factor
    found, nodes = loads(factor), list(walk(factor))
    if not found or not all(map(_is_cheap, nodes)) or len(loaded(factor)) > MOST_PROLOGUE:
        return None
    main = max(found, key=lambda node: (len(axes_in(node)), -_divided(node)))
    return main if all(axes_in(node) <= axes_in(main) for node in found) else None


def uncast(value: Expr) -> Expr:
    """The value inside of any casts."""
    while isinstance(value, Cast):
        value = value.x
    return value


def loaded(value: Expr) -> list[Expr]:
    """The expressions of a value that depend on what is loaded: others count axes, and are computed beside them."""
    found: dict[Expr, None] = {}
    for node in walk(value):
        if isinstance(node, Load) or any(operand in found for operand in node.operands):
            found[node] = None
    return list(found)


def _divided(node: Load) -> int:
    """How many neighbours read the same element, by the divisions in a load's indices: a block of weights its scale."""
    atoms = {atom for dim in node.indices for atom in atoms_of(dim) if isinstance(atom, FloorDiv)}
    return sum(atom.right.constant or 1 for atom in atoms)


def _is_cheap(node: Expr) -> bool:
    return isinstance(node, Load | Const | Index | Cast | Bitcast) or (
        isinstance(node, Unary | Binary) and not is_expensive(node.op)
    )


def axes_in(load: Load) -> frozenset[Axis]:
    """The axes on which the address or the guards of a load depend."""
    return frozenset[Axis]().union(*map(axes_of, dims_of(load)))


def has_lanes(member: Member, rows: Container[Axis]) -> bool:
    """Whether lanes can run along an axis of a contraction that is none of these rows: one that a single factor has, so
    that an element of the other serves all of them. Those of a window run along any."""
    own = [axis for axis in member.tensor.axes if axis.extent.constant != 1 and axis not in rows]
    pair = factors(reductions(member.tensor.body)[0]) if member.kind is Kind.CONTRACTION else None
    if pair is None:
        return bool(own)
    return any(axis in addressed(a) and axis not in axes_in(b) for axis in own for a, b in (pair, pair[::-1]))


def addressed(load: Load) -> frozenset[Axis]:
    """The axes on which the address of a load depends, guards aside: those that operands can be packed along."""
    return frozenset[Axis]().union(*map(axes_of, load.indices))


def classify(tensor: Tensor, constants: Container[str]) -> Kind:
    """The anchor kind of one tensor computed on its own. `constants` names the values known at compile time."""
    found = reductions(tensor.body)
    if not found:
        return Kind.MAP
    if len(found) > 1 or found[0].kind.startswith("arg"):
        return Kind.ROWWISE
    axes, body, _ = split(tensor.axes, tensor.body, ())
    reduce = reductions(body)[0]
    own = {axis for axis in axes if axis.extent.constant != 1}
    pair = factors(reduce)
    if pair is not None and _is_contraction(reduce, own, pair, constants):
        return Kind.CONTRACTION
    return Kind.WINDOW if slides(reduce, own) else Kind.ROWWISE


def _is_contraction(reduce: Reduce, own: set[Axis], pair: tuple[Load, Load], constants: Container[str]) -> bool:
    """Whether lanes can run along one factor while the other is broadcast: both have output axes of their own, or the
    only one that has is constant and can be packed along it."""
    left, right = (axes_in(load) for load in pair)
    reduced = set(reduce.axes)
    if not left & reduced or not right & reduced:
        return False
    first, second = bool(own & addressed(pair[0]) - right), bool(own & addressed(pair[1]) - left)
    if first and second:
        return True
    return (first and pair[0].tensor in constants) or (second and pair[1].tensor in constants)


def slides(reduce: Reduce, own: set[Axis]) -> bool:
    """Whether indices mix a reduced axis with an output axis: y * stride + ky. A single index that only joins them side
    by side, each pair once, is what a Reshape leaves behind, and no window."""
    reduced = set(reduce.axes)
    mixed = {
        dim for load in loads(reduce.body) for dim in load.indices if reduced & atoms_of(dim) and own & atoms_of(dim)
    }
    return len(mixed) > 1 or any(not _side_by_side(dim, reduced, own) for dim in mixed)


def _side_by_side(dim: Dim, reduced: set[Axis], own: set[Axis]) -> bool:
    inner = product(axis.extent for axis in reduced if dim.depends_on(axis))
    outer = [dim.coefficient(axis) for axis in own if dim.depends_on(axis)]
    return all(stride is not None and mod(stride, inner) is ZERO for stride in outer)


def is_view(tensor: Tensor) -> bool:
    """Whether the tensor only moves data: one load, no arithmetic."""
    return isinstance(tensor.body, Load) and tensor.body.fill is None


def is_identity(tensor: Tensor) -> bool:
    """Whether the tensor is an exact copy of what it loads."""
    body = tensor.body
    return (
        isinstance(body, Load)
        and body.fill is None
        and len(body.indices) == len(tensor.axes)
        and all(
            i.atom is a or (a.extent.constant == 1 and i is ZERO)
            for i, a in zip(body.indices, tensor.axes, strict=True)
        )
    )
