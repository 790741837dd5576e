"""The summary of `opweld explain`: outcomes, savings, coverage of fusion, near misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opweld.account.account import Account, RuleCount
from opweld.account.misses import Miss
from opweld.account.outcomes import ALONE, FUSED, MEANINGS
from opweld.ledger import printable
from opweld.rules import COMPILED


def summary_text(account: Account, title: str, near_misses: int) -> str:
    """The summary, and the most expensive `near_misses`. `title` is the model's name."""
    return "\n".join((*_nodes(account, title), "", *_rules(account), "", *_misses(account, near_misses))) + "\n"


def _nodes(account: Account, title: str) -> list[str]:
    nodes = [node for node in account.record.nodes if node.operator != "Constant"]
    constants = len(account.record.nodes) - len(nodes)
    stored = f" (and {constants} stored constants)" if constants else ""
    lines = [f"{printable(title)}: {len(nodes)} nodes{stored} -> {len(account.kernels)} kernels"]
    counts = account.outcomes.counts
    width = len(f"{max(counts.values(), default=0):,}")
    lines += [f"  {counts[kind]:>{width},} {text}" for kind, (text, _) in MEANINGS.items() if counts.get(kind)]
    if account.fused_nodes is not None:
        fused, computed = counts.get(FUSED, 0), counts.get(FUSED, 0) + counts.get(ALONE, 0)
        time = "" if account.fused_time is None else f", and {account.fused_time:.0%} of the predicted time"
        lines.append(
            f"fused kernels cover {account.fused_nodes:.0%} of the nodes that kernels compute "
            f"({fused:,} of {computed:,}){time}"
        )
    sizes = ", ".join(f"{printable(name)}={size}" for name, size in account.sizes.items())
    lines.append(
        f"predicted: {seconds_text(account.seconds)} on one core, {bytes_text(account.bytes)} read and written"
        + (f", at {printable(sizes, 200)}" if sizes else "")
    )
    return lines


def _rules(account: Account) -> list[str]:
    """The decisions by rule; those of schedules, a dozen for every kernel, as one line."""
    told = [count for count in account.rules if not count.rule.startswith("schedule.")]
    behind = [count for count in account.rules if count.rule.startswith("schedule.")]
    saved = sum(count.bytes or 0 for count in told)
    seconds = sum(count.seconds or 0.0 for count in told)
    time = f" and {seconds_text(seconds)}" if seconds else ""
    lines = [f"fusion saves {bytes_text(saved)} of memory traffic{time}, as far as that was counted"]
    rows = [
        (
            count.rule,
            f"{count.taken:,} of {count.decisions:,}",
            _saved(count),
            COMPILED[count.rule].otherwise if count.rule in COMPILED else "",
        )
        for count in told
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    lines += [f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c:<{widths[2]}}  {d}".rstrip() for a, b, c, d in rows]
    if behind:
        taken, total = sum(count.taken for count in behind), sum(count.decisions for count in behind)
        lines.append(f"  and {total:,} decisions behind schedules, {taken:,} of which took more than their baseline")
    return lines


def _saved(count: RuleCount) -> str:
    parts = [] if not count.bytes else [bytes_text(count.bytes)]
    parts += [] if not count.seconds else [seconds_text(count.seconds)]
    return "saves " + ", ".join(parts) if parts else ""


def _misses(account: Account, most: int) -> list[str]:
    found = account.misses
    if not found:
        return ["no near misses"]
    sources = sources_of(account)
    lines = ["near misses, most expensive first; alike ones together"]
    for number, miss in enumerate(found[:most], 1):
        lines += miss_lines(miss, sources, f"{number:>3}. ")
    if len(found) > most:
        lines.append(f"  and {len(found) - most} more: --near-misses N, or --all for every decision")
    return lines


def sources_of(account: Account) -> Mapping[str, str]:
    """The source line of each node, by the names that decisions use, where the exporter recorded it."""
    return {name: node.source for node in account.record.nodes if node.source for name in node.called}


def miss_lines(miss: Miss, sources: Mapping[str, str], head: str) -> list[str]:
    """One kind of near miss, in two or three lines."""
    first = miss.first
    times = f" ({len(miss.decisions)} times)" if len(miss.decisions) > 1 else ""
    operators = " > ".join(name or "?" for name in miss.operators)
    cost = [seconds_text(miss.seconds)] if miss.seconds else []
    cost += [bytes_text(miss.bytes)] if miss.bytes else []
    costs = f": costs {', '.join(cost)}" if cost else ""
    indent = " " * len(head)
    says = {key: str(value) for key, value in first.failed.items() if str(value) not in first.reason}
    failed = ", ".join(f"{printable(key)} = {printable(value, 80)}" for key, value in says.items())
    lines = [
        f"{head}{printable(operators)}{times}{costs}",
        f"{indent}{first.rule} {first.id}: {printable(first.reason, 160)}" + (f" ({failed})" if failed else ""),
        f"{indent}at {places(miss.ends[0], sources)}",
    ]
    if miss.fix:
        lines.append(f"{indent}fix: {miss.fix}")
    return lines


def places(names: Sequence[str], sources: Mapping[str, str]) -> str:
    """Names of nodes, each with its source line if known."""
    told = [
        f"{printable(name, 80)} ({printable(sources[name], 80)})" if name in sources else printable(name, 80)
        for name in names
    ]
    return " > ".join(told) or "(no node)"


def bytes_text(count: int) -> str:
    """A rounded number of bytes with a unit."""
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if abs(value) < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}" if abs(value) < 1000 else f"{value:,.0f} {unit}"


def seconds_text(seconds: float) -> str:
    """A rounded duration with a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
