"""Outputs that are views of inputs: they are made of the inputs themselves, for AOTAutograd reads sizes, strides and
the offset of such an output, and makes it anew over the caller's tensor."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import getitem

import torch
from torch import fx
from torch._ops import OpOverload

from opweld.frontend.torch.symbolic import FUNCTIONS

_SIZES = {getitem, *FUNCTIONS, torch.ops.aten.sym_stride.int, torch.ops.aten.sym_storage_offset.default}
"""What makes sizes for views: of sizes, and of how a tensor lies in memory."""


@dataclass(frozen=True, eq=False)
class Views:
    """Outputs that are views. module: makes them of the tensors that `bases` are, in order, and of the numbers."""

    module: fx.GraphModule
    bases: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]


def view_nodes(gm: fx.GraphModule, bases: Collection[fx.Node]) -> set[fx.Node]:
    """The nodes that make views of these, and sizes for views."""
    found = set(bases)
    for node in gm.graph.nodes:
        if node.op == "call_function" and is_view(node) and found.issuperset(node.all_input_nodes):
            found.add(node)
    return found.difference(bases)


def is_view(node: fx.Node) -> bool:
    """Whether a node makes a view of what it is given, or a size."""
    target = node.target
    return target in _SIZES or (isinstance(target, OpOverload) and target.is_view)


def root_of(node: fx.Node) -> fx.Node:
    """What a node is a view of, in the end; the node itself where it is none."""
    while node.op == "call_function" and is_view(node):
        source = next(iter(node.all_input_nodes), None)
        if source is None or (node.target is getitem and not is_view(source)):
            break
        node = source
    return node


def views_of(gm: fx.GraphModule, bases: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> Views | None:
    """The outputs that are views of these; None where there are none."""
    nodes = view_nodes(gm, bases)
    chosen = tuple(
        dict.fromkeys(own for own in outputs if own in nodes and isinstance(own.meta.get("val"), torch.Tensor))
    )
    if not chosen:
        return None
    graph = fx.Graph()
    made = {node: graph.placeholder(node.name) for node in bases}
    for node in gm.graph.nodes:
        if node in nodes:
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.output([made[node] for node in chosen])
    graph.eliminate_dead_code()
    return Views(fx.GraphModule(gm, graph), tuple(bases), chosen)
