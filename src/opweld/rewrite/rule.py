"""Rewrite rules: a rule matches a node and returns a replacement, the reason why there can be none, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import onnx_ir as ir

if TYPE_CHECKING:
    from opweld.rewrite.scope import Scope


@dataclass(frozen=True)
class Proposal:
    """A legal replacement of a node.

    Attributes:
        reason: why it is equivalent, in a phrase.
        apply: changes the graph; called at once or not at all.
        nodes: the other nodes that are replaced or used, beside the matched one.
        saved: bytes that are no longer read and written, or stored; None where not counted.
        unwanted: why it does not pay, where it does not: then only a pin applies it.
    """

    reason: str
    apply: Callable[[], None]
    nodes: tuple[ir.Node, ...] = ()
    saved: int | None = None
    unwanted: str = ""


@dataclass(frozen=True)
class Refusal:
    """A near miss: the node matches, but a condition fails. `failed` has the values of the predicate."""

    reason: str
    failed: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])
    nodes: tuple[ir.Node, ...] = ()


class Rule:
    """A rewrite of one idea. It is stateless; facts about the graph come from the scope.

    Attributes:
        name: `rewrite.something`, a key of `rules.REWRITES`; of another package's rule, `package.something`.
        operators: the operators of the nodes that it matches at: the last node of what it replaces. `domain::Name`
            where the domain is not ONNX's default.
        level: of another package's rule, the lowest level that applies it; opweld's own have it in the table.
        measured: whether the replacement, such as a hand-written kernel, must prove right and faster first: the node
            stays until a compilation on this machine has run the model both ways, see `tune/candidates.py`.
        formula: whether it replaces a formula of several nodes. Where it does not match, near misses are then searched
            for by matching again under one supposition (`near_misses.py`).
    """

    name: ClassVar[str]
    operators: ClassVar[tuple[str, ...]]
    level: ClassVar[str] = "all"
    measured: ClassVar[bool] = False
    formula: ClassVar[bool] = False

    def occurs(self, node: ir.Node) -> bool:
        """Whether a node of its operators may match, judged without any inferred facts: where no node of a model may,
        compiling skips the inference for rewriting. True unless a rule overrides it."""
        return True

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """The replacement of the node, or why it is not possible; None where the rule does not match."""
        raise NotImplementedError


class Pass:
    """A rewrite of a whole graph instead of one node. It is stateless; `name` and `level` are as a rule's."""

    name: ClassVar[str]
    level: ClassVar[str] = "all"

    def run(self, scope: Scope) -> Iterator[tuple[ir.Node, Proposal | Refusal]]:
        """Yields possible rewrites with their nodes. Each proposal is decided, and applied where it is granted, before
        the pass continues."""
        raise NotImplementedError


def handed_on(node: ir.Node, source: ir.Value, scope: Scope, reason: str, *nodes: ir.Node) -> Proposal | Refusal:
    """Replaces the node's output by `source` in all readers; a refusal where the output is one of the model's."""
    output = node.outputs[0]
    if not scope.replaceable(output, source):
        return Refusal("it names an output of the model", {"output": output.name or ""})
    return Proposal(reason, lambda: scope.replace(output, source), nodes, scope.traffic(output))


def second_reader(nodes: Sequence[ir.Node]) -> Refusal | None:
    """A refusal where another node reads a result of one of these nodes; the first one's results do not count."""
    for node in nodes[1:]:
        for value in node.outputs:
            others = sum(use.node not in nodes for use in value.uses())
            if others or value.is_graph_output():
                return read_elsewhere(value, others, nodes[1:])
    return None


def read_elsewhere(value: ir.Value, others: int, nodes: Sequence[ir.Node]) -> Refusal:
    """The refusal because other nodes read a value that one of these nodes computes."""
    producer, failed = value.producer(), dict[str, int | str]({"value": value.name or "", "other readers": others})
    if value.is_graph_output():
        failed["output"] = value.name or ""
    operator = "a value" if producer is None else producer.op_type
    return Refusal(f"{operator} inside of it is read elsewhere too", failed, tuple(nodes))
