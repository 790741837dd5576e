"""Graphs of which some nodes stay in eager mode: the parts between them are compiled."""

from __future__ import annotations

import cmath
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import fx
from torch.fx.node import map_aggregate
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from opweld.frontend.torch.views import view_nodes
from opweld.torch.callable import Compiled, Runnable, emptied


def in_parts(
    graph: fx.GraphModule,
    refused: Mapping[fx.Node, str],
    frozen: Mapping[int, torch.Tensor],
    options: Mapping[str, Any],
) -> Interpreted:
    """A graph as AOTAutograd calls it; each node that is refused is named once."""
    reasons = dict.fromkeys(str(node.target) for node in refused)
    first = next(iter(refused.values()))
    warnings.warn(f"opweld leaves {len(refused)} nodes in eager mode ({', '.join(reasons)}): {first}", stacklevel=2)
    writes = {node.name for node in graph.graph.nodes if str(node.target) == "aten.copy_.default"}
    views = view_nodes(graph, [node for node in graph.graph.nodes if node.op == "placeholder"])
    kept_whole = {own for node in refused for own in _strided_from(node)} | views
    stays = writes | {node.name for node in [*refused, *kept_whole]}

    class Support(OperatorSupportBase):
        def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
            return node.op == "call_function" and node.name not in stays

    partitioner = CapabilityBasedPartitioner(graph, Support(), allows_single_node_partition=True)
    parts = partitioner.partition_and_fuse()
    holes = [node for node in parts.graph.nodes if node.op == "placeholder"]
    kept = {holes[position]: tensor for position, tensor in frozen.items()}
    for node in parts.graph.nodes:
        if node.op == "call_module":
            own = {i: kept[value] for i, value in enumerate(node.args) if value in kept}
            part = cast("fx.GraphModule", parts.get_submodule(str(node.target)))
            parts.set_submodule(str(node.target), Part(Compiled(part, own, options)))
    _name_constants(parts)
    return Interpreted(fx.GraphModule(parts, parts.graph))


class Interpreted(Runnable):
    """Runs a graph node by node in eager mode; what of it is compiled are its submodules."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self._run = graph

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """The outputs for a list of inputs."""
        return self._run(*emptied(inputs))


def _strided_from(node: fx.Node) -> Iterator[fx.Node]:
    """The views that a node tells strides over: compiled, they would have strides of their own."""
    while str(node.target).startswith("aten.as_strided"):
        source = node.args[0]
        if not isinstance(source, fx.Node) or source.op != "call_function":
            return
        yield source
        node = source


def _name_constants(graph: fx.GraphModule) -> None:
    """Complex numbers that are infinite or not a number become attributes: written as code they are `nanj`, no name."""

    def named(argument: Any) -> Any:
        if not isinstance(argument, complex) or cmath.isfinite(argument):
            return argument
        name = next(name for name in map("_constant_{}".format, itertools.count()) if not hasattr(graph, name))
        setattr(graph, name, argument)
        return graph.graph.create_node("get_attr", name)

    for node in list(graph.graph.nodes):
        if node.op in ("call_function", "output"):
            with graph.graph.inserting_before(node):
                node.args, node.kwargs = map_aggregate(node.args, named), map_aggregate(node.kwargs, named)


class Part(torch.nn.Module):
    """A compiled part, called as the module that it was."""

    def __init__(self, compiled: Compiled) -> None:
        super().__init__()
        self._compiled = compiled

    def forward(self, *arguments: Any) -> Any:
        """Its outputs; the only one alone."""
        found = self._compiled(list(arguments))
        return found[0] if self._compiled.single else found
