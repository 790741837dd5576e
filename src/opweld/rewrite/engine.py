"""Applies rules to a graph up to a fixed point, each decision through the ledger.

A rule is tried at a node when the node is new or something around it changed. A proposal is decided once for each
output; a refusal is recorded at the end, because a later rewrite may make the rule legal. Near misses are then searched
for where a rule did not match (`near_misses.py`)."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import onnx_ir as ir

from opweld.errors import RuleError, in_line
from opweld.ledger import Alternative, Ledger
from opweld.rewrite.near_misses import near_miss
from opweld.rewrite.rule import Pass, Proposal, Refusal, Rule
from opweld.rewrite.scope import Scope, rule_name

BASELINE = "as written"
TAKEN = "rewritten"
UNMEASURED = "it was not measured on this machine"
"""The reason of a decision that needs a measurement and has none."""
LIMIT = 32
"""The most matches tried per node, on average: far more than any graph needs, to stop rules that undo one another."""

_Answer = TypeVar("_Answer")


def rewrite(
    scope: Scope,
    rules: Sequence[Rule],
    ledger: Ledger,
    later: Sequence[Sequence[Rule]] = (),
    merged: Callable[[], bool] = lambda: False,
) -> bool:
    """Applies rules up to a fixed point, then also those of each of `later`; returns whether anything changed.
    `merged` eliminates common subexpressions, and returns whether there were any.

    Raises RuleError for a rule that fails."""
    answers: dict[tuple[str, str], bool] = {}
    refused: dict[tuple[str, str], tuple[tuple[str, ...], Refusal]] = {}
    scope.changed = dict.fromkeys(scope.graph)
    _until_silent(scope, rules, ledger, answers, refused)
    while merged():
        _until_silent(scope, rules, ledger, answers, refused)
    for more in later:
        operators = {operator for rule in more for operator in rule.operators}
        scope.changed = {node: None for node in scope.graph if rule_name(node) in operators}
        rules = (*rules, *more)
        _until_silent(scope, rules, ledger, answers, refused)
        while merged():
            _until_silent(scope, rules, ledger, answers, refused)
    for key, site, refusal in _near_misses(rules, {*answers, *refused}, scope, ledger):
        refused[key] = site, refusal
    for (name, subject), (site, refusal) in refused.items():
        if (name, subject) not in answers:
            _refused(name, subject, site, refusal, scope, ledger)
    return any(answers.values())


def _until_silent(
    scope: Scope,
    rules: Sequence[Rule],
    ledger: Ledger,
    answers: dict[tuple[str, str], bool],
    refused: dict[tuple[str, str], tuple[tuple[str, ...], Refusal]],
) -> None:
    """Applies rules to changed nodes up to a fixed point. `answers`: the decisions taken; `refused`: the refusals,
    which are not decisions yet."""
    by_operator = _by_operator(rules)
    looks = LIMIT * (len(scope.graph) + 1)
    while scope.changed and looks:
        node = next(iter(scope.changed))
        del scope.changed[node]
        looks -= 1
        if node.graph is not scope.graph or not node.outputs:
            continue
        for rule in by_operator[rule_name(node)]:
            found = _look(rule, node, scope, ledger)
            if found is None:
                continue
            key = rule.name, node.outputs[0].name or ""
            site = _site(node, found)
            if isinstance(found, Refusal):
                refused[key] = site, found
                continue
            if key not in answers:
                refused.pop(key, None)
                answers[key] = _decided(rule, key[1], site, found, scope, ledger)
            if answers[key]:
                _guarded(rule, node, found.apply)
                break


def _by_operator(rules: Sequence[Rule]) -> Mapping[str, Sequence[Rule]]:
    found: defaultdict[str, list[Rule]] = defaultdict(list)
    for rule in rules:
        for operator in rule.operators:
            found[operator].append(rule)
    return found


def _near_misses(
    rules: Sequence[Rule], known: Collection[tuple[str, str]], scope: Scope, ledger: Ledger
) -> Iterator[tuple[tuple[str, str], tuple[str, ...], Refusal]]:
    """Near misses of rules that did not match a node, by a single condition; `known`: what the rules returned."""
    by_operator = _by_operator([rule for rule in rules if rule.formula])
    for node in scope.graph:
        for rule in by_operator[rule_name(node)] if node.outputs else ():
            key = rule.name, node.outputs[0].name or ""
            if key in known or not ledger.allows(rule.name):
                continue
            refusal = _guarded(rule, node, functools.partial(near_miss, rule, node, scope))
            if refusal is not None:
                yield key, _site(node, refusal), refusal


def run(transformer: Pass, scope: Scope, ledger: Ledger) -> bool:
    """Runs a pass over a graph; whether it changed anything. Raises RuleError where it fails."""
    changed = False
    for node, found in _steps(transformer, scope, ledger):
        subject, site = next((value.name for value in node.outputs if value.name), ""), _site(node, found)
        if isinstance(found, Refusal):
            _refused(transformer.name, subject, site, found, scope, ledger)
        elif _decided(transformer, subject, site, found, scope, ledger):
            _guarded(transformer, node, found.apply)
            changed = True
    return changed


def _steps(transformer: Pass, scope: Scope, ledger: Ledger) -> Iterator[tuple[ir.Node, Proposal | Refusal]]:
    try:
        for node, found in transformer.run(scope):
            yield node, _answer(transformer, node, found)
    except RuleError:
        raise
    except Exception as error:
        if ledger.allows(transformer.name):
            raise RuleError(_failed(transformer, "", error)) from error


def _look(rule: Rule, node: ir.Node, scope: Scope, ledger: Ledger) -> Proposal | Refusal | None:
    """The result of a rule at a node; None where it raises and is disabled."""
    try:
        found = _guarded(rule, node, lambda: rule.look(node, scope))
        return None if found is None else _answer(rule, node, found)
    except RuleError:
        if ledger.allows(rule.name):
            raise
        return None


def _answer(rule: Rule | Pass, node: ir.Node, found: object) -> Proposal | Refusal:
    if not isinstance(found, Proposal | Refusal):
        raise RuleError(_failed(rule, _at(node), TypeError(f"expected a Proposal or a Refusal, got {found!r}")))
    return found


def _guarded(rule: Rule | Pass, node: ir.Node, work: Callable[[], _Answer]) -> _Answer:
    """The work of a rule at a node; RuleError names both if it fails."""
    try:
        return work()
    except RuleError:
        raise
    except Exception as error:
        raise RuleError(_failed(rule, _at(node), error)) from error


def _at(node: ir.Node) -> str:
    return f" at node {node.name!r} ({in_line(node.op_type)})"


def _failed(rule: Rule | Pass, at: str, error: Exception) -> str:
    kind = "pass" if isinstance(rule, Pass) else "rule"
    return f"{kind} {rule.name} failed{at}: {type(error).__name__}: {error}. --disable {rule.name} goes on without it."


def _site(node: ir.Node, found: Proposal | Refusal) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n.name or "" for n in (node, *found.nodes)))


def _decided(
    rule: Rule | Pass, subject: str, site: tuple[str, ...], found: Proposal, scope: Scope, ledger: Ledger
) -> bool:
    unwanted = found.unwanted or (UNMEASURED if isinstance(rule, Rule) and rule.measured else "")
    taken = scope.decide(
        ledger,
        rule.name,
        site,
        subject,
        alternatives=[Alternative(BASELINE, bytes=found.saved), Alternative(TAKEN, bytes=0 if found.saved else None)],
        prefer=BASELINE if unwanted else TAKEN,
        reason=unwanted or found.reason,
    )
    return taken == TAKEN


def _refused(rule: str, subject: str, site: tuple[str, ...], refusal: Refusal, scope: Scope, ledger: Ledger) -> None:
    scope.decide(
        ledger,
        rule,
        site,
        subject,
        alternatives=[Alternative(BASELINE), Alternative(TAKEN)],
        prefer=BASELINE,
        reason=refusal.reason,
        failed=refusal.failed or {"condition": refusal.reason},
    )
