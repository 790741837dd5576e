"""The outcome of each node of the file: the kernels that compute it, or why none does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from opweld.ledger import Decision, Ledger
from opweld.record import FileNode, KernelEntry, Record

FUSED, ALONE, MOVED, REWRITTEN = "fused", "alone", "index arithmetic", "rewritten"
KNOWN, CONTROL, UNUSED, UNREACHED, GONE = "known", "control flow", "unused", "unreached", "simplified"

MEANINGS: Mapping[str, tuple[str, str]] = {
    FUSED: ("computed in kernels with other nodes", "computed with other nodes, in:"),
    ALONE: ("computed in kernels of their own", "computed alone, in:"),
    MOVED: (
        "only move data, which is index arithmetic in other kernels",
        "it only moves data, which is index arithmetic in the kernels of what reads it:",
    ),
    REWRITTEN: (
        "replaced in the graph before anything was fused",
        "replaced in the graph before anything was fused; what stands in its place is computed in:",
    ),
    KNOWN: (
        "known without running the model, from constants and sizes",
        "its result is known without running the model, from constants and sizes",
    ),
    CONTROL: ("decide what runs next", "it decides what runs next"),
    UNUSED: ("needed by no output", "no output needs it"),
    UNREACHED: (
        "in branches that never run, or replaced when the model was read",
        "in a branch that never runs, or replaced when the model was read",
    ),
    GONE: ("nothing left to compute", "nothing of it is left to compute; what reads it is computed in:"),
}
"""Each outcome in words: for several nodes, and for one, followed by its kernels."""

CONTROL_OPERATORS = ("If", "Loop", "Scan")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a node.

    Attributes:
        kind: one of `MEANINGS`.
        kernels: (variant, kernel): those that compute it; if none does, those that compute its readers.
        decisions: those that removed it from the graph.
    """

    kind: str
    kernels: tuple[tuple[str, KernelEntry], ...] = ()
    decisions: tuple[Decision, ...] = ()


class Outcomes:
    """The outcomes of the nodes of one compilation."""

    def __init__(self, record: Record, ledger: Ledger) -> None:
        self._record = record
        self._kernels: dict[str, list[tuple[str, KernelEntry]]] = {}
        for variant in record.variants:
            for kernel in variant.kernels:
                for name in dict.fromkeys(kernel.nodes):
                    self._kernels.setdefault(name, []).append((variant.name, kernel))
        self._moved: dict[str, list[Decision]] = {}
        self._inside: dict[str, list[Decision]] = {}
        self._rewritten: dict[str, list[Decision]] = {}
        by_kind = {"fuse.view": self._moved, "fuse": self._inside, "rewrite": self._rewritten}
        for decision in ledger:
            found = by_kind.get(decision.rule, by_kind.get(decision.stage))
            if decision.fired and found is not None:
                for name in decision.site:
                    found.setdefault(name, []).append(decision)
        self._readers: dict[str, list[FileNode]] = {}
        for node in record.nodes:
            for name in filter(None, node.inputs):
                self._readers.setdefault(name, []).append(node)

    def of(self, node: FileNode) -> Outcome:
        """The outcome of a node."""
        own = self._computing(node.called)
        if own:
            fused = any(len(set(kernel.nodes)) > 1 for _, kernel in own)
            return Outcome(FUSED if fused else ALONE, own, _all(self._rewritten, node))
        rewritten = _all(self._rewritten, node)
        if rewritten:
            return Outcome(REWRITTEN, self._computing(name for d in rewritten for name in d.site), rewritten)
        if node.known:
            return Outcome(KNOWN)
        if not node.body and not self._needed.intersection(node.outputs):
            return Outcome(UNUSED)
        moved = _all(self._moved, node)
        if moved:
            return Outcome(MOVED, self._after(node), moved)
        inside = _all(self._inside, node)
        if inside:  # recomputed by each of its readers: kernels are not named after it
            return Outcome(FUSED, self._computing(name for d in inside for name in d.site), inside)
        if node.operator in CONTROL_OPERATORS:
            return Outcome(CONTROL)
        return Outcome(GONE, self._after(node)) if node.reached else Outcome(UNREACHED)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """The number of nodes of each outcome, without stored constants."""
        return Counter(self.of(node).kind for node in self._record.nodes if node.operator != "Constant")

    def together(self, first: str, second: str) -> bool:
        """Whether one kernel computes both nodes, by the names that decisions use."""
        kernels = {(variant, kernel.name) for variant, kernel in self._kernels.get(first, ())}
        return any((variant, kernel.name) in kernels for variant, kernel in self._kernels.get(second, ()))

    def _computing(self, names: Iterable[str]) -> tuple[tuple[str, KernelEntry], ...]:
        found = {(v, k.name): (v, k) for name in dict.fromkeys(names) for v, k in self._kernels.get(name, ())}
        return tuple(found.values())

    def _after(self, node: FileNode) -> tuple[tuple[str, KernelEntry], ...]:
        """The kernels of the nearest computed nodes that depend on a node."""
        found: dict[tuple[str, str], tuple[str, KernelEntry]] = {}
        seen = {id(node)}
        todo = [node]
        while todo:
            for reader in (r for output in todo.pop().outputs for r in self._readers.get(output, ())):
                if id(reader) in seen:
                    continue
                seen.add(id(reader))
                own = self._computing(reader.called)
                found |= {(variant, kernel.name): (variant, kernel) for variant, kernel in own}
                if not own:
                    todo.append(reader)
        return tuple(found.values())

    @cached_property
    def _needed(self) -> frozenset[str]:
        """The values that the outputs of the model depend on, and those that bodies may read."""
        makers = {output: node for node in self._record.nodes for output in node.outputs if output and not node.body}
        needed = set(self._record.outputs)
        needed.update(name for node in self._record.nodes if node.body for name in (*node.inputs, *node.outputs))
        todo = list(needed)
        while todo:
            maker = makers.get(todo.pop())
            new = [] if maker is None else [name for name in maker.inputs if name not in needed]
            needed.update(new)
            todo += new
        return frozenset(needed)


def _all(found: Mapping[str, list[Decision]], node: FileNode) -> tuple[Decision, ...]:
    return tuple({d.id: d for name in node.called for d in found.get(name, ())}.values())
