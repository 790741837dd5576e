"""An ONNX model in, one that gives the same with less out: in its own opset, under the same names."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import (
    InlinePass,
    LiftConstantsToInitializersPass,
    NameFixPass,
    RemoveInitializersFromInputsPass,
    RemoveUnusedOpsetsPass,
    TopologicalSortPass,
)

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend import onnx as frontend
from opweld.frontend.contributed import MICROSOFT
from opweld.ledger import Ledger
from opweld.ops.fact import Fact
from opweld.rewrite.engine import rewrite
from opweld.rewrite.facts import certain_facts
from opweld.rewrite.passes.dead import remove_dead
from opweld.rewrite.passes.fold import fold
from opweld.rewrite.passes.merge import merge_nodes, merge_tensors
from opweld.rewrite.rule import Rule
from opweld.rewrite.rules.activations import Gelu, HardSigmoid, HardSwish, Mish, Swish
from opweld.rewrite.rules.linear import BatchNormalization, Gemm, OneSlope, Padding, Scale, Shift
from opweld.rewrite.rules.pairs import Casts, ConcatSlice, Reshapes, SplitConcat, Transposes
from opweld.rewrite.rules.redundant import Redundant
from opweld.rewrite.rules.target import Target
from opweld.rewrite.scope import Scope

log = logging.getLogger("opweld")

RULES: Sequence[Rule] = (
    Redundant(), Target(), Transposes(), Reshapes(), Casts(), SplitConcat(), ConcatSlice(),
    BatchNormalization(), Shift(), Scale(), Padding(), Gemm(), OneSlope(),
    Gelu(), Swish(), Mish(), HardSwish(), HardSigmoid(),
)  # fmt: skip
"""In the order in which they are asked."""

GROWTH = 100
"""Folded values may add a part of the model's bytes, one by this, where as much goes elsewhere."""

WITH_IR_4 = 4
"""The IR version since which stored tensors need not be inputs."""


@dataclass(frozen=True)
class Optimized:
    """A rewritten model, and what it was.

    Attributes:
        model: valid ONNX at the opset of the original, with its inputs, outputs and metadata.
        before, after: numbers of nodes by operator, those of bodies and functions included.
        notes: what could not be done, in sentences.
    """

    model: ir.Model
    ledger: Ledger
    before: Mapping[str, int]
    after: Mapping[str, int]
    notes: Sequence[str] = field(default_factory=list[str])


def optimize_model(
    model: str | Path | bytes | onnx.ModelProto, opened: Callable[[], Ledger] = Ledger, contributed: bool = False
) -> Optimized:
    """Rewrites a model as a ledger decides, an empty one of `opened`. The original is left untouched, and is never the
    smaller one. `contributed`: operators of com.microsoft may be written too.

    Raises ModelError for whatever is malformed or unsafe. Of a model with operators that opweld does not know, what
    hangs on them is left as it is, which the notes say.
    """
    plain = _opened(model)
    before, size = operators(plain), _size(plain)
    if plain.functions:
        InlinePass()(plain)
        model = ir.serde.serialize_model(plain)  # so that inference and rules speak of the same values
    notes: list[str] = []
    facts: Mapping[str, Fact] = {}
    try:
        facts = certain_facts(frontend.load(model))
    except UnsupportedError as error:
        notes.append(f"sizes and types are not known: {error}")
    rewritten, ledger = _rewritten(plain.clone(), facts, opened(), size // GROWTH, contributed)
    if _size(rewritten) > size:
        rewritten, ledger = _rewritten(plain, facts, opened(), 0, contributed)
    return Optimized(rewritten, ledger, before, operators(rewritten), notes)


def _rewritten(
    model: ir.Model, facts: Mapping[str, Fact], ledger: Ledger, growth: int, contributed: bool
) -> tuple[ir.Model, Ledger]:
    RemoveInitializersFromInputsPass()(model)
    model.ir_version = max(model.ir_version, WITH_IR_4)
    TopologicalSortPass()(model)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    scope = Scope(model, facts, contributed)
    remove_dead(scope, ledger)
    fold(scope, ledger, growth)
    merge_tensors(scope, ledger)
    merge_nodes(scope, ledger)
    rewrite(scope, RULES, ledger)
    if contributed:
        model.opset_imports.setdefault(MICROSOFT, 1)  # unused ones go below
    ledger.check_names()
    TopologicalSortPass()(model)
    NameFixPass()(model)  # a node that stands for two has the name of the last
    RemoveUnusedOpsetsPass()(model)
    for value in model.graph.initializers.values():
        if not value.is_graph_output():
            value.type = value.shape = None  # the tensor says both; the file would say them twice
    _correct(scope)
    return model, ledger


def _correct(scope: Scope) -> None:
    """Declarations that are certainly wrong in rank are none: where nodes say little nobody noticed."""
    for value in (*scope.graph.outputs, *(value for node in scope.graph for value in node.outputs)):
        known = scope.shape(value)
        if value.shape is not None and known is not None and len(value.shape) != len(known):
            value.shape = ir.Shape([dim.constant for dim in known])


def _size(model: ir.Model) -> int:
    """Bytes of the model's file, nearly: of its tensors, and of its nodes."""
    total = sum(int(tensor.nbytes) for tensor in stored_tensors(model))
    for owner in (model.graph, *(function.graph for function in model.functions.values())):
        total += sum(ir.serde.serialize_node(node).ByteSize() for node in owner)
    return total


def _opened(model: str | Path | bytes | onnx.ModelProto) -> ir.Model:
    proto, path = frontend.read_model(model)
    try:
        opened = ir.serde.deserialize_model(proto)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelError(f"the graph is malformed: {str(error)[:300]}") from error
    if path is not None:
        for tensor in stored_tensors(opened):
            if isinstance(tensor, ir.ExternalTensor):
                tensor.base_dir = path.parent
    return opened


def stored_tensors(model: ir.Model) -> list[ir.TensorProtocol]:
    """The tensors that a model holds, those of bodies included."""
    graphs = (model.graph, *model.graph.subgraphs())
    return [v.const_value for graph in graphs for v in graph.initializers.values() if v.const_value is not None]


def operators(model: ir.Model) -> Counter[str]:
    """How many nodes of each operator there are, by its name, with its domain where it is not ONNX's."""
    graphs = (model.graph, *(function.graph for function in model.functions.values()))
    nodes = (node for graph in graphs for node in ir.traversal.RecursiveGraphIterator(graph))
    return Counter(n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}::{n.op_type}" for n in nodes)
