"""Graphs of AOTAutograd: functional, with parameters among the inputs and writes to inputs at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import elements
from opweld.frontend.torch.imported import Imported
from opweld.frontend.torch.importer import Importer
from opweld.frontend.torch.views import Views, is_view, view_nodes, views_of


@dataclass(frozen=True)
class Literal:
    """An output that is no tensor: a number that is the same in every run, or None."""

    value: Any


@dataclass(frozen=True, eq=False)
class ImportedGraph:
    """A graph as a model, and how it is called.

    Attributes:
        fed: (name, position among the graph's inputs) of the model's inputs.
        names: of the model's outputs, in order. metas: the tensors that they are, without data.
        returned: of each output of the graph, the name of the model's, the position of the input that it is, a node
            of `views`, or a literal.
        views: outputs that are views of inputs, or of what is written to them. bases: of `views`, names of the model's
            outputs or positions of inputs.
        mutated: (position of the input, name of the output that is written to it).
    """

    imported: Imported
    fed: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    metas: tuple[Any, ...]
    returned: tuple[str | int | fx.Node | Literal, ...]
    mutated: tuple[tuple[int, str], ...]
    views: Views | None
    bases: tuple[str | int, ...]


def imported_graph(gm: fx.GraphModule, frozen: Mapping[int, torch.Tensor]) -> ImportedGraph:
    """A graph of AOTAutograd, with these inputs, by position, as constants. Raises UnsupportedError naming node,
    operator and line."""
    holes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    place = {node: position for position, node in enumerate(holes)}
    written = _writes(gm, place)
    parameters = {holes[i].name: t for i, t in frozen.items() if holes[i] not in {node for node, _ in written}}
    returned: list[str | int | fx.Node | Literal] = []
    made: dict[fx.Node, str] = {}
    ends = next(node for node in gm.graph.nodes if node.op == "output").args[0]
    outputs = [value for value in elements(ends) if isinstance(value, fx.Node)]
    bases = list(dict.fromkeys([*holes, *(value for _, value in written)]))
    # Outputs share memory with each other too: what is written to one may show in another.
    seen = view_nodes(gm, bases)
    more = [own for own in dict.fromkeys(outputs) if own not in seen and not is_view(own) and not _writes_to_input(own)]
    if view_nodes(gm, [*bases, *more]).difference(seen).intersection(outputs):
        bases = list(dict.fromkeys([*bases, *more]))
    views = views_of(gm, bases, outputs)
    for value in elements(ends):
        if not isinstance(value, fx.Node):
            returned.append(Literal(value))
        elif _writes_to_input(value):  # what was written is what the input holds
            returned.append(place[cast("fx.Node", value.args[0])])
        elif value in place:
            returned.append(place[value])
        elif views is not None and value in views.outputs:
            returned.append(value)
        else:
            returned.append(made.setdefault(value, value.name))
    mutated: list[tuple[int, str]] = []
    for hole, value in written:
        mutated.append((place[hole], made.setdefault(value, value.name)))
    importer = Importer(parameters)
    graph, nodes = importer.run(gm.graph, gm, list(made.values()), list(made))
    fed = tuple((value.name, place[node]) for node, value in importer.inputs.items())
    metas = tuple(node.meta["val"] for node in made)
    return ImportedGraph(
        Imported(graph, nodes, "torch.compile"),
        fed,
        tuple(made.values()),
        metas,
        tuple(returned),
        tuple(mutated),
        views,
        tuple(place[base] if base in place else made[base] for base in bases),
    )


def refused_nodes(gm: fx.GraphModule) -> dict[fx.Node, str]:
    """The nodes of a graph of AOTAutograd that cannot be imported, and why."""
    return Importer({}).refused(gm.graph, gm)


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
