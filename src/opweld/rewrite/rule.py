"""What a rule is: it looks at a node and says what could stand in its place, or why that may not be, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """

    reason: str
    apply: Callable[[], None]
    nodes: tuple[ir.Node, ...] = ()
    saved: int | None = None


@dataclass(frozen=True)
class Refusal:
    """A near miss: the node has the form, but something forbids it. `failed` has the values of the predicate."""

    reason: str
    failed: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])
    nodes: tuple[ir.Node, ...] = ()


class Rule:
    """A rewrite of one idea. It holds no state; what it needs to know of the graph the scope answers.

    Attributes:
        name: `rewrite.something`, a key of `rules.REWRITES`.
        operators: of the default domain, at whose nodes it looks: the last node of what it replaces.
    """

    name: ClassVar[str]
    operators: ClassVar[tuple[str, ...]]

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """What could stand in the node's place; None where the rule has nothing to say."""
        raise NotImplementedError


def handed_on(node: ir.Node, source: ir.Value, scope: Scope, reason: str, *nodes: ir.Node) -> Proposal | Refusal:
    """That `source` is read where the node's output is; a refusal where the output is a name of the model's."""
    output = node.outputs[0]
    if not scope.replaceable(output, source):
        return Refusal("it names an output of the model", {"output": output.name or ""})
    return Proposal(reason, lambda: scope.replace(output, source), nodes, scope.traffic(output))
