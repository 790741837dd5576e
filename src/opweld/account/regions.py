"""Writes the outcome of each node into the model's metadata, for graph viewers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import onnx_ir as ir

from opweld import __version__
from opweld.account.account import Account
from opweld.account.outcomes import ALONE, FUSED, Outcome
from opweld.account.summary import bytes_text, seconds_text
from opweld.frontend.recorded import nodes_in_order
from opweld.record import KernelEntry
from opweld.rewrite.functions import WITH_VALUES, Group, make_functions

KERNELS = "opweld.kernels"
"""Metadata of a node: the kernels that compute it, in the names of `opweld explain`; of the model: their number and the
target. Also the domain of functions that represent kernels."""

OUTCOME = "opweld.outcome"
"""Metadata of a node: its outcome, see `outcomes.MEANINGS`."""

Form: TypeAlias = Literal["metadata", "functions"]
"""How regions are written: as metadata of nodes, or also as a function for each kernel of several nodes."""

Kernels: TypeAlias = Sequence[tuple[str, KernelEntry]]
"""Kernels with their names."""


@dataclass(frozen=True)
class Kept:
    """The regions written into a model.

    Attributes:
        kernels: those with nodes, by name, and the number of nodes of each.
        functions: those that are functions.
        refused: kernels of several nodes that are not functions, and why.
    """

    kernels: Mapping[str, int]
    functions: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict[str, str])


def keep_regions(model: ir.Model, account: Account, target: str, form: Form) -> Kept:
    """Annotates the nodes of a model, in place, with the kernels that compute them when compiled for a target.

    `account` is of the file of this model. A function contains the nodes that only its kernel computes, and of shared
    ones the most expensive; index arithmetic of several kernels stays outside."""
    held: dict[str, int] = {}
    groups: dict[str, list[ir.Node]] = {}
    entries: dict[str, KernelEntry] = {}
    for node, file in zip(nodes_in_order(model), account.record.nodes, strict=True):
        outcome = account.outcomes.of(file)
        kernels = _kernels(account, outcome)
        node.metadata_props.pop(KERNELS, None)
        node.metadata_props[OUTCOME] = outcome.kind
        if not kernels:
            continue
        node.metadata_props[KERNELS] = ", ".join(name for name, _ in kernels)
        for name, entry in kernels:
            held[name] = held.get(name, 0) + 1
            entries[name] = entry
        if len(kernels) == 1 or outcome.kind in (FUSED, ALONE):
            groups.setdefault(max(kernels, key=lambda own: own[1].seconds)[0], []).append(node)
    model.ir_version = max(model.ir_version, WITH_VALUES)
    model.metadata_props[KERNELS] = f"{len(account.kernels)} for {target}, by opweld {__version__}"
    if form == "metadata":
        return Kept(held)
    several = [_group(name, nodes, entries[name]) for name, nodes in groups.items() if len(nodes) > 1]
    refused = make_functions(model, several, KERNELS)
    return Kept(held, [group.name for group in several if group.name not in refused], refused)


def _kernels(account: Account, outcome: Outcome) -> Kernels:
    """The kernels that compute a node: for each segment, those of the likeliest variant that has some."""
    several = len(account.record.variants) > 1
    segments = {variant.name: variant.segment for variant in account.record.variants}
    likeliest: dict[int, str] = {}
    for name in segments:
        if any(variant == name for variant, _ in outcome.kernels):
            likeliest.setdefault(segments[name], name)
    return [
        (f"{variant}: {kernel.name}" if several else kernel.name, kernel)
        for variant, kernel in outcome.kernels
        if likeliest[segments[variant]] == variant
    ]


def _group(name: str, nodes: Sequence[ir.Node], kernel: KernelEntry) -> Group:
    text = f"predicted to take {seconds_text(kernel.seconds)} on one core and to move {bytes_text(kernel.bytes)}"
    return Group(name.replace(": ", "_"), nodes, text, {KERNELS: name, OUTCOME: FUSED})
