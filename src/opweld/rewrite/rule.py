"""What a rule is: it looks at a node and says what could stand in its place, or why that may not be, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import onnx_ir as ir

if TYPE_CHECKING:
    from opweld.rewrite.scope import Scope


@dataclass(frozen=True)
class Proposal:
    """Something that may stand in a node's place.

    Attributes:
        reason: why it means the same, in a phrase.
        apply: changes the graph; called at once or not at all.
        nodes: what else it is about, beside the node that was looked at.
        saved: bytes that are no longer read and written, or stored; None where nobody counted.
        unwanted: why it is not worth it, though it means the same: it is there for who insists.
    """

    reason: str
    apply: Callable[[], None]
    nodes: tuple[ir.Node, ...] = ()
    saved: int | None = None
    unwanted: str = ""


@dataclass(frozen=True)
class Refusal:
    """A near miss: the node has the form, but something forbids it. `failed` has the values of the predicate."""

    reason: str
    failed: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])
    nodes: tuple[ir.Node, ...] = ()


class Rule:
    """A rewrite of one idea. It holds no state; what it needs to know of the graph the scope answers.

    Attributes:
        name: `rewrite.something`, a key of `rules.REWRITES`; of another package's rule, `package.something`.
        operators: at whose nodes it looks: the last node of what it replaces. `domain::Name` where the domain is not
            ONNX's default.
        level: of another package's rule, the first level at which it is applied; of opweld's own the table says it.
        measured: whether what it puts there, a kernel written by hand say, must show that it is right and faster: the
            node stays until a compilation on this machine has run the model both ways, see `tune/candidates.py`.
        formula: whether what it replaces is a formula of several nodes, of which near misses are searched for
            (`near.py`): where it has nothing to say, it is asked again with one thing supposed.
    """

    name: ClassVar[str]
    operators: ClassVar[tuple[str, ...]]
    level: ClassVar[str] = "all"
    measured: ClassVar[bool] = False
    formula: ClassVar[bool] = False

    def occurs(self, node: ir.Node) -> bool:
        """Whether a node of its operators may have its form, seen without knowing anything: where none of a model's
        does, compiling need not find out what is known. Every one may, unless a rule says more."""
        return True

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """What could stand in the node's place; None where the rule has nothing to say."""
        raise NotImplementedError


class Pass:
    """A rewrite that is no question of one node. It holds no state; `name` and `level` are as a rule's."""

    name: ClassVar[str]
    level: ClassVar[str] = "all"

    def run(self, scope: Scope) -> Iterator[tuple[ir.Node, Proposal | Refusal]]:
        """Goes over a graph and tells what could be done at which nodes. Each proposal is decided, and applied where it
        is granted, before the pass goes on."""
        raise NotImplementedError


def handed_on(node: ir.Node, source: ir.Value, scope: Scope, reason: str, *nodes: ir.Node) -> Proposal | Refusal:
    """That `source` is read where the node's output is; a refusal where the output is a name of the model's."""
    output = node.outputs[0]
    if not scope.replaceable(output, source):
        return Refusal("it names an output of the model", {"output": output.name or ""})
    return Proposal(reason, lambda: scope.replace(output, source), nodes, scope.traffic(output))


def second_reader(nodes: Sequence[ir.Node]) -> Refusal | None:
    """A refusal where something beside these nodes reads what one of them computes; the first one's result is free."""
    for node in nodes[1:]:
        for value in node.outputs:
            others = sum(use.node not in nodes for use in value.uses())
            if others or value.is_graph_output():
                return read_elsewhere(value, others, nodes[1:])
    return None


def read_elsewhere(value: ir.Value, others: int, nodes: Sequence[ir.Node]) -> Refusal:
    """A refusal since something beside these nodes reads a value that one of them computes."""
    maker, failed = value.producer(), dict[str, int | str]({"value": value.name or "", "other readers": others})
    if value.is_graph_output():
        failed["output"] = value.name or ""
    operator = "a value" if maker is None else maker.op_type
    return Refusal(f"{operator} inside of it is read elsewhere too", failed, tuple(nodes))
