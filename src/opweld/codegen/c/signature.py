"""Which kernels are the same but for names: twelve layers of a transformer need one text.

Axes, buffers, sizes, accumulators and named values are numbered in order of appearance; what is left is digested.
"""

from __future__ import annotations

import hashlib

from opweld.tensor.dim import Atom, Axis, Dim, FloorDiv, Max, Min, Mod, Symbol, Value
from opweld.tensor.expr import Binary, Cast, Const, Expr, Index, Load, Select, Unary, walk
from opweld.tile.tile import Accumulate, Collapse, Declare, Kernel, Let, Loop, Statement, Store, Tile


def signature(kernel: Kernel) -> str:
    """A digest that kernels share exactly if they differ in names only."""
    return _Signature(kernel).digest()


class _Signature:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._names: dict[str, str] = {}
        self._axes: dict[Axis, str] = {}
        self._sizes = {symbol: f"n{position}" for position, symbol in enumerate(kernel.sizes)}
        self._dims: dict[Dim, str] = {}
        self._values: dict[Expr, str] = {}
        self._defined = 0

    def digest(self) -> str:
        """The digest of the whole kernel."""
        kernel = self._kernel
        parts: list[str] = [repr([symbol.least for symbol in kernel.sizes])]
        for position, buffer in enumerate(kernel.buffers):
            self._names[buffer.name] = f"b{position}"
            parts.append(f"{buffer.dtype!r} {buffer.role}")
        for position, block in enumerate(kernel.scratch):
            self._names[block.name] = f"s{position}"
            parts.append(f"{block.dtype!r} {self._dim(block.elements)}")
        parts.extend(self._axis(axis) for axis in kernel.grid)
        self._block(kernel.body, parts)
        return _hash(*parts)

    def _block(self, body: tuple[Statement, ...], parts: list[str]) -> None:
        parts.append("{")
        for item in body:
            if isinstance(item, Loop):
                fetches = [(self._name(f.buffer), self._dim(f.start), f.lines, f.step) for f in item.fetches]
                bounds = f"{self._axis(item.axis)} {self._dim(item.lower)} {self._dim(item.end)}"
                parts.append(f"loop {bounds} {item.unroll} {item.separate} {fetches}")
                self._block(item.body, parts)
            elif isinstance(item, Tile):
                limit = "-" if item.limit is None else self._dim(item.limit)
                parts.append(f"{item.role} {self._axis(item.axis)} {self._dim(item.base)} {limit}")
                self._block(item.body, parts)
            else:
                parts.append(self._line(item))
        parts.append("}")

    def _line(self, item: Declare | Accumulate | Collapse | Let | Store) -> str:
        if isinstance(item, Declare):
            over = " ".join(map(self._axis, item.over))
            return f"declare {self._define(item.name)} {item.dtype!r} {over} = {self._value(item.initial)}"
        if isinstance(item, Let):
            value = self._value(item.value)
            return f"let {self._define(item.name)} = {value}"
        if isinstance(item, Accumulate):
            position = "-" if item.position is None else self._dim(item.position)
            return f"{item.kind} {self._name(item.name)} {self._value(item.value)} {position}"
        if isinstance(item, Collapse):
            return f"collapse {self._name(item.name)} {item.kind}"
        guards = " ".join(map(self._dim, item.guards))
        return f"store {self._name(item.buffer)} {self._dim(item.offset)} {self._value(item.value)} {guards}"

    def _define(self, name: str) -> str:
        """A new number for a name. When it had one before, what is known of expressions may mean the old one."""
        if name in self._names:
            self._values.clear()
            self._dims.clear()
        self._defined += 1
        self._names[name] = f"v{self._defined}"
        return self._names[name]

    def _name(self, name: str) -> str:
        return self._names.get(name, "?" + name)

    def _axis(self, axis: Axis) -> str:
        found = self._axes.get(axis)
        if found is None:
            extent = self._dim(axis.extent)
            found = f"a{len(self._axes)}:{extent}"
            self._axes[axis] = found
        return found

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Axis):
            return self._axis(atom)
        if isinstance(atom, Symbol):
            return self._sizes.get(atom, "?" + atom.name)
        if isinstance(atom, Value):
            return f"[{self._value(atom.expr)} {self._dim(atom.extent)}]"
        assert isinstance(atom, FloorDiv | Mod | Min | Max)
        return f"({type(atom).__name__} {self._dim(atom.left)} {self._dim(atom.right)})"

    def _dim(self, dim: Dim) -> str:
        found = self._dims.get(dim)
        if found is None:
            terms = [f"{c}*{'*'.join(sorted(map(self._atom, monomial)))}" for monomial, c in dim.terms]
            found = "+".join(sorted(terms)) or "0"
            found = found if len(found) < 40 else _hash(found)
            self._dims[dim] = found
        return found

    def _value(self, root: Expr) -> str:
        for node in walk(root):
            if node not in self._values:
                self._values[node] = _hash(repr(node.dtype), *self._fields(node))
        return self._values[root]

    def _fields(self, node: Expr) -> tuple[str, ...]:
        operands = tuple(self._values[operand] for operand in node.operands)
        if isinstance(node, Const):
            return ("const", repr(node.value))
        if isinstance(node, Index):
            return ("index", self._dim(node.dim))
        if isinstance(node, Load):
            dims = (*map(self._dim, node.indices), "if", *map(self._dim, node.guards))
            return ("load", self._name(node.tensor), *dims, *operands)
        if isinstance(node, Unary | Binary):
            return (node.op, *operands)
        return ("select" if isinstance(node, Select) else "cast" if isinstance(node, Cast) else "reduce", *operands)


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
