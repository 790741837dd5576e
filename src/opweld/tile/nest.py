"""A region's tensor as a loop nest over memory: loads and the store are linear addresses, axes are split and joined.

resolve   indices become addresses, guards that a halo makes unnecessary go
split     an axis that addresses take apart (y // 2 and y % 2) becomes two, and the divisions are gone
dots      sums of products of bytes that lie in words are sums of their dot products
join      two axes that every address walks through like one become one
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opweld.place.halo import inside_halo
from opweld.place.storage import Storage
from opweld.tensor.axes import by_stride, replace_reduced, split
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim
from opweld.tensor.expr import (
    Expr,
    Load,
    Reduce,
    dims_of,
    load,
    loads,
    substitute,
    substitute_loads,
    walk,
)
from opweld.tensor.text import Names
from opweld.tile.dots import with_dots


@dataclass(frozen=True, eq=False)
class Nest:
    """`axes` are the result's, outermost in memory first, without those of extent one.

    `lane` is the one among them that vectors run along, where that was chosen with storage; `lane_name` what it was
    called there, before it was split or joined. `limits`: indices of an axis from there on do not exist, although its
    extent has them."""

    axes: tuple[Axis, ...]
    store: Dim
    body: Expr
    lane: Axis | None = None
    lane_name: str = ""
    limits: Mapping[Axis, Dim] = field(default_factory=dict[Axis, Dim])

    def substitute(self, mapping: Mapping[Atom, Dim]) -> Nest:
        """Replaces axes in addresses and body; the list of axes is left to the caller."""
        return replace(self, store=self.store.substitute(mapping), body=substitute(self.body, mapping))


def resolve(body: Expr, storages: Mapping[str, Storage], shapes: Mapping[str, Sequence[Dim]]) -> Expr:
    """The expression with each load addressing the memory of its root."""

    def address(node: Load) -> Expr | None:
        storage = storages.get(node.tensor)
        if storage is None:
            return None
        guards = () if inside_halo(node, storage, shapes[node.tensor]) else node.guards
        return load(storage.root, node.dtype, (storage.address(node.indices),), guards, node.fill)

    return substitute_loads(body, address)


def nest_of(
    axes: Iterable[Axis],
    indices: Sequence[Dim],
    body: Expr,
    storage: Storage,
    storages: Mapping[str, Storage],
    shapes: Mapping[str, Sequence[Dim]],
    lane: Axis | None = None,
    limits: Mapping[Axis, Dim] | None = None,
    words: bool = True,
) -> Nest:
    """The nest that computes element [indices] of a value into its storage for all values of the axes, simplified.
    Axes that are limited are not joined to others. `words`: whether neighbours that lie in a word are summed at
    once."""
    single: dict[Atom, Dim] = {axis: ZERO for axis in axes if axis.extent is ONE}
    own = [axis for axis in axes if axis not in single]
    store = storage.address([index.substitute(single) for index in indices])
    mark = ZERO if lane is None else lane.dim.substitute(single)
    own, body, (store, mark) = split(own, resolve(substitute(body, single), storages, shapes), (store, mark))
    body = with_dots(body, lambda name: name in storages and storages[name].pairs_fit) if words else body
    # Of an axis that was split, neighbours lie on the part whose step is one.
    part = next((axis for axis in own if mark.coefficient(axis) is ONE), None)
    nest = join_axes(Nest(own, store, body, part, "" if lane is None else lane.name, limits or {}))
    return replace(nest, axes=by_stride(nest.axes, nest.store))


def join_axes(nest: Nest) -> Nest:
    """Joins pairs of axes, the result's and the reduced ones, that all addresses walk through like one."""
    while True:
        free = [axis for axis in nest.axes if axis not in nest.limits]
        pair = _joinable(free, (nest.store, *_dims(nest.body)))
        if pair is None:
            break
        outer, inner = pair
        joined = Axis(inner.name, outer.extent * inner.extent)
        axes = tuple(joined if axis is inner else axis for axis in nest.axes if axis is not outer)
        lane = joined if nest.lane in (outer, inner) else nest.lane
        nest = replace(nest.substitute({outer: ZERO, inner: joined.dim}), axes=axes, lane=lane)
    changed = True
    while changed:
        changed = False
        for node in walk(nest.body):
            if not isinstance(node, Reduce) or node.kind.startswith("arg"):
                continue
            pair = _joinable(node.axes, tuple(_dims(node.body)))
            if pair is not None:
                outer, inner = pair
                joined = Axis(inner.name, outer.extent * inner.extent)
                mapping: dict[Atom, Dim] = {outer: ZERO, inner: joined.dim}
                nest = replace(nest, body=replace_reduced(nest.body, pair, (joined,), mapping))
                changed = True
                break
    return nest


def _dims(body: Expr) -> list[Dim]:
    return list(dict.fromkeys(dim for node in walk(body) for dim in dims_of(node)))


def _joinable(axes: Sequence[Axis], dims: Sequence[Dim]) -> tuple[Axis, Axis] | None:
    for outer in axes:
        for inner in axes:
            if outer is not inner and all(_walks_as_one(dim, outer, inner) for dim in dims):
                return outer, inner
    return None


def _walks_as_one(dim: Dim, outer: Axis, inner: Axis) -> bool:
    a, b = dim.coefficient(outer), dim.coefficient(inner)
    return a is not None and b is not None and a is b * inner.extent


def text_of(nest: Nest, buffer: str) -> tuple[str, tuple[str, ...]]:
    """The nest as text in which memory has numbers in place of names; and the memory, in order of appearance."""
    memory = dict.fromkeys((buffer, *(node.tensor for node in loads(nest.body))))
    numbers = {name: f"b{number}" for number, name in enumerate(memory)}
    body = substitute_loads(nest.body, lambda n: load(numbers[n.tensor], n.dtype, n.indices, n.guards, n.fill))
    names = Names({axis: axis.name for axis in nest.axes})
    lines = [", ".join(names.axes(nest.axes)), *names.body_lines(body), names.dim(nest.store)]
    lines += [f"{axis.name} below {names.dim(limit)}" for axis, limit in nest.limits.items()]
    return "\n".join([*lines, nest.lane.name if nest.lane else ""]), tuple(memory)
