"""Regions: which tensors are computed together, and around what."""

from __future__ import annotations

import enum
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opweld.tensor.axes import split
from opweld.tensor.dim import ZERO, Axis, Dim, atoms_of, mod, product
from opweld.tensor.expr import Binary, Expr, Load, Reduce, dims_of, loads, walk
from opweld.tensor.program import Scan, Tensor, TensorProgram

if TYPE_CHECKING:
    from opweld.fuse.rows import RowSpace


class Kind(enum.Enum):
    """What a region is built around; each kind has one schedule template."""

    MAP = "map"
    """no reduction: every element on its own"""
    CONTRACTION = "contraction"
    """a sum of products in which the factors have axes of their own: matrix products and convolutions"""
    WINDOW = "window"
    """a reduction over a window that slides over the output's own axes: pooling, depthwise convolution"""
    ROWWISE = "rowwise"
    """reductions over a row that stays resident, and what is done with the row"""
    SCAN = "scan"
    """a recurrence"""


@dataclass(frozen=True, eq=False)
class Region:
    """Tensors that one kernel computes, in order. `outputs` are kept in memory, the others live in registers.

    A contraction or window has a single tensor, whose axes may be finer than its value's: `indices` then says which
    element of the value each combination of axes is. `space`: the rows and columns that rowwise tensors lie on."""

    kind: Kind
    tensors: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    scan: Scan | None = None
    indices: tuple[Dim, ...] | None = None
    space: RowSpace | None = None

    @property
    def place(self) -> tuple[Dim, ...]:
        """The element of the value that the axes of the only tensor stand for."""
        return tuple(axis.dim for axis in self.tensors[0].axes) if self.indices is None else self.indices

    @property
    def origin(self) -> tuple[str, ...]:
        """The graph nodes it computes, each once."""
        own = [name for tensor in self.tensors for name in tensor.origin]
        return tuple(dict.fromkeys((*own, *(self.scan.origin if self.scan else ()))))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names it reads from memory, once each, in order."""
        if self.scan is not None:
            from opweld.tensor.program import item_inputs

            return item_inputs(self.scan)
        inner = {tensor.name for tensor in self.tensors}
        read = [node.tensor for tensor in self.tensors for node in loads(tensor.body)]
        return tuple(dict.fromkeys(name for name in read if name not in inner))


@dataclass(frozen=True, eq=False)
class Regions:
    """A program partitioned: each region reads inputs, constants and outputs of regions before it."""

    program: TensorProgram
    regions: tuple[Region, ...]


def reductions(body: Expr) -> list[Reduce]:
    """The reductions of an expression, inner ones first."""
    return [node for node in walk(body) if isinstance(node, Reduce)]


def factors(reduce: Reduce) -> tuple[Load, Load] | None:
    """The two loads of a sum of products, or None."""
    body = reduce.body
    if reduce.kind != "sum" or not isinstance(body, Binary) or body.op != "mul":
        return None
    if isinstance(body.x, Load) and isinstance(body.y, Load) and body.dtype.is_float:
        return body.x, body.y
    return None


def axes_in(load: Load) -> frozenset[Axis]:
    """The axes on which the address or the guards of a load depend."""
    return frozenset(a for dim in dims_of(load) for a in atoms_of(dim) if isinstance(a, Axis))


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
    return Kind.WINDOW if _slides(reduce, own) else Kind.ROWWISE


def _is_contraction(reduce: Reduce, own: set[Axis], pair: tuple[Load, Load], constants: Container[str]) -> bool:
    """Whether lanes can run along one factor while the other is broadcast: both have output axes of their own, or the
    only one that has is constant and can be packed along it."""
    left, right = (axes_in(load) for load in pair)
    reduced = set(reduce.axes)
    if not left & reduced or not right & reduced:
        return False
    first, second = bool(own & left - right), bool(own & right - left)
    if first and second:
        return True
    return (first and pair[0].tensor in constants) or (second and pair[1].tensor in constants)


def _slides(reduce: Reduce, own: set[Axis]) -> bool:
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
