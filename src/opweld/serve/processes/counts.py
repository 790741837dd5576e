"""What a server counts, as values of JSON, so that those of several processes are added up.

What a process that died had counted is kept, as far as it was told: a counter that fell, because one of several
processes began anew, would be taken for one that began at zero, and all that the others ever counted for new."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

Counts: TypeAlias = dict[str, Any]
"""families: by name, [type, documentation, [[name, labels by name, value], ...]], as prometheus_client has them.
models: by "NAME VERSION", the numbers of `Statistics` by name."""

_LASTING = ("counter", "histogram")
_PASSING = ("waiting", "running")
"""Statistics of a model that are of one moment."""

_LATEST = "last_ns"


def added(parts: Iterable[Counts]) -> Counts:
    """The sums of several: of gauges too; the earliest time at which a counter began."""
    families: dict[str, tuple[str, str, dict[Any, list[Any]]]] = {}
    models: dict[str, dict[str, int]] = {}
    for part in parts:
        for name, (kind, documentation, samples) in part.get("families", {}).items():
            sums = families.setdefault(name, (kind, documentation, {}))[2]
            for sample, labels, value in samples:
                found = sums.setdefault((sample, tuple(sorted(labels.items()))), [sample, labels, None])
                how = min if sample.endswith("_created") else _sum
                found[2] = value if found[2] is None else how(found[2], value)
        for model, numbers in part.get("models", {}).items():
            before = models.setdefault(model, dict.fromkeys(numbers, 0))
            for name, number in numbers.items():
                before[name] = max(before[name], number) if name == _LATEST else before[name] + number
    told = {name: [kind, text, list(samples.values())] for name, (kind, text, samples) in families.items()}
    return {"families": told, "models": models}


def kept(counts: Counts) -> Counts:
    """Of what a process told that is no more, what goes on to count: no gauges."""
    families = {name: family for name, family in counts.get("families", {}).items() if family[0] in _LASTING}
    models = {
        model: {name: 0 if name in _PASSING else number for name, number in numbers.items()}
        for model, numbers in counts.get("models", {}).items()
    }
    return {"families": families, "models": models}


def without(counts: Counts, model: str) -> Counts:
    """The same without what is of a model, which counts from zero when it is loaded anew."""
    families = {
        name: [kind, text, [sample for sample in samples if sample[1].get("model") != model]]
        for name, (kind, text, samples) in counts.get("families", {}).items()
    }
    models = {one: numbers for one, numbers in counts.get("models", {}).items() if one.rpartition(" ")[0] != model}
    return {"families": families, "models": models}


def _sum(left: float, right: float) -> float:
    return left + right
