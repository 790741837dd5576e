"""Constant folding of tensors: evaluated in float64 and rounded once; under discontinuous operators, rounded at every
step as the model does (see `discontinuous.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache as remember
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from opweld.errors import OpweldError
from opweld.tensor.algebra import simplify
from opweld.tensor.dim import Atom, Axis, Dim, Value, as_dim, atoms_of
from opweld.tensor.discontinuous import has_nan_edge, is_discontinuous
from opweld.tensor.dtype import DType
from opweld.tensor.evaluate import evaluate_tensor, moved_tensor
from opweld.tensor.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Reduce,
    Unary,
    at_least_zero,
    const,
    index,
    loads,
    select,
    substitute,
    walk,
)
from opweld.tensor.externs import EXTERNS, call_extern
from opweld.tensor.operators import is_expensive
from opweld.tensor.program import Constant, Extern, Item, Result, Scan, Tensor, TensorProgram, item_inputs
from opweld.tensor.semantics import Array, apply_cast, is_floating


@dataclass(frozen=True)
class Folding:
    """What depends on constants only, and could become one, or one for each of its results.

    Attributes:
        name: the tensor, or the first result of an extern.
        origin: the nodes of the graph that it comes from.
        before, after: bytes of the constants that it reads, and of its value.
            budget: bytes that it may take.
            refused: the values of the condition that prevents folding; empty if none does.
            reason: why it is folded, or is not.
            readers: whether its readers could compute it instead: it is several times larger than its operands, as
                dequantised weights are, and is only used as a factor in sums of products.
    """

    name: str
    origin: tuple[str, ...]
    before: int
    after: int
    budget: int
    reason: str
    refused: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])
    readers: bool = False


Answer: TypeAlias = Literal["in every run", "now", "by its readers"]
"""When a tensor of constants is computed. If its readers compute it, it is inlined; `fuse.prologue` decides later
whether it is materialised after all."""

Decide: TypeAlias = Callable[[Folding], Answer]
"""Decides when a tensor of constants is computed; in every run if refused, by its readers only if `readers`."""

WIDER = 2
"""The least ratio of a tensor's bytes to its operands' for which readers may compute it."""

FEW_OPERATIONS = 6
"""The most operations of an element that readers may compute."""

EAGER_BYTES = 1 << 20
"""Results up to this size are computed at once and kept; bigger ones on every read."""

RESULT_BYTES = 64 << 20
"""A bigger result is folded only when it is at most `RESULT_GROWTH` times its operands."""

RESULT_GROWTH = 4
EVALUATIONS = 1 << 32
"""Bodies with more evaluations than this, reductions included, are evaluated at run time."""

EXTERN_WORK = 1 << 20
"""Externs of more operations are computed at run time: what they mean in NumPy is written as loops of Python."""

IN_NO_RUN = "it does not depend on inputs"

UNIFORM_ELEMENTS = 4096
"""Constants up to this many elements are checked for being uniform, when loads of them become literals."""
UNIFORM_BYTES = 1 << 20
"""The same of elements of a byte: zero points of blocks."""

COUNTED_ELEMENTS = 1 << 20
"""Integer constants up to this many elements are checked for being affine in their indices."""
LARGEST = 1 << 48
"""Bound of the elements of affine constants, so that sums of a few do not overflow 64 bits."""
_affine: WeakKeyDictionary[Constant, tuple[int, ...] | None] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Known:
    """A value that does not depend on inputs; `read` gives floats as float64, not yet rounded to the dtype, `own` in
    the dtype, with each step rounded.

    `bytes` is its size in the weights: 0 if it is generated from indices."""

    read: Callable[[], Array]
    own: Callable[[], Array]
    bytes: int


def known_constant(constant: Constant) -> Known:
    """A constant as an operand of folding; an affine one could be generated."""
    size = 0 if affine_constant(constant) else math.prod(constant.shape) * constant.dtype.bytes
    return Known(lambda: _widened(constant.read()), constant.read, size)


@dataclass(frozen=True)
class Folded:
    """A program after folding: items without those that became constants, all constants, and the items that are inlined
    into their readers."""

    items: tuple[Item, ...]
    constants: tuple[Constant, ...]
    inlined: Mapping[str, Tensor]


def fold_constants(program: TensorProgram, decide: Decide) -> Folded:
    """Folds the items that depend on constants only. `decide` is called for each that would take memory.

    Values generated from indices are not folded where they are cheap or large: it takes less to compute them than to
    load them. Their readers can still be folded."""
    known = {constant.name: known_constant(constant) for constant in program.constants}
    stored = {constant.name: constant.read for constant in program.constants}
    users, constant = _users(program), _of_constants(program)
    kept: list[Item] = []
    added: list[Constant] = []
    inlined: dict[str, Tensor] = {}
    for item in program.items:
        if not isinstance(item, Tensor):
            results = _known_results(item, known, decide) if isinstance(item, Extern) else ()
            known |= {constant.name: known_constant(constant) for constant in results}
            stored |= {constant.name: constant.read for constant in results}
            added += results
            kept += [] if results else [item]
            continue
        value = _known_tensor(item, known, decide)
        if value is not None and value.bytes:
            folding = _folding(item, known, IN_NO_RUN)
            answer = decide(replace(folding, readers=_for_readers(item, folding, users, constant)))
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
    """The readers of each value; None stands for the caller."""
    users: dict[str, list[Item | None]] = {value: [None] for _, value in program.outputs}
    for item in program.items:
        for name in item_inputs(item):
            users.setdefault(name, []).append(item)
    return users


def _of_constants(program: TensorProgram) -> set[str]:
    """The values that depend on constants only."""
    found = {constant.name for constant in program.constants}
    for item in program.items:
        if isinstance(item, Tensor) and all(name in found for name in item_inputs(item)):
            found.add(item.name)
    return found


def _for_readers(
    tensor: Tensor, folding: Folding, users: Mapping[str, Sequence[Item | None]], constant: Set[str]
) -> bool:
    """Whether a tensor is cheap to compute, is much larger than its operands, and only used as a factor, moved or not,
    or after a few more operations with constants."""
    count = _operations(tensor)
    looked_up = any(
        isinstance(atom, Value) for node in loads(tensor.body) for i in node.indices for atom in atoms_of(i)
    )
    if not count or looked_up or folding.after < WIDER * folding.before:
        return False
    todo, found = [(tensor.name, count)], set[str]()
    while todo:
        name, count = todo.pop()
        for user in users.get(name, (None,)):
            if isinstance(user, Scan) and _steps_multiply(user, name):
                continue
            if not isinstance(user, Tensor):
                return False
            if _looks_up(user) or _multiplies(user, name):
                continue
            more = _operations(user)
            guarded = any(node.guards for node in loads(user.body))
            if user.name not in constant or guarded or more is None or count + more > FEW_OPERATIONS:
                return False
            todo += [(user.name, count + more)] if user.name not in found else []
            found.add(user.name)
    return True


def _operations(tensor: Tensor) -> int | None:
    """How many operations an element takes; None where they are not cheap, or more than readers may compute."""
    nodes = [node for node in walk(tensor.body) if not isinstance(node, Load | Const)]
    cheap = all(isinstance(node, Cast | Unary | Binary) and not _is_expensive(node) for node in nodes)
    return len(nodes) if cheap and len(nodes) <= FEW_OPERATIONS else None


def _looks_up(user: Tensor) -> bool:
    """Whether a tensor is some rows of a table: elements at an index that the run tells."""
    body = user.body
    return isinstance(body, Load) and any(isinstance(atom, Value) for i in body.indices for atom in atoms_of(i))


def _is_expensive(node: Expr) -> bool:
    return isinstance(node, Unary | Binary) and is_expensive(node.op)


def _multiplies(user: Tensor, name: str) -> bool:
    """Whether a tensor uses a value only as a factor in one sum of products."""
    sites = [node for node in loads(user.body) if node.tensor == name]
    sums = [node for node in walk(user.body) if isinstance(node, Reduce)]
    if len(sites) != 1 or sites[0].guards or len(sums) != 1 or sums[0].kind != "sum":
        return False
    product = sums[0].body
    if not isinstance(product, Binary) or product.op != "mul" or not product.dtype.is_float:
        return False
    return any((side.x if isinstance(side, Cast) else side) is sites[0] for side in (product.x, product.y))


def _steps_multiply(scan: Scan, name: str) -> bool:
    """Whether a recurrence uses a value only as a factor in sums of products of its steps."""
    if any(node.tensor == name for state in scan.states for node in loads(state.initial)):
        return False
    steps = (step for step in scan.steps if any(node.tensor == name for node in loads(step.body)))
    return all(_multiplies(step, name) for step in steps)


def _cheap(body: Expr) -> bool:
    """Whether a body without loads is a few instructions."""
    return not any(isinstance(node, Load | Unary | Reduce) for node in walk(body))


def _folding(item: Tensor | Extern, known: Mapping[str, Known], reason: str, **refused: int | str) -> Folding:
    """The folding of an item whose operands are known; its sizes are numbers."""
    results = (item,) if isinstance(item, Tensor) else item.results
    size = sum(math.prod(int(extent) for extent in result.shape) * result.dtype.bytes for result in results)
    before = sum(known[name].bytes for name in item_inputs(item))
    return Folding(
        results[0].name, item.origin, before, size, max(RESULT_BYTES, RESULT_GROWTH * before), reason, refused
    )


def _known_results(extern: Extern, known: Mapping[str, Known], decide: Decide) -> tuple[Constant, ...]:
    """The results of an extern whose operands are known, as constants; none where it is left to the run.

    Operands are rounded at every step, as the model does it: an extern compares them, or moves their bytes."""
    if any(name not in known for name in extern.operands):
        return ()
    numbers = [number.constant for number in (*extern.numbers, extern.rows)]
    if None in numbers or any(dim.constant is None for result in extern.results for dim in result.shape):
        return ()
    *given, rows = (number or 0 for number in numbers)
    work = int(EXTERNS[extern.function].work(given)) * rows
    found = _folding(extern, known, IN_NO_RUN)
    if work > EXTERN_WORK:
        decide(_folding(extern, known, "it would take too long", operations=work, budget=EXTERN_WORK))
        return ()
    if found.after > found.budget:
        reason = "it would take more bytes than it may"
        decide(_folding(extern, known, reason, bytes=found.after, budget=found.budget))
        return ()
    try:
        computed = call_extern(extern, {name: known[name].own() for name in item_inputs(extern)}, {}, False)
    except OpweldError as error:
        decide(_folding(extern, known, "it fails", error=str(error)))
        return ()
    if decide(found) != "now":
        return ()
    return tuple(_constant(result, computed[result.name], extern.origin) for result in extern.results)


def _constant(result: Result, data: Array, origin: tuple[str, ...]) -> Constant:
    return Constant(result.name, result.dtype, data.shape, lambda: data, origin)


def _known_tensor(tensor: Tensor, known: Mapping[str, Known], decide: Decide) -> Known | None:
    names = item_inputs(tensor)
    if any(name not in known for name in names):
        return None
    extents = [extent.constant for extent in tensor.shape]
    reduced = [axis.extent.constant for axis in _reduced_axes(tensor.body)]
    if None in extents or None in reduced:
        return None
    folding = _folding(tensor, known, "")
    size, operands = folding.after, folding.before
    if size > folding.budget:
        if names:
            reason = "it would take more bytes than it may"
            decide(_folding(tensor, known, reason, bytes=size, budget=folding.budget))
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
    discontinuous, edged = any(map(is_discontinuous, nodes)), any(map(has_nan_edge, nodes))

    def read() -> Array:
        if discontinuous:
            return _widened(own())
        found = evaluate_tensor(tensor, {name: known[name].read() for name in names}, float64=True)
        return _widened(own()) if edged and np.isnan(found).any() else found

    if _cheap(tensor.body):
        return Known(read, own, 0)
    if not operands and size > EAGER_BYTES:
        # Values generated from indices alone (a mask, a ramp) are stored only if they are small.
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
    """The data of a folded tensor, in its dtype: kept if it is small, else computed on demand.

    Values that are only moved, as weights before a product, are not widened, since nothing is rounded: `stored` has the
    data of constants in their dtypes."""
    body, names = tensor.body, item_inputs(tensor)
    moved = isinstance(body, Load) and isinstance(body.fill, Const | None) and all(name in stored for name in names)

    def read() -> Array:
        if moved:
            return moved_tensor(tensor, {name: stored[name]() for name in names})
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(apply_cast(value.read(), tensor.dtype.numpy)).reshape(shape)

    shape = tuple(int(extent) for extent in tensor.shape)
    if value.bytes > EAGER_BYTES:
        return read
    data = read()
    return lambda: data


def uniform_literals(constants: tuple[Constant, ...], items: tuple[Item, ...]) -> dict[str, Expr]:
    """The literal for each small constant, and each tensor, whose elements are all equal."""
    literals: dict[str, Expr] = {
        item.name: item.body for item in items if isinstance(item, Tensor) and isinstance(item.body, Const)
    }
    for constant in constants:
        most = UNIFORM_BYTES if constant.dtype.bytes == 1 else UNIFORM_ELEMENTS
        if not 1 <= math.prod(constant.shape) <= most:
            continue
        data = np.asarray(constant.read()).reshape(-1)
        first = data[:1]
        if first.tobytes() * data.size == data.tobytes():
            literals[constant.name] = const(data[0].item(), constant.dtype)
    return literals


def load_literal(node: Load, literals: Mapping[str, Expr]) -> Expr | None:
    """The literal that replaces a load, including its guards; None if its indices are run-time values, which must be
    checked."""
    literal = literals.get(node.tensor)
    return None if literal is None else _in_place_of(node, literal)


def affine_constant(constant: Constant) -> tuple[int, ...] | None:
    """(first element, step along each axis) of a constant of integers that is affine in its indices, as exporters store
    positions; None for others, and for two elements, which always are."""
    if constant.dtype is not DType.I64 or not 2 < math.prod(constant.shape) <= COUNTED_ELEMENTS:
        return None
    if constant not in _affine:
        data = np.asarray(constant.read()).reshape(constant.shape)
        first = int(data.flat[0])
        steps = tuple(int(np.take(data, 1, n).flat[0]) - first if size > 1 else 0 for n, size in enumerate(data.shape))
        _affine[constant] = (first, *steps) if _is_affine(data, first, steps) else None
    return _affine[constant]


def _is_affine(data: Array, first: int, steps: Sequence[int]) -> bool:
    if abs(first) + sum(abs(step) * size for step, size in zip(steps, data.shape, strict=True)) > LARGEST:
        return False
    found = np.full(data.shape, first, np.int64)
    for axis, step in enumerate(steps):
        along = np.arange(data.shape[axis], dtype=np.int64) * step
        found += along.reshape([-1 if n == axis else 1 for n in range(data.ndim)])
    return np.array_equal(found, data)


def load_position(node: Load, found: Sequence[int]) -> Expr | None:
    """The index expression that replaces a load of an affine constant."""
    first, *steps = found
    total = sum((i * step for i, step in zip(node.indices, steps, strict=True)), as_dim(first))
    return _in_place_of(node, index(total))


def is_generated(tensor: Tensor) -> bool:
    """Whether a tensor is a few integer operations on indices: a range, or several side by side."""
    return not tensor.dtype.is_float and not isinstance(tensor.body, Const) and _cheap(tensor.body)


def load_generated(node: Load, tensor: Tensor) -> Expr | None:
    """The index or the literal that replaces a load of a generated tensor; None where the element is neither."""
    mapping: dict[Atom, Dim] = dict(zip(tensor.axes, node.indices, strict=True))
    value = simplify(substitute(tensor.body, mapping))
    return _in_place_of(node, value) if isinstance(value, Index | Const) else None


def _in_place_of(node: Load, value: Expr) -> Expr | None:
    """A load replaced by its known element; None if its indices are run-time values, which must be checked."""
    if any(isinstance(atom, Value) for dim in node.indices for atom in atoms_of(dim)):
        return None
    for guard in node.guards:
        assert node.fill is not None
        value = select(at_least_zero(guard), value, node.fill)
    return value
