"""What this machine can do at most: its ceilings, as `opweld machine` measured them, and how sure they are.

A ceiling is the median of samples that were taken all over the time of measuring, interleaved with those of the others:
what somebody else does on a shared machine shows as spread, and not as a machine of another kind.
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
"""Version of the schema: fields may be added to it, none goes or changes what it means."""

MEASURING: Final = 2
"""Version of how ceilings are measured: what another version remembered is measured again."""

CALM: Final = 0.1
NOISY: Final = 0.25
"""Spreads up to which a figure is taken for sure, and beyond which for doubtful."""

_MOST = 0.9
"""The part of the figures that must be calm for all to be sure: some, as the barrier, are never so."""

_AT_LEAST = 0.9
"""Of one core's figure, what all threads must reach together, and of a deeper level's, a nearer one: noise aside."""

_NEARLY = 0.8
"""Of the ceiling of all threads, the part from which some threads, each with its own, are held to reach it."""

_SEEN = 0.5
"""Of a cache that the processor tells of, the part below which what one core sees of it is worth a word."""

Sure = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Figure:
    """What was measured: the median of samples, how far they lie apart, and how many there are.

    Attributes:
        spread: the 90th percentile less the 10th, as a part of the median.
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
        """The ceiling of so many threads: no more than each its own, and no more than all together. What is nearly that
        of all is that of all, for one core alone may be slower than one of several."""
        if threads <= 1:
            return self.one.value
        each_its_own = threads * self.one.value
        return each_its_own if each_its_own < _NEARLY * self.all.value else max(self.all.value, self.one.value)


@dataclass(frozen=True)
class Level:
    """A level of memory.

    Attributes:
        name: L1, L2, L3 or DRAM.
        bytes: what one core sees of it; 0 of DRAM.
        read, write: bytes a second, plain loads and stores.
        latency: seconds of a load whose address the load before it gave.
        declared: bytes that the processor says it holds; 0 of DRAM.
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
        processor: as it calls itself. target: name of the target that it was measured with.
        threads: how many `all` is.
        measured: when, as an ISO date and time, UTC. opweld: the version that measured.
        compute: operations a second by kind (`fp32`, `bf16`, `int8`), of which a multiply-add is two; a kind for which
            the processor has no instruction is absent.
        levels: of memory, from the nearest.
        barrier: seconds that all threads take to wait for each other.
        notes: how it was measured, where that may differ between machines.
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
        """How far the figures can be relied upon: `doubts` says why not further."""
        spreads = sorted(figure.spread for _, figure in self._figures())
        usual = spreads[math.ceil(_MOST * len(spreads)) - 1]
        if usual > NOISY or any(True for _ in self._contradictions()):
            return "low"
        return "high" if usual <= CALM else "medium"

    @property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against the figures, a sentence each, the worst first."""
        noisy = sorted((item for item in self._figures() if item[1].spread > CALM), key=lambda item: -item[1].spread)
        found = [*self._contradictions()]
        found += [f"{name} varied by {figure.spread:.0%} while it was measured" for name, figure in noisy]
        return (*found, *self._hidden())

    def dumps(self) -> str:
        """The machine as JSON text; docs/machine.schema.json says what each field is."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"

    def to_json(self) -> dict[str, Any]:
        """The machine as JSON types, and what follows from its figures: how sure they are, and why not surer."""
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
        """The machine that a text tells of. Raises ArtifactError where it tells of none."""
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
            raise ArtifactError(f"this text tells of no machine: {what}; run `opweld machine` again") from error

    @classmethod
    def remembered(cls, cache: Cache | None = None, threads: int = 0) -> Machine | None:
        """What was measured here before, with so many threads (all processors where 0); None where nothing was.

        A figure of another processor is none of this one, even if the folder of the cache moved here."""
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
        """Keeps the figures for `remembered`, in the place of those before."""
        (cache or Cache.open()).publish_text("machines", _key(self.threads), self.dumps())

    def _figures(self) -> Iterator[tuple[str, Figure]]:
        """Every figure under a name for people."""
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
        """Figures of which one must be wrong."""
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
        """Caches of which this machine has less than it says: others have the rest."""
        for level in self.levels:
            if level.bytes < _SEEN * level.declared:
                yield (
                    f"{level.name} is said to hold {_mebibytes(level.declared)}, of which one core was seen to have "
                    f"{_mebibytes(level.bytes)}: others share it"
                )


def _key(threads: int) -> str:
    """What the ceilings depend on, as far as this process can tell."""
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
