"""The cost of a program without fusion: each node of the graph as a kernel of its own.

A node reads from memory what other nodes compute and writes what others read; its intermediates stay local. A view,
such as a Reshape, is not a kernel and moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opweld.tensor.cost import Count, flops, read_bytes, size_in_bytes
from opweld.tensor.dim import ZERO, Dim, minimum, row_major
from opweld.tensor.expr import Load
from opweld.tensor.program import Item, Tensor, TensorProgram, item_inputs, item_outputs


@dataclass(frozen=True)
class NodeCost:
    """The cost of a node.

    Attributes:
        node: its name; "" for items without a node.
        count: operations. read, written: bytes.
        launches: 1, or 0 for a view.
        values: bytes of its results that others read, moved or not.
    """

    node: str
    count: Count
    read: Dim
    written: Dim
    launches: int
    values: Dim


def unfused(program: TensorProgram) -> list[NodeCost]:
    """The costs of the nodes that a program was lowered from, in their order. For programs before fusion."""
    groups: dict[str, list[Item]] = {}
    for item in program.items:
        groups.setdefault(item.origin[0] if item.origin else "", []).append(item)
    readers: dict[str, set[str]] = {name: {"output of the program"} for _, name in program.outputs}
    for node, items in groups.items():
        for item in items:
            for name in item_inputs(item):
                readers.setdefault(name, set()).add(f"node {node}")
    return [_node_cost(program, node, items, readers) for node, items in groups.items()]


def _node_cost(program: TensorProgram, node: str, items: Sequence[Item], readers: Mapping[str, set[str]]) -> NodeCost:
    signatures = program.signatures
    own = {name for item in items for name in item_outputs(item)}
    read: dict[str, Dim] = {}
    for item in items:
        for name in item_inputs(item):
            if name not in own:
                whole = size_in_bytes(*signatures[name])
                read[name] = minimum(whole, read.get(name, ZERO) + read_bytes(item, name, signatures))
    left = [name for item in items for name in item_outputs(item) if readers.get(name, set()) - {f"node {node}"}]
    written = sum((size_in_bytes(*signatures[name]) for name in left), ZERO)
    still = all(is_view(item, program) for item in items)
    return NodeCost(
        node=node,
        count=sum(map(flops, items), Count()),
        read=ZERO if still else sum(read.values(), ZERO),
        written=ZERO if still else written,
        launches=0 if still else 1,
        values=written,
    )


def is_view(item: Item, program: TensorProgram) -> bool:
    """Whether an item has the elements of another value in the same order."""
    if not isinstance(item, Tensor) or not isinstance(item.body, Load) or item.body.guards:
        return False
    shape = program.shape_of(item.body.tensor)
    return row_major(item.body.indices, shape) is row_major((axis.dim for axis in item.axes), item.shape)
