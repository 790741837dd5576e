"""The axis that vectors of elementwise work run along."""

from __future__ import annotations

import pytest

from opweld.ledger import Ledger
from opweld.schedule.choice import Choice
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import Axis
from opweld.tensor.dtype import DType
from opweld.tensor.expr import const
from opweld.tile.members.map import choose_map
from opweld.tile.nest import Nest


def lane(rows: int, columns: int, stride: int, target: str) -> str:
    """The axis of the lanes of zeros that are stored with a stride: row by row, 4096 elements apart."""
    outer, inner = Axis("outer", rows), Axis("inner", columns)
    nest = Nest((outer, inner), outer.dim * 4096 + inner.dim * stride, const(0.0, DType.F32))
    return choose_map(nest, Choice(Ledger(), (), ("x",), Expected(), Target.of(target))).lane


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_where_nothing_is_contiguous_lanes_run_along_the_innermost_of_axes_that_fill_vectors(target: str) -> None:
    """Elements are stored one by one, so that lanes that do not exist cost nothing."""
    assert lane(64, 14, 16, target) == "inner"
    assert lane(64, 2, 16, target) == "outer"


def test_lanes_run_along_neighbours() -> None:
    assert lane(64, 9, 1, "x86-64-v3") == lane(64, 2, 1, "x86-64-v3") == "inner"
