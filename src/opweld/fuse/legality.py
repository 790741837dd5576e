"""What fusing may not break: no element is computed where it does not exist, none more often than it is asked for."""

from __future__ import annotations

from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, FloorDiv, Mod, atoms_of, floordiv, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, at_least_zero, binary, const, fresh_reductions, load, select, substitute
from opweld.tensor.program import Tensor


def inline(site: Load, tensor: Tensor) -> Expr:
    """The expression of the element that a load of a tensor asks for; its guards keep protecting it."""
    mapping: dict[Atom, Dim] = dict(zip(tensor.axes, site.indices, strict=True))
    body = substitute(fresh_reductions(tensor.body), mapping)
    if site.fill is None:
        return body
    if isinstance(body, Load) and (body.fill is None or body.fill is site.fill):
        return load(body.tensor, body.dtype, body.indices, (*site.guards, *body.guards), site.fill)
    condition: Expr = const(True, DType.BOOL)
    for guard in site.guards:
        test = at_least_zero(guard)
        condition = test if condition is const(True, DType.BOOL) else binary("and", condition, test)
    return select(condition, body, site.fill)


def covers_once(site: Load, user: Tensor, source: Tensor) -> bool:
    """Whether the user, running over its axes, asks for each element of the source exactly once.

    Holds for permutations, splits and merges of axes: an index is an axis, one of the quotients and remainders that
    together give back an axis, or several axes joined in mixed radix. Both sides have equally many elements."""
    if site.guards or product(user.shape) is not product(source.shape):
        return False
    own = {axis for axis in user.axes if axis.extent.constant != 1}
    pieces: dict[Axis, list[Dim]] = {}
    single: dict[Atom, Dim] = {axis: ZERO for axis in user.axes if axis.extent.constant == 1}
    for dim in (index.substitute(single) for index in site.indices):
        if dim.constant is not None:
            continue
        inside = [a for a in atoms_of(dim) if isinstance(a, Axis)]
        atom = dim.atom
        if len(inside) == 1 and (atom is inside[0] or isinstance(atom, FloorDiv | Mod)):
            pieces.setdefault(inside[0], []).append(dim)
        elif _mixed_radix(dim, inside):
            for axis in inside:
                pieces.setdefault(axis, []).append(axis.dim)
        else:
            return False
    return pieces.keys() == own and all(_gives_back(axis, parts) for axis, parts in pieces.items())


def _mixed_radix(dim: Dim, axes: list[Axis]) -> bool:
    """Whether the index is i * J + j over the axes: each stride is the product of the extents inside it."""
    remaining, expected, total = list(axes), ONE, ZERO
    while remaining:
        step = next((a for a in remaining if dim.coefficient(a) is expected), None)
        if step is None:
            return False
        total = total + expected * step.dim
        expected = expected * step.extent
        remaining.remove(step)
    return total is dim


def _gives_back(axis: Axis, parts: list[Dim]) -> bool:
    """Whether the axis itself, or a chain of its quotients and remainders, is there exactly once."""
    if parts == [axis.dim]:
        return True
    remaining, total, stride = list(parts), ZERO, ONE
    while remaining:
        quotient = floordiv(axis.dim, stride)
        part = next(
            (p for p in remaining if p is quotient or (isinstance(p.atom, Mod) and p.atom.left is quotient)), None
        )
        if part is None:
            return False
        total = total + stride * part
        remaining.remove(part)
        if isinstance(part.atom, Mod):
            stride = stride * part.atom.right
    return total is axis.dim
