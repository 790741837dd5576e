"""What a front end makes of a model: all that the rest of the compiler reads.

A front end is a `Source` (see `opweld.frontends`): it takes a model as callers have it, and its `read` gives a
`Program`. What comes after knows neither the file's format nor the library that reads it.
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
"""Sizes, and names of dims that vary; "" for a dim without name."""


@dataclass(frozen=True)
class Description:
    """What a model says about itself.

    Attributes:
        inputs, outputs: of compiled code: name, dtype, and shape with the names of the dims that vary.
        told: the shapes of outputs as programs are told them; None where not even the rank is.
        metadata: names and texts.
        nodes: how many there are, those of bodies of control flow included.
        structure: how callers see inputs and outputs, where some are no tensors of numbers.
        states: the values that live between runs; they are neither inputs nor outputs.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    told: tuple[Shape | None, ...]
    metadata: ModelMetadata
    nodes: int
    structure: Structure | None = None
    states: tuple[StateInfo, ...] = ()


@dataclass(frozen=True, eq=False)
class Program:
    """A model as tensor programs, before anything is decided of kernels.

    Attributes:
        flow: what it computes.
        description: what it says about itself.
        ledger: holds what rewriting decided, and decides from here on.
        costs: by the name of a tensor program, what its nodes cost before anything was rewritten.
        nodes: the nodes of the file, for whoever follows one of them to its kernel.
        parameters: elements and bytes of each stored tensor that counts as parameters, by name.
        external: the files beside that of the model which it is made of, by name relative to `Source.folder`; an
            artifact is that of a model as long as they have not changed.
    """

    flow: Flow
    description: Description
    ledger: Ledger
    costs: Mapping[str, tuple[NodeEntry, ...]]
    nodes: tuple[FileNode, ...] = ()
    parameters: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, "tuple[int, int]"])
    external: tuple[str, ...] = ()


def costs_of(flow: Flow) -> dict[str, tuple[NodeEntry, ...]]:
    """What the nodes of each tensor program cost, by its name."""
    return {program.name: costed_nodes(program) for segment in flow.segments for program in segment.programs}
