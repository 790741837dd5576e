"""How many bodies of an inner loop to lay out in a row, so that its registers suffice.

Any number is right. Loops of multiply-adds profit: four bodies are 4 to 15% faster than one, and a depthwise
convolution over planes, whose few trips are all laid out, takes up to a third less time, a pooling a quarter
(measured). With more pointers than integer registers hold, as rows at run-time distances need, compilers spill as soon
as they unroll.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from opweld.target import Target
from opweld.tensor.dim import Axis, Dim, Value, as_dim, atoms_of
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Const, Expr, Load, Select, Unary, dims_of, loads, substitute, walk
from opweld.tensor.operators import WORDS
from opweld.tile.bodies import Layout, Step, lay_out, reads_of
from opweld.tile.instances import copies, instances
from opweld.tile.registers import registers_for
from opweld.tile.tile import Accumulate, Loop, Tile

BODIES = 4
"""How many bodies a loop gets that profits."""

CHOICES = (1, 2, BODIES, 8)
"""How many it may get. The first changes nothing."""

_FEWEST = 4
_MOST_POINTERS = 9
_SPARE_REGISTERS = 4
_MOST = 512


@dataclass(frozen=True)
class Unrolling:
    """How many bodies one loop should get, of `CHOICES`, and why."""

    best: int
    reason: str


def unroll_choices(loop: Loop, tiles: Sequence[Tile], target: Target) -> Unrolling | None:
    """How often to unroll a loop inside the tiles; None when it is no loop of accumulations, or has a single trip."""
    items = [item for item in loop.body if isinstance(item, Accumulate)]
    lane = next((tile.axis for tile in tiles if tile.role == "lane"), None)
    trips = (loop.end - loop.lower).constant
    if len(items) < len(loop.body) or trips == 1:
        return None
    if not all(_is_straight(item, lane) for item in items):
        return Unrolling(1, "a body takes branches")
    lanes = target.vector_lanes_f32
    everywhere = math.prod(copies(tile, lanes) for tile in tiles)
    few = trips if trips is not None and trips < CHOICES[-1] else 0
    # In a short loop, maxima and plain sums share loads as well. With elements two apart, which are shuffled out of two
    # vectors, a 2x2 pooling takes a fifth longer in a row (AVX2, measured).
    shares = few and all(_is_contiguous(node, lane) for item in items for node in reads_of(item))
    made = [item for item in items if _is_multiply_add(item) or (shares and _is_plain(item))]
    count, accumulators = len(made) * everywhere, len({item.name for item in made}) * everywhere
    called = "multiply-adds" if all(map(_is_multiply_add, made)) else "accumulations"
    # Where a step of a tile adds a constant to all addresses, its copies share pointers.
    reads = [node for item in items for node in reads_of(item)]
    apart = [tile for tile in tiles if not all(_shifts(node, tile.axis) for node in reads)]
    pointers: set[Hashable] = set()
    for mapping in instances(apart, lanes):
        for item in items:
            value = substitute(item.value, mapping) if mapping else item.value
            pointers |= {_pointer(node, loop.axis, lane) for node in loads(value) if node.indices}
    if any(guard.depends_on(loop.axis) for node in reads for guard in node.guards):
        pointers = {(pointer, trip) for pointer in pointers for trip in range(few or 1)}  # each body has its own
    if count < _FEWEST:
        return Unrolling(1, f"{count} {called} a body are few")
    if len(pointers) > _MOST_POINTERS:
        return Unrolling(1, f"{len(pointers)} pointers do not stay in integer registers, {_MOST_POINTERS} do")
    registers = registers_for(items, target)
    if accumulators > registers - _SPARE_REGISTERS:
        return Unrolling(1, f"{accumulators} accumulators leave fewer than {_SPARE_REGISTERS} registers")
    if not few:
        return Unrolling(BODIES, f"{count} {called} a body, {len(pointers)} pointers")
    # All bodies of a short loop are laid out, or none: then no trip is left to count, and what its taps share is read
    # once, or where registers do not hold all of that, less often than in each body.
    if count * few > _MOST:
        return Unrolling(1, f"{few} trips are few, but {count * few} {called} in a row many")
    whole = laid_out(loop, tiles, few, target)
    if whole.breaks:
        one = {(node.tensor, node.indices[0].substitute(at)) for at in instances(tiles, lanes) for node in reads}
        if whole.loads >= few * len(one):
            return Unrolling(1, f"{few} trips are few, and in a row they would load {whole.loads} vectors, no fewer")
        why = f"which load {whole.loads} vectors in place of {few * len(one)}"
    else:
        why = f"which hold {whole.held} registers"
    choice = min(choice for choice in CHOICES if choice >= few)
    return Unrolling(choice, f"{count} {called} in each of {few} bodies, {why}")


def laid_out(loop: Loop, tiles: Sequence[Tile], trips: int, target: Target) -> Layout:
    """How all bodies of a loop of accumulations are laid out in the largest pieces of the tiles."""
    items = [item for item in loop.body if isinstance(item, Accumulate)]
    lane = [tile for tile in tiles if tile.role == "lane"]
    rows = [tile for tile in tiles if tile.role == "row"]
    lanes = target.vector_lanes_f32
    steps: list[Step] = []
    for trip in range(trips):
        for item in items:
            reads = [
                (node.tensor, node.indices[0].substitute({loop.axis: loop.lower + trip})) for node in reads_of(item)
            ]
            for row in instances(rows, lanes):
                at = [(name, place.substitute(row)) for name, place in reads]
                vectors = list(instances(lane, lanes))
                accumulators = tuple((item.name, *row.values(), *vector.values()) for vector in vectors)
                loaded = tuple(tuple((name, place.substitute(vector)) for name, place in at) for vector in vectors)
                steps.append(Step(accumulators, loaded))
    return lay_out(steps, registers_for(items, target) - _SPARE_REGISTERS)


def _is_straight(item: Accumulate, lane: Axis | None) -> bool:
    """Whether the accumulation takes no branch: nothing is checked at run time, guards are met by reading zeros."""
    for node in walk(item.value):
        if isinstance(node, Select) or (isinstance(node, Binary) and node.dtype.is_integer and node.op in _CHECKED):
            return False
        if any(isinstance(atom, Value) for dim in dims_of(node) for atom in atoms_of(dim)):
            return False
        if isinstance(node, Load) and node.guards and not _reads_zeros(node, lane):
            return False
    return True


_CHECKED = ("div", "mod", "fmod")


def _reads_zeros(node: Load, lane: Axis | None) -> bool:
    uniform = [guard for guard in node.guards if lane is None or not guard.depends_on(lane)]
    if not uniform:
        return True  # lane by lane, under a mask
    return len(uniform) == len(node.guards) and _is_contiguous(node, lane) and isinstance(node.fill, Const)


def _is_plain(item: Accumulate) -> bool:
    """Whether a value is accumulated in one register of its own type."""
    return item.position is None and item.value.dtype not in (DType.BOOL, DType.F16, DType.BF16)


def _is_multiply_add(item: Accumulate) -> bool:
    return item.kind == "sum" and _is_plain(item) and _has_product(item.value)


def _has_product(value: Expr) -> bool:
    """Whether a product is added without being stored first, which compilers contract to a fused multiply-add."""
    if isinstance(value, Binary) and value.op in ("mul", *WORDS):
        return True
    if isinstance(value, Binary) and value.op in ("add", "sub"):
        return _has_product(value.x) or _has_product(value.y)
    return isinstance(value, Unary) and value.op == "neg" and _has_product(value.x)


def _shifts(node: Load, axis: Axis) -> bool:
    """Whether a step along the axis adds a constant to the address, and nothing else."""
    stride = node.indices[0].coefficient(axis)
    return stride is not None and stride.constant is not None and not any(g.depends_on(axis) for g in node.guards)


def _is_contiguous(node: Load, lane: Axis | None) -> bool:
    """Whether lanes read neighbours, or all of them one element."""
    stride = as_dim(0) if lane is None else node.indices[0].coefficient(lane)
    return stride is not None and stride.constant in (0, 1)


def _pointer(node: Load, axis: Axis, lane: Axis | None) -> Hashable:
    """What tells the pointer of a load from others: the address without what the loop adds, and without constants."""
    offset = node.indices[0]
    if lane is not None:
        stride = offset.coefficient(lane)
        if stride is None or stride.depends_on(lane):
            return (node.tensor,)
        offset = offset.without(lane)
    fixed = as_dim(0)
    for monomial, coefficient in offset.terms:
        term = as_dim(coefficient)
        for atom in monomial:
            term = term * atom.dim
        if monomial and not term.depends_on(axis):
            fixed = fixed + term
    uniform: tuple[Dim, ...] = tuple(guard for guard in node.guards if lane is None or not guard.depends_on(lane))
    return node.tensor, fixed, uniform
