"""The ceilings of a machine, as measured by `opweld machine`, and their reliability.

A ceiling is the median of samples taken over the whole time of measuring, interleaved with those of the others, so that
interference on a shared machine shows as spread.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, cast

from opweld.build.cache import Cache
from opweld.errors import ArtifactError
from opweld.options import available_cores
from opweld.target import Target, processor_name

FORMAT: Final = 1
"""Version of the schema: fields may be added; none is removed or changed."""

MEASURING: Final = 2
"""Version of the method: stored figures of another version are measured again."""

CALM: Final = 0.1
NOISY: Final = 0.25
"""The spread up to which a figure is reliable, and the one above which it is doubtful."""

_MOST = 0.9
"""The fraction of figures that must be reliable: some, such as the barrier, never are."""

_AT_LEAST = 0.9
"""The least ratio of all threads' figure to one core's, and of a nearer level's to a deeper one's, given noise."""

_NEARLY = 0.8
"""The fraction of the ceiling of all threads that counts as reaching it."""

_SEEN = 0.5
"""The fraction of a declared cache below which the measured size is reported as a doubt."""

Sure = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Figure:
    """A measured figure: the median of samples, their spread, and their number.

    Attributes:
        spread: the 90th percentile minus the 10th, relative to the median.
    """

    value: float
    spread: float
    samples: int


@dataclass(frozen=True)
class Pair:
    """A ceiling of one core, and of all threads together."""

    one: Figure
    all: Figure

    def at(self, threads: int) -> float:
        """The ceiling of this many threads: at most each its own, and at most all together. A value close to that of
        all counts as that of all, since one core alone may be slower than one of several."""
        if threads <= 1:
            return self.one.value
        each_its_own = threads * self.one.value
        return each_its_own if each_its_own < _NEARLY * self.all.value else max(self.all.value, self.one.value)


@dataclass(frozen=True)
class Level:
    """A level of memory.

    Attributes:
        name: L1, L2, L3 or DRAM.
        bytes: available to one core; 0 for DRAM.
        read, write: bytes per second of plain loads and stores.
        latency: seconds of a load that depends on the one before.
        declared: its size as reported by the processor; 0 for DRAM.
    """

    name: str
    bytes: int
    read: Pair
    write: Pair
    latency: Figure
    declared: int = 0


@dataclass(frozen=True)
class Machine:
    """The measured ceilings of a machine.

    Attributes:
        processor: its name. target: name of the target of the measurement.
        threads: the number of threads of `all`.
        measured: when, as an ISO date and time, UTC. opweld: the version that measured it.
        compute: operations a second by kind (`fp32`, `bf16`, `int8`), of which a multiply-add is two; a kind for which
            the processor has no instruction is absent.
        levels: of memory, from the nearest.
        barrier: seconds of a barrier of all threads.
        notes: conditions of the measurement.
    """

    processor: str
    target: str
    threads: int
    measured: str
    opweld: str
    compute: Mapping[str, Pair]
    levels: tuple[Level, ...]
    barrier: Figure
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "compute", MappingProxyType(dict(self.compute)))

    def level(self, name: str) -> Level | None:
        """The level of this name, if it was measured."""
        return next((level for level in self.levels if level.name == name), None)

    def ridge(self, kind: str, level: Level, threads: int) -> float:
        """Operations a byte at which the arithmetic of a kind takes as long as reading from a level."""
        return self.compute[kind].at(threads) / level.read.at(threads)

    @property
    def sure(self) -> Sure:
        """The reliability of the figures; `doubts` are the reasons."""
        spreads = sorted(figure.spread for _, figure in self._figures())
        usual = spreads[math.ceil(_MOST * len(spreads)) - 1]
        if usual > NOISY or any(True for _ in self._contradictions()):
            return "low"
        return "high" if usual <= CALM else "medium"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt the figures, a sentence each, the worst first."""
        noisy = sorted((item for item in self._figures() if item[1].spread > CALM), key=lambda item: -item[1].spread)
        found = [*self._contradictions()]
        found += [f"{name} varied by {figure.spread:.0%} while it was measured" for name, figure in noisy]
        return (*found, *self._hidden())

    def dumps(self) -> str:
        """The machine as JSON text; docs/machine.schema.json documents the fields."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"

    def to_json(self) -> dict[str, Any]:
        """The machine as JSON types, with the reliability of its figures and the doubts."""
        return {
            "format": FORMAT,
            "processor": self.processor,
            "target": self.target,
            "threads": self.threads,
            "measured": self.measured,
            "opweld": self.opweld,
            "compute": {kind: _pair_json(pair) for kind, pair in self.compute.items()},
            "levels": [
                {
                    "name": level.name,
                    "bytes": level.bytes,
                    "declared": level.declared,
                    "read": _pair_json(level.read),
                    "write": _pair_json(level.write),
                    "latency": _figure_json(level.latency),
                }
                for level in self.levels
            ],
            "barrier": _figure_json(self.barrier),
            "notes": list(self.notes),
            "ridges": [
                {
                    "kind": kind,
                    "level": level.name,
                    "one": self.ridge(kind, level, 1),
                    "all": self.ridge(kind, level, self.threads),
                }
                for kind in self.compute
                for level in self.levels
            ],
            "sure": self.sure,
            "doubts": list(self.doubts),
        }

    @classmethod
    def loads(cls, text: str) -> Machine:
        """Parses the text of a machine. Raises ArtifactError if invalid."""
        try:
            data = _object(json.loads(text))
            if data.get("format") != FORMAT:
                raise ValueError(f"format is {data.get('format')!r}, expected {FORMAT}")
            return cls(
                processor=_text(data, "processor"),
                target=_text(data, "target"),
                threads=_count(data, "threads", 1),
                measured=_text(data, "measured"),
                opweld=_text(data, "opweld"),
                compute={kind: _pair(pair) for kind, pair in _object(data["compute"]).items()},
                levels=tuple(_level(level) for level in _list(data, "levels")),
                barrier=_figure(data["barrier"]),
                notes=tuple(str(note) for note in _list(data, "notes")),
            )
        except (ValueError, KeyError, RecursionError) as error:
            what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ArtifactError(f"this text does not describe a machine: {what}; run `opweld machine` again") from error

    @classmethod
    def remembered(cls, cache: Cache | None = None, threads: int = 0) -> Machine | None:
        """The stored figures of this machine with this many threads (0: all processors); None if there are none.

        Figures of another processor are not returned, even if the cache was moved here."""
        threads = threads or available_cores()
        text = (cache or Cache.open()).find_text("machines", _key(threads))
        if text is None:
            return None
        try:
            found = cls.loads(text)
        except ArtifactError:
            return None
        return found if found.processor == processor_name() and found.threads == threads else None

    def remember(self, cache: Cache | None = None) -> None:
        """Stores the figures for `remembered`, replacing earlier ones."""
        (cache or Cache.open()).publish_text("machines", _key(self.threads), self.dumps())

    def _figures(self) -> Iterator[tuple[str, Figure]]:
        """Every figure under a descriptive name."""
        for kind, pair in self.compute.items():
            yield f"{kind} arithmetic on one core", pair.one
            yield f"{kind} arithmetic on all threads", pair.all
        for level in self.levels:
            yield f"reading {level.name} on one core", level.read.one
            yield f"reading {level.name} on all threads", level.read.all
            yield f"writing {level.name} on one core", level.write.one
            yield f"writing {level.name} on all threads", level.write.all
            yield f"the latency of {level.name}", level.latency
        yield "the barrier", self.barrier

    def _contradictions(self) -> Iterator[str]:
        """Pairs of figures that contradict each other."""
        pairs = [(f"{kind} arithmetic", pair) for kind, pair in self.compute.items()]
        pairs += [(f"reading {level.name}", level.read) for level in self.levels]
        pairs += [(f"writing {level.name}", level.write) for level in self.levels]
        for what, pair in pairs:
            if pair.all.value < _AT_LEAST * pair.one.value:
                yield f"{what} was slower on all threads than on one core"
        for near, far in zip(self.levels, self.levels[1:], strict=False):
            if near.read.one.value < _AT_LEAST * far.read.one.value:
                yield f"reading {near.name} was slower than reading {far.name}"
            if near.latency.value * _AT_LEAST > far.latency.value:
                yield f"the latency of {near.name} was greater than that of {far.name}"

    def _hidden(self) -> Iterator[str]:
        """Caches of which less is available than reported: they are shared with other machines."""
        for level in self.levels:
            if level.bytes < _SEEN * level.declared:
                yield (
                    f"{level.name} is reported to hold {_mebibytes(level.declared)}, of which one core has "
                    f"{_mebibytes(level.bytes)}: others share it"
                )


def _key(threads: int) -> str:
    """The properties of the machine on which ceilings depend."""
    target = Target.native()
    caches = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
    parts = (MEASURING, processor_name(), target.name, target.features, caches, threads)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.3g} MiB"


def _figure_json(figure: Figure) -> dict[str, Any]:
    return {"value": figure.value, "spread": figure.spread, "samples": figure.samples}


def _pair_json(pair: Pair) -> dict[str, Any]:
    return {"one": _figure_json(pair.one), "all": _figure_json(pair.all)}


def _level(data: object) -> Level:
    fields = _object(data)
    return Level(
        name=_text(fields, "name"),
        bytes=_count(fields, "bytes", 0),
        read=_pair(fields["read"]),
        write=_pair(fields["write"]),
        latency=_figure(fields["latency"]),
        declared=_count(fields, "declared", 0),
    )


def _pair(data: object) -> Pair:
    fields = _object(data)
    return Pair(_figure(fields["one"]), _figure(fields["all"]))


def _figure(data: object) -> Figure:
    fields = _object(data)
    figure = Figure(_number(fields, "value"), _number(fields, "spread"), _count(fields, "samples", 1))
    if not figure.value:
        raise ValueError("value is 0, expected more")
    return figure


def _object(data: object) -> Mapping[str, object]:
    if not isinstance(data, dict):
        raise ValueError(f"expected an object, found {type(data).__name__}")
    return cast("dict[str, object]", data)


def _list(fields: Mapping[str, object], name: str) -> list[object]:
    if not isinstance(fields[name], list):
        raise ValueError(f"{name} is {fields[name]!r}, expected a list")
    return cast("list[object]", fields[name])


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, expected a text")
    return value


def _count(fields: Mapping[str, object], name: str, lowest: int) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise ValueError(f"{name} is {value!r}, expected a whole number from {lowest}")
    return value


def _number(fields: Mapping[str, object], name: str) -> float:
    value = fields[name]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value!r}, expected a number from 0")
    return float(value)
