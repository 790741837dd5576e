"""Checks a schedule against what it is a schedule of, whoever wrote it."""

from __future__ import annotations

from collections.abc import Collection

from opweld.errors import OptionError
from opweld.schedule.cost import MATRIX_STEP, most_matrix_rows, most_rows
from opweld.schedule.schedule import NO_AXIS, WIDEST, MapSchedule, MemberSchedule, ReductionSchedule, RowSchedule
from opweld.target import Target
from opweld.tensor.dtype import DType


def verify_map(schedule: MapSchedule, axes: Collection[str]) -> None:
    """Raises OptionError for a schedule that elementwise work over these axes cannot have; `one` stands for no axis."""
    _verify_lanes(schedule, axes)
    if schedule.chunk < 0 or not 0 <= schedule.inner <= len(axes):
        words = f"chunk={schedule.chunk} inner={schedule.inner}"
        raise OptionError(f"schedule: {schedule.name} has {words}, expected none below 0, inner to {len(axes)}")
    if schedule.chunk and schedule.inner:
        raise OptionError("schedule: map has chunk and inner, expected one of them to be 0")
    _check(schedule, "square", schedule.square, (*axes, NO_AXIS))
    if schedule.square != NO_AXIS and (schedule.chunk or schedule.square == schedule.lane or schedule.lane == NO_AXIS):
        words = f"square={schedule.square} lane={schedule.lane} chunk={schedule.chunk}"
        raise OptionError(f"schedule: map has {words}, expected two axes and no chunk")


def verify_rows(schedule: RowSchedule, axes: Collection[str], tensors: int) -> None:
    """The same for passes over a row of so many tensors."""
    if schedule.lane == NO_AXIS:
        raise OptionError(f"schedule: rows has lane={NO_AXIS}, expected one of {', '.join(axes)}")
    _verify_lanes(schedule, axes)
    for position in schedule.kept:
        if not 0 <= position < tensors:
            raise OptionError(f"schedule: rows has kept={position}, expected positions from 0 to {tensors - 1}")


ORDERS = ("rows", "lanes", "turns")
"""The orders of contractions and windows, the baseline first."""


def orders(recurrent: bool) -> tuple[str, ...]:
    """Those that one may have: only a recurrence comes back to where it turned."""
    return ORDERS if recurrent else ORDERS[:2]


def verify_reduction(
    schedule: ReductionSchedule,
    axes: Collection[str],
    dtype: DType,
    target: Target,
    recurrent: bool = False,
    alone: bool = True,
) -> None:
    """The same for a contraction or window whose accumulators are of a dtype.

    recurrent: whether it is a part of a recurrence. alone: it is all of its kernel."""
    _verify_lanes(schedule, axes)
    _check(schedule, "row", schedule.row, (*axes, NO_AXIS))
    _check(schedule, "order", schedule.order, orders(recurrent))
    _check(schedule, "taps", schedule.taps, ("loop", "written"))
    _check(schedule, "scales", schedule.scales, ("products", "sums"))
    _check(schedule, "unit", schedule.unit, ("vector", "matrix") if alone else ("vector",))
    _check(schedule, "algorithm", schedule.algorithm, ("direct",))
    if schedule.span < 0 or (schedule.span and not (alone and schedule.order == "rows" and schedule.row != NO_AXIS)):
        words = f"span={schedule.span} order={schedule.order} row={schedule.row}"
        why = "in order of rows, of what shares its kernel with nothing"
        raise OptionError(f"schedule: {schedule.name} has {words}, expected 0, or a span {why}")
    if schedule.row == schedule.lane != NO_AXIS:
        raise OptionError(f"schedule: {schedule.name} has {schedule.row} as lane and row, expected two axes")
    if schedule.unit == "matrix":
        most = most_matrix_rows(schedule.vectors)
        if schedule.row == NO_AXIS or schedule.height not in range(MATRIX_STEP, most + 1, MATRIX_STEP):
            words = f"row={schedule.row} height={schedule.height} unit=matrix"
            expected = f"a row axis, and multiples of {MATRIX_STEP} up to {most} rows"
            raise OptionError(f"schedule: {schedule.name} has {words}, expected {expected}")
        return
    most = 1 if schedule.row == NO_AXIS else most_rows(schedule.vectors, dtype, target)
    if not 1 <= schedule.height <= most:
        why = "without a row axis" if schedule.row == NO_AXIS else f"in the registers beside {schedule.vectors} vectors"
        raise OptionError(f"schedule: {schedule.name} has height={schedule.height}, expected 1 to {most} {why}")


def _verify_lanes(schedule: MemberSchedule, axes: Collection[str]) -> None:
    _check(schedule, "lane", schedule.lane, (*axes, NO_AXIS))
    if not 1 <= schedule.vectors <= WIDEST:
        raise OptionError(f"schedule: {schedule.name} has vectors={schedule.vectors}, expected 1 to {WIDEST}")


def _check(schedule: MemberSchedule, field: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise OptionError(f"schedule: {schedule.name} has {field}={value}, expected one of {', '.join(choices)}")


def verify_winograd(schedule: ReductionSchedule, lane: str, dtype: DType, target: Target) -> None:
    """The same for a convolution by Winograd's algorithm: its lanes are given, its rows are tiles."""
    _verify_lanes(schedule, (lane,))
    for name, value in (
        ("lane", lane),
        ("row", NO_AXIS),
        ("order", "rows"),
        ("span", 0),
        ("taps", "loop"),
        ("scales", "products"),
        ("algorithm", "winograd"),
    ):
        _check(schedule, name, str(getattr(schedule, name)), (str(value),))
    most = most_rows(schedule.vectors, dtype, target)
    if min(schedule.tiles, schedule.groups) < 1 or not 1 <= schedule.height <= most:
        words = f"height={schedule.height} tiles={schedule.tiles} groups={schedule.groups}"
        raise OptionError(
            f"schedule: {schedule.name} has {words}, expected heights of 1 to {most}, others of 1 or more"
        )
