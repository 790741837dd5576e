"""Operations and bytes of tensors, counted from their bodies as polynomials of the sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from opweld.tensor.dim import ZERO, Atom, Axis, Dim, Value, atoms_of, minimum, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Expr, Load, Reduce, Unary, free_atoms, walk
from opweld.tensor.externs import EXTERNS
from opweld.tensor.operators import is_dear
from opweld.tensor.program import Extern, Item, Scan, Tensor, TensorProgram, item_inputs, item_outputs

Signatures: TypeAlias = "Mapping[str, tuple[DType, tuple[Dim, ...]]]"


@dataclass(frozen=True)
class Count:
    """Numbers of scalar operations.

    `flops`: float additions, multiplications, comparisons and what else costs about as much.
    `special`: divisions, roots and transcendental functions, of floats.
    `integer`: operations on integers and bools. Index arithmetic, loads, selects and conversions count nothing."""

    flops: Dim = ZERO
    integer: Dim = ZERO
    special: Dim = ZERO

    def __add__(self, other: Count) -> Count:
        return Count(self.flops + other.flops, self.integer + other.integer, self.special + other.special)

    def times(self, factor: Dim) -> Count:
        """The operations of this many repetitions."""
        return Count(self.flops * factor, self.integer * factor, self.special * factor)

    def evaluate(self, symbols: Mapping[Atom, int]) -> tuple[int, int, int]:
        """(flops, integer, special) for these values of the symbols."""
        return self.flops.evaluate(symbols), self.integer.evaluate(symbols), self.special.evaluate(symbols)


def flops(subject: Expr | Item | TensorProgram) -> Count:
    """The operations that compute the subject, when each sub-expression is computed once for each combination of the
    axes it depends on: a row's maximum is counted once for the row, not once for each of its elements."""
    if isinstance(subject, Expr):
        return sum((_node_count(node) for node in walk(subject)), Count())
    if isinstance(subject, TensorProgram):
        return sum(map(flops, subject.items), Count())
    if isinstance(subject, Tensor):
        return flops(subject.body)
    if isinstance(subject, Extern):
        return Count(integer=EXTERNS[subject.function].work(subject.numbers) * subject.rows)
    start = sum((flops(state.initial) for state in subject.states), Count())
    # a body that reads at the time axis counts it already; one that only reads states runs as often
    steps = (_per_step(step.body, subject.time) for step in subject.steps)
    return start + sum(steps, Count()).times(subject.time.extent)


def _per_step(body: Expr, time: Axis) -> Count:
    return sum((_node_count(node, frozenset({time})) for node in walk(body)), Count())


def _node_count(node: Expr, without: frozenset[Atom] = frozenset()) -> Count:
    if isinstance(node, Reduce):
        repeats = _domain((free_atoms(node.body) | frozenset(node.axes)) - without)
        return Count(flops=repeats) if node.body.dtype.is_float else Count(integer=repeats)
    if not isinstance(node, Unary | Binary):
        return Count()
    repeats = _domain(free_atoms(node) - without)
    operand = node.x.dtype
    if not operand.is_float:
        return Count(integer=repeats)
    return Count(special=repeats) if is_dear(node.op) else Count(flops=repeats)


def _domain(atoms: frozenset[Atom]) -> Dim:
    return product(axis.extent for axis in sorted((a for a in atoms if isinstance(a, Axis)), key=lambda a: a.number))


def size_in_bytes(dtype: DType, shape: tuple[Dim, ...]) -> Dim:
    """The bytes of a dense value."""
    return product(shape) * dtype.bytes


def traffic(subject: Item | TensorProgram, signatures: Signatures) -> Dim:
    """Bytes that must be read and written when each value is read once by each item that loads it, and written once.

    Of a value read at run-time indices only, at most as many elements as there are reads."""
    if isinstance(subject, TensorProgram):
        return sum((traffic(item, signatures) for item in subject.items), ZERO)
    written = sum((size_in_bytes(*signatures[name]) for name in item_outputs(subject)), ZERO)
    return sum((_read_bytes(subject, name, signatures) for name in item_inputs(subject)), written)


def _read_bytes(item: Item, name: str, signatures: Signatures) -> Dim:
    dtype, shape = signatures[name]
    whole = size_in_bytes(dtype, shape)
    if isinstance(item, Extern):
        return whole
    bodies = [item.body] if isinstance(item, Tensor) else _scan_bodies(item)
    accesses = [node for node in walk(*bodies) if isinstance(node, Load) and node.tensor == name]
    if not all(_is_gather(node) for node in accesses):
        return whole
    read = ZERO
    for node in accesses:
        atoms = frozenset[Atom]().union(*(atoms_of(dim) for dim in node.indices))
        read = read + _domain(atoms) * dtype.bytes
    return minimum(whole, read)


def _scan_bodies(scan: Scan) -> list[Expr]:
    return [*(state.initial for state in scan.states), *(step.body for step in scan.steps)]


def _is_gather(node: Load) -> bool:
    return any(isinstance(atom, Value) for dim in node.indices for atom in atoms_of(dim))


def intensity(count: Count, moved: Dim, symbols: Mapping[Atom, int]) -> float:
    """Float operations, special ones included, for each byte moved."""
    flops_count, _, special = count.evaluate(symbols)
    return (flops_count + special) / max(1, moved.evaluate(symbols))
