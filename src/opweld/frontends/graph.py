"""From a graph of operators to a program: the part that front ends of graphs share."""

from __future__ import annotations

from collections.abc import Mapping

from opweld import ir
from opweld.frontend.description import describe
from opweld.frontend.explore import segments
from opweld.frontend.explored import explored_nodes
from opweld.frontend.output_shapes import Library
from opweld.frontend.program import Program, costs_of
from opweld.frontend.states import input_names
from opweld.interface import ModelMetadata, Structure
from opweld.ledger import Ledger
from opweld.lower import to_flow
from opweld.options import Options
from opweld.record import FileNode
from opweld.stages import Stage


def graph_program(
    graph: ir.Graph,
    options: Options,
    ledger: Ledger,
    stage: Stage,
    *,
    metadata: ModelMetadata,
    nodes: tuple[FileNode, ...] = (),
    parameters: Mapping[str, tuple[int, int]] | None = None,
    external: tuple[str, ...] = (),
    structure: Structure | None = None,
    library: Library | None = None,
    unwritten: ir.Graph | None = None,
) -> Program:
    """The program of a graph: explored, lowered, described.

    Args:
        graph: its inputs declare dtype and shape; a named dim is a symbol. ledger: decisions so far.
        metadata, nodes, parameters, external: see `Program`; the nodes' `called` refers to those of the graph.
        structure: how callers see inputs and outputs, if some are not numeric tensors.
        library: the shapes of outputs that other runtimes infer.
        unwritten: the graph before rewriting, if rewriting changed it: costs of nodes refer to it.

    Raises ModelError, UnsupportedError and OptionError as `Source.read`.
    """
    states = input_names(graph, options.states)
    found = stage("explore", segments, graph, options.dims, states)
    flow = stage("lower", to_flow, found)
    costs = costs_of(flow)
    if unwritten is not None:
        costs |= costs_of(stage("costs", lambda: to_flow(segments(unwritten, options.dims, states))))
    return Program(
        flow=flow,
        description=describe(found, options.dims, metadata, structure, library),
        ledger=ledger,
        costs=costs,
        nodes=explored_nodes(nodes, found),
        parameters=parameters or {},
        external=external,
    )
