"""Registers: the C variables behind accumulators and named values, and how they are combined."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from opweld.codegen.c.context import Context, Instance
from opweld.codegen.c.operators import NEUTRAL_INFIX, REDUCE, register
from opweld.tensor.dim import Axis
from opweld.tensor.dtype import DType

Key = tuple[int, ...]


@dataclass
class Registers:
    """One variable for each index of the axes in `over`.

    `lane` is the axis among them that fills vectors. `outside` are those whose tiles were not open yet at the
    declaration. `reducing`: a Collapse combines the lanes later; `collapsed`: it has."""

    stem: str
    dtype: DType
    over: tuple[Axis, ...]
    lane: Axis | None
    outside: frozenset[Axis] = frozenset()
    reducing: bool = False
    collapsed: bool = False
    loops: int = 0
    names: dict[Key, str] = field(default_factory=dict[Key, str])
    best: dict[Key, str] = field(default_factory=dict[Key, str])
    best_dtype: DType | None = None

    def key(self, instance: Instance, shifted: frozenset[Axis]) -> Key:
        """Which of the variables an instance means."""
        key: list[int] = []
        for axis in self.over:
            number = instance.key(axis)
            if axis is self.lane and self.collapsed:
                number = 0
            if number is None:
                raise ValueError(f"{self.stem} is used outside the tile of {axis}, over which it is held")
            if axis in shifted and axis in self.outside and not (axis is self.lane and self.reducing):
                raise ValueError(f"{self.stem} is held over {axis}, whose tail has a symbolic size")
            key.append(number)
        return tuple(key)

    def name(self, key: Key) -> str:
        """The C name of one of the variables."""
        return self.stem + "".join(
            f"_v{number}" if axis is self.lane else f"_r{number}" for axis, number in zip(self.over, key, strict=True)
        )

    def all_names(self) -> Iterator[str]:
        """Every C name."""
        yield from self.names.values()
        yield from self.best.values()

    def groups(self) -> Iterator[list[Key]]:
        """The keys that differ in the vector only, group by group."""
        position = self.over.index(self.lane) if self.lane is not None else -1

        def rest(key: Key) -> Key:
            return key if position < 0 else key[:position] + key[position + 1 :]

        for _, group in itertools.groupby(sorted(self.names, key=lambda key: (rest(key), key)), key=rest):
            yield list(group)


def declared_keys(over: tuple[Axis, ...], context: Context, lane: Axis | None, lanes: int) -> list[Key]:
    """Every index that an accumulator declared here holds: those written out, or all of a tile still to come."""
    written = {axis: [row.key for row in rows] for axis, rows in context.rows}
    if context.lane is not None:
        written[context.lane] = [vector.key for vector in context.vectors]
    choices: list[list[int]] = []
    for axis in over:
        width = int(axis.extent)
        choices.append(written.get(axis) or list(range(width // lanes if axis is lane else width)))
    return list(itertools.product(*choices))


def combine(kind: str, dtype: DType, left: str, right: str) -> str:
    """One step of a reduction."""
    if kind in NEUTRAL_INFIX:
        return f"{left} {NEUTRAL_INFIX[kind]} {right}"
    if dtype is DType.BOOL:
        return f"{left} {'|' if kind == 'max' else '&'} {right}"
    return f"opw_{kind}_{register(dtype).short}({left}, {right})"


def across_lanes(kind: str, dtype: DType, vector: str) -> str:
    """The reduction of the lanes of one vector, in every lane."""
    if dtype is DType.BOOL:
        function = "or" if kind in ("any", "max", "sum") else "and"
        return f"opw_splat_b8(opw_reduce_{function}_b8({vector}))"
    short = register(dtype).short
    return f"opw_splat_{short}(opw_{REDUCE[kind]}_{short}({vector}))"
