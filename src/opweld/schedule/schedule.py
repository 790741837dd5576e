"""How a region is computed, as a value that is chosen once, printed, parsed, verified and replayed.

A `Schedule` has a part for each member of its region, in order. A concatenation has one for each part that is copied. A
recurrence has maps too: for the initial states, first; for stacked results and the states, after the members of each
step; for the final states, last. Maps that fill the padding of outputs follow, one for each side of each axis.

    map          lane, vectors, chunk, inner; square
    contraction  lane, vectors, row, height, order, span, taps, scales, unit; algorithm, tiles, groups
    window       the same
    rows         lane, vectors, kept

and the fields of the whole kernel: how many rows of the block a grid iteration computes, how many columns at a time,
whether columns that a mask excludes are computed, and how each innermost loop is written. With a block of columns, its
members come twice, for full blocks and for the remainder, then maps that initialise and finish the result.
Axes have the names that they have in the tensor program: `i0`, `i1`, ... (`i2o` and `i2i` where `i2` was split in an
outer and an inner one). Of a row kernel, columns are `c0`, ... and kept axes `r0`, ...; the rows of a block are `m`;
`one` is an axis of extent one that does not exist.
Every field is decided by a rule of the ledger, and nothing else decides how a kernel is computed. Where a kernel leaves
nothing to decide, a field has the value of its `absent`.

    contraction lane=i1 vectors=2 row=i0 height=14 order=rows taps=loop; loop unroll=4 fetch=1
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, cast

from opweld.errors import OptionError

NO_AXIS = "one"
"""The name of an axis that is not there: a lane or row of extent one."""

WIDEST = 4
"""The most vectors of a tile: that much independent work hides the latency of loads, sums and functions."""


def _decided(rule: str, default: Any = dataclasses.MISSING, absent: Any = None) -> Any:
    """A field that a rule of the ledger decides; its value is `absent` (or the default) where there is no choice."""
    return field(default=default, metadata={"rule": rule, "absent": default if absent is None else absent})


@dataclass(frozen=True)
class MapSchedule:
    """Elementwise work.

    Attributes:
        lane: the axis along which vectors run. vectors: how many of them a tile has.
        chunk: lane tiles of one grid iteration; 0 for all of them.
        inner: how many more axes an iteration takes in, innermost first. Where one thread does all iterations, as in a
            recurrence and around a value, neither is to decide.
        square: an axis along which what is read is contiguous. A tile has as many indices of it as a vector has lanes,
            so that squares of elements are loaded, and transposed in registers; `one`: there is no such axis.
    """

    name: ClassVar[str] = "map"
    lane: str = _decided("schedule.lane", absent=NO_AXIS)
    vectors: int = _decided("schedule.vectors", absent=1)
    chunk: int = _decided("schedule.chunk", 0)
    inner: int = _decided("schedule.inner", 0)
    square: str = _decided("schedule.row", NO_AXIS)


@dataclass(frozen=True)
class ReductionSchedule:
    """A contraction or window: a register tile of `height` rows (MR) of `vectors` vectors (NR, in vectors).

    Attributes:
        lane: the axis along which vectors run. row: the axis of the rows of the tile, or `one`.
        order: the order of the grid's tiles: `rows` (a block of weights stays in cache while all rows are multiplied
            by it) or `lanes` (rows stay in cache while all weights pass); in a recurrence also `turns`, serpentine (as
            `rows`, but every other step reads the weights backwards, and finds the last ones in cache).
        span: MC: how many indices of the slowest row axis (or row tiles) are multiplied by a block of weights before
            the next block; 0 for all. The block of rows stays in cache meanwhile.
        taps: `loop`, or `written` out for the innermost reduced axis.
        scales: what the scale of a block of weights multiplies, `products` or their `sums`.
        unit: where sums are held, in `vector` registers or in those of a `matrix` unit.
        algorithm: `direct`, or `winograd` for a convolution of 3 x 3. In the latter a row is a tile of 2 x 2
            results; tiles: how many a grid iteration computes. groups: into how many the lanes are divided, each an
            iteration of its own.
    """

    name: ClassVar[str] = "contraction"
    lane: str = _decided("schedule.lane", absent=NO_AXIS)
    vectors: int = _decided("schedule.vectors", absent=1)
    row: str = _decided("schedule.row", NO_AXIS)
    height: int = _decided("schedule.height", 1)
    order: str = _decided("schedule.order", "rows")
    span: int = _decided("schedule.span", 0)
    taps: str = _decided("schedule.taps", "loop")
    scales: str = _decided("schedule.scales", "products")
    unit: str = _decided("schedule.unit", "vector")
    algorithm: str = _decided("schedule.algorithm", "direct")
    tiles: int = _decided("schedule.tiles", 0)
    groups: int = _decided("schedule.groups", 0)


@dataclass(frozen=True)
class WindowSchedule(ReductionSchedule):
    """A reduction that slides over the result's own axes."""

    name: ClassVar[str] = "window"


@dataclass(frozen=True)
class RowSchedule:
    """Passes over a row.

    Attributes:
        lane: the axis along which vectors run: a column (`c0`, ...) or a kept axis (`r0`, ...).
        vectors: how many of them a tile has.
        kept: by position, the members whose rows stay in scratch between passes; the others are computed again.
    """

    name: ClassVar[str] = "rows"
    lane: str = _decided("schedule.lane", absent=NO_AXIS)
    vectors: int = _decided("schedule.vectors", absent=1)
    kept: tuple[int, ...] = _decided("schedule.keep", ())


MemberSchedule: TypeAlias = MapSchedule | ReductionSchedule | WindowSchedule | RowSchedule
MEMBERS: dict[str, type[Any]] = {
    kind.name: kind for kind in (MapSchedule, ReductionSchedule, WindowSchedule, RowSchedule)
}


@dataclass(frozen=True)
class LoopSchedule:
    """How an innermost loop is written.

    Attributes:
        unroll: the factor. fetch: cache lines of the next grid iteration's weights that each unrolled body prefetches.
        separate: whether each accumulation loads its own operands, which limits live ranges and saves registers.
    """

    unroll: int = _decided("schedule.unroll", 1)
    fetch: int = _decided("schedule.prefetch", 0)
    separate: bool = _decided("schedule.separate", False)

    @classmethod
    def of(cls, taken: Mapping[str, str]) -> LoopSchedule:
        """From the alternatives taken, by rule; defaults where there was no decision."""
        found = {f.name: taken[f.metadata["rule"]] for f in dataclasses.fields(cls) if f.metadata["rule"] in taken}
        return _build(cls, "loop", " ".join(f"{name}={text}" for name, text in found.items()))


@dataclass(frozen=True)
class Schedule:
    """How a region is computed.

    Attributes:
        members: one for each member of the region, in order, and for the maps around them: see above.
        rows: rows of its block that a grid iteration computes; 0 where the region has no block.
        columns: columns of a block that are computed at a time, with states carried between them; 0 for all.
        masked: whether columns that a mask excludes for all rows of a block are `computed` or `skipped`.
        loops: one for each accumulation loop with a choice, inner ones first.
    """

    members: tuple[MemberSchedule, ...]
    rows: int = _decided("schedule.block", 0)
    columns: int = _decided("schedule.columns", 0)
    masked: str = _decided("schedule.masked", "computed")
    loops: tuple[LoopSchedule, ...] = ()

    def __str__(self) -> str:
        parts = [_print(member.name, member, _RARE) for member in self.members]
        if self.rows:
            words = [f"rows={self.rows}", *([f"columns={self.columns}"] if self.columns else [])]
            parts.insert(0, " ".join(["block", *words, *(["masked=skipped"] if self.masked == "skipped" else [])]))
        parts += [_print("loop", loop, vars(LoopSchedule())) for loop in self.loops]
        return "; ".join(parts)

    def fields(self) -> Iterator[tuple[tuple[str, str], str]]:
        """((part, rule), text) of every field. The parts are `block`, `member N`, `loop N`, and `member N tensor M` for
        each tensor whose rows stay in scratch. The kind of a member, such as `contraction`, has the rule `kind`."""
        if self.rows:
            yield ("block", "schedule.block"), str(self.rows)
            yield ("block", "schedule.columns"), str(self.columns)
            yield ("block", "schedule.masked"), self.masked
        for number, member in enumerate(self.members):
            part = f"member {number}"
            yield (part, "kind"), member.name
            for entry in dataclasses.fields(member):
                value = getattr(member, entry.name)
                if isinstance(value, tuple):
                    for position in cast("tuple[int, ...]", value):
                        yield (f"{part} tensor {position}", entry.metadata["rule"]), "scratch"
                else:
                    yield (part, entry.metadata["rule"]), _text(value)
        for number, loop in enumerate(self.loops):
            for entry in dataclasses.fields(loop):
                yield (f"loop {number}", entry.metadata["rule"]), _text(getattr(loop, entry.name))


def _print(name: str, part: Any, usual: Mapping[str, Any]) -> str:
    """The text of a part, without fields that have their `usual` values."""
    words = [name]
    for entry in dataclasses.fields(part):
        value = getattr(part, entry.name)
        if entry.name not in usual or value != usual[entry.name]:
            words.append(f"{entry.name}={_text(value)}")
    return " ".join(words)


_RARE = {
    "square": NO_AXIS,
    "span": 0,
    "scales": "products",
    "unit": "vector",
    "algorithm": "direct",
    "tiles": 0,
    "groups": 0,
}
"""Fields of members that are not printed at these values."""


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(str(item) for item in cast("tuple[object, ...]", value)) or "none"
    return str(value)


def parse_schedule(text: str) -> Schedule:
    """The schedule that `str` printed. Raises OptionError naming the part that is none."""
    members: list[MemberSchedule] = []
    loops: list[LoopSchedule] = []
    rows, columns, masked = 0, 0, "computed"
    for part in filter(None, map(str.strip, text.split(";"))):
        name, _, rest = part.partition(" ")
        if name == "block":
            given = dict(_pairs(part, rest))
            rows, columns = _number(given.pop("rows", ""), part), _number(given.pop("columns", "0"), part)
            masked = given.pop("masked", masked)
            if given:
                raise OptionError(f"schedule: {part!r} has no {next(iter(given))!r}, only rows, columns, masked")
            if masked not in ("computed", "skipped"):
                raise OptionError(f"schedule: {part!r} has masked={masked}, expected computed or skipped")
        elif name == "loop":
            loops.append(_build(LoopSchedule, part, rest))
        elif name in MEMBERS:
            members.append(_build(MEMBERS[name], part, rest))
        else:
            raise OptionError(f"schedule: {part!r} begins with none of block, loop, {', '.join(MEMBERS)}")
    return Schedule(tuple(members), rows, columns, masked, tuple(loops))


def _pairs(part: str, rest: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for word in rest.split():
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise OptionError(f"schedule: {word!r} in {part!r} is not NAME=VALUE")
        if key in dict(found):
            raise OptionError(f"schedule: {part!r} says {key} twice")
        found.append((key, value))
    return found


def _build(kind: type[Any], part: str, rest: str) -> Any:
    known = {f.name: f for f in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in _pairs(part, rest):
        if key not in known:
            raise OptionError(f"schedule: {part!r} has no {key!r}, only {', '.join(known)}")
        values[key] = _value(str(known[key].type), value, part)
    missing = [f.name for f in known.values() if f.name not in values and f.default is dataclasses.MISSING]
    if missing:
        raise OptionError(f"schedule: {part!r} lacks {missing[0]}")
    return kind(**values)


def _value(kind: str, text: str, part: str) -> Any:
    if kind == "int":
        return _number(text, part)
    if kind == "bool":
        if text not in ("yes", "no"):
            raise OptionError(f"schedule: {text!r} in {part!r} is neither yes nor no")
        return text == "yes"
    if kind.startswith("tuple"):
        return () if text == "none" else tuple(_number(item, part) for item in text.split(","))
    return text


def _number(text: str, part: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"schedule: {text!r} in {part!r} is no whole number")
    return int(text)
