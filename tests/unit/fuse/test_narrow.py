from __future__ import annotations

import pytest

from opweld.fuse.narrow import narrow
from opweld.fuse.region import reductions
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Tensor
from tests.unit.tile.pipeline import check


def program(index: str, values: str = "x f32[n, 8]", weight: str = "constant") -> str:
    return f"""program p
symbol n >= 1 = dim 0 of x
input {values}
{weight} w f32[16, 8, 3]
tensor y f32[i0: n, i1: 16] from "Conv"
  over r0: 8, r1: 3
  = sum<r0, r1>(mul(x[i0, {index}], w[i1, r0, r1]))
output y = y
"""


def taps(text: str) -> list[int]:
    """The extents of the summed axes after narrowing."""
    parsed = parse_program(text)
    tensor = parsed.items[0]
    assert isinstance(tensor, Tensor)
    body = narrow(tensor.body, {constant.name for constant in parsed.constants})
    return [int(axis.extent) for node in reductions(body) for axis in node.axes]


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("r0 if r1 - 1 >= 0, 1 - r1 >= 0 else 0.0", [8]),
        ("r0 if r1 - 1 >= 0 else 0.0", [8, 2]),
        ("r0 if 1 - r1 >= 0 else 0.0", [8, 2]),
        ("r0 if i0 + r1 - 1 >= 0 else 0.0", [8, 3]),
        ("r0 if n - r1 - 1 >= 0 else 0.0", [8, 3]),
        ("r0 if r1 - 1 >= 0 else 1.0", [8, 3]),
        ("r0", [8, 3]),
    ],
)
def test_guards_on_one_summed_axis_narrow_it(index: str, expected: list[int]) -> None:
    assert taps(program(index)) == expected


def test_a_computed_weight_may_be_infinite() -> None:
    assert taps(program("r0 if r1 - 1 >= 0 else 0.0", weight="input")) == [8, 3]


@pytest.mark.parametrize("index", ["r0 if r1 - 1 >= 0, 1 - r1 >= 0 else 0.0", "r0 if r1 - 1 >= 0 else 0.0"])
def test_the_sum_stays_the_same(index: str) -> None:
    check(program(index), {"n": 5})
