"""The ledger as people read it: decisions by rule, the kernels and how each is computed, the most expensive near
misses."""

from __future__ import annotations

from opweld.ledger import Alternative, Crossover, Decision, Ledger, printable
from opweld.schedules_file import SchedulesFile


def explain_text(
    ledger: Ledger, schedules: SchedulesFile | None = None, near_misses: int = 20, ids: bool = False
) -> str:
    """What `opweld explain` prints.

    Args:
        ledger: the decisions; those that are fields of schedules are listed by kernel.
        schedules: how the kernels are computed.
        near_misses: how many of them to list.
        ids: whether to list the decisions behind each kernel too.
    """
    lines: list[str] = []
    counts = ledger.counts()
    for stage in dict.fromkeys(d.stage for d in ledger if not d.part):
        lines.append(f"{stage}")
        for rule, (fired, total) in counts.items():
            found = [d for d in ledger if d.rule == rule and not d.part]
            if found and found[0].stage == stage:
                lines.append(f"  {rule}: {fired} of {total}")
                lines += [f"    {line}" for d in found for line in describe(d)]
    lines += _kernels(ledger, schedules, ids)
    missed = ledger.near_misses()
    if missed:
        lines.append(f"near misses ({len(missed)}, most expensive first)")
        for decision in missed[:near_misses]:
            lines += [f"  {line}" for line in describe(decision)]
        if len(missed) > near_misses:
            lines.append(f"  and {len(missed) - near_misses} more")
    return "\n".join(lines) + "\n" if lines else "no decisions\n"


def _kernels(ledger: Ledger, schedules: SchedulesFile | None, ids: bool) -> list[str]:
    """Each region: its first output, its graph nodes, its schedule; on demand the decisions behind that."""
    found: dict[tuple[str, str], list[Decision]] = {}
    for decision in ledger:
        if decision.part:
            found.setdefault((decision.variant, decision.region), []).append(decision)
    if not found:
        return []
    count = sum(map(len, found.values()))
    lines = [f"kernels: {len(found)} regions, {count} decisions" + ("" if ids else " (--ids lists them)")]
    variants = {variant for variant, _ in found}
    for (variant, region), decisions in found.items():
        nodes = ", ".join(dict.fromkeys(name for d in decisions for name in d.site))
        place = f"{printable(variant)}: " if len(variants) > 1 else ""
        lines.append(f"  {place}{printable(region)} ({printable(nodes, 200) or 'no node'})")
        known = schedules.regions.get((variant, region)) if schedules is not None else None
        if known is not None:
            lines.append(f"    {known.text}")
        if ids:
            lines += [f"      {line}" for d in decisions for line in describe_field(d)]
    return lines


def describe(decision: Decision) -> list[str]:
    """One decision as lines of text: what and where, then what it saves and what failed."""
    taken = f"{decision.rule} {decision.taken}" if decision.part else decision.taken
    head = f"{decision.id} {printable(taken)} at {printable(', '.join(decision.site)) or '(no node)'}: "
    lines = [head + printable(decision.reason, 200)]
    notes = _notes(decision)
    if decision.saved_bytes is not None:
        notes.append(f"{'saves' if decision.fired else 'costs'} {decision.saved_bytes:,} bytes")
    notes += _others(decision)
    return [*lines, "  " + "; ".join(notes)] if notes else lines


def describe_field(decision: Decision) -> list[str]:
    """A decision on one line, with its rule but without its site: the reason of a schedule's field."""
    part = f"{decision.part}: " if decision.part else ""
    head = f"{decision.id} {part}{decision.rule} {printable(decision.taken)}"
    return ["; ".join((head, *_notes(decision), *_others(decision), printable(decision.reason, 200)))]


def _notes(decision: Decision) -> list[str]:
    notes: list[str] = []
    if decision.overridden:
        why = "pinned" if decision.pinned else "overridden"
        notes.append(f"wanted {printable(decision.preferred)}, {why}")
    elif decision.pinned:
        notes.append("pinned")
    if decision.failed:
        notes.append(
            "failed: " + ", ".join(f"{printable(k)} = {printable(str(v))}" for k, v in decision.failed.items())
        )
    return notes


def _others(decision: Decision) -> list[str]:
    """Predicted times of the taken and the other alternatives, or measured ones where they were tried."""
    taken = next(a for a in decision.alternatives if a.name == decision.taken)
    others = [a for a in decision.alternatives if a.name != decision.taken]
    found = [f"predicted {_microseconds(taken.seconds)}"] if taken.seconds is not None else []
    found += [f"measured {_microseconds(taken.measured)}"] if taken.measured is not None else []
    found += [f"instead of {', '.join(map(_named, others))}"] if others else []
    return [*found, *map(_elsewhere, decision.crossovers)]


def _elsewhere(found: Crossover) -> str:
    times = f"{_microseconds(found.seconds)} instead of {_microseconds(found.taken)}"
    return f"{printable(found.instead)} where {printable(found.symbol)} is {found.size} ({times})"


def _named(alternative: Alternative) -> str:
    known = [_microseconds(alternative.seconds)] if alternative.seconds is not None else []
    known += [f"measured {_microseconds(alternative.measured)}"] if alternative.measured is not None else []
    return f"{printable(alternative.name)} ({', '.join(known)})" if known else printable(alternative.name)


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us"
