"""The template of an online softmax over blocks of columns, and of its states.

    max, sum    of each row, over the columns so far; scale: correction of earlier columns
    update      new max; scale = exp(old max - new max); shares = exp(scores - max); sum = sum * scale + sum(shares)
    product     result = result * scale + sum(shares * v), a contraction
    finish      result / sum

Rows with only -inf so far have the maximum -inf and the sum 0; 0 is subtracted from them, so that their shares are 0
and not NaN; if no other column follows, 0 / 0 gives the NaN of the direct computation. An infinity or NaN among the
scores makes the sum NaN, as in the direct computation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from opweld.errors import OptionError
from opweld.fuse.online import Softmax
from opweld.schedule.choice import Choice
from opweld.schedule.schedule import WIDEST, MemberSchedule, RowSchedule
from opweld.schedule.verify import verify_rows
from opweld.target import Target
from opweld.tensor.dim import Axis, Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, const, load, select, substitute, unary
from opweld.tile.lanes import tiles, vectors_for
from opweld.tile.member import KernelBody
from opweld.tile.members.rowwise import Passes, RowWork, lane_tiles_over
from opweld.tile.tile import Collapse, Declare, Let, Scratch, Statement, Store

REPAIRED = 0.0
"""The number subtracted from scores that are all -inf."""


@dataclass(frozen=True, eq=False)
class States:
    """Scratch for the states of the rows of a block; `row` is the row's index, `prefix` makes names unique."""

    dtype: DType
    row: Dim
    rows: int
    prefix: str

    @property
    def scratch(self) -> tuple[Scratch, ...]:
        """The memory of all states."""
        return tuple(Scratch(self.prefix + name, self.dtype, as_dim(self.rows)) for name in ("max", "sum", "scale"))

    def read(self, name: str) -> Expr:
        """A state of the row."""
        return load(self.prefix + name, self.dtype, (self.row,))

    def write(self, name: str, value: Expr) -> Statement:
        """A new value of a state."""
        return Store(self.prefix + name, self.row, value)

    def begin(self) -> tuple[Statement, ...]:
        """The initial states."""
        return (self.write("max", const(-math.inf, self.dtype)), self.write("sum", const(0.0, self.dtype)))

    def finished(self, result: Expr, softmax: Softmax) -> Expr:
        """The result of a row: where that is guarded, 0 where its shares are NaN: their sum is, or it is 0; where it is
        masked, 0 where all is -inf."""
        total = self.read("sum")
        value, nothing = binary("div", result, total), const(0.0, self.dtype)
        if softmax.masked:
            value = select(binary("eq", self.read("max"), const(-math.inf, self.dtype)), nothing, value)
        lost = unary("isnan", binary("div", total, total))
        return select(lost, nothing, value) if softmax.guarded else value


@dataclass(frozen=True, eq=False)
class SoftmaxMember:
    """Computes softmax results of a block of columns, with running states."""

    work: RowWork
    softmax: Softmax
    states: States
    names: tuple[str, ...]

    def choose(self, choice: Choice) -> MemberSchedule:
        """See `Member`."""
        about = choice.about(*self.names)
        (column,) = self.work.rows.columns
        lane = about.preferred("schedule.lane", [column.name], column.name, "columns are contiguous in scratch")
        counts = [str(count) for count in range(1, WIDEST + 1)]
        fill = str(vectors_for(about.expected.known(column.extent), about.target))
        reason = "independent vectors hide the latency of loads and functions"
        return RowSchedule(lane, int(about.preferred("schedule.vectors", counts, fill, reason)))

    def realise(self, schedule: MemberSchedule, target: Target) -> KernelBody:
        """See `Member`."""
        (column,) = self.work.rows.columns
        if not isinstance(schedule, RowSchedule) or schedule.kept:
            raise OptionError(f"schedule: {schedule} is for another kind of member than rows without anything kept")
        verify_rows(schedule, [column.name], len(self.work.tensors))
        passes = Passes(self.work, schedule, target, self.states.prefix)
        scores = passes.reduced(self.softmax.maximum)
        shares = self.work.storages[self.softmax.shares.name]
        place = shares.address([self.work.rows.dim(axis) for axis in self.work.rows.places[self.softmax.shares.name]])
        return KernelBody(self.work.rows.rows, tuple(self._update(column, passes.width, scores, shares.root, place)))

    def _update(self, column: Axis, width: int, scores: Expr, root: str, place: Dim) -> list[Statement]:
        states, dtype, prefix = self.states, self.states.dtype, self.states.prefix
        named: Mapping[str, Expr] = {name: load(prefix + name, dtype, ()) for name in ("high", "low", "new", "part")}
        lowest = const(-math.inf, dtype)
        new, low = named["new"], named["low"]

        def share(index: Dim, axis: Axis) -> tuple[Statement, ...]:
            value = unary("exp", binary("sub", substitute(scores, {column: index}), low))
            return (Store(root, place.substitute({column: index}), value),)

        lanes = Axis(column.name + "l", width)
        highest = lane_tiles_over(column, width, lanes, [(prefix + "high", "max", scores, None)])
        again = Axis(column.name + "l", width)
        stored = load(root, dtype, (place,))
        added = lane_tiles_over(column, width, again, [(prefix + "part", "sum", stored, None)])
        return [
            Declare(prefix + "high", dtype, (lanes,), lowest),
            *highest,
            Collapse(prefix + "high", "max"),
            Let(prefix + "new", binary("max", states.read("max"), named["high"])),
            Let(prefix + "low", select(binary("eq", new, lowest), const(REPAIRED, dtype), new)),
            *tiles(column, "lane", width, share),
            Declare(prefix + "part", dtype, (again,), const(0.0, dtype)),
            *added,
            Collapse(prefix + "part", "sum"),
            states.write("scale", unary("exp", binary("sub", states.read("max"), low))),
            states.write("sum", binary("add", binary("mul", states.read("sum"), states.read("scale")), named["part"])),
            states.write("max", new),
        ]
