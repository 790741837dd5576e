"""The ledger: every decision of every stage, with its alternatives and the reason of the choice.

A stage never chooses on its own. It lists the alternatives, the first of which is a baseline that is always legal, says
which one it prefers, and takes the one that `Ledger.decide` returns. Because every decision may return its baseline,
any prefix of the decisions gives a correct compiler: a level keeps rules at their baseline, `disable` does so for
single decisions, rules or stages, `prefix=k` grants the first k requests only, and a pin selects one alternative of a
decision whatever the stage prefers.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from opweld.errors import OptionError
from opweld.rules import LEVELS, RULES, STORAGE_RULES, DecisionRule, allowed, stage_of
from opweld.schedules_file import SchedulesFile
from opweld.typed import decoded, plain

Amount = int | str | None
"""A number of bytes or FLOPs: an integer, an expression over symbolic dims as text, or None where not counted."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to do something, with its predicted memory traffic (bytes), arithmetic (FLOPs) and time (seconds).

    `measured`: seconds of its region's kernels on the compiling machine, where they were timed; seconds of a whole run
    for an alternative that changes more than its region."""

    name: str
    bytes: Amount = None
    flops: Amount = None
    seconds: float | None = None
    measured: float | None = None


MEASURED = "measured on this machine"
"""The reason of a decision that was taken by measurement."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a decision: the alternative to take, seconds by alternative, and the reason to record; see
    `opweld.tune`."""

    taken: str
    seconds: Mapping[str, float] = field(hash=False)
    reason: str = MEASURED


@dataclass(frozen=True, slots=True)
class Crossover:
    """A size at which another alternative than the one that was taken would take less time.

    Attributes:
        symbol, size: where that symbol of the program has this value, and others what they are expected to be.
        instead: the alternative.
        seconds, taken: predicted there of it, and of what was taken."""

    symbol: str
    size: int
    instead: str
    seconds: float
    taken: float


def cheapest(alternatives: Sequence[Alternative]) -> Alternative:
    """The alternative with the least predicted time, the first of equals; one without a prediction comes last."""
    return min(alternatives, key=lambda a: float("inf") if a.seconds is None else a.seconds)


@dataclass(frozen=True, slots=True)
class Decision:
    """One entry of the ledger. `alternatives[0]` is the baseline.

    `site`, `subject`, `failed`: see `Ledger.decide`; `subject` holds labels, joined by " > ".
    `preferred` is what the stage preferred, `taken` what level, pins and grants made of it.
    A decision may set a field of a schedule: `region` is then the label of the region's first output, `part` the field
    (see `Schedule.fields`); otherwise both are empty.
    `level` is the lowest that permits more than the baseline, where it differs from the rule's.
    `crossovers`: sizes at which another alternative is better, for stages that look whether there are any."""

    id: str
    rule: str
    site: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    taken: str
    preferred: str
    reason: str
    failed: Mapping[str, int | str] = field(default_factory=dict[str, int | str], hash=False)
    subject: str = ""
    pinned: bool = False
    variant: str = ""
    region: str = ""
    part: str = ""
    level: str = ""
    crossovers: tuple[Crossover, ...] = ()

    @property
    def stage(self) -> str:
        """The part of the rule's name before the first dot: `fuse` of `fuse.epilogue`."""
        return stage_of(self.rule)

    @property
    def baseline(self) -> str:
        """The name of the alternative that is always legal."""
        return self.alternatives[0].name

    @property
    def fired(self) -> bool:
        """Whether another alternative than the baseline was taken."""
        return self.taken != self.baseline

    @property
    def overridden(self) -> bool:
        """Whether the level, `disable`, a pin or `prefix` changed what the stage preferred."""
        return self.taken != self.preferred

    @property
    def near_miss(self) -> bool:
        """Whether there were other alternatives, and none was legal."""
        return not self.fired and len(self.alternatives) > 1 and len(self.legal) == 1

    @property
    def legal(self) -> Sequence[str]:
        """The names of the alternatives that nothing ruled out."""
        return _legal([a.name for a in self.alternatives], self.preferred, self.failed)

    @property
    def saved_bytes(self) -> int | None:
        """Bytes that the taken (or else the best) alternative saves over the baseline; None where not integers."""
        base = self.alternatives[0].bytes
        chosen = [a for a in self.alternatives[1:] if not self.fired or a.name == self.taken]
        others = [a.bytes for a in chosen if isinstance(a.bytes, int)]
        return base - min(others) if isinstance(base, int) and others else None

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, as `typed` reads it."""
        return plain(self)


class Ledger:
    """The decisions of one compilation, in the order in which they were taken.

    Args:
        level: one of `rules.LEVELS`; rules of higher levels stay at their baseline.
        disable: ids, rules (`fuse.epilogue`) or stages (`fuse`) whose decisions stay at their baseline.
        pins: by id of a decision, the name of the alternative to take whatever the stage prefers.
        schedules: the contents of a schedules file; a pin overrides it.
        prefix: grant only the first `prefix` requests for another alternative than the baseline; None grants all.
        grants: whether to grant request number n (from 0); None grants all.
        granted: the ids of the decisions whose requests are granted; None grants all. Implies `lenient`, because
            granting only some decisions changes which others occur and what they allow.
        lenient: ignores names that match no decision, and takes the baseline where a pin or a schedules file asks for
            an illegal alternative: they may come from another compilation.
        rules: the decision rules by name, which `disable` may name even if no decision of theirs occurs.
        measured: measurements by id of a decision; they override predictions. One whose alternative is illegal or
            missing is ignored: that depends on other decisions.
    """

    def __init__(
        self,
        disable: Sequence[str] = (),
        prefix: int | None = None,
        *,
        level: str = LEVELS[-1],
        pins: Mapping[str, str] | None = None,
        schedules: SchedulesFile | None = None,
        grants: Callable[[int], bool] | None = None,
        granted: Collection[str] | None = None,
        lenient: bool = False,
        rules: Mapping[str, DecisionRule] = RULES,
        measured: Mapping[str, Measured] | None = None,
    ) -> None:
        if prefix is not None and prefix < 0:
            raise ValueError(f"prefix is {prefix}, expected a count of decisions")
        self._decisions: list[Decision] = []
        self._by_id: dict[str, Decision] = {}
        self._level = level
        self._disable = frozenset(disable)
        self._pins = dict(pins or {})
        self.schedules = schedules
        self._grants = grants
        self._granted = granted
        self.lenient = lenient or granted is not None
        self._prefix = prefix
        self._rules = rules
        self._measured = dict(measured or {})
        self._requests = 0
        self._variant = ""
        self._labels: dict[str, str] = {}
        self._follows: dict[tuple[str, str, str], str] = {}
        self._constants: dict[str, str] = {}
        """By id of a decision about the layout or dtype of a constant, the constant."""

    def with_measured(self, measured: Mapping[str, Measured] | None = None) -> Ledger:
        """A copy that continues from here, with these measurements added."""
        other = copy(self)
        other._decisions, other._by_id = list(self._decisions), dict(self._by_id)
        other._constants = dict(self._constants)
        other._measured = {**self._measured, **(measured or {})}
        return other

    def annotated(self, measured: Mapping[str, Measured]) -> Ledger:
        """A copy whose recorded decisions are annotated with these measurements."""
        other = self.with_measured(measured)
        other._decisions = [d if d.id not in measured else _annotated(d, measured[d.id]) for d in self]
        other._by_id = {d.id: d for d in other._decisions}
        return other

    def variant(self, name: str, labels: Mapping[str, str], follows: str = "") -> None:
        """Starts the decisions of a variant of the model; the same node has separate decisions in each variant.

        Args:
            labels: the name of each value in decision ids; see `tensor.label.labels`.
            follows: a variant whose weights this one shares: decisions about their layout and dtype are taken as there.
        """
        self._variant = name
        self._labels = dict(labels)
        self._follows = {}
        for d in self._decisions:
            if follows and d.variant == follows and d.rule in STORAGE_RULES and not d.crossovers:
                for key in _storage_keys(d.rule, d.subject, self._constants.get(d.id, "")):
                    self._follows.setdefault(key, d.taken)

    def label(self, name: str) -> str:
        """The name of a value in decision ids and in schedules files."""
        return self._labels.get(name, name)

    def set_label(self, name: str, label: str) -> None:
        """Sets the label of a value that a stage adds to the program."""
        self._labels[name] = label

    def decide(
        self,
        *,
        rule: str,
        site: Sequence[str],
        subject: Sequence[str],
        alternatives: Sequence[Alternative],
        prefer: str | None = None,
        reason: str,
        failed: Mapping[str, int | str] | None = None,
        field: tuple[str, str] = ("", ""),
        level: str = "",
        crossovers: Callable[[str], Iterable[Crossover]] | None = None,
        constant: str = "",
    ) -> str:
        """Records a decision and returns the name of the alternative to take.

        That is the pinned one; else, where the request is granted, the one that the stage prefers; else the baseline.

        Args:
            rule: `stage.heuristic`, one of `rules.RULES`.
            site: names of the graph nodes that it is about.
            subject: names of values that identify the decision among those of this rule (for an edge, both its ends);
                they must not depend on other decisions (loops are numbered in order of appearance).
            alternatives: the choices; the first must be legal whatever else is decided.
            prefer: the name of the alternative that the stage prefers; None: the one with the least `seconds`.
            reason: why, in a phrase.
            failed: either the values of the predicate that rules out all alternatives but the first, or the reason of
                each illegal alternative by its name.
            field: for a field of a schedule: the first output of the region, and the field's name.
            level: the lowest level that permits more than the baseline, where it differs from the rule's.
            crossovers: the sizes at which others are better than the alternative that is taken, by its name.
            constant: the constant whose layout or dtype this decides, "" for none. In a variant that follows another
                one, it is decided as there, even if the value that is computed from the constant has another label.

        Raises OptionError when a pin or a schedules file names an alternative that does not exist or is not legal.
        """
        names = [a.name for a in alternatives]
        wanted = cheapest(alternatives).name if prefer is None else prefer
        if wanted not in names:
            raise ValueError(f"{rule} prefers {wanted!r}, which is not among its alternatives {names}")
        if len(set(names)) != len(names):
            raise ValueError(f"{rule} names an alternative twice: {names}")
        legal = _legal(names, wanted, failed or {})
        if wanted not in legal:
            raise ValueError(f"{rule} prefers {wanted!r}, which {dict(failed or {})} ruled out")
        labels = " > ".join(map(self.label, subject))
        identity = self._identify(rule, labels)
        followed = [
            self._follows[key] for key in _storage_keys(rule, labels, constant) if self._follows.get(key) in legal
        ]
        if followed:
            wanted, reason = followed[0], "as in the variant for all sizes, with which this one shares its weights"
        measured = self._measured.get(identity)
        if measured is not None:
            alternatives = _timed(alternatives, measured)
            if measured.taken in legal:
                wanted, reason = measured.taken, measured.reason
        region, part = self.label(field[0]), field[1]
        pin = self._pin(identity, rule, region, part, names[0])
        taken = wanted
        if pin is not None and self.lenient and pin[0] not in legal:
            taken = names[0]
        elif pin is not None:
            taken = _checked_pin(*pin, rule, names, legal, failed or {})
        elif wanted != names[0] and not self._grant(identity, rule, level):
            taken = names[0]
        decision = Decision(
            id=identity,
            rule=rule,
            site=tuple(site),
            alternatives=tuple(alternatives),
            taken=taken,
            preferred=wanted,
            reason=reason,
            failed=dict(failed or {}),
            subject=labels,
            pinned=pin is not None,
            variant=self._variant,
            region=region,
            part=part,
            level=level,
            crossovers=() if crossovers is None else tuple(crossovers(taken)),
        )
        self._decisions.append(decision)
        self._by_id[identity] = decision
        if constant:
            self._constants[identity] = constant
        return taken

    def _pin(self, identity: str, rule: str, region: str, part: str, baseline: str) -> tuple[str, str] | None:
        """The alternative that a pin or a schedules file demands, and its source as text; None where neither does."""
        if identity in self._pins:
            return self._pins[identity], f"pin {identity}={self._pins[identity]}"
        if self.schedules is None:
            return None
        if part:
            try:
                return self.schedules.field(self._variant, region, part, rule, baseline)
            except OptionError:
                if self.lenient:
                    return None
                raise
        return self.schedules.decision(self._variant, identity, baseline)

    def _identify(self, rule: str, subject: str) -> str:
        text = "\0".join((rule, self._variant, subject)).encode("utf-8", "surrogatepass")
        identity = hashlib.sha256(text).hexdigest()[:10]
        if identity in self._by_id:
            raise ValueError(f"{rule} decides twice about {subject!r}")
        return identity

    def _grant(self, identity: str, rule: str, level: str) -> bool:
        """Counts a request for another alternative than the baseline, and says whether it is granted."""
        number = self._requests
        self._requests += 1
        if identity in self._disable or not self.allows(rule, level):
            return False
        if self._granted is not None and identity not in self._granted:
            return False
        return (self._prefix is None or number < self._prefix) and (self._grants is None or self._grants(number))

    def allows(self, rule: str, level: str = "") -> bool:
        """Whether decisions of a rule may leave their baseline: neither disabled nor of a higher level."""
        return not self._disable & {rule, stage_of(rule)} and allowed(rule, self._level, level, self._rules)

    def may_change(self, decision: Decision) -> bool:
        """Whether another alternative of this recorded decision would be granted: it is neither pinned nor disabled,
        and the level permits it."""
        held = decision.pinned or decision.id in self._disable or decision.overridden
        return not held and self.allows(decision.rule, decision.level)

    def check_names(self) -> None:
        """Raises OptionError when a pin, an entry of `disable` or a line of the schedules file matches no decision: it
        is misspelt, or belongs to another model.

        To be called after the last decision."""
        if self.lenient:
            return
        known = {*self._by_id, *self._rules, *map(stage_of, self._rules), *(d.rule for d in self._decisions)}
        for option, names in (("disable", self._disable), ("pin", self._pins)):
            unknown = sorted(set(names) - (set(self._by_id) if option == "pin" else known))
            if unknown:
                close = difflib.get_close_matches(unknown[0], sorted(known), 3, 0.6)
                hint = f"did you mean {', '.join(close)}?" if close else "`opweld explain --ids` lists every decision"
                raise OptionError(f"{option} {unknown[0]!r}: no such decision, rule or stage; {hint}")
        if self.schedules is not None:
            self.schedules.check_decisions({d.id: d.rule for d in self._decisions if not d.part})

    @property
    def requests(self) -> int:
        """The number of requests for another alternative than the baseline: the largest useful `prefix`."""
        return self._requests

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._decisions)

    def __len__(self) -> int:
        return len(self._decisions)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Maps each rule to (decisions that took more than the baseline, all decisions), in order of first use."""
        total = Counter(d.rule for d in self._decisions)
        fired = Counter(d.rule for d in self._decisions if d.fired)
        return {rule: (fired[rule], total[rule]) for rule in total}

    def near_misses(self) -> list[Decision]:
        """Near misses, by the bytes that each would save: most first, uncounted and symbolic ones last."""
        return sorted((d for d in self._decisions if d.near_miss), key=lambda d: -(d.saved_bytes or 0))

    def about(self, node: str) -> list[Decision]:
        """The decisions whose site holds the graph node `node`."""
        return [d for d in self._decisions if node in d.site]

    def to_json(self) -> list[dict[str, Any]]:
        """All decisions as JSON types."""
        return [d.to_json() for d in self._decisions]

    def dumps(self) -> str:
        """The ledger as text, one decision a line, so that two ledgers can be compared with diff."""
        if not self._decisions:
            return "[]\n"
        return "[\n" + ",\n".join(json.dumps(d, sort_keys=True) for d in self.to_json()) + "\n]\n"

    @classmethod
    def of(cls, decisions: Sequence[Decision]) -> Ledger:
        """A ledger that holds decisions of another one."""
        ledger = cls()
        ledger._decisions = list(decisions)
        ledger._requests = sum(d.preferred != d.baseline for d in decisions)
        return ledger

    @classmethod
    def loads(cls, text: str) -> Ledger:
        """The ledger that `dumps` wrote. Raises ArtifactError when `text` is something else."""
        return cls.of(decoded(tuple[Decision, ...], text, "ledger.json"))


def _storage_keys(rule: str, subject: str, constant: str) -> Sequence[tuple[str, str, str]]:
    """Keys under which a decision about the layout or dtype of a constant is found again in another variant, the most
    specific first: by the constant where it is known, for the value computed from it may have another label there."""
    known = ((rule, subject, constant), (rule, "", constant)) if constant else ()
    return (*known, (rule, subject, ""))


def _timed(alternatives: Sequence[Alternative], measured: Measured) -> Sequence[Alternative]:
    return [replace(a, measured=measured.seconds.get(a.name)) for a in alternatives]


def _annotated(decision: Decision, measured: Measured) -> Decision:
    reason = measured.reason if measured.taken == decision.taken else decision.reason
    return replace(decision, alternatives=tuple(_timed(decision.alternatives, measured)), reason=reason)


def _legal(names: Sequence[str], wanted: str, failed: Mapping[str, int | str]) -> Sequence[str]:
    """The names of the legal alternatives; `failed` as for `Ledger.decide`."""
    if not failed or wanted != names[0] or all(key in names for key in failed):
        return [name for name in names if name not in failed]
    return names[:1]


def _checked_pin(
    alternative: str,
    where: str,
    rule: str,
    names: Sequence[str],
    legal: Sequence[str],
    failed: Mapping[str, int | str],
) -> str:
    """The pinned alternative. Raises OptionError when it does not exist or is not legal."""
    if alternative not in names:
        raise OptionError(f"{where}: {rule} has no alternative {alternative!r} here, only {', '.join(names)}")
    if alternative not in legal:
        why = ", ".join(f"{key} = {value}" for key, value in failed.items())
        raise OptionError(f"{where}: {rule} cannot do that here ({printable(why)}), only {', '.join(legal)}")
    return alternative


def printable(text: str, limit: int = 120) -> str:
    """`text` with control characters escaped, its middle cut out beyond `limit`: a model may be hostile."""
    if len(text) > limit:
        text = f"{text[: limit // 2]}...{text[-limit // 2 + 3 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
