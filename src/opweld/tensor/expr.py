"""Scalar expressions: one element of a tensor as an interned DAG.

    constant | index | load(tensor, indices, guards, fill) | unary | binary | select | cast | bitcast | lookup |
    reduce(kind, axes, body)

Nodes are frozen and interned: equal expressions are one object, so equality is identity and every traversal memoises on
the node. Traversals are iterative, because a model may nest thousands of operators.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

from opweld.tensor.dim import (
    ZERO,
    Atom,
    Axis,
    Dim,
    DimLike,
    Symbol,
    TooLargeError,
    Value,
    as_dim,
    atoms_of,
    nonnegative,
)
from opweld.tensor.dtype import DType
from opweld.tensor.intern import current
from opweld.tensor.operators import BINARY, REDUCTIONS, UNARY

Scalar: TypeAlias = "float | int | bool"


class Expr:
    """A scalar expression. Interned: equality is identity. The `known_` fields cache results of traversals."""

    __slots__ = ("dtype", "known_atoms", "known_children", "known_loads")
    dtype: DType
    known_atoms: frozenset[Atom] | None
    known_children: tuple[Expr, ...] | None
    known_loads: tuple[Load, ...] | None

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The direct sub-expressions, the fill of a load included, index arithmetic excluded."""
        return ()

    @property
    def atoms(self) -> frozenset[Atom]:
        """See `free_atoms`."""
        return free_atoms(self)

    def __repr__(self) -> str:
        return show(self)


class Const(Expr):
    """A literal. Floats are rounded to the dtype."""

    __slots__ = ("value",)
    value: Scalar


class Index(Expr):
    """An integer polynomial as an int64 value."""

    __slots__ = ("dim",)
    dim: Dim


class Load(Expr):
    """The element of a tensor at integer indices; `fill` where any guard is negative (the load is not made then)."""

    __slots__ = ("fill", "guards", "indices", "tensor")
    tensor: str
    indices: tuple[Dim, ...]
    guards: tuple[Dim, ...]
    fill: Expr | None

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The direct sub-expressions."""
        return () if self.fill is None else (self.fill,)


class Unary(Expr):
    """A function of one value."""

    __slots__ = ("op", "x")
    op: str
    x: Expr

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The direct sub-expressions."""
        return (self.x,)


class Binary(Expr):
    """A function of two values of one dtype."""

    __slots__ = ("op", "x", "y")
    op: str
    x: Expr
    y: Expr

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The direct sub-expressions."""
        return (self.x, self.y)


class Select(Expr):
    """`x` where the condition holds, else `y`; only the chosen side is evaluated."""

    __slots__ = ("condition", "x", "y")
    condition: Expr
    x: Expr
    y: Expr

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The direct sub-expressions."""
        return (self.condition, self.x, self.y)


class Cast(Expr):
    """Conversion to another dtype: floats truncate to integers, non-zero is true."""

    __slots__ = ("x",)
    x: Expr

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The direct sub-expressions."""
        return (self.x,)


class Bitcast(Expr):
    """The same bits as an element of another dtype of as many bits."""

    __slots__ = ("x",)
    x: Expr

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The direct sub-expressions."""
        return (self.x,)


class Lookup(Expr):
    """A function of a byte, as its 256 values: uint8 of uint8."""

    __slots__ = ("table", "x")
    table: bytes
    x: Expr

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The direct sub-expressions."""
        return (self.x,)


class Reduce(Expr):
    """A reduction of the body over axes; over an empty domain it is the neutral element."""

    __slots__ = ("axes", "body", "kind")
    kind: str
    axes: tuple[Axis, ...]
    body: Expr

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The direct sub-expressions."""
        return (self.body,)


LARGEST_FACTOR = 1 << 48
"""The largest coefficient of a product that is still kept as a polynomial; see `binary`."""


def _intern(cls: type[Expr], dtype: DType, names: tuple[str, ...], fields: tuple[object, ...]) -> Expr:
    nodes = current.get().nodes
    key = (cls, dtype, *fields)
    found = nodes.get(key)
    if found is None:
        made = object.__new__(cls)
        made.dtype = dtype
        made.known_atoms = made.known_children = made.known_loads = None
        for name, field in zip(names, fields, strict=True):
            setattr(made, name, field)
        found = nodes.setdefault(key, made)
    return found


def const(value: Scalar, dtype: DType) -> Expr:
    """A literal of the dtype. NaNs and signed zeros are kept apart from other values."""
    if dtype is DType.BOOL:
        plain: Scalar = bool(value)
    elif dtype.is_float:
        with np.errstate(over="ignore"):
            plain = float(np.asarray(value).astype(dtype.numpy))
    else:
        plain = dtype.wrapped(int(value))
    key = (Const, dtype, type(plain), plain if plain == plain else "nan", math.copysign(1, plain))
    nodes = current.get().nodes
    found = nodes.get(key)
    if found is None:
        made = object.__new__(Const)
        made.dtype, made.value = dtype, plain
        made.known_atoms = made.known_children = made.known_loads = None
        found = nodes.setdefault(key, made)
    return found


def index(value: DimLike) -> Expr:
    """An integer polynomial as an int64 value."""
    dim = as_dim(value)
    if dim.constant is not None:
        return const(dim.constant, DType.I64)
    return _intern(Index, DType.I64, ("dim",), (dim,))


def load(
    tensor: str, dtype: DType, indices: tuple[Dim, ...], guards: tuple[Dim, ...] = (), fill: Expr | None = None
) -> Expr:
    """A load; guards that provably hold are dropped, one that provably fails leaves the fill (default zero)."""
    kept: list[Dim] = []
    for guard in guards:
        if nonnegative(guard):
            continue
        if nonnegative(-guard - 1):
            return fill if fill is not None else const(0, dtype)
        if guard not in kept:
            kept.append(guard)
    if kept and fill is None:
        fill = const(0, dtype)
    names = ("tensor", "indices", "guards", "fill")
    return _intern(Load, dtype, names, (tensor, tuple(indices), tuple(kept), fill if kept else None))


def unary(op: str, x: Expr) -> Expr:
    """A function of one value, see `operators.UNARY`."""
    assert op in UNARY, op
    if op == "neg" and isinstance(x, Index):
        return index(-x.dim)
    return _intern(Unary, DType.BOOL if UNARY[op].is_test else x.dtype, ("op", "x"), (op, x))


def binary(op: str, x: Expr, y: Expr) -> Expr:
    """A function of two values of one dtype, see `operators.BINARY`."""
    assert op in BINARY, op
    assert x.dtype is y.dtype, f"{op}: {x.dtype} and {y.dtype}"
    if x.dtype is DType.I64 and op in ("add", "sub", "mul"):
        a, b = _dim_of(x), _dim_of(y)
        if a is not None and b is not None:
            with contextlib.suppress(TooLargeError):  # then it stays an expression, computed at run time
                made = a + b if op == "add" else a - b if op == "sub" else a * b
                # An int64 product wraps around at 64 bits, a polynomial does not: large ones stay expressions.
                if op != "mul" or all(abs(factor) <= LARGEST_FACTOR for _, factor in made.terms):
                    return index(made)
    own = BINARY[op].result or x.dtype
    return _intern(Binary, DType.BOOL if BINARY[op].is_test else own, ("op", "x", "y"), (op, x, y))


def _dim_of(x: Expr) -> Dim | None:
    if isinstance(x, Index):
        return x.dim
    return as_dim(int(x.value)) if isinstance(x, Const) else None


def select(condition: Expr, x: Expr, y: Expr) -> Expr:
    """`x` where the BOOL condition holds, else `y`."""
    assert condition.dtype is DType.BOOL and x.dtype is y.dtype
    if x is y:
        return x
    if isinstance(condition, Const):
        return x if condition.value else y
    return _intern(Select, x.dtype, ("condition", "x", "y"), (condition, x, y))


def cast(x: Expr, dtype: DType) -> Expr:
    """Conversion to the dtype."""
    return x if x.dtype is dtype else _intern(Cast, dtype, ("x",), (x,))


def bitcast(x: Expr, dtype: DType) -> Expr:
    """The bits of a value as one of the dtype, which has as many."""
    assert x.dtype.bits == dtype.bits, f"{x.dtype} cannot be reinterpreted as {dtype}"
    x = x.x if isinstance(x, Bitcast) else x
    return x if x.dtype is dtype else _intern(Bitcast, dtype, ("x",), (x,))


def lookup(table: bytes, x: Expr) -> Expr:
    """The value of a function at a byte: element x of a table of 256."""
    assert len(table) == 1 << DType.U8.bits and x.dtype is DType.U8
    if isinstance(x, Const):
        return const(table[int(x.value)], DType.U8)
    return _intern(Lookup, DType.U8, ("table", "x"), (table, x))


def reduce(kind: str, axes: tuple[Axis, ...], body: Expr) -> Expr:
    """A reduction over axes, see `operators.REDUCTIONS`. Axes of extent one are taken at index zero."""
    assert kind in REDUCTIONS, kind
    single: dict[Atom, Dim] = {axis: ZERO for axis in axes if axis.extent.constant == 1}
    if single:
        axes = tuple(axis for axis in axes if axis not in single)
        body = substitute(body, single)
    if REDUCTIONS[kind].position:
        return _intern(Reduce, DType.I64, ("kind", "axes", "body"), (kind, axes, body)) if axes else const(0, DType.I64)
    return _intern(Reduce, body.dtype, ("kind", "axes", "body"), (kind, axes, body)) if axes else body


def at_least_zero(dim: DimLike) -> Expr:
    """The BOOL expression `dim >= 0`, a constant when it is provable either way."""
    dim = as_dim(dim)
    if nonnegative(dim):
        return const(True, DType.BOOL)
    if nonnegative(-dim - 1):
        return const(False, DType.BOOL)
    return binary("ge", index(dim), const(0, DType.I64))


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every node once, operands before users, run-time index expressions included."""
    seen: set[Expr] = set()
    stack: list[Expr | None] = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node is None:  # all operands of the node below were walked
            ready = stack.pop()
            assert ready is not None
            yield ready
            continue
        if node in seen:
            continue
        seen.add(node)
        children = _children(node)
        if children:
            stack += (node, None, *children)
        else:
            yield node


def _children(node: Expr) -> tuple[Expr, ...]:
    """Operands and run-time index expressions, last first."""
    found = node.known_children
    if found is None:
        inside = (atom.expr for dim in dims_of(node) for atom in _sorted_values(dim))
        found = node.known_children = (*node.operands, *inside)[::-1]
    return found


def _sorted_values(dim: Dim) -> list[Value]:
    return sorted((a for a in atoms_of(dim) if isinstance(a, Value)), key=lambda a: a.key)


def dims_of(node: Expr) -> tuple[Dim, ...]:
    """The polynomials of one node: indices and guards of a load, the dim of an index, extents of reduced axes."""
    if isinstance(node, Load):
        return (*node.indices, *node.guards)
    if isinstance(node, Index):
        return (node.dim,)
    if isinstance(node, Reduce):
        return tuple(axis.extent for axis in node.axes)
    return ()


def loads(*roots: Expr) -> list[Load]:
    """Every load of the expressions, once, in order."""
    if len(roots) != 1:
        return list(dict.fromkeys(node for root in roots for node in loads(root)))
    found = roots[0].known_loads
    if found is None:
        found = roots[0].known_loads = tuple(node for node in walk(roots[0]) if isinstance(node, Load))
    return list(found)


def free_atoms(root: Expr) -> frozenset[Atom]:
    """The axes and symbols an expression depends on; axes bound by a reduce inside are not free."""
    found = root.known_atoms
    if found is not None:
        return found
    for node in walk(root):
        if node.known_atoms is None:
            found = node.known_atoms = _free_atoms(node)
    assert found is not None
    return found


def _free_atoms(node: Expr) -> frozenset[Atom]:
    """The free atoms of a node; those of its operands must be cached already."""
    atoms = {atom for operand in node.operands for atom in operand.atoms}
    atoms.update(atom for dim in dims_of(node) for atom in dim.atoms if isinstance(atom, Axis | Symbol))
    if isinstance(node, Reduce):
        atoms.difference_update(node.axes)
    return frozenset(atoms)


def transform(root: Expr, rewrite: Callable[[Expr], Expr | None], on_dim: Callable[[Dim], Dim] | None = None) -> Expr:
    """Rebuilds the DAG bottom-up; `rewrite` may replace a rebuilt node (None keeps it), `on_dim` its polynomials.

    Nothing is rewritten twice: a node that folds to an operand, as a choice between equal values does, is that one."""
    return transform_all((root,), rewrite, on_dim)[0]


def transform_all(
    roots: tuple[Expr, ...], rewrite: Callable[[Expr], Expr | None], on_dim: Callable[[Dim], Dim] | None = None
) -> tuple[Expr, ...]:
    """`transform` of several roots with one memo."""
    done: dict[Expr, Expr] = {}
    made: set[Expr] = set()

    @functools.cache
    def new_dim(dim: Dim) -> Dim:
        if any(isinstance(a, Value) for a in atoms_of(dim)):
            dim = dim.substitute({}, lambda inner: done.get(inner) or transform(inner, rewrite, on_dim))
        return on_dim(dim) if on_dim is not None else dim

    for node in walk(*roots):
        rebuilt = _rebuild(node, done, new_dim)
        # A load never folds: it may be what another one was replaced by, where both change places.
        folded = rebuilt in made and not isinstance(node, Load)
        replaced = None if folded else rewrite(rebuilt)
        done[node] = rebuilt if replaced is None else replaced
        made.add(done[node])
    return tuple(done[root] for root in roots)


def _rebuild(node: Expr, done: Mapping[Expr, Expr], new_dim: Callable[[Dim], Dim]) -> Expr:
    if isinstance(node, Const):
        return node
    if isinstance(node, Index):
        return index(new_dim(node.dim))
    if isinstance(node, Load):
        fill = None if node.fill is None else done[node.fill]
        return load(node.tensor, node.dtype, tuple(map(new_dim, node.indices)), tuple(map(new_dim, node.guards)), fill)
    if isinstance(node, Unary):
        return unary(node.op, done[node.x])
    if isinstance(node, Binary):
        return binary(node.op, done[node.x], done[node.y])
    if isinstance(node, Select):
        return select(done[node.condition], done[node.x], done[node.y])
    if isinstance(node, Cast):
        return cast(done[node.x], node.dtype)
    if isinstance(node, Bitcast):
        return bitcast(done[node.x], node.dtype)
    if isinstance(node, Lookup):
        return lookup(node.table, done[node.x])
    assert isinstance(node, Reduce)
    return reduce(node.kind, node.axes, done[node.body])


def substitute(root: Expr, mapping: Mapping[Atom, Dim]) -> Expr:
    """Replaces axes or symbols by polynomials everywhere. Reduced axes are unique objects, so none is captured."""
    if not mapping or not (free_atoms(root) & mapping.keys()):
        return root
    return transform(root, lambda node: None, lambda dim: dim.substitute(mapping))


def substitute_loads(root: Expr, replace: Callable[[Load], Expr | None]) -> Expr:
    """Replaces loads by expressions; None keeps a load."""
    return transform(root, lambda node: replace(node) if isinstance(node, Load) else None)


def fresh_reductions(root: Expr, extent: Callable[[Dim], Dim] = lambda extent: extent) -> Expr:
    """A copy with new reduced axes, so that two copies may occur in one expression or nest. `extent`: makes a new
    axis' extent of that of the old one."""
    if not any(isinstance(node, Reduce) for node in walk(root)):
        return root
    done: dict[Expr, Expr] = {}
    for node in walk(root):
        rebuilt = _rebuild(node, done, lambda dim: dim)
        if isinstance(rebuilt, Reduce):
            new = tuple(Axis(axis.name, extent(axis.extent)) for axis in rebuilt.axes)
            mapping: dict[Atom, Dim] = {a: b.dim for a, b in zip(rebuilt.axes, new, strict=True)}
            rebuilt = reduce(rebuilt.kind, new, substitute(rebuilt.body, mapping))
        done[node] = rebuilt
    return done[root]


def show(node: Expr, names: Callable[[Dim], str] = repr) -> str:
    """One line of text, nested; for messages. `text.py` prints whole programs, sharing named."""
    done: dict[Expr, str] = {}
    for n in walk(node):
        if isinstance(n, Const):
            done[n] = f"{n.value}"
        elif isinstance(n, Index):
            done[n] = f"({names(n.dim)})"
        elif isinstance(n, Load):
            text = f"{n.tensor}[{', '.join(map(names, n.indices))}]"
            if n.fill is not None:
                text = f"({text} if {', '.join(names(g) + ' >= 0' for g in n.guards)} else {done[n.fill]})"
            done[n] = text
        elif isinstance(n, Unary):
            done[n] = f"{n.op}({done[n.x]})"
        elif isinstance(n, Binary):
            done[n] = f"{n.op}({done[n.x]}, {done[n.y]})"
        elif isinstance(n, Select):
            done[n] = f"select({done[n.condition]}, {done[n.x]}, {done[n.y]})"
        elif isinstance(n, Cast):
            done[n] = f"{n.dtype!r}({done[n.x]})"
        elif isinstance(n, Bitcast):
            done[n] = f"bits_{n.dtype!r}({done[n.x]})"
        elif isinstance(n, Lookup):
            done[n] = f"table_{n.table.hex()[:8]}({done[n.x]})"
        elif isinstance(n, Reduce):
            axes = ", ".join(f"{a.name}:{names(a.extent)}" for a in n.axes)
            done[n] = f"{n.kind}<{axes}>({done[n.body]})"
        if len(done[n]) > 2000:
            done[n] = done[n][:2000] + "..."
    return done[node]
