"""The ranges of integer inputs that are used as indices, for whoever generates inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opweld.tensor.atoms import Value
from opweld.tensor.dim import Dim, as_dim, atoms_of
from opweld.tensor.expr import Binary, Const, Expr, Index, dims_of, loads, walk
from opweld.tensor.program import Extern, Tensor, TensorProgram


def indexed_by_inputs(program: TensorProgram) -> Mapping[str, tuple[Dim, ...]]:
    """For each integer input, the extents of the axes that its elements index, directly or through integers computed
    from them, in loads at run-time indices and in scattered writes."""
    inputs = {value.name for value in program.inputs if value.dtype.is_integer}
    tensors = {item.name: item for item in program.items if isinstance(item, Tensor)}
    reached: dict[str, frozenset[str]] = {name: frozenset({name}) for name in inputs}
    for name, tensor in tensors.items():
        if tensor.dtype.is_integer:
            reached[name] = _reached(tensor.body, reached)
    found: dict[str, dict[Dim, None]] = {}
    for item in program.items:
        for expr, extent in _chosen(item, tensors):
            for name in _reached(expr, reached):
                found.setdefault(name, {})[extent] = None
    return {name: tuple(extents) for name, extents in found.items()}


def _reached(expr: Expr, reached: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*(reached.get(load.tensor, frozenset()) for load in loads(expr)))


def _chosen(item: object, tensors: Mapping[str, Tensor]) -> Iterator[tuple[Expr, Dim]]:
    """Integers used as indices of an axis, and its extent."""
    if isinstance(item, Tensor):
        for node in walk(item.body):
            for value in (atom for dim in dims_of(node) for atom in atoms_of(dim) if isinstance(atom, Value)):
                yield value.expr, value.extent
    if isinstance(item, Extern) and item.function.startswith("scatter"):
        # The linear index is computed before, and compared with the extent of the axis.
        for tensor in (tensors[name] for name in item.operands if name in tensors and tensors[name].dtype.is_integer):
            for node in walk(tensor.body):
                if isinstance(node, Binary) and node.op == "ge" and isinstance(node.y, Index | Const):
                    yield node.x, node.y.dim if isinstance(node.y, Index) else as_dim(int(node.y.value))
