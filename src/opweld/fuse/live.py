"""Which columns of a row of scores a softmax need not see: a mask makes them minus infinity, whatever is fed.

    s[i, j] = x[i, j] where j <= i, else -inf        columns beyond the diagonal have shares of 0

That is read off the expressions: off those of the row, of the contraction that made the scores, and of masks that other
kernels compute. Only what positions decide counts; what is fed decides when the model runs.

A column that is not seen is not multiplied, either: an infinity or NaN under the mask is nothing, where 0 times it, or
its sum with minus infinity, were NaN (`--disable schedule.masked`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from opweld.fuse.online import Softmax, scores_of
from opweld.fuse.region import Region
from opweld.fuse.rows import RowSpace
from opweld.tensor.dim import (
    ZERO,
    Atom,
    Axis,
    Dim,
    Symbol,
    TooLargeError,
    as_dim,
    atoms_of,
    maximum,
    minimum,
    nonnegative,
)
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Cast, Const, Expr, Index, Load, Select, Unary, substitute

Conditions = frozenset[Dim] | None
"""Sizes that are all at least zero wherever something is so; None: it is so nowhere."""

Values = Mapping[str, tuple[tuple[Dim, ...], Expr]]
"""What values are: the element that the axes of an expression stand for, and the expression."""

DEEPEST = 64
"""Expressions inside each other, and values computed from each other, that are looked through for a mask."""
MOST = 4096
"""Expressions that are looked at."""
SAMPLES = 64
"""Blocks of rows that are looked at to tell how many columns a mask leaves."""
INFINITE = (DType.F16, DType.BF16, DType.F32, DType.F64)
"""Types in which minus infinity stays what it is."""


@dataclass(frozen=True)
class Live:
    """The columns that can count, by axes that stand for the rows: from each of `first` on, and before each of `end`.
    All of these run along rows in straight lines."""

    rows: tuple[Axis, ...]
    columns: Dim
    first: tuple[Dim, ...]
    end: tuple[Dim, ...]

    def within(self, at: Sequence[Dim], row: int, start: Dim, last: Dim) -> tuple[Dim, Dim]:
        """(the first column that can count, the one after the last) for the rows from `start` to `last` of axis `row`;
        of the other axes, the rows `at`. The former is at least zero, either may be beyond the columns."""
        places: dict[Atom, Dim] = dict(zip(self.rows, at, strict=True))
        own = self.rows[row]
        first, end = ZERO, self.columns
        for bound in self.first:
            rising = nonnegative(_slope(bound, own))
            first = maximum(first, bound.substitute(places | {own: start if rising else last}))
        for bound in self.end:
            rising = nonnegative(_slope(bound, own))
            end = minimum(end, bound.substitute(places | {own: last if rising else start}))
        return first, maximum(0, end)

    def visited(
        self, extents: Sequence[int], row: int, height: int, columns: int, most: int, expected: Callable[[Dim], int]
    ) -> float:
        """How many blocks of so many columns, of `most` that there are, blocks of so many rows of axis `row` visit on
        average, for sizes that are expected; `extents` of all axes of rows. Of the others the middle is looked at, and
        of many blocks some."""
        at = [as_dim(extent // 2) for extent in extents]
        blocks = max(1, -(-extents[row] // height))
        step = -(-blocks // SAMPLES)
        samples = range(step // 2, blocks, step)
        seen = 0
        for number in samples:
            start = as_dim(number * height)
            first, end = self.within(at, row, start, start + height - 1)
            seen += max(0, min(most, -(-expected(end) // columns)) - expected(first) // columns)
        return seen / len(samples)


def values_of(regions: tuple[Region, ...]) -> Values:
    """The values that could be masks or scores: those of all regions but recurrences."""
    found: dict[str, tuple[tuple[Dim, ...], Expr]] = {}
    for region in regions:
        for member in region.members if region.scan is None else ():
            for tensor in member.tensors:
                own = tuple(axis.dim for axis in tensor.axes)
                found[tensor.name] = own if member.indices is None else member.indices, tensor.body
    return found


def live_columns(softmax: Softmax, space: RowSpace, values: Values) -> Live | str:
    """The columns of the rows of a softmax that can count; or why all do."""
    rows, column = tuple(Axis(f"r{n}", extent) for n, extent in enumerate(space.rows)), Axis("c", space.columns[0])
    known = _Reader(values).above(scores_of(softmax.maximum, space, rows, column))
    if known is None:
        return "every column is minus infinity"
    first: list[Dim] = []
    end: list[Dim] = []
    for dim in sorted(known, key=repr):
        step = dim.coefficient(column)
        rest = dim.substitute({column: ZERO})
        if step is None or step.constant not in (1, -1) or not _straight(rest, rows):
            continue
        if step.constant == 1:
            first.append(-rest)
        else:
            end.append(rest + 1)
    if not first and not end:
        return "no mask of minus infinity says of positions that they do not count"
    return Live(rows, space.columns[0], tuple(first), tuple(end))


def _slope(bound: Dim, axis: Axis) -> Dim:
    slope = bound.coefficient(axis)
    assert slope is not None
    return slope


def _straight(dim: Dim, rows: tuple[Axis, ...]) -> bool:
    """Whether nothing but sizes and straight lines along rows is in it, of slopes whose sign is known."""
    if not all(isinstance(atom, Symbol) or atom in rows for atom in atoms_of(dim)):
        return False
    slopes = [dim.coefficient(axis) for axis in rows]
    return all(slope is not None and (nonnegative(slope) or nonnegative(-slope)) for slope in slopes)


class _Reader:
    """Reads conditions off expressions, each once. What lies deeper than `DEEPEST`, or comes after `MOST` others, is
    not looked at and says nothing, which is always true."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._found: dict[tuple[Expr, bool | None], Conditions] = {}
        self._depth = 0

    def above(self, node: Expr) -> Conditions:
        """Where a number can be more than minus infinity."""
        return self._remembered(node, None)

    def where(self, node: Expr, holds: bool) -> Conditions:
        """Where a condition holds, or where it does not."""
        return self._remembered(node, holds)

    def _remembered(self, node: Expr, holds: bool | None) -> Conditions:
        key = node, holds
        if key not in self._found:
            if self._depth == DEEPEST or len(self._found) >= MOST:
                return frozenset()
            self._depth += 1
            self._found[key] = self._number(node) if holds is None else self._condition(node, holds)
            self._depth -= 1
        return self._found[key]

    def _number(self, node: Expr) -> Conditions:
        if isinstance(node, Const):
            return None if node.value == -math.inf else frozenset()
        if isinstance(node, Select):
            return self._selected(node, self.above(node.x), self.above(node.y))
        if isinstance(node, Cast):
            return self.above(node.x) if node.x.dtype in INFINITE and node.dtype in INFINITE else frozenset()
        if isinstance(node, Binary) and node.op == "add":
            return _both(self.above(node.x), self.above(node.y))
        if isinstance(node, Binary) and node.op == "mul":
            scaled = [x for x, y in ((node.x, node.y), (node.y, node.x)) if isinstance(y, Const) and y.value > 0]
            return self.above(scaled[0]) if scaled else frozenset()
        read = self._read(node)
        return frozenset() if read is None else self.above(read)

    def _condition(self, node: Expr, holds: bool) -> Conditions:
        if isinstance(node, Const):
            return frozenset() if bool(node.value) is holds else None
        if isinstance(node, Unary) and node.op == "not":
            return self.where(node.x, not holds)
        if isinstance(node, Select):
            return self._selected(node, self.where(node.x, holds), self.where(node.y, holds))
        if isinstance(node, Binary) and node.op in ("and", "or"):
            x, y = self.where(node.x, holds), self.where(node.y, holds)
            return _both(x, y) if (node.op == "and") is holds else _either(x, y)
        if isinstance(node, Binary):
            return _compared(node.op if holds else _OPPOSITE.get(node.op, ""), node.x, node.y)
        read = self._read(node)
        return frozenset() if read is None else self.where(read, holds)

    def _selected(self, node: Select, x: Conditions, y: Conditions) -> Conditions:
        then, other = self.where(node.condition, True), self.where(node.condition, False)
        return _either(_both(x, then), _both(y, other))

    def _read(self, node: Expr) -> Expr | None:
        """What a load reads, where that is computed."""
        if not isinstance(node, Load) or node.guards or node.tensor not in self._values:
            return None
        place, body = self._values[node.tensor]
        at: dict[Atom, Dim] = {}
        for dim, index in zip(place, node.indices, strict=True):
            axis = dim.atom
            if isinstance(axis, Axis):
                at[axis] = index
            elif dim.constant != 0:
                return None
        try:
            return substitute(body, at)
        except TooLargeError:
            return None


_OPPOSITE = {"ge": "lt", "lt": "ge", "gt": "le", "le": "gt"}


def _compared(op: str, x: Expr, y: Expr) -> Conditions:
    """Where a comparison of positions holds."""
    a, b = _position(x), _position(y)
    if a is None or b is None:
        return frozenset()
    try:
        gap = {"ge": a - b, "gt": a - b - 1, "le": b - a, "lt": b - a - 1}.get(op)
    except TooLargeError:
        return frozenset()
    return frozenset() if gap is None else frozenset((gap,))


def _position(x: Expr) -> Dim | None:
    """The position that an expression is."""
    if isinstance(x, Index):
        return x.dim
    return as_dim(int(x.value)) if isinstance(x, Const) and not x.dtype.is_float else None


def _both(x: Conditions, y: Conditions) -> Conditions:
    return None if x is None or y is None else x | y


def _either(x: Conditions, y: Conditions) -> Conditions:
    if x is None or y is None:
        return y if x is None else x
    return x & y
