"""An explanation of a compiled model: the result of `opweld.explain`, printed by `opweld explain`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from opweld.account.account import Account
from opweld.account.data import account_json
from opweld.account.node import decisions_about, node_text, nodes_called
from opweld.account.summary import summary_text
from opweld.display import Piece, Shown
from opweld.errors import OptionError
from opweld.explanation import explain_text
from opweld.ledger import Decision, Ledger, printable
from opweld.rules import COMPILED, stage_of

NEAR_MISSES = 10
"""The default number of near misses."""


class Explanation(Shown):
    """The decisions about a model with their reasons. As text, it is the summary that `opweld explain` prints.

    Attributes:
        model: its name. account: that of its compilation. folder: its artifact, where there is one.
        resources: reads what machine code an artifact holds, as `instructions` tells it.
    """

    def __init__(
        self,
        account: Account,
        model: str,
        folder: Path | None = None,
        resources: Callable[[Path], dict[str, str]] | None = None,
    ) -> None:
        self.account, self.model, self.folder, self._resources = account, model, folder, resources

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All decisions, in the order in which they were taken."""
        return tuple(self.account.ledger)

    def summary(self, near_misses: int = NEAR_MISSES) -> str:
        """Outcomes of nodes, savings and coverage of fusion, and near misses."""
        return summary_text(self.account, self.model, near_misses)

    def node(self, name: str, instructions: Mapping[str, str] | None = None) -> str:
        """The outcome of a node, as printed by `opweld explain --node`, with `instructions` as the method of that name
        tells them. Raises OptionError for an unknown node."""
        return "".join(node_text(self.account, node, instructions) for node in nodes_called(self.account, name))

    def instructions(self) -> dict[str, str]:
        """Which classes of instructions kernels hold, by "variant/kernel": read from the assembly that the C compiler
        makes of them now. Raises OptionError for what is not compiled, and ToolchainError without a compiler."""
        if self.folder is None or self._resources is None:
            raise OptionError("instructions are those of a compiled model: explain what opweld.compile gives")
        return self._resources(self.folder)

    def all(self, near_misses: int = NEAR_MISSES, *, ids: bool = False) -> str:
        """Every decision and every kernel, as printed by `opweld explain --all`; `ids`: also those of schedules."""
        return self.listed(self.decisions, near_misses, ids=ids)

    def rule(self, name: str, near_misses: int = NEAR_MISSES) -> str:
        """The decisions of a rule or stage, as printed by `opweld explain --rule`. Raises OptionError for an unknown
        name."""
        return self.listed(self.of_rule(name), near_misses, ids=True)

    def of_rule(self, name: str, decisions: Collection[Decision] | None = None) -> list[Decision]:
        """The decisions of a rule or stage, among all or these. Raises OptionError for an unknown name."""
        check_rule(name, dict.fromkeys((*COMPILED, *self.account.ledger.counts())))  # packages may add some
        chosen = self.decisions if decisions is None else decisions
        return [d for d in chosen if name in (d.rule, d.stage)]

    def about(self, node: str) -> list[Decision]:
        """The decisions about a node of the graph. Raises OptionError for an unknown node."""
        found = nodes_called(self.account, node)
        return list({d.id: d for one in found for d in decisions_about(self.account, one)}.values())

    def listed(self, decisions: Sequence[Decision], near_misses: int, *, ids: bool) -> str:
        """These decisions by stage and rule, below a line that counts them."""
        fired = sum(d.fired for d in decisions)
        head = f"{printable(self.model)}: {len(decisions)} decisions, {fired} took more than their baseline\n"
        return head + explain_text(Ledger.of(decisions), self.account.schedules, near_misses, ids)

    def to_json(self, node: str | None = None, decisions: Sequence[Decision] | None = None) -> dict[str, Any]:
        """The data described by docs/explain.schema.json, of all nodes and decisions, or of a node and these
        decisions."""
        nodes = self.account.record.nodes if node is None else nodes_called(self.account, node)
        chosen = self.decisions if decisions is None else decisions
        return account_json(self.account, self.model, nodes, chosen)

    def __repr__(self) -> str:
        return self.summary().rstrip("\n")  # identical to the command's output

    def shown(self) -> Sequence[Piece]:
        """The summary."""
        return [self.summary()]


def check_rule(name: str, rules: Collection[str]) -> None:
    """Raises OptionError for what is neither one of `rules` nor a stage of them."""
    if name not in {*rules, *map(stage_of, rules)}:
        raise OptionError(f"--rule {name!r}: no such rule or stage; the rules are {', '.join(rules)}")
