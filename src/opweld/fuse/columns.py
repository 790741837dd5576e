"""Columns that are read apart: an axis of rows that sums walk through, and others read as several axes, is several.

Exporters write a GroupNormalization as an InstanceNormalization of groups that are flattened for it and given their
shape back: x - mean and what is made of it are values of flat columns, which sums read as they are, and whoever scales
them by channel as channel, line and pixel. With the axes of that reader the columns are the same for all: one row.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from opweld.fuse.legality import merged_axes
from opweld.fuse.region import reductions
from opweld.fuse.use_def import UseDef, key_of
from opweld.tensor.dim import ONE, Atom, Axis, Dim, floordiv, mod, product, row_major
from opweld.tensor.expr import Expr, Load, Reduce, load, loads, reduce, substitute_loads, transform
from opweld.tensor.program import Tensor

_KINDS = frozenset({"sum", "prod", "max", "min", "any", "all"})
"""Reductions that do not tell where along their axes something was."""


def split_columns(graph: UseDef) -> None:
    """Gives such values the axes that they are read as, and so their sums and those of what they are computed from."""
    for item in list(graph.items.values()):
        if not isinstance(item, Tensor) or not _is_elementwise(graph, item):
            continue
        users = [user for user in graph.users(item.name) if isinstance(user, Tensor) and reductions(user.body)]
        sites = [(user, node) for user in users for node in loads(user.body) if node.tensor == item.name]
        for position in range(len(item.axes)):
            if not any(_sums_over(user, node.indices[position].atom) for user, node in sites):
                continue
            columns = _Columns.of(graph, item, position)
            if columns is not None:
                columns.split()
                break


def _is_elementwise(graph: UseDef, tensor: Tensor) -> bool:
    return tensor.name not in graph.kept and not reductions(tensor.body)


@dataclass
class _Columns:
    """Values of the same flat columns, by the position of that axis among theirs, and the extents of its parts."""

    graph: UseDef
    positions: dict[str, int]
    flat: Dim
    extents: tuple[Dim, ...]

    @staticmethod
    def of(graph: UseDef, first: Tensor, position: int) -> _Columns | None:
        """The columns of a value that sums walk through, and of what is computed from it element by element; None where
        somebody reads them in another way than as these, or as the same axes joined."""
        positions, pending = {first.name: position}, [first]
        found: set[tuple[Dim, ...]] = set()
        while pending:
            tensor = pending.pop()
            for user in graph.users(tensor.name):
                if not isinstance(user, Tensor):
                    return None
                for node in loads(user.body):
                    if node.tensor != tensor.name:
                        continue
                    place = node.indices[positions[tensor.name]]
                    own = [n for n, axis in enumerate(user.axes) if axis is place.atom]
                    if own and _is_elementwise(graph, user) and not node.guards:
                        if positions.get(user.name, own[0]) != own[0]:
                            return None
                        pending += [] if user.name in positions else [user]
                        positions[user.name] = own[0]
                    elif node.guards or not _sums_over(user, place.atom):
                        axes = merged_axes(place)
                        if own or node.guards or axes is None or len(axes) < 2:
                            return None
                        found.add(tuple(axis.extent for axis in axes))
        flat = first.axes[position].extent
        if len(found) != 1 or product(*found) is not flat:
            return None
        return _Columns(graph, positions, flat, *found)

    def split(self) -> None:
        """Writes the parts in the place of the flat axis, here and in whoever reads it."""
        graph = self.graph
        read = [node.tensor for name in self.positions for node in loads(_tensor(graph, name).body)]
        sources = dict.fromkeys(read)
        readers = dict.fromkeys(key_of(user) for name in (*self.positions, *sources) for user in graph.users(name))
        for name, position in self.positions.items():
            tensor = _tensor(graph, name)
            axis = tensor.axes[position]
            parts = _parts(axis, self.extents)
            axes = (*tensor.axes[:position], *parts, *tensor.axes[position + 1 :])
            graph.put(replace(tensor, axes=axes, body=_over(parts, axis, tensor.body)))
        for key in readers:
            user = graph.items[key]
            if isinstance(user, Tensor):
                summed = transform(user.body, lambda node: self._summed(node, sources))
                graph.put(replace(user, body=substitute_loads(summed, self._read)))

    def _summed(self, node: Expr, sources: Container[str]) -> Expr | None:
        """A sum over the columns, or over what they are computed from, taken over the parts."""
        if not isinstance(node, Reduce) or node.kind not in _KINDS or len(node.axes) != 1:
            return None
        (axis,) = node.axes
        read = (site.tensor for site in loads(node.body))
        if axis.extent is not self.flat or not any(name in self.positions or name in sources for name in read):
            return None
        parts = _parts(axis, self.extents)
        return reduce(node.kind, parts, _over(parts, axis, node.body))

    def _read(self, node: Load) -> Expr | None:
        position = self.positions.get(node.tensor)
        if position is None:
            return None
        axes = merged_axes(node.indices[position])
        assert axes is not None, "each reader joins the parts, or walks through them"
        indices = (*node.indices[:position], *(axis.dim for axis in axes), *node.indices[position + 1 :])
        return load(node.tensor, node.dtype, indices)


def _tensor(graph: UseDef, name: str) -> Tensor:
    item = graph.items[name]
    assert isinstance(item, Tensor)
    return item


def _sums_over(tensor: Tensor, axis: Atom | None) -> bool:
    return any(node.kind in _KINDS and node.axes == (axis,) for node in reductions(tensor.body))


def _parts(axis: Axis, extents: Sequence[Dim]) -> tuple[Axis, ...]:
    return tuple(Axis(f"{axis.name}_{n}", extent) for n, extent in enumerate(extents))


def _over(parts: Sequence[Axis], axis: Axis, body: Expr) -> Expr:
    """The body over the parts of an axis: its quotients and remainders are the parts, whatever their extents may be."""
    digits: list[tuple[Dim, Axis]] = []
    stride = ONE
    for n, part in reversed(list(enumerate(parts))):
        quotient = floordiv(axis.dim, stride)
        digits.append((mod(quotient, part.extent) if n else quotient, part))
        stride = stride * part.extent
    joined = row_major([part.dim for part in parts], [part.extent for part in parts])

    def rewrite(dim: Dim) -> Dim:
        for digit, part in digits:
            factor = None if digit.atom is None else dim.coefficient(digit.atom)
            dim = dim if factor is None else dim + factor * (part.dim - digit)
        return dim.substitute({axis: joined})

    return transform(body, lambda node: None, rewrite)
