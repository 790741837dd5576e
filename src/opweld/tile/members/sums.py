"""Reductions of a nest: the loops over what is reduced, and the accumulations inside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce as reduce_pairs

from opweld.tensor.algebra import simplify
from opweld.tensor.axes import by_stride
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim, ceildiv, minimum, row_major
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Reduce,
    binary,
    const,
    dims_of,
    free_atoms,
    load,
    loads,
    substitute,
    walk,
)
from opweld.tensor.operators import REDUCTIONS, neutral
from opweld.tile.nest import Nest
from opweld.tile.tile import Accumulate, Declare, Loop, Statement, substitute_statements

LONGEST = 256
"""The most values that one accumulator sums in a row. Each addition rounds to the accuracy of the sum so far: values of
one sign and size are all rounded the same way, and the mean of 0.1 over 512 x 512 was 0.25% off."""

PART = 128
"""The values of a part of a longer sum, which a loop is split into."""

SHORTEST = 16
"""The fewest values of a part, so that adding the parts costs little beside adding the values."""


def reduction_of(nest: Nest) -> Reduce:
    """The reduction of a contraction or window."""
    return next(n for n in walk(nest.body) if isinstance(n, Reduce))


@dataclass(frozen=True)
class InBlocks:
    """A sum of products as one of sums of blocks: the loops over blocks, those in one, what is summed there, and what
    the sum of a block is multiplied by."""

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    value: Expr
    scale: Expr


def in_blocks(node: Reduce, loops: tuple[Axis, ...]) -> InBlocks | None:
    """A sum whose products have a factor that is the same in the inner loops, as the scale of a block of weights is;
    None for others."""
    if node.kind != "sum" or not node.dtype.is_float:
        return None
    factors = _factors(node.body, node.dtype)
    for cut in range(1, len(loops)):
        inner = set(loops[cut:])
        same = [factor for factor in factors if not free_atoms(factor) & inner and not isinstance(factor, Const)]
        rest = [factor for factor in factors if factor not in same]
        if same and rest and all(free_atoms(factor) & set(loops[:cut]) for factor in same):
            return InBlocks(loops[:cut], loops[cut:], _multiplied(rest), _multiplied(same))
    return None


def _factors(value: Expr, dtype: DType) -> list[Expr]:
    if isinstance(value, Binary) and value.op == "mul" and value.dtype is dtype:
        return [*_factors(value.x, dtype), *_factors(value.y, dtype)]
    return [value]


def _multiplied(factors: Sequence[Expr]) -> Expr:
    return reduce_pairs(lambda x, y: binary("mul", x, y), factors)


def flat_position(node: Reduce) -> Dim | None:
    """The result of an arg kind: the linear index of an element among the reduced ones, in order of the axes."""
    if not REDUCTIONS[node.kind].position:
        return None
    return row_major([axis.dim for axis in node.axes], [axis.extent for axis in node.axes])


def initial_of(node: Reduce) -> Expr:
    """The initial value of an accumulator."""
    return const(0 if node.kind.startswith("arg") else neutral(node.kind, node.dtype), node.dtype)


def start_of(body: Expr, node: Reduce) -> tuple[Expr, Expr]:
    """(what an accumulator of the reduction in a body begins with, what of the body it holds in the end).

    Integers that are added to a sum of integers, as zero points times sums of weights are, are what it begins with: as
    loading them is all that they take then, and sums of integers are the same in any order."""
    users = [found for found in walk(body) if node in found.operands]
    if node.kind == "sum" and node.dtype is DType.I32 and len(users) == 1:
        (user,) = users
        if isinstance(user, Binary) and user.op == "add":
            other = user.y if user.x is node else user.x
            if isinstance(other, Load) and not other.guards:
                return other, user
    return initial_of(node), node


def loop_order(node: Reduce, lanes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Reduced axes in the memory order of the vectorised operand, largest stride first: it is the larger one, and
    mostly read once. Weights are packed in the order of the other operand, so both agree if possible. The first of
    equal extremes is only correct in order of the axes."""
    if REDUCTIONS[node.kind].position:
        return node.axes
    sites = loads(node.body)
    walked = [s for s in sites if any(d.depends_on(a) for a in lanes for d in dims_of(s))] or sites
    return by_stride(node.axes, walked[0].indices[0] if walked else ZERO)


def accumulate_over(
    loops: tuple[Axis, ...], name: str, kind: str, value: Expr, written: bool, position: Dim | None = None
) -> tuple[Statement, ...]:
    """Loops around one accumulation; the innermost is unrolled if requested."""
    if not loops:
        return (Accumulate(name, kind, value, position),)
    axis, rest = loops[0], loops[1:]
    extent = axis.extent.constant
    if not rest and written and extent is not None and position is None:
        return tuple(Accumulate(name, kind, simplify(substitute(value, {axis: ZERO + n}))) for n in range(extent))
    return (Loop(axis, accumulate_over(rest, name, kind, value, written, position)),)


def summed_in_parts(
    nodes: Mapping[str, Reduce],
    loops: Sequence[Axis],
    over: tuple[Axis, ...],
    named: Callable[[str], str],
    values: Callable[[Sequence[str]], tuple[Statement, ...]],
    tile: Callable[[tuple[Statement, ...]], tuple[Statement, ...]],
) -> tuple[Statement, ...]:
    """Reductions in nested loops, outermost first, by the name of their accumulators, which are declared here. Sums of
    floating point are sums of parts where they are long.

    Args:
        over: axes of the accumulators.
        named: the free name for a register that is like this one.
        values: the innermost statements, which accumulate a value of each into these accumulators.
        tile: statements of accumulators, inside the tiles that they are over.
    """
    parted = {name for name, node in nodes.items() if node.kind == "sum" and node.dtype.is_float}
    groups, split = _groups(loops) if parted else ([[Loop(axis, ()) for axis in loops]], {})
    totals = list(nodes)
    registers = [
        [named(f"{name}_{level}") if name in parted else name for name in nodes] for level in range(len(groups) - 1)
    ]
    registers.append(totals)
    made = values(registers[0])
    for level, group in enumerate(groups):
        if level:
            inner = registers[level - 1]
            summed = [(p, t, n) for p, t, n in zip(inner, registers[level], nodes.values(), strict=True) if p != t]
            declared = [Declare(part, node.dtype, over, initial_of(node)) for part, _, node in summed]
            added = tuple(Accumulate(total, "sum", load(part, node.dtype, ())) for part, total, node in summed)
            made = (*declared, *made, *tile(added))
        for loop in reversed(group):
            made = (replace(loop, body=made),)
    for axis, dim in split.items():
        made = substitute_statements(made, {axis: dim})
    return (*(Declare(name, node.dtype, over, initial_of(node)) for name, node in nodes.items()), *made)


def _groups(loops: Sequence[Axis]) -> tuple[list[list[Loop]], dict[Axis, Dim]]:
    """Groups of loops without bodies, innermost first, that do what nested `loops` do: each group sums what the one
    inside it has summed, no more than `LONGEST` values in a row; and what each loop that was split is in terms of two
    others, of which the outer may have been split again. Where an extent is known at run time only, the outer one has
    any number of parts."""
    groups: list[list[Loop]] = [[]]
    split: dict[Axis, Dim] = {}
    pending, ends = list(loops), set[Axis]()
    values = 1
    while pending:
        axis = pending.pop()
        extent = axis.extent.constant
        if axis in ends or (extent is not None and values * extent <= LONGEST):
            groups[-1].insert(0, Loop(axis, ()))
            values *= LONGEST if extent is None else extent
            continue
        if values < SHORTEST:
            size = PART // values
            block, inner = Axis(axis.name + "b", ceildiv(axis.extent, size)), Axis(axis.name + "p", as_dim(size))
            split[axis] = size * block.dim + inner.dim
            upper = None if block.extent * size is axis.extent else minimum(size, axis.extent - size * block.dim)
            groups[-1].insert(0, Loop(inner, (), upper=upper))
            if extent is None:
                ends.add(block)
            axis = block
        groups.append([])
        pending.append(axis)
        values = 1
    return groups, split
