"""Graphs of AOTAutograd: functional, with parameters among the inputs and writes to inputs at the end."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import fx

from opweld.errors import UnsupportedError
from opweld.frontend.torch.assertions import assertions
from opweld.frontend.torch.builder import elements
from opweld.frontend.torch.convention import CallingConvention, Layout, Literal, Returned, ViewOutput
from opweld.frontend.torch.devices import device_of
from opweld.frontend.torch.imported import Imported
from opweld.frontend.torch.importer import Importer
from opweld.frontend.torch.views import root_of, view_nodes, views_of


@dataclass(frozen=True, eq=False)
class ImportedGraph:
    """A graph as a model, and how it is called."""

    imported: Imported
    convention: CallingConvention


def imported_graph(
    gm: fx.GraphModule, frozen: Mapping[int, torch.Tensor], sources: Mapping[int, str] | None = None
) -> ImportedGraph:
    """A graph of AOTAutograd, with these inputs, by position, as constants. Raises UnsupportedError naming node,
    operator and line, or tensors on different devices, which `sources` calls as the program does."""
    device = device_of(gm.graph, sources)
    holes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    place = {node: position for position, node in enumerate(holes)}
    written = _writes(gm, place)
    parameters = {holes[i].name: t for i, t in frozen.items() if holes[i] not in {node for node, _ in written}}
    returned: list[Returned] = []
    made: dict[fx.Node, str] = {}
    (end,) = (node for node in gm.graph.nodes if node.op == "output")
    ends = end.args[0]
    outputs = [value for value in elements(ends) if isinstance(value, fx.Node)]
    bases = list(dict.fromkeys([*holes, *(value for _, value in written)]))
    # Outputs share memory with each other too: what is written to one may show in another.
    bases.extend(_shared(outputs, {*view_nodes(gm, bases), *bases}))
    made.update((base, base.name) for base in bases if base not in place)
    views = views_of(gm, bases, outputs)
    for value in elements(ends):
        if not isinstance(value, fx.Node):
            returned.append(Literal(value))
        elif _writes_to_input(value):  # what was written is what the input holds
            returned.append(place[cast("fx.Node", value.args[0])])
        elif value in place:
            returned.append(place[value])
        elif views is not None and value in views.outputs:
            returned.append(ViewOutput(views.outputs.index(value)))
        else:
            returned.append(made.setdefault(value, value.name))
    mutated: list[tuple[int, str]] = []
    for hole, value in written:
        mutated.append((place[hole], made.setdefault(value, value.name)))
    checks: list[tuple[str, str]] = []
    for condition, message in assertions(gm.graph):
        checks.append((made.setdefault(condition, condition.name), message))
    importer = Importer(parameters)
    graph, nodes = importer.run(gm.graph, gm, list(made.values()), list(made))
    convention = CallingConvention(
        fed=tuple((value.name, place[node]) for node, value in importer.inputs.items()),
        made=tuple((name, Layout.of(node.meta["val"], device)) for node, name in made.items()),
        returned=tuple(returned),
        single=isinstance(ends, fx.Node),
        mutated=tuple(mutated),
        checks=tuple(checks),
        views=None if views is None else views.module,
        bases=() if views is None else tuple(place[base] if base in place else made[base] for base in bases),
        device=device,
    )
    return ImportedGraph(Imported(graph, nodes, "torch.compile"), convention)


def refused_nodes(gm: fx.GraphModule) -> dict[fx.Node, str]:
    """The nodes of a graph of AOTAutograd that cannot be imported, and why."""
    return Importer({}).refused(gm.graph, gm)


def _shared(outputs: Sequence[fx.Node], known: Collection[fx.Node]) -> Iterator[fx.Node]:
    """What several outputs are views of, or one and another itself, but for those that are known."""
    tensors = (value for value in dict.fromkeys(outputs) if isinstance(value.meta.get("val"), torch.Tensor))
    roots = collections.Counter(root_of(own) for own in tensors if own not in known and not _writes_to_input(own))
    yield from (root for root, count in roots.items() if count > 1 and root.op == "call_function" and root not in known)


def _writes_to_input(node: fx.Node) -> bool:
    return node.op == "call_function" and str(node.target) == "aten.copy_.default"


def _writes(gm: fx.GraphModule, place: Mapping[fx.Node, int]) -> list[tuple[fx.Node, fx.Node]]:
    """(input, value that is written to it) of each `copy_` at the end of a graph."""
    found: list[tuple[fx.Node, fx.Node]] = []
    for node in gm.graph.nodes:
        if _writes_to_input(node):
            target, value = node.args[0], node.args[1]
            if target not in place or not isinstance(value, fx.Node):
                raise UnsupportedError(f"node {node.name!r} writes to what is no input")
            found.append((target, value))
    return found
