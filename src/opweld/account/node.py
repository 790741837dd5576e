"""The report of one node: from the file to the kernels that compute it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from opweld.account.account import Account
from opweld.account.misses import REWRITTEN, ends_of
from opweld.account.outcomes import MEANINGS
from opweld.account.summary import bytes_text, places, seconds_text, sources_of
from opweld.errors import OptionError
from opweld.explanation import describe_field
from opweld.ledger import Decision, printable
from opweld.record import FileNode, KernelEntry

MANY = 12
"""The number of a kernel's other nodes listed before and after the node."""


def nodes_called(account: Account, name: str) -> list[FileNode]:
    """The nodes of a name: that of the file, that of decisions and kernels, or the name of one of their results.

    Raises OptionError with similar names if there is none."""
    nodes = account.record.nodes
    by_name = [node for node in nodes if node.name == name]
    found = by_name or [node for node in nodes if name in node.called] or [n for n in nodes if name in n.outputs]
    if found and name:
        return found
    if any(name in kernel.nodes for v in account.record.variants for kernel in v.kernels) or account.ledger.about(name):
        return [FileNode(name, REWRITTEN, (), (), called=(name,), reached=True)]
    known = dict.fromkeys(node.name for node in nodes if node.name)
    ends = [other for other in known if name and other.endswith(f"/{name}")]
    close = [printable(other) for other in (ends or difflib.get_close_matches(name, known, 3, 0.6))[:3]]
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    raise OptionError(f"--node {printable(name)!r}: the model has no node of that name{hint}")


def decisions_about(account: Account, node: FileNode) -> list[Decision]:
    """The decisions whose site contains a node, in the order in which they were taken."""
    called = {node.name, *node.called} - {""}
    return [decision for decision in account.ledger if called.intersection(decision.site)]


def node_text(account: Account, node: FileNode, instructions: Mapping[str, str] | None = None) -> str:
    """The text of `opweld explain --node`; `instructions` of kernels by "variant/kernel", where they are known."""
    outcome = account.outcomes.of(node)
    names = {name: other for other in account.record.nodes for name in other.called}
    lines = _file(node)
    text = MEANINGS[outcome.kind][1]
    lines.append(f"  {text if outcome.kernels else text.rpartition(';')[0] or text.rstrip(':')}")
    for variant, kernel in outcome.kernels:
        lines += _kernel(account, node, variant, kernel)
        if instructions is not None:
            lines.append(f"    instructions: {instructions.get(f'{variant}/{kernel.name}', 'unknown')}")
    decisions = decisions_about(account, node)
    for title, found in (
        ("decisions about it", [decision for decision in decisions if not decision.part]),
        ("decisions behind its schedules", [decision for decision in decisions if decision.part]),
    ):
        if found:
            lines.append(f"  {title} ({len(found)})")
        for decision in found:
            lines += [f"    {line}" for line in describe_field(decision)]
            if not decision.part:
                lines.append(f"      at {places(ends_of(decision, names, account.outcomes), sources_of(account))}")
    return "\n".join(lines) + "\n"


def _file(node: FileNode) -> list[str]:
    if node.operator == REWRITTEN:
        return [f"node {printable(node.name)}: not in the file, created by rewriting the graph"]
    lines = [f"node {printable(node.name) or '(no name)'}: {printable(node.operator)}"]
    if node.source:
        lines[0] += f", from {printable(node.source)}"
    lines.append(f"  reads {_values(node.inputs)}; gives {_values(node.outputs)}")
    if node.quantised:
        lines.append(f"  quantised: {printable(node.quantised, 200)}")
    if node.body:
        lines.append(f"  in a body of {printable(node.body)}")
    other = [name for name in node.called if name != node.name]
    if other:
        lines.append(f"  the compiler calls it {_values(other)}")
    return lines


def _kernel(account: Account, node: FileNode, variant: str, kernel: KernelEntry) -> list[str]:
    place = f"{printable(variant)}: " if len(account.record.variants) > 1 else ""
    part = f" ({kernel.seconds / account.seconds:.1%} of a run)" if account.seconds else ""
    lines = [
        f"  kernel {place}{kernel.name}, phase {kernel.phase}: predicted {seconds_text(kernel.seconds)} on one core"
        f"{part}, {bytes_text(kernel.bytes)}",
        f"    computes {_values(_around(kernel.nodes, node.called))}",
    ]
    schedule = account.schedules.regions.get((variant, kernel.region))
    if schedule is not None:
        lines.append(f"    schedule of {printable(kernel.region)}: {schedule.text}")
    return lines


def _around(names: Sequence[str], own: Sequence[str]) -> Sequence[str]:
    """The names before and after a node's own, if there are many."""
    at = next((position for position, name in enumerate(names) if name in own), 0)
    first, last = max(0, at - MANY), at + MANY + 1
    before = [f"({first} more)"] if first else []
    after = [f"({len(names) - last} more)"] if last < len(names) else []
    return [*before, *names[first:last], *after]


def _values(names: Sequence[str]) -> str:
    return ", ".join(printable(name, 80) or "(none)" for name in names) or "nothing"
