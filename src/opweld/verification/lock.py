"""The fusions of a model as a small text that people review, and what has changed since it was written.

    # what opweld computes together, and what it rewrites; see docs/guides/lock.md
    variant "main"
    kernel "conv1" "bias1" "relu1"
    view "transpose3"
    rewritten
    rewrite.gelu "mul7" "erf4" "add5"
    node "conv1" "1f0c5e2ab377"

A line is a kernel of several nodes, a node that is index arithmetic in those who read it, or a rewriting of `opweld
optimize`; nodes go by their names. Kernels of one node have no line: who adds a node elsewhere changes none. The last
lines say what each of these nodes is (`structure.py`), by which it is found again where an exporter calls it otherwise.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from opweld.errors import OptionError
from opweld.ledger import Decision, printable

HEADER = "# what opweld computes together, and what it rewrites; see docs/guides/lock.md\n"
PASSES = ("rewrite.fold", "rewrite.equal_nodes", "rewrite.equal_tensors", "rewrite.dead")
"""Rewritings that clean up, and have no line: nothing is computed together."""

_VARIANT, _REWRITTEN, _KERNEL, _VIEW, _NODE = "variant", "rewritten", "kernel", "view", "node"


@dataclass(frozen=True)
class Fusion:
    """One line.

    Attributes:
        variant: of the compiled model; empty for a rewriting.
        kind: `kernel`, `view`, or the rule of a rewriting.
        nodes: names of the nodes, in order.
    """

    variant: str
    kind: str
    nodes: tuple[str, ...]

    @property
    def line(self) -> str:
        """As it stands in the text."""
        return " ".join((self.kind, *map(_quoted, self.nodes)))

    @property
    def words(self) -> str:
        """For people to read."""
        place = f"{printable(self.variant)}: " if self.variant else ""
        return f"{place}{self.kind} {printable(', '.join(self.nodes), 400)}"


def fusions_of(compiled: Sequence[Decision], rewritten: Iterable[Decision]) -> list[Fusion]:
    """What two ledgers, of compiling a model and of rewriting it, put together."""
    found = [Fusion(variant, _KERNEL, nodes) for variant, nodes in kernels_of(compiled) if len(nodes) > 1]
    found += [Fusion(d.variant, _VIEW, _nodes(d)) for d in compiled if d.rule == "fuse.view" and d.fired]
    order = {variant: i for i, variant in enumerate(dict.fromkeys(fusion.variant for fusion in found))}
    found.sort(key=lambda fusion: order[fusion.variant])
    return found + [Fusion("", d.rule, _nodes(d)) for d in rewritten if d.fired and d.rule not in PASSES]


def kernels_of(compiled: Sequence[Decision]) -> list[tuple[str, tuple[str, ...]]]:
    """The variant and the nodes of every kernel that computes values of the graph, those of one node included."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    asked: set[tuple[str, str]] = set()
    for decision in compiled:
        if decision.part:
            # Members of a block have decisions of their own: the kernel is all of them.
            found.setdefault((decision.variant, decision.region), {}).update(dict.fromkeys(_nodes(decision)))
        elif decision.stage == "fuse":
            asked.update((decision.variant, value) for value in decision.subject.split(" > "))
    # A copy that only lies otherwise in memory has the nodes of what it copies, and fusion was never asked about it.
    return [
        (variant, tuple(nodes))
        for (variant, value), nodes in found.items()
        if len(nodes) == 1 or (variant, value) in asked
    ]


def _nodes(decision: Decision) -> tuple[str, ...]:
    return tuple(name for name in decision.site if name)


# ---------------------------------------------------------------------------------------------------------------- text


def print_lock(fusions: Sequence[Fusion], structure: Mapping[str, str] | None = None) -> str:
    """The text of fusions that are in order of their variants, rewritings last, and of what their nodes are."""
    lines: list[str] = []
    for fusion in fusions:
        section = f"{_VARIANT} {_quoted(fusion.variant)}" if fusion.variant else _REWRITTEN
        if section not in lines:
            lines.append(section)
        lines.append(fusion.line)
    named = {name for fusion in fusions for name in fusion.nodes}
    lines += [f"{_NODE} {_quoted(name)} {_quoted(i)}" for name, i in (structure or {}).items() if name in named]
    return HEADER + "".join(f"{line}\n" for line in lines)


def parse_lock(text: str, title: str) -> list[Fusion]:
    """The fusions that `print_lock` wrote. Raises OptionError naming the line of `title` that is none."""
    return _parsed(text, title)[0]


def parse_nodes(text: str, title: str) -> dict[str, str]:
    """What `print_lock` wrote that their nodes are, by name: nothing of a lock of an older opweld."""
    return _parsed(text, title)[1]


def _parsed(text: str, title: str) -> tuple[list[Fusion], dict[str, str]]:
    nodes: dict[str, str] = {}
    variant: str | None = None
    found: list[Fusion] = []
    for number, line in enumerate(text.split("\n"), 1):
        kind, _, rest = line.strip().partition(" ")
        if not kind or kind.startswith("#"):
            continue
        names = _names(rest)
        if names is None or not (kind in (_VARIANT, _REWRITTEN, _KERNEL, _VIEW, _NODE) or kind.startswith("rewrite.")):
            raise OptionError(f"{title}:{number}: {printable(line)!r} is no line of a lock; write it anew with -o")
        if kind == _NODE and len(names) == 2:
            nodes[names[0]] = names[1]
        elif kind == _VARIANT and len(names) == 1:
            variant = names[0]
        elif kind == _REWRITTEN and not names:
            variant = ""
        elif variant is None or not names or kind == _NODE:
            raise OptionError(f"{title}:{number}: {printable(line)!r} names no nodes, or stands before any variant")
        else:
            found.append(Fusion(variant, kind, names))
    return found, nodes


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _names(text: str) -> tuple[str, ...] | None:
    """Quoted names separated by spaces; None for anything else."""
    decoder = json.JSONDecoder()
    found: list[str] = []
    place = 0
    while place < len(text):
        try:
            name, place = cast("tuple[object, int]", decoder.raw_decode(text, place))
        except ValueError:
            return None
        if not isinstance(name, str):
            return None
        found.append(name)
        while text[place : place + 1] == " ":
            place += 1
    return tuple(found)


# ---------------------------------------------------------------------------------------------------------- comparison


@dataclass(frozen=True)
class Change:
    """A line that is there in one of two locks only.

    Attributes:
        fusion: which. lost: whether it was there before, else it is new.
        notes: of a lost kernel, what its nodes are part of now, and what kept them apart.
    """

    fusion: Fusion
    lost: bool
    notes: tuple[str, ...] = ()


def changes(
    before: Sequence[Fusion],
    after: Sequence[Fusion],
    compiled: Sequence[Decision],
    names: Mapping[str, str] | None = None,
) -> list[Change]:
    """What is lost, then what is new; in which order a line names its nodes does not matter. `compiled`: the ledger of
    what is there now, which says why. `names`: what nodes are called now, by what they were called."""
    kernels = kernels_of(compiled)
    now = {id(fusion): _called(fusion, names or {}) for fusion in before}
    keys = Counter(map(_key, after))
    lost: list[Change] = []
    for fusion in before:
        found = now[id(fusion)]
        if keys[_key(found)]:
            keys[_key(found)] -= 1
        else:
            lost.append(Change(fusion, True, _notes(found, kernels, compiled)))
    return lost + [Change(fusion, False) for fusion in _without(after, list(now.values()))]


def _called(fusion: Fusion, names: Mapping[str, str]) -> Fusion:
    """A fusion of nodes that are called otherwise now."""
    return replace(fusion, nodes=tuple(names.get(name, name) for name in fusion.nodes))


def _without(fusions: Sequence[Fusion], others: Sequence[Fusion]) -> list[Fusion]:
    """The fusions that are not among the others, each as often as it is there more often."""
    left = Counter(map(_key, others))
    found: list[Fusion] = []
    for fusion in fusions:
        if left[_key(fusion)]:
            left[_key(fusion)] -= 1
        else:
            found.append(fusion)
    return found


def _key(fusion: Fusion) -> tuple[str, str, tuple[str, ...]]:
    return fusion.variant, fusion.kind, tuple(sorted(fusion.nodes))


def _notes(
    fusion: Fusion, kernels: Sequence[tuple[str, tuple[str, ...]]], compiled: Sequence[Decision]
) -> tuple[str, ...]:
    if fusion.kind != _KERNEL:
        return ()
    own = [nodes for variant, nodes in kernels if variant == fusion.variant and not set(nodes).isdisjoint(fusion.nodes)]
    known = {name for decision in compiled for name in decision.site}
    missing = [name for name in fusion.nodes if name not in known]
    notes: list[str] = []
    if missing:
        notes.append(f"no longer in the model: {printable(', '.join(missing), 400)}")
    if own:
        notes.append("now " + " | ".join(printable(", ".join(nodes), 400) for nodes in own))
    group: Mapping[str, int] = {name: i for i, nodes in enumerate(own) for name in nodes if name in fusion.nodes}
    for decision in compiled:
        apart = len({group[name] for name in decision.site if name in group}) > 1
        if apart and decision.stage == "fuse" and decision.variant == fusion.variant and not decision.fired:
            failed = ", ".join(f"{key} = {value}" for key, value in decision.failed.items())
            why = " (switched off)" if decision.overridden else f" ({printable(failed)})" if failed else ""
            notes.append(f"{decision.id} {decision.rule}: {printable(decision.reason, 200)}{why}")
    return tuple(notes)
