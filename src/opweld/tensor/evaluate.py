"""The elements of one tensor, in NumPy: every node of the body as an array over the axes it depends on.

Evaluation is eager, errors are not: an index out of range or an integer division by zero marks the affected elements,
and only a mark that reaches the result raises. So the branch of a select that was not taken cannot fail.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from opweld.errors import OpweldError
from opweld.tensor.cells import Cells, combine, expand, union, where, worst
from opweld.tensor.dim import Atom, Axis, Dim, FloorDiv, Max, Min, Mod, Value, atoms_of, axes_of
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Lookup,
    Reduce,
    Select,
    Unary,
    dims_of,
    free_atoms,
    walk,
)
from opweld.tensor.guards import in_turn
from opweld.tensor.program import Tensor
from opweld.tensor.semantics import (
    Array,
    apply_binary,
    apply_bitcast,
    apply_cast,
    apply_contraction,
    apply_lookup,
    apply_reduce,
    apply_unary,
    fails_on_zero,
    is_floating,
)

BLOCK_BYTES = 256 << 20
"""The approximate memory budget of the intermediate arrays of one block of a tensor."""


def evaluate_tensor(
    tensor: Tensor,
    env: Mapping[str, Array],
    symbols: Mapping[Atom, int] | None = None,
    float64: bool = False,
) -> Array:
    """All elements of a tensor, of its dtype (floats as float64 where `float64`) and of the shape of its axes.

    Args:
        tensor: the tensor to evaluate.
        env: the values it loads, by name; floats as float64 where `float64`.
        symbols: the values of its symbols, and of an enclosing scan's time axis.
        float64: compute with floats in float64 throughout.

    Raises OpweldError when an index is out of range or an integer is divided by zero.
    """
    evaluator = Evaluator(tensor.name, tensor.axes, tensor.body, symbols or {}, float64, tensor.origin)
    return evaluator.run(env)


def moved_tensor(tensor: Tensor, env: Mapping[str, Array]) -> Array:
    """All elements of a tensor that only loads another one (see `evaluate_tensor`), without a copy where they are a
    strided view of it, as transposed weights are. Not to be written to."""
    evaluator = Evaluator(tensor.name, tensor.axes, tensor.body, {}, False, tensor.origin)
    view = evaluator.view(env)
    return evaluator.run(env) if view is None else view


class Evaluator:
    """One body prepared for evaluation, repeatedly with other values if needed (the steps of a scan)."""

    def __init__(
        self,
        name: str,
        axes: tuple[Axis, ...],
        body: Expr,
        symbols: Mapping[Atom, int],
        float64: bool = False,
        origin: tuple[str, ...] = (),
    ) -> None:
        self.name, self.axes, self.body, self.origin, self.float64 = name, axes, body, origin, float64
        self.known: dict[Atom, int] = dict(symbols)
        self.env: Mapping[str, Array] = {}
        self.messages: list[str] = []
        self.memo: dict[Expr, Cells] = {}
        self.dim_memo: dict[Dim, Cells] = {}
        users = Counter(child for node in walk(body) for child in _children(node))
        self.products = {
            node.body
            for node in walk(body)
            if isinstance(node, Reduce) and _is_contraction(node) and users[node.body] == 1
        }
        self.order = [node for node in walk(body) if node not in self.products]
        self.last_user: dict[Expr, Expr] = {}
        for node in self.order:
            for child in self._needs(node):
                self.last_user[child] = node
        reduced = tuple(axis for node in self.order if isinstance(node, Reduce) for axis in node.axes)
        self.extents = {axis: self._extent(axis) for axis in (*axes, *reduced)}
        self.ranges = {axis: range(extent) for axis, extent in self.extents.items()}
        self.node_axes = {
            node: [axis for axis in free_atoms(node) if isinstance(axis, Axis) and axis in self.extents]
            for node in self.order
        }

    def run(self, env: Mapping[str, Array], known: Mapping[Atom, int] | None = None) -> Array:
        """The elements for these values; `known` adds values of atoms (a scan's time). Raises OpweldError."""
        self.env, self.known = env, {**self.known, **(known or {})}
        self.memo, self.messages = {}, []
        shape = tuple(self.extents[axis] for axis in self.axes)
        result = np.empty(shape, self._numpy(self.body.dtype))
        if result.size == 0:
            return result
        steps = self._block_steps()
        split = {axis for axis in self.axes if steps[axis] < self.extents[axis]}
        kept = {node for node in self.order if not split.intersection(self.node_axes[node])}
        blocks = [_pieces(self.extents[axis], steps[axis]) for axis in self.axes]
        with np.errstate(all="ignore"):
            for block in itertools.product(*blocks):
                self.ranges = {**self.ranges, **dict(zip(self.axes, block, strict=True))}
                cells = self._block(kept if split else set())
                place = tuple(slice(r.start, r.stop) for r in block)
                result[place] = self._spread(cells, self.axes)
        self.memo = {}
        return result

    def view(self, env: Mapping[str, Array]) -> Array | None:
        """The elements without a copy; None if the body is no load of elements that lie at steady strides."""
        node = self.body
        if not isinstance(node, Load) or node.guards or node.tensor not in env:
            return None
        array = env[node.tensor]
        cells = self._affine_view(array, node.indices) if array.ndim == len(node.indices) else None
        return None if cells is None else self._spread(cells, self.axes)

    def _block(self, kept: set[Expr]) -> Cells:
        """The body over the current ranges; nodes in `kept` are the same for every block and stay in the memo."""
        self.dim_memo = {}
        for node in self.order:
            if node not in self.memo:
                self.memo[node] = self._cells(node)
            for child in self._needs(node):
                if self.last_user[child] is node and child not in kept:
                    self.memo.pop(child, None)
        cells = self.memo[self.body] if self.body in kept else self.memo.pop(self.body)
        if cells.faults is not None:
            code = int(cells.faults.array.max(initial=0))
            if code:
                raise OpweldError(self.messages[code - 1])
        return cells

    def _block_steps(self) -> dict[Axis, int]:
        """The extent of a block along each axis of the tensor, such that its intermediates fit the memory budget."""
        lengths = dict(self.extents)

        def estimate() -> int:
            return sum(
                node.dtype.bytes * math.prod(lengths[axis] for axis in self.node_axes[node]) for node in self.order
            )

        while estimate() > BLOCK_BYTES:
            best: tuple[int, Axis] | None = None
            for axis in self.axes:
                whole = lengths[axis]
                if whole > 1:
                    lengths[axis] = -(-whole // 2)
                    size = estimate()
                    if best is None or size < best[0]:
                        best = size, axis
                    lengths[axis] = whole
            if best is None:
                break
            lengths[best[1]] = -(-lengths[best[1]] // 2)
        return lengths

    def _needs(self, node: Expr) -> tuple[Expr, ...]:
        """The nodes whose cells this one reads: for a contraction, the two factors instead of their product."""
        if isinstance(node, Reduce) and node.body in self.products:
            return (*_children(node.body), *_children(node)[1:])
        return _children(node)

    def _cells(self, node: Expr) -> Cells:
        if isinstance(node, Const):
            return Cells(np.asarray(node.value, self._numpy(node.dtype)))
        if isinstance(node, Index):
            return self._dim(node.dim)
        if isinstance(node, Load):
            return self._load(node)
        if isinstance(node, Unary):
            x = self.memo[node.x]
            return Cells(apply_unary(node.op, x.array), x.axes, x.faults)
        if isinstance(node, Cast):
            x = self.memo[node.x]
            return Cells(apply_cast(x.array, self._numpy(node.dtype)), x.axes, x.faults)
        if isinstance(node, Bitcast):
            x = self.memo[node.x]
            bits = apply_bitcast(x.array, node.x.dtype, node.dtype)
            return Cells(bits.astype(self._numpy(node.dtype), copy=False), x.axes, x.faults)
        if isinstance(node, Lookup):
            x = self.memo[node.x]
            return Cells(apply_lookup(node.table, x.array), x.axes, x.faults)
        if isinstance(node, Binary):
            return self._binary(node)
        if isinstance(node, Select):
            return self._select(node)
        assert isinstance(node, Reduce)
        return self._contraction(node) if node.body in self.products else self._reduce(node)

    def _binary(self, node: Binary) -> Cells:
        x, y = self.memo[node.x], self.memo[node.y]
        axes = union(x, y)
        array = apply_binary(node.op, expand(x, axes), expand(y, axes))
        faults = worst(x.faults, y.faults)
        if fails_on_zero(node.op, y.array.dtype):
            faults = worst(faults, self._fault(Cells(y.array == 0, y.axes), f"divides by zero in {node!r}"[:500]))
        return Cells(array, axes, faults)

    def _select(self, node: Select) -> Cells:
        condition, x, y = self.memo[node.condition], self.memo[node.x], self.memo[node.y]
        chosen = where(condition, x, y)
        if x.faults is None and y.faults is None:
            return Cells(chosen.array, chosen.axes, condition.faults)
        nothing = Cells(np.zeros((), np.int64))
        faults = where(condition, x.faults or nothing, y.faults or nothing)
        return Cells(chosen.array, chosen.axes, worst(condition.faults, faults))

    def _reduce(self, node: Reduce) -> Cells:
        body = self.memo[node.body]
        array, axes = self._flat_last(body, node.axes)
        faults = None
        if body.faults is not None:
            fault_array, fault_axes = self._flat_last(body.faults, node.axes)
            faults = Cells(fault_array.max(-1, initial=0), fault_axes)
        return Cells(apply_reduce(node.kind, array), axes, faults)

    def _flat_last(self, cells: Cells, reduced: tuple[Axis, ...]) -> tuple[Array, tuple[Axis, ...]]:
        """The array with the reduced axes as one last dimension, in their order, and the axes before it."""
        kept = tuple(axis for axis in cells.axes if axis not in reduced)
        array = self._spread(cells, (*kept, *reduced))
        return array.reshape(*array.shape[: len(kept)], math.prod(array.shape[len(kept) :])), kept

    def _contraction(self, node: Reduce) -> Cells:
        assert isinstance(node.body, Binary)
        a, b = self.memo[node.body.x], self.memo[node.body.y]
        batch = tuple(axis for axis in a.axes if axis in b.axes and axis not in node.axes)
        rows = tuple(axis for axis in a.axes if axis not in b.axes and axis not in node.axes)
        columns = tuple(axis for axis in b.axes if axis not in a.axes and axis not in node.axes)
        sizes = [math.prod(len(self.ranges[axis]) for axis in group) for group in (batch, rows, node.axes, columns)]
        a_BMK = self._spread(a, (*batch, *rows, *node.axes)).reshape(sizes[0], sizes[1], sizes[2])
        b_BKN = self._spread(b, (*batch, *node.axes, *columns)).reshape(sizes[0], sizes[2], sizes[3])
        c_BMN = apply_contraction(a_BMK, b_BKN)
        axes = (*batch, *rows, *columns)
        ordered = tuple(sorted(axes, key=lambda axis: axis.number))
        unfolded = c_BMN.reshape([len(self.ranges[axis]) for axis in axes])
        array = unfolded.transpose([axes.index(axis) for axis in ordered])
        faults = worst(a.faults, b.faults)
        if faults is not None:
            fault_array, fault_axes = self._flat_last(faults, node.axes)
            faults = Cells(fault_array.max(-1, initial=0), fault_axes)
        return Cells(array, ordered, faults)

    def _load(self, node: Load) -> Cells:
        array = self.env.get(node.tensor)
        if array is None:
            raise OpweldError(f"{self._label()}: loads {node.tensor!r}, which has no value")
        if array.ndim != len(node.indices):
            raise OpweldError(
                f"{self._label()}: loads {node.tensor!r} of rank {array.ndim} at {len(node.indices)} indices"
            )
        if not node.guards:
            view = self._affine_view(array, node.indices)
            if view is not None:
                return view
        mask, guard_faults = self._guards(node.guards)
        gathered, load_faults = self._gather(node, array, mask)
        if mask is None:
            return Cells(gathered.array, gathered.axes, worst(load_faults, guard_faults))
        assert node.fill is not None
        fill = self.memo[node.fill]
        chosen = where(mask, gathered, fill)
        faults = worst(guard_faults, _either(mask, load_faults, fill.faults))
        return Cells(chosen.array, chosen.axes, faults)

    def _guards(self, guards: tuple[Dim, ...]) -> tuple[Cells | None, Cells | None]:
        """Where all guards hold, and the faults of the guards themselves, each where those before it hold."""
        mask: Cells | None = None
        faults: Cells | None = None
        for group in in_turn(guards):
            before = mask
            for guard in group:
                value = self._dim(guard)
                faults = worst(faults, value.faults if before is None else _either(before, value.faults, None))
                holds = Cells(np.asarray(value.array >= 0), value.axes)
                if mask is not None:
                    axes = union(mask, holds)
                    holds = Cells(np.asarray(expand(mask, axes) & expand(holds, axes)), axes)
                mask = holds
        return mask, faults

    def _gather(self, node: Load, array: Array, mask: Cells | None) -> tuple[Cells, Cells | None]:
        """The elements at clipped indices, and marks where the index of an executed load was out of range."""
        indices = [self._dim(dim) for dim in node.indices]
        axes = union(*indices)
        if array.size == 0:
            outside = Cells(np.ones((), bool)) if mask is None else mask
            gathered = Cells(np.zeros((), array.dtype))
            return gathered, self._fault(outside, f"loads from {node.tensor!r}, which is empty")
        faults: Cells | None = None
        clipped: list[Array] = []
        for position, (index, size) in enumerate(zip(indices, array.shape, strict=True)):
            faults = worst(faults, index.faults)
            bad = np.asarray((index.array < 0) | (index.array >= size))
            if bad.any():
                outside = Cells(bad, index.axes)
                if mask is not None:
                    both = union(outside, mask)
                    outside = Cells(np.asarray(expand(outside, both) & expand(mask, both)), both)
                text = f"{node.tensor!r} at index {node.indices[position]} of dim {position}, outside [0, {size})"
                faults = worst(faults, self._fault(outside, f"loads {text}"))
            clipped.append(expand(Cells(np.clip(index.array, 0, size - 1), index.axes), axes))
        return Cells(np.asarray(array[tuple(clipped)]), axes), faults

    def _affine_view(self, array: Array, indices: tuple[Dim, ...]) -> Cells | None:
        """The elements without a copy, when every index is affine in the axes and within range; else None."""
        starts: list[int] = []
        strides: dict[Axis, int] = {}
        for dim, size, stride in zip(indices, array.shape, array.strides, strict=True):
            linear = self._linear(dim)
            if linear is None:
                return None
            start, steps = linear
            ends = [(0, step * (len(self.ranges[axis]) - 1)) for axis, step in steps.items()]
            if start + sum(map(min, ends)) < 0 or start + sum(map(max, ends)) >= size:
                return None
            if any(len(self.ranges[axis]) == 0 for axis in steps):
                return None
            starts.append(start)
            for axis, step in steps.items():
                strides[axis] = strides.get(axis, 0) + step * stride
        axes = tuple(sorted(strides, key=lambda axis: axis.number))
        shape = tuple(len(self.ranges[axis]) for axis in axes)
        corner = array[tuple(slice(start, None) for start in starts)]
        # as_strided does not support float8_e5m2
        plain = corner.view(np.uint8) if corner.itemsize == 1 else corner
        view = np.lib.stride_tricks.as_strided(plain, shape, [strides[axis] for axis in axes], writeable=False)
        return Cells(view.view(array.dtype), axes)

    def _linear(self, dim: Dim) -> tuple[int, dict[Axis, int]] | None:
        """(value at the start of all ranges, step per axis) of an affine polynomial; None for others."""
        start = 0
        steps: dict[Axis, int] = {}
        for monomial, coefficient in dim.terms:
            moving: Axis | None = None
            for atom in monomial:
                if isinstance(atom, Axis) and atom in self.ranges and moving is None:
                    moving = atom
                elif any(isinstance(a, Value) or a in self.ranges for a in atoms_of(atom.dim)):
                    return None
                else:
                    coefficient *= self._known_value(atom)
            if moving is None:
                start += coefficient
            else:
                start += coefficient * self.ranges[moving].start
                steps[moving] = steps.get(moving, 0) + coefficient
        return start, steps

    def _dim(self, dim: Dim) -> Cells:
        found = self.dim_memo.get(dim)
        if found is not None:
            return found
        total = Cells(np.zeros((), np.int64))
        for monomial, coefficient in dim.terms:
            product = Cells(np.asarray(coefficient, np.int64))
            for atom in monomial:
                product = combine(np.multiply, product, self._atom(atom))
            total = combine(np.add, total, product)
        self.dim_memo[dim] = total
        return total

    def _atom(self, atom: Atom) -> Cells:
        if isinstance(atom, Axis) and atom in self.ranges:
            current = self.ranges[atom]
            return Cells(np.arange(current.start, current.stop, dtype=np.int64), (atom,))
        if isinstance(atom, FloorDiv | Mod | Min | Max):
            left, right = self._dim(atom.left), self._dim(atom.right)
            if isinstance(atom, FloorDiv):
                return combine(np.floor_divide, left, right)
            if isinstance(atom, Mod):
                return combine(np.mod, left, right)
            return combine(np.minimum if isinstance(atom, Min) else np.maximum, left, right)
        if isinstance(atom, Value):
            value, extent = self.memo[atom.expr], self._dim(atom.extent)
            number = Cells(value.array.astype(np.int64), value.axes, value.faults)
            axes = union(number, extent)
            x, limit = expand(number, axes), expand(extent, axes)
            outside = Cells(np.asarray((x < 0) | (x >= limit)), axes)
            fault = self._fault(outside, f"uses an index outside [0, {atom.extent}): {atom.expr!r}"[:500])
            clipped = np.maximum(np.minimum(x, limit - 1), 0)
            return Cells(clipped, axes, worst(number.faults, extent.faults, fault))
        return Cells(np.asarray(self._known_value(atom), np.int64))

    def _known_value(self, atom: Atom) -> int:
        try:
            return atom.dim.evaluate(self.known)
        except KeyError:
            raise OpweldError(f"{self._label()}: {atom} has no value") from None

    def _extent(self, axis: Axis) -> int:
        if axes_of(axis.extent):
            raise OpweldError(f"{self._label()}: the extent {axis.extent} of axis {axis} depends on an axis")
        try:
            extent = axis.extent.evaluate(self.known)
        except KeyError as error:
            raise OpweldError(f"{self._label()}: extent of axis {axis}: {error.args[0]}") from None
        if extent < 0:
            raise OpweldError(f"{self._label()}: axis {axis} has the negative extent {axis.extent} = {extent}")
        return extent

    def _fault(self, bad: Cells, message: str) -> Cells | None:
        """Marks for the elements where `bad` holds; None when it holds nowhere."""
        if not bad.array.any():
            return None
        self.messages.append(f"{self._label()}: {message}")
        return Cells(bad.array * np.int64(len(self.messages)), bad.axes)

    def _label(self) -> str:
        return f"tensor {self.name!r}" + (f" (from {', '.join(self.origin)})" if self.origin else "")

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of what `run` returns."""
        return self._numpy(self.body.dtype)

    def _numpy(self, dtype: DType) -> np.dtype[Any]:
        return np.dtype(np.float64) if self.float64 and is_floating(dtype.numpy) else dtype.numpy

    def _spread(self, cells: Cells, axes: tuple[Axis, ...]) -> Array:
        """The array with one dimension for each of the axes, in this order, at full length."""
        assert set(cells.axes) <= set(axes), f"{self._label()}: depends on an axis that is not its own"
        present = [axis for axis in axes if axis in cells.axes]
        array = cells.array.transpose([cells.axes.index(axis) for axis in present])
        array = array[tuple(slice(None) if axis in cells.axes else None for axis in axes)]
        return np.broadcast_to(array, [len(self.ranges[axis]) for axis in axes])


def _either(mask: Cells, first: Cells | None, second: Cells | None) -> Cells | None:
    """The first faults where the mask is set, else the second."""
    if first is None and second is None:
        return None
    nothing = Cells(np.zeros((), np.int64))
    return where(mask, first or nothing, second or nothing)


def _pieces(extent: int, step: int) -> list[range]:
    return [range(low, min(low + step, extent)) for low in range(0, extent, step)]


def _is_contraction(node: Reduce) -> bool:
    return node.kind == "sum" and isinstance(node.body, Binary) and node.body.op == "mul"


def _children(node: Expr) -> tuple[Expr, ...]:
    values = (atom.expr for dim in dims_of(node) for atom in atoms_of(dim) if isinstance(atom, Value))
    return (*node.operands, *values)
