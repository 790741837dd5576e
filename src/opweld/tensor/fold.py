"""Tensors that depend on constants only become constants: evaluated in float64, rounded once; below a jump, as the
model computes it (see `jumps.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache as remember
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from opweld.errors import OpweldError
from opweld.tensor.dim import Axis, Value, as_dim, atoms_of
from opweld.tensor.dtype import DType
from opweld.tensor.evaluate import evaluate_tensor
from opweld.tensor.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Unary,
    at_least_zero,
    const,
    index,
    loads,
    select,
    walk,
)
from opweld.tensor.jumps import has_edge, jumps
from opweld.tensor.operators import is_expensive
from opweld.tensor.program import Constant, Item, Tensor, TensorProgram, item_inputs
from opweld.tensor.semantics import Array, apply_cast, is_floating


@dataclass(frozen=True)
class Folding:
    """A tensor of constants that could be one.

    Attributes:
        before, after: bytes of the constants that it reads, and of what it is.
        budget: bytes that it may take.
        refused: the values of what forbids it; empty where nothing does.
        reason: why it is folded, or is not.
        readers: whether those who read it could compute it as well: it takes a few times the bytes of what it is
            computed from, as weights do that are stored quantized, and only sums of products multiply by it.
    """

    tensor: Tensor
    before: int
    after: int
    budget: int
    reason: str
    refused: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])
    readers: bool = False


Answer: TypeAlias = Literal["in every run", "now", "by its readers"]
"""When a tensor of constants is computed. What its readers compute is in their expressions; `fuse.prologue` decides
then whether it is in memory after all."""

Decide: TypeAlias = Callable[[Folding], Answer]
"""When a tensor of constants is computed; in every run where it is refused, by its readers only where they can."""

WIDER = 2
"""How many times the bytes of its operands a tensor takes that its readers may compute."""

FEW_OPERATIONS = 6
"""Of an element that its readers may compute."""

EAGER_BYTES = 1 << 20
"""Results up to this size are computed at once and kept; bigger ones each time they are read."""

RESULT_BYTES = 64 << 20
"""A bigger result is folded only when it is at most `RESULT_GROWTH` times its operands."""

RESULT_GROWTH = 4
EVALUATIONS = 1 << 32
"""Bodies with more evaluations than this, reductions included, are left to run time."""

UNIFORM_ELEMENTS = 4096
"""Constants up to this many elements are looked at; when all are equal, loads of them become literals."""

COUNTED_ELEMENTS = 1 << 20
"""Constants of integers up to this many elements are looked at, whether they count."""
LARGEST = 1 << 48
"""What is counted stays below: sums of a few do not leave 64 bits."""
_counted: WeakKeyDictionary[Constant, tuple[int, ...] | None] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Known:
    """A value that can be computed without feeds; `read` gives floats as float64, not yet rounded to the dtype, `own`
    in the dtype, each step rounded.

    `bytes` is what it takes in the weights: nothing when it is generated."""

    read: Callable[[], Array]
    own: Callable[[], Array]
    bytes: int


def known_constant(constant: Constant) -> Known:
    """A constant as an operand of folding; one that counts could be generated."""
    size = 0 if counted(constant) else math.prod(constant.shape) * constant.dtype.bytes
    return Known(lambda: _widened(constant.read()), constant.read, size)


@dataclass(frozen=True)
class Folded:
    """A program after folding: items without those that became constants, all constants, and the items among the first
    that their readers compute."""

    items: tuple[Item, ...]
    constants: tuple[Constant, ...]
    inlined: Mapping[str, Tensor]


def fold_constants(program: TensorProgram, decide: Decide) -> Folded:
    """The items that depend on constants only as constants. `decide` is asked about each that would take room.

    What is generated is left where it is cheap or large: it takes less to compute it where it is used than to load it.
    What reads it and constants can be folded still."""
    known = {constant.name: known_constant(constant) for constant in program.constants}
    stored = {constant.name: constant.read for constant in program.constants}
    users = _users(program)
    kept: list[Item] = []
    added: list[Constant] = []
    inlined: dict[str, Tensor] = {}
    for item in program.items:
        if not isinstance(item, Tensor):
            kept.append(item)
            continue
        value = _known_tensor(item, known, decide)
        if value is not None and value.bytes:
            asked = _folding(item, known, "it depends on nothing that is fed")
            answer = decide(replace(asked, readers=_for_readers(asked, users)))
            value = value if answer == "now" else None
            if answer == "by its readers":
                inlined[item.name] = item
        if value is not None:
            known[item.name] = value
        if value is None or not value.bytes:
            kept.append(item)
            continue
        shape = tuple(int(extent) for extent in item.shape)
        stored[item.name] = _reader(item, value, stored)
        added.append(Constant(item.name, item.dtype, shape, stored[item.name], item.origin))
    return Folded(tuple(kept), (*program.constants, *added), inlined)


def _users(program: TensorProgram) -> dict[str, list[Item | None]]:
    """Who reads each value; None stands for the caller."""
    users: dict[str, list[Item | None]] = {value: [None] for _, value in program.outputs}
    for item in program.items:
        for name in item_inputs(item):
            users.setdefault(name, []).append(item)
    return users


def _for_readers(asked: Folding, users: Mapping[str, Sequence[Item | None]]) -> bool:
    """Whether a tensor is cheap to compute, is much larger than its operands, and is a factor wherever it is read."""
    nodes = [node for node in walk(asked.tensor.body) if not isinstance(node, Load | Const)]
    cheap = all(isinstance(node, Cast | Unary | Binary) and not _is_expensive(node) for node in nodes)
    if not nodes or not cheap or len(nodes) > FEW_OPERATIONS or asked.after < WIDER * asked.before:
        return False
    todo, found = [asked.tensor.name], set[str]()
    while todo:
        name = todo.pop()
        for user in users.get(name, (None,)):
            if not isinstance(user, Tensor):
                return False
            if isinstance(user.body, Load) and not user.body.guards:
                todo += [user.name] if user.name not in found else []
                found.add(user.name)
            elif not _multiplies(user, name):
                return False
    return True


def _is_expensive(node: Expr) -> bool:
    return isinstance(node, Unary | Binary) and is_expensive(node.op)


def _multiplies(user: Tensor, name: str) -> bool:
    """Whether all that a tensor does with a value is to multiply by its elements in one sum of products."""
    sites = [node for node in loads(user.body) if node.tensor == name]
    sums = [node for node in walk(user.body) if isinstance(node, Reduce)]
    if len(sites) != 1 or sites[0].guards or len(sums) != 1 or sums[0].kind != "sum":
        return False
    product = sums[0].body
    if not isinstance(product, Binary) or product.op != "mul" or not product.dtype.is_float:
        return False
    return any((side.x if isinstance(side, Cast) else side) is sites[0] for side in (product.x, product.y))


def _cheap(body: Expr) -> bool:
    """Whether a body that loads nothing is arithmetic of a few instructions."""
    return not any(isinstance(node, Load | Unary | Reduce) for node in walk(body))


def _folding(tensor: Tensor, known: Mapping[str, Known], reason: str, **refused: int | str) -> Folding:
    """A tensor whose operands are known, as what is asked about; its sizes are numbers."""
    size = math.prod(int(extent) for extent in tensor.shape) * tensor.dtype.bytes
    operands = sum(known[name].bytes for name in _operands(tensor))
    return Folding(tensor, operands, size, max(RESULT_BYTES, RESULT_GROWTH * operands), reason, refused)


def _operands(tensor: Tensor) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node.tensor for node in loads(tensor.body)))


def _known_tensor(tensor: Tensor, known: Mapping[str, Known], decide: Decide) -> Known | None:
    names = _operands(tensor)
    if any(name not in known for name in names):
        return None
    extents = [extent.constant for extent in tensor.shape]
    reduced = [axis.extent.constant for axis in _reduced_axes(tensor.body)]
    if None in extents or None in reduced:
        return None
    asked = _folding(tensor, known, "")
    size, operands = asked.after, asked.before
    if size > asked.budget:
        if names:
            told = "it would take more bytes than it may"
            decide(_folding(tensor, known, told, bytes=size, budget=asked.budget))
        return None
    evaluations = math.prod(extent for extent in (*extents, *reduced) if extent is not None)
    if evaluations > EVALUATIONS:
        decide(_folding(tensor, known, "it would take too long", evaluations=evaluations, budget=EVALUATIONS))
        return None

    def own() -> Array:
        return evaluate_tensor(tensor, {name: known[name].own() for name in names})

    if size <= EAGER_BYTES:
        own = remember(own)
    nodes = list(walk(tensor.body))
    jumping, edged = any(map(jumps, nodes)), any(map(has_edge, nodes))

    def read() -> Array:
        if jumping:
            return _widened(own())
        found = evaluate_tensor(tensor, {name: known[name].read() for name in names}, float64=True)
        return _widened(own()) if edged and np.isnan(found).any() else found

    if _cheap(tensor.body):
        return Known(read, own, 0)
    if not operands and size > EAGER_BYTES:
        # What no constant feeds is generated (a mask, a ramp): only a small one is worth its place in the weights.
        return Known(remember(read), own, 0)
    if size > EAGER_BYTES:
        return Known(read, own, size)
    try:
        result = read()
    except OpweldError as error:
        decide(_folding(tensor, known, "it fails", error=str(error)))
        return None
    return Known(lambda: result, own, size)


def _reduced_axes(body: Expr) -> tuple[Axis, ...]:
    return tuple(dict.fromkeys(axis for node in walk(body) if isinstance(node, Reduce) for axis in node.axes))


def _widened(array: Array) -> Array:
    return array.astype(np.float64) if is_floating(array.dtype) else array


def _reader(tensor: Tensor, value: Known, stored: Mapping[str, Callable[[], Array]]) -> Callable[[], Array]:
    """The data of a tensor that is folded, in its dtype: kept where it is small, else made on demand.

    What is only moved, as weights are before a product, is not widened, since nothing is rounded: `stored` has what
    constants are."""
    body, names = tensor.body, _operands(tensor)
    moved = isinstance(body, Load) and isinstance(body.fill, Const | None) and all(name in stored for name in names)

    def read() -> Array:
        if moved:
            return evaluate_tensor(tensor, {name: stored[name]() for name in names})
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(apply_cast(value.read(), tensor.dtype.numpy)).reshape(shape)

    shape = tuple(int(extent) for extent in tensor.shape)
    if value.bytes > EAGER_BYTES:
        return read
    data = read()
    return lambda: data


def uniform_literals(constants: tuple[Constant, ...], items: tuple[Item, ...]) -> dict[str, Expr]:
    """The literal for each small constant, and each tensor, whose elements are all the same."""
    literals: dict[str, Expr] = {
        item.name: item.body for item in items if isinstance(item, Tensor) and isinstance(item.body, Const)
    }
    for constant in constants:
        if not 1 <= math.prod(constant.shape) <= UNIFORM_ELEMENTS:
            continue
        data = np.asarray(constant.read()).reshape(-1)
        first = data[:1]
        if first.tobytes() * data.size == data.tobytes():
            literals[constant.name] = const(data[0].item(), constant.dtype)
    return literals


def load_literal(node: Load, literals: Mapping[str, Expr]) -> Expr | None:
    """The literal that a load gives, guards included; None when its indices are data, which must be checked."""
    literal = literals.get(node.tensor)
    return None if literal is None else _in_place_of(node, literal)


def counted(constant: Constant) -> tuple[int, ...] | None:
    """(first element, step along each axis) of a constant of integers that are so many steps apart, as exporters store
    positions; None of others, and of two elements, which always are."""
    if constant.dtype is not DType.I64 or not 2 < math.prod(constant.shape) <= COUNTED_ELEMENTS:
        return None
    if constant not in _counted:
        data = np.asarray(constant.read()).reshape(constant.shape)
        first = int(data.flat[0])
        steps = tuple(int(np.take(data, 1, n).flat[0]) - first if size > 1 else 0 for n, size in enumerate(data.shape))
        _counted[constant] = (first, *steps) if _counts(data, first, steps) else None
    return _counted[constant]


def _counts(data: Array, first: int, steps: Sequence[int]) -> bool:
    if abs(first) + sum(abs(step) * size for step, size in zip(steps, data.shape, strict=True)) > LARGEST:
        return False
    found = np.full(data.shape, first, np.int64)
    for axis, step in enumerate(steps):
        along = np.arange(data.shape[axis], dtype=np.int64) * step
        found += along.reshape([-1 if n == axis else 1 for n in range(data.ndim)])
    return np.array_equal(found, data)


def load_position(node: Load, found: Sequence[int]) -> Expr | None:
    """The position that a load of a constant gives which counts so."""
    first, *steps = found
    total = sum((i * step for i, step in zip(node.indices, steps, strict=True)), as_dim(first))
    return _in_place_of(node, index(total))


def _in_place_of(node: Load, value: Expr) -> Expr | None:
    """What a load gives whose element is known; None when its indices are data, which must be checked."""
    if any(isinstance(atom, Value) for dim in node.indices for atom in atoms_of(dim)):
        return None
    for guard in node.guards:
        assert node.fill is not None
        value = select(at_least_zero(guard), value, node.fill)
    return value
