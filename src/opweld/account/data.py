"""The account as JSON types; docs/explain.schema.json documents the fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opweld.account.account import Account
from opweld.account.misses import Miss
from opweld.account.summary import sources_of
from opweld.ledger import Decision
from opweld.record import FileNode

FORMAT = 1
"""Version of the schema: fields may be added; none is removed or changed."""


def account_json(
    account: Account, model: str, nodes: Iterable[FileNode], decisions: Iterable[Decision]
) -> dict[str, Any]:
    """The data of `opweld explain --json`: the summary, all near misses, and these nodes and decisions."""
    sources = sources_of(account)
    return {
        "format": FORMAT,
        "model": model,
        "summary": _summary(account),
        "near_misses": [_miss(miss, sources) for miss in account.misses],
        "nodes": [_node(account, node) for node in nodes],
        "kernels": _kernels(account),
        "decisions": [decision.to_json() for decision in decisions],
    }


def _summary(account: Account) -> dict[str, Any]:
    constants = sum(node.operator == "Constant" for node in account.record.nodes)
    return {
        "nodes": len(account.record.nodes) - constants,
        "constants": constants,
        "kernels": len(account.kernels),
        "outcomes": dict(account.outcomes.counts),
        "fused_nodes": account.fused_nodes,
        "fused_time": account.fused_time,
        "sizes": dict(account.sizes),
        "predicted_seconds": account.seconds,
        "moved_bytes": account.bytes,
        "rules": [
            {
                "rule": count.rule,
                "taken": count.taken,
                "decisions": count.decisions,
                "saved_bytes": count.bytes,
                "saved_seconds": count.seconds,
            }
            for count in account.rules
        ],
    }


def _miss(miss: Miss, sources: Mapping[str, str]) -> dict[str, Any]:
    return {
        "rule": miss.first.rule,
        "reason": miss.first.reason,
        "failed": dict(miss.first.failed),
        "operators": list(miss.operators),
        "bytes": miss.bytes,
        "seconds": miss.seconds,
        "fix": miss.fix,
        "places": [_place(decision, ends, sources) for decision, ends in zip(miss.decisions, miss.ends, strict=True)],
    }


def _place(decision: Decision, ends: Sequence[str], sources: Mapping[str, str]) -> dict[str, Any]:
    return {"id": decision.id, "nodes": list(ends), "sources": [sources.get(name, "") for name in ends]}


def _node(account: Account, node: FileNode) -> dict[str, Any]:
    outcome = account.outcomes.of(node)
    return {
        "name": node.name,
        "operator": node.operator,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "source": node.source,
        "body": node.body,
        "called": list(node.called),
        "outcome": outcome.kind,
        "kernels": [{"variant": variant, "name": kernel.name} for variant, kernel in outcome.kernels],
        **({"quantised": node.quantised} if node.quantised else {}),
    }


def _kernels(account: Account) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for variant in account.record.variants:
        for kernel in variant.kernels:
            schedule = account.schedules.regions.get((variant.name, kernel.region))
            made.append(
                {
                    "variant": variant.name,
                    "name": kernel.name,
                    "region": kernel.region,
                    "phase": kernel.phase,
                    "nodes": list(kernel.nodes),
                    "seconds": kernel.seconds,
                    "bytes": kernel.bytes,
                    "flops": kernel.flops,
                    "schedule": "" if schedule is None else schedule.text,
                }
            )
    return made
