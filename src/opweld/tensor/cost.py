"""Operations and bytes of tensors, counted from their bodies as polynomials of the sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from opweld.tensor.dim import ZERO, Atom, Axis, Dim, Value, atoms_of, minimum, nonnegative, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Const, Expr, Load, Reduce, Unary, free_atoms, walk
from opweld.tensor.externs import EXTERNS
from opweld.tensor.operators import WORDS, is_expensive
from opweld.tensor.program import Extern, Item, Tensor, TensorProgram, bodies_of

Signatures: TypeAlias = "Mapping[str, tuple[DType, tuple[Dim, ...]]]"


@dataclass(frozen=True)
class Count:
    """Numbers of scalar operations.

    `flops`: float additions, multiplications, comparisons and others of similar cost.
    `special`: divisions (except by constants), roots and transcendental functions, of floats.
    `integer`: operations on integers and bools. Index arithmetic, loads, selects and conversions are not counted.
    `macs`: multiply-adds of floats; each is two of the `flops`.
    `integer_macs`: those of integers; each is two of the `integer`.

    A dot product of two words is as many multiply-adds as they hold numbers, the last addition that of the sum that
    it goes to."""

    flops: Dim = ZERO
    integer: Dim = ZERO
    special: Dim = ZERO
    macs: Dim = ZERO
    integer_macs: Dim = ZERO

    def __add__(self, other: Count) -> Count:
        return Count(
            self.flops + other.flops,
            self.integer + other.integer,
            self.special + other.special,
            self.macs + other.macs,
            self.integer_macs + other.integer_macs,
        )

    def times(self, factor: Dim) -> Count:
        """The operations of `factor` repetitions."""
        return Count(
            self.flops * factor,
            self.integer * factor,
            self.special * factor,
            self.macs * factor,
            self.integer_macs * factor,
        )

    @property
    def operations(self) -> Dim:
        """Those that a peak of arithmetic bounds: of floats, and products of integers that are summed."""
        return self.flops + self.special + 2 * self.integer_macs


def flops(subject: Expr | Item | TensorProgram) -> Count:
    """The operations that compute the subject, if each sub-expression is computed once for each combination of the axes
    that it depends on: a row's maximum is counted once for the row, not once for each of its elements."""
    if isinstance(subject, Expr):
        return sum((_node_count(node) for node in _computed(subject)), Count())
    if isinstance(subject, TensorProgram):
        return sum(map(flops, subject.items), Count())
    if isinstance(subject, Tensor):
        return flops(subject.body)
    if isinstance(subject, Extern):
        return Count(integer=EXTERNS[subject.function].work(subject.numbers) * subject.rows)
    start = sum((flops(state.initial) for state in subject.states), Count())
    # a body that reads at the time axis counts it already; one that only reads states runs in every step too
    steps = (_per_step(step.body, subject.time) for step in subject.steps)
    return start + sum(steps, Count()).times(subject.time.extent)


def _per_step(body: Expr, time: Axis) -> Count:
    return sum((_node_count(node, frozenset({time})) for node in _computed(body)), Count())


def _computed(body: Expr) -> list[Expr]:
    """The nodes that compute with values; integers not derived from loads are index arithmetic."""
    found: list[Expr] = []
    loaded: set[Expr] = set()
    for node in walk(body):  # operands first
        if isinstance(node, Load) or any(operand in loaded for operand in node.operands):
            loaded.add(node)
        elif isinstance(node, Unary | Binary) and not node.x.dtype.is_float:
            continue
        found.append(node)
    return found


def _node_count(node: Expr, without: frozenset[Atom] = frozenset()) -> Count:
    if isinstance(node, Reduce):
        repeats = _domain((free_atoms(node.body) | frozenset(node.axes)) - without)
        products = repeats * _products(node)
        if not node.body.dtype.is_float:
            return Count(integer=repeats, integer_macs=products)
        return Count(flops=repeats, macs=products)
    if not isinstance(node, Unary | Binary):
        return Count()
    repeats = _domain(free_atoms(node) - without)
    if isinstance(node, Binary) and node.op in WORDS:
        within = repeats * (2 * WORDS[node.op] - 1)
        return Count(flops=within) if node.dtype.is_float else Count(integer=within)
    operand = node.x.dtype
    if not operand.is_float:
        return Count(integer=repeats)
    by_constant = isinstance(node, Binary) and node.op == "div" and isinstance(node.y, Const)  # a product, or nearly
    return Count(special=repeats) if is_expensive(node.op) and not by_constant else Count(flops=repeats)


def _products(node: Reduce) -> int:
    """The products that each step of a sum adds; 0 if it is no sum of products."""
    if node.kind != "sum" or not isinstance(node.body, Binary):
        return 0
    return 1 if node.body.op == "mul" else WORDS.get(node.body.op, 0)


def _domain(atoms: frozenset[Atom]) -> Dim:
    return product(axis.extent for axis in sorted((a for a in atoms if isinstance(a, Axis)), key=lambda a: a.number))


def size_in_bytes(dtype: DType, shape: tuple[Dim, ...]) -> Dim:
    """The bytes of a dense value."""
    return product(shape) * dtype.bytes


def read_bytes(item: Item, name: str, signatures: Signatures) -> Dim:
    """The bytes of a value that an item reads: all of it, except for slices and for elements selected by run-time
    indices."""
    dtype, shape = signatures[name]
    if isinstance(item, Extern):
        return size_in_bytes(dtype, shape)
    return bytes_loaded(bodies_of(item), name, dtype, shape)


def bytes_loaded(bodies: Iterable[Expr], name: str, dtype: DType, shape: tuple[Dim, ...]) -> Dim:
    """An upper bound of the bytes of a value that expressions read: the number of loads, and at most all elements.

    If it is unknown which is less, all elements; for a value that is only read at run-time indices, the minimum of
    both."""
    whole, read, chosen = size_in_bytes(dtype, shape), ZERO, True
    for node in walk(*bodies):
        if isinstance(node, Load) and node.tensor == name:
            atoms = frozenset[Atom]().union(*(atoms_of(dim) for dim in node.indices))
            read = read + _domain(atoms) * dtype.bytes
            chosen = chosen and any(isinstance(atom, Value) for atom in atoms)
    if chosen:
        return minimum(whole, read)
    return read if nonnegative(whole - read) else whole
