from __future__ import annotations

import pytest

from opweld.place.halo import halo_of
from opweld.tensor.dim import Symbol, as_dim, floordiv
from opweld.tensor.expr import loads
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Tensor


def halo(index: str, axes: str = "i0: 10", reduced: str = "r0: 3") -> tuple[tuple[int, int], ...] | None:
    program = parse_program(
        f"program p\ninput x f32[10]\ntensor a f32[{axes}]\n  over {reduced}\n  = sum<r0>(x[{index}])\noutput y = a\n"
    )
    tensor = program.items[0]
    assert isinstance(tensor, Tensor)
    (node,) = loads(tensor.body)
    return halo_of(node, (as_dim(10),))


@pytest.mark.parametrize(
    ("index", "axes", "expected"),
    [
        ("i0 + r0 - 1 if i0 + r0 - 1 >= 0, 10 - i0 - r0 >= 0 else 0.0", "i0: 10", ((1, 1),)),
        ("2*i0 + r0 - 1 if 2*i0 + r0 - 1 >= 0, 10 - 2*i0 - r0 >= 0 else 0.0", "i0: 5", ((1, 0),)),
        ("i0 + 2*r0 - 3 if i0 + 2*r0 - 3 >= 0, 12 - i0 - 2*r0 >= 0 else 0.0", "i0: 10", ((3, 1),)),
        ("i0 + r0", "i0: 8", ((0, 0),)),
        ("i0 + r0 if 9 - i0 - r0 >= 0 else 0.0", "i0: 10", ((0, 2),)),
        (
            "i0 + ((i1 + 1) // 2) - r0 if i0 + ((i1 + 1) // 2) - r0 >= 0, 9 - i0 - ((i1 + 1) // 2) + r0 >= 0 else 0.0",
            "i0: 10, i1: 2",
            ((2, 1),),
        ),
    ],
)
def test_how_far_a_load_reaches(index: str, axes: str, expected: tuple[tuple[int, int], ...]) -> None:
    assert halo(index, axes) == expected


def test_a_guard_on_something_else_needs_its_test() -> None:
    assert halo("i0 if i0 + r0 - 2 >= 0 else 0.0") is None


def test_a_wide_halo_is_not_worth_it() -> None:
    assert halo("i0 - 100 if i0 - 100 >= 0 else 0.0", "i0: 110") is None


def test_a_strided_window_over_a_dynamic_size() -> None:
    """The overhang of 2 * (n // 2) against n is proven, not assumed."""
    program = parse_program(
        "program p\nsymbol n >= 2 = dim 0 of x\ninput x f32[n]\ntensor a f32[i0: (n // 4)]\n  = x[i0]\n"
        "tensor b f32[i0: (n // 8)]\n  over r0: 3\n"
        "  = sum<r0>(a[2*i0 + r0 - 1 if 2*i0 + r0 - 1 >= 0, (n // 4) - 2*i0 - r0 >= 0 else 0.0])\noutput y = b\n"
    )
    tensor = program.items[1]
    assert isinstance(tensor, Tensor)
    (node,) = loads(tensor.body)
    assert halo_of(node, (floordiv(Symbol("n", 2).dim, 4),)) == ((1, 0),)
