"""Axes in the order of their steps through memory."""

from __future__ import annotations

from opweld.tensor.axes import by_stride
from opweld.tensor.dim import Axis, Symbol, floordiv


def test_axes_are_ordered_by_their_steps() -> None:
    channel, row, column = (Axis(name, 3) for name in "cyx")
    height, width = Symbol("H").dim, Symbol("W").dim
    planes = height * width * channel.dim + width * row.dim + column.dim
    pixels = channel.dim + 24 * width * row.dim + 24 * column.dim
    assert by_stride((column, row, channel), planes) == (channel, row, column)
    assert by_stride((channel, row, column), pixels) == (row, column, channel)


def test_a_direction_does_not_matter_and_equals_stay_in_order() -> None:
    a, b, c = (Axis(name, 5) for name in "abc")
    assert by_stride((a, b, c), 2 * a.dim - 10 * b.dim + 2 * c.dim) == (b, a, c)


def test_an_axis_without_a_step_is_outermost() -> None:
    a, b = Axis("a", 6), Axis("b", 5)
    assert by_stride((b, a), floordiv(a.dim, 4) + 1000 * b.dim) == (a, b)
