"""Optimises an ONNX model: the result computes the same, in the same opset and with the same interface."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import (
    InlinePass,
    LiftConstantsToInitializersPass,
    RemoveInitializersFromInputsPass,
    RemoveUnusedOpsetsPass,
    TopologicalSortPass,
)

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend import onnx as frontend
from opweld.ledger import Ledger
from opweld.naming import check_names
from opweld.options import Options
from opweld.rewrite.added import Added, added, kinds
from opweld.rewrite.apply import apply, make_names_unique
from opweld.rewrite.facts import Facts, certain_facts
from opweld.rewrite.file import without_large
from opweld.rewrite.passes.branches import take_branches
from opweld.rewrite.passes.dead import remove_dead
from opweld.rewrite.passes.declare import declare_sums
from opweld.rewrite.passes.fold import fold
from opweld.rewrite.passes.merge import merge_nodes, merge_tensors
from opweld.rewrite.passes.sink_initializers import sink_initializers
from opweld.rewrite.rule import Rule
from opweld.rewrite.rules.activations import Gelu, HardSigmoid, HardSwish, Mish, Sigmoid, Swish, TanhGelu
from opweld.rewrite.rules.association import Association
from opweld.rewrite.rules.attention import Attention
from opweld.rewrite.rules.consecutive import Consecutive
from opweld.rewrite.rules.constants import Constants
from opweld.rewrite.rules.distributive import CommonFactor, SumOfProducts
from opweld.rewrite.rules.einsum import Einsum
from opweld.rewrite.rules.fused import BiasGelu, FusedActivation, FusedMatMul
from opweld.rewrite.rules.joined import Axes, Concats, Slices
from opweld.rewrite.rules.linear import BatchNormalization, Gemm, OneSlope, Padding, Scale, ScaleBefore, Shift
from opweld.rewrite.rules.normalization import LayerNormalization, RmsNormalization, SkipNormalization
from opweld.rewrite.rules.pairs import Casts, ConcatSlice, Reshapes, SplitConcat, TransposedBatch, Transposes
from opweld.rewrite.rules.parallel import ParallelConvolutions
from opweld.rewrite.rules.places import OnePlace
from opweld.rewrite.rules.redundant import Redundant
from opweld.rewrite.rules.repeated import Limits, Repeated
from opweld.rewrite.rules.requantized import Requantized
from opweld.rewrite.rules.rotary import RotaryEmbedding
from opweld.rewrite.rules.rotary_parts import RotaryParts
from opweld.rewrite.rules.scaled_past import ScalePast
from opweld.rewrite.rules.selection import Select
from opweld.rewrite.rules.shift_before import ShiftBefore
from opweld.rewrite.rules.siblings import Siblings
from opweld.rewrite.rules.sinking import Pointwise, Sinking
from opweld.rewrite.rules.softmax import LogSoftmax, Softmax
from opweld.rewrite.rules.states import Zeros
from opweld.rewrite.rules.target import Target
from opweld.rewrite.scope import Scope, qualified
from opweld.rules import REWRITES
from opweld.tensor.intern import compilation

log = logging.getLogger("opweld")

RULES: Sequence[Rule] = (
    Redundant(), Target(), Transposes(), TransposedBatch(), Reshapes(), Casts(), SplitConcat(), ConcatSlice(),
    Axes(), Slices(), Concats(), Repeated(), Limits(), Requantized(), Consecutive(), SumOfProducts(),
    BatchNormalization(), Shift(), Scale(), Padding(), Gemm(), OneSlope(), OnePlace(),
    SkipNormalization(), LayerNormalization(), RmsNormalization(), Softmax(), LogSoftmax(),
    RotaryEmbedding(), RotaryParts(), Einsum(), Attention(),
    Gelu(), TanhGelu(), Sigmoid(), Swish(), Mish(), HardSwish(), HardSigmoid(),
    Zeros(), Select(),
)  # fmt: skip
"""In the order in which they are tried."""

LATER: Sequence[Sequence[Rule]] = (
    (
        CommonFactor(), Association(), Siblings(), ParallelConvolutions(), Constants(),
        ScaleBefore(), ShiftBefore(), ScalePast(), Sinking(), Pointwise(),
    ),
    (FusedActivation(), FusedMatMul(), BiasGelu()),
)  # fmt: skip
"""Groups of rules, each added when those before have reached a fixed point: their patterns are easiest to match in the
original form, and no other rule looks into a fused operator."""

GROWTH = 100
"""The first limit on the growth of the file by folding: as many bytes as the model has, since most go when equal
tensors are merged. If the model is larger in the end, the limit is the model's size divided by this; if it still is,
zero."""

WITH_IR_4 = 4
"""The IR version since which stored tensors need not be graph inputs."""


@dataclass(frozen=True)
class Optimized:
    """A rewritten model, and the original.

    Attributes:
        model: valid ONNX at the opset of the original, with its inputs, outputs and metadata.
        original: the original model, parsed.
        folder: of the original and its external data; None if it was not a file.
        before, after: numbers of nodes by operator, including those of bodies and functions.
        notes: remarks about what could not be done, in sentences.
    """

    model: ir.Model
    original: onnx.ModelProto
    folder: Path | None
    ledger: Ledger
    before: Mapping[str, int]
    after: Mapping[str, int]
    notes: Sequence[str] = field(default_factory=list[str])


def optimize_model(
    model: str | Path | bytes | onnx.ModelProto,
    opened: Callable[[], Ledger] = Ledger,
    contributed: bool = False,
    users: Sequence[Added] = (),
) -> Optimized:
    """Rewrites a model as a ledger decides, an empty one of `opened`. The original is not modified, and never smaller
    than the result. `contributed`: operators of com.microsoft may be used too. `users`: rules and passes besides
    opweld's own.

    Raises ModelError for a malformed or unsafe model. Nodes of operators that opweld does not know, and their
    consumers, are not rewritten, which the notes say.
    """
    with compilation():
        return _optimized(model, opened, contributed, users)


def _optimized(
    model: str | Path | bytes | onnx.ModelProto, opened: Callable[[], Ledger], contributed: bool, users: Sequence[Added]
) -> Optimized:
    proto, path = frontend.read_model(model)
    plain = _opened(proto)
    folder = None if path is None else path.parent.absolute()
    before, size = operators(plain), proto.ByteSize() + _beside(plain)
    if plain.functions:
        InlinePass()(plain)
        proto = ir.serde.serialize_model(plain)  # so that inference and rules use the same names
    notes: list[str] = []
    facts = Facts()
    try:
        facts = certain_facts(frontend.load_read(proto, path).model)
    except UnsupportedError as error:
        notes.append(f"sizes and types are not known: {error}")
    for growth in (size, size // GROWTH, 0):
        scope, ledger = _rewritten(plain.clone(), folder, facts, opened(), growth, contributed, users)
        if _size(scope.model) <= size:
            break
    undo = declare_sums(scope)
    if undo is not None and _size(scope.model) > size:
        undo()
    return Optimized(scope.model, proto, folder, ledger, before, operators(scope.model), notes)


def optimize_as_asked(
    model: Path | bytes | onnx.ModelProto, options: Options, contributed: bool = False, rules: Iterable[object] = ()
) -> Optimized:
    """The same by the options of a caller, with these rules and passes and those of installed packages."""
    users = added((*options.rules, *rules))
    ledger_of(options, users)  # unknown names are reported before anything is read
    return optimize_model(model, lambda: ledger_of(options, users), contributed, users)


def ledger_of(options: Options, users: Sequence[Added], granted: Collection[str] | None = None) -> Ledger:
    """An empty ledger of rewriting decisions with these options; `granted` as for `Ledger`."""
    table = {**REWRITES, **kinds(users)}
    if granted is None:
        check_names(options.disable, options.pins, table)
    return Ledger(options.disable, level=options.level, pins=options.pins, granted=granted, rules=table)


def _rewritten(
    model: ir.Model,
    folder: Path | None,
    facts: Facts,
    ledger: Ledger,
    growth: int,
    contributed: bool,
    users: Sequence[Added],
) -> tuple[Scope, Ledger]:
    RemoveInitializersFromInputsPass()(model)
    model.ir_version = max(model.ir_version, WITH_IR_4)
    TopologicalSortPass()(model)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    if folder is not None:
        _locate(model, folder)
    scope = Scope(model, facts, contributed)
    scope.adopt_tensors()
    _rewrite(scope, ledger, growth, users)
    remove_dead(scope, ledger)  # values that only bodies read
    merge_tensors(scope, ledger)  # of different bodies
    ledger.check_names()
    TopologicalSortPass()(model)
    make_names_unique(model)
    RemoveUnusedOpsetsPass()(model)
    for value in model.graph.initializers.values():
        if not value.is_graph_output():
            value.type = value.shape = None  # the tensor has both; the file would store them twice
    _correct(scope)
    sink_initializers(model)
    return scope, ledger


def _rewrite(scope: Scope, ledger: Ledger, growth: int, users: Sequence[Added]) -> None:
    """Rewrites a graph, then its bodies, which use its facts."""
    bodies = list(scope.bodies())  # their nodes may be renamed afterwards
    known = True
    while known:
        remove_dead(scope, ledger)
        _merge(scope, ledger)  # duplicates are folded, and stored, once
        fold(scope, ledger, growth)
        _merge(scope, ledger)
        known = take_branches(scope, bodies, ledger)
    apply(scope, ledger, users, RULES, LATER, lambda: merge_nodes(scope, ledger))
    for owner, body in bodies:
        if owner.graph is scope.graph:
            _rewrite(body, ledger, growth, users)


def _merge(scope: Scope, ledger: Ledger) -> None:
    if not scope.path:
        merge_tensors(scope, ledger)
    merge_nodes(scope, ledger)


def _correct(scope: Scope) -> None:
    """Removes declared shapes of the wrong rank, which other tools may not have noticed."""
    for value in (*scope.graph.outputs, *(value for node in scope.graph for value in node.outputs)):
        known = scope.shape(value)
        if value.shape is not None and known is not None and len(value.shape) != len(known):
            value.shape = ir.Shape([dim.constant for dim in known])


def _size(model: ir.Model) -> int:
    """Bytes of the model's file and of external data, but for a few of each large tensor."""
    small, large = without_large(model)
    return small.ByteSize() + sum(int(tensor.nbytes) for tensor in large.values()) + _beside(model)


def _beside(model: ir.Model) -> int:
    """Bytes of the tensors in external data."""
    return sum(int(tensor.nbytes) for tensor in stored_tensors(model) if isinstance(tensor, ir.ExternalTensor))


def _opened(proto: onnx.ModelProto) -> ir.Model:
    try:
        return ir.serde.deserialize_model(proto)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelError(f"the graph is malformed: {str(error)[:300]}") from error


def _locate(model: ir.Model, folder: Path) -> None:
    """Sets the paths of the external data of a model, which loading has validated.

    Absolute paths: onnx_ir's own check refuses files with several hard links, as installers create them."""
    for value in _stored(model):
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            value.const_value = ir.ExternalTensor(
                folder / tensor.location,
                tensor.offset,
                tensor.length,
                tensor.dtype,
                shape=tensor.shape,
                name=tensor.name,
                doc_string=tensor.doc_string,
                metadata_props=dict(tensor.metadata_props),
            )


def stored_tensors(model: ir.Model) -> list[ir.TensorProtocol]:
    """The stored tensors of a model, including those of bodies."""
    return [value.const_value for value in _stored(model) if value.const_value is not None]


def _stored(model: ir.Model) -> Iterator[ir.Value]:
    graphs = (model.graph, *model.graph.subgraphs())
    return (value for graph in graphs for value in graph.initializers.values())


def operators(model: ir.Model) -> Counter[str]:
    """The number of nodes of each operator, by its name, with its domain if that is not ONNX's."""
    graphs = (model.graph, *(function.graph for function in model.functions.values()))
    nodes = (node for graph in graphs for node in ir.traversal.RecursiveGraphIterator(graph))
    return Counter(map(qualified, nodes))
