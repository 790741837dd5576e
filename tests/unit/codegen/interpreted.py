"""What a tile program means, one element at a time: the oracle for generated code. Slow, and knows no vectors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from opweld.tensor.dim import Axis, Dim, Value
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Bitcast, Cast, Const, Expr, Index, Load, Lookup, Select, Unary
from opweld.tile.tile import Accumulate, Collapse, Declare, Kernel, Let, Loop, Statement, Store, Tile

Point = dict[Axis, int]


class BadIndexError(Exception):
    """A run-time index is out of range."""


class DivisionByZeroError(Exception):
    """An integer was divided by zero."""


def interpret(kernel: Kernel, arrays: Mapping[str, np.ndarray[Any, Any]], sizes: Mapping[Any, int]) -> None:
    """Runs the whole grid, writing into the arrays."""
    extents = [range(axis.extent.evaluate(sizes)) for axis in kernel.grid]
    for values in itertools.product(*extents):
        _Iteration(kernel, arrays, sizes).block(kernel.body, dict(zip(kernel.grid, values, strict=True)), {})


class _Iteration:
    def __init__(self, kernel: Kernel, arrays: Mapping[str, np.ndarray[Any, Any]], sizes: Mapping[Any, int]) -> None:
        self.sizes = sizes
        self.memory = {name: array.reshape(-1) for name, array in arrays.items()}
        for block in kernel.scratch:
            self.memory[block.name] = np.zeros(block.elements.evaluate(sizes), block.dtype.numpy)
        self.cells: dict[str, tuple[tuple[Axis, ...], dict[tuple[int, ...], Any]]] = {}
        self.best: dict[tuple[str, tuple[int, ...]], Any] = {}

    def block(self, body: tuple[Statement, ...], scalars: Point, tiles: dict[Axis, list[int]]) -> None:
        for item in body:
            if isinstance(item, Loop):
                for point in self.split(scalars, tiles, item.lower, item.end):
                    fixed, rest = point
                    for i in range(self.dim(item.lower, fixed), self.dim(item.end, fixed)):
                        self.block(item.body, {**fixed, item.axis: i}, rest)
            elif isinstance(item, Tile):
                dims = (item.base,) if item.limit is None else (item.base, item.limit)
                for fixed, rest in self.split(scalars, tiles, *dims):
                    count = item.width
                    if item.limit is not None:
                        count = min(count, self.dim(item.limit, fixed) - self.dim(item.base, fixed))
                    if count > 0:
                        self.block(item.body, fixed, {**rest, item.axis: list(range(count))})
            elif isinstance(item, Declare):
                cells: dict[tuple[int, ...], Any] = {}
                for key in itertools.product(*(tiles.get(axis) or range(int(axis.extent)) for axis in item.over)):
                    known = {axis: k for axis, k in zip(item.over, key, strict=True) if axis in tiles}
                    cells[key] = self.value(item.initial, {**scalars, **known})
                    self.best.pop((item.name, key), None)
                self.cells[item.name] = (item.over, cells)
            elif isinstance(item, Let):
                over = tuple(tiles)
                values = {
                    tuple(p[a] for a in over): self.value(item.value, {**scalars, **p}) for p in self.points(tiles)
                }
                self.cells[item.name] = (over, values)
            elif isinstance(item, Accumulate):
                for point in self.points(tiles):
                    self.accumulate(item, {**scalars, **point})
            elif isinstance(item, Collapse):
                self.collapse(item, scalars, tiles)
            else:
                assert isinstance(item, Store)
                for point in self.points(tiles):
                    at = {**scalars, **point}
                    if all(self.dim(guard, at) >= 0 for guard in item.guards):
                        place = self.dim(item.offset, at)
                        assert 0 <= place < len(self.memory[item.buffer]), (item.buffer, place)
                        self.memory[item.buffer][place] = self.value(item.value, at)

    def split(self, scalars: Point, tiles: dict[Axis, list[int]], *dims: Dim) -> Iterator[tuple[Point, Any]]:
        axes = [axis for axis in tiles if any(dim.depends_on(axis) for dim in dims)]
        if not axes:
            yield scalars, tiles
            return
        for values in itertools.product(*(tiles[axis] for axis in axes)):
            chosen = dict(zip(axes, values, strict=True))
            yield {**scalars, **chosen}, {**tiles, **{axis: [i] for axis, i in chosen.items()}}

    def points(self, tiles: dict[Axis, list[int]]) -> Iterator[Point]:
        for values in itertools.product(*tiles.values()):
            yield dict(zip(tiles, values, strict=True))

    def accumulate(self, item: Accumulate, at: Point) -> None:
        over, cells = self.cells[item.name]
        key = tuple(at[axis] for axis in over)
        new = self.value(item.value, at)
        if item.kind.startswith("arg"):
            position = 0 if item.position is None else self.dim(item.position, at)
            old = self.best.get((item.name, key))
            if old is None or precedes(item.kind, (new, position), (old, cells[key])):
                self.best[item.name, key], cells[key] = new, position
        else:
            cells[key] = combine(item.kind, cells[key], new)

    def collapse(self, item: Collapse, scalars: Point, tiles: dict[Axis, list[int]]) -> None:
        over, cells = self.cells[item.name]
        lanes = [axis for axis in over if axis not in tiles and axis not in scalars]
        groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for key in cells:
            groups.setdefault(tuple(k for axis, k in zip(over, key, strict=True) if axis not in lanes), []).append(key)
        rest = tuple(axis for axis in over if axis not in lanes)
        result: dict[tuple[int, ...], Any] = {}
        for group, keys in groups.items():
            if item.kind.startswith("arg"):
                found = [(self.best[item.name, k], cells[k]) for k in keys if (item.name, k) in self.best]
                chosen = found[0]
                for candidate in found[1:]:
                    chosen = candidate if precedes(item.kind, candidate, chosen) else chosen
                result[group] = chosen[1]
            else:
                total = cells[keys[0]]
                for key in keys[1:]:
                    total = combine(item.kind, total, cells[key])
                result[group] = total
        self.cells[item.name] = (rest, result)

    def dim(self, dim: Dim, at: Point) -> int:
        def run_time(atom: Value) -> int:
            index = int(self.value(atom.expr, at))
            if not 0 <= index < self.dim(atom.extent, at):
                raise BadIndexError
            return index

        return dim.evaluate({**self.sizes, **at}, run_time)

    def value(self, e: Expr, at: Point) -> Any:
        kind = np.float64 if e.dtype.is_float else e.dtype.numpy.type
        with np.errstate(all="ignore"):
            found = self._value(e, at)
            return np.asarray(found).astype(kind)[()]

    def _value(self, e: Expr, at: Point) -> Any:
        if isinstance(e, Const):
            return e.value
        if isinstance(e, Index):
            return self.dim(e.dim, at)
        if isinstance(e, Load):
            if not e.indices:
                over, cells = self.cells[e.tensor]
                return cells[tuple(at[axis] for axis in over)]
            if any(self.dim(guard, at) < 0 for guard in e.guards):
                assert e.fill is not None
                return self.value(e.fill, at)
            place = self.dim(e.indices[0], at)
            assert 0 <= place < len(self.memory[e.tensor]), (e.tensor, place)
            return self.memory[e.tensor][place]
        if isinstance(e, Unary):
            return UNARY[e.op](self.value(e.x, at))
        if isinstance(e, Binary):
            x, y = self.value(e.x, at), self.value(e.y, at)
            if e.op in ("div", "mod", "fmod") and e.x.dtype.is_integer:
                if y == 0:
                    raise DivisionByZeroError
                if e.op == "div":
                    return math.trunc(x / y) if abs(int(x)) < 1 << 50 else int(x) // int(y)
            return BINARY[e.op](x, y)
        if isinstance(e, Select):
            return self.value(e.x if self.value(e.condition, at) else e.y, at)
        if isinstance(e, Lookup):
            return np.uint8(e.table[int(self.value(e.x, at))])
        assert isinstance(e, Cast | Bitcast)
        x = self.value(e.x, at)
        if isinstance(e, Bitcast):
            return np.asarray(x).astype(e.x.dtype.numpy).view(e.dtype.numpy)[()]
        if e.dtype.is_float and e.dtype.computed is not e.dtype:
            return np.asarray(x).astype(e.dtype.numpy).astype(np.float64)
        return x != 0 if e.dtype is DType.BOOL else x


def precedes(kind: str, a: tuple[Any, Any], b: tuple[Any, Any]) -> bool:
    nan_a, nan_b = a[0] != a[0], b[0] != b[0]
    if nan_a != nan_b:
        return bool(nan_a)
    if not nan_a and a[0] != b[0]:
        return bool(a[0] > b[0] if kind.startswith("argmax") else a[0] < b[0])
    return bool(a[1] > b[1] if kind.endswith("_last") else a[1] < b[1])


def combine(kind: str, a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        if kind == "sum":
            return a + b
        if kind == "prod":
            return a * b
        if kind in ("any", "all"):
            return np.bool_(a or b) if kind == "any" else np.bool_(a and b)
        return np.maximum(a, b) if kind == "max" else np.minimum(a, b)


UNARY = {
    "neg": lambda x: -x,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": math.erf,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "sign": np.sign,
    "not": lambda x: not x,
    "bitnot": lambda x: ~x,
    "isnan": lambda x: x != x,
    "isinf": lambda x: abs(x) == math.inf,
}
BINARY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "mod": np.mod,
    "fmod": np.fmod,
    "and": lambda x, y: x and y,
    "or": lambda x, y: x or y,
    "xor": lambda x, y: x != y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "bitand": lambda x, y: x & y,
    "bitor": lambda x, y: x | y,
    "bitxor": lambda x, y: x ^ y,
    "shl": lambda x, y: x << y,
    "shr": lambda x, y: x >> y,
}
