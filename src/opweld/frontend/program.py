"""`Program`: the result of a front end, and all that the rest of the compiler reads of a model.

A front end is a `Source` (see `opweld.frontends`) whose `read` returns a `Program`. Later stages know neither the
file's format nor the library that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from opweld.interface import ModelMetadata, StateInfo, Structure, TensorInfo
from opweld.ledger import Ledger
from opweld.record import FileNode, NodeEntry
from opweld.tensor.costed import costed_nodes
from opweld.tensor.flow import Flow

Shape: TypeAlias = tuple[int | str, ...]
"""Fixed sizes, and names of dynamic dims; "" for a dynamic dim without a name."""


@dataclass(frozen=True)
class Description:
    """The interface of a model, and what it says about itself.

    Attributes:
        inputs, outputs: of compiled code: name, dtype, and shape with the names of the dynamic dims.
        declared_shapes: the shapes of outputs, which callers see; None where not even the rank is declared.
        metadata: the model's own: producer, version, texts.
        nodes: the number of nodes, those of bodies of control flow included.
        structure: how callers see inputs and outputs, where some are not numeric tensors.
        states: the values that live between runs; they are neither inputs nor outputs.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    declared_shapes: tuple[Shape | None, ...]
    metadata: ModelMetadata
    nodes: int
    structure: Structure | None = None
    states: tuple[StateInfo, ...] = ()


@dataclass(frozen=True, eq=False)
class Program:
    """A model as tensor programs, before any decision about kernels.

    Attributes:
        flow: what it computes.
        description: its interface and metadata.
        ledger: holds the decisions of graph rewriting; later stages add theirs.
        costs: the costs of each tensor program's nodes before rewriting, by the program's name.
        nodes: the nodes of the file, so that each can be traced to its kernel.
        parameters: elements and bytes of each stored tensor that counts as parameters, by name.
        external: its external data files, by name relative to `Source.folder`; a cached artifact is valid only while
            they are unchanged.
    """

    flow: Flow
    description: Description
    ledger: Ledger
    costs: Mapping[str, tuple[NodeEntry, ...]]
    nodes: tuple[FileNode, ...] = ()
    parameters: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, "tuple[int, int]"])
    external: tuple[str, ...] = ()


def costs_of(flow: Flow) -> dict[str, tuple[NodeEntry, ...]]:
    """The costs of the nodes of each tensor program, by its name."""
    return {program.name: costed_nodes(program) for segment in flow.segments for program in segment.programs}
