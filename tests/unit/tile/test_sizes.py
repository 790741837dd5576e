"""Sizes that kernels are given instead of dividing."""

from __future__ import annotations

import pytest

from opweld.tile.check import check_kernel
from opweld.tile.sizes import given_sizes
from opweld.tile.text import parse_kernel, print_kernel
from opweld.tile.tile import Kernel

ROWS = """\
kernel
size n0 >= 1
read b0 f32
write b1 f32
grid g0: {rows}
loop k0: 3
  store b1[3*g0 + k0] = b0[{other}]
"""


def rows(count: str, other: str = "3*g0 + k0") -> Kernel:
    return parse_kernel(ROWS.format(rows=count, other=other))


def test_what_is_only_divided_is_given() -> None:
    kernel = rows("((n0 + 31) // 32)", "3*g0 + k0 + ((n0 + 31) // 32)")
    given, (bound,) = given_sizes(kernel)
    check_kernel(given, 8)
    (size,) = kernel.sizes
    assert [bound.evaluate({size: number}) for number in (1, 32, 33, 640)] == [1, 1, 2, 20]
    assert print_kernel(given) == print_kernel(rows("n0", "3*g0 + k0 + n0")), "as one for multiples of 32 is written"


@pytest.mark.parametrize("other", ["3*g0 + k0 + n0", "3*g0 + k0 + (n0 % 32)"])
def test_what_is_needed_itself_is_not(other: str) -> None:
    kernel = rows("((n0 + 31) // 32)", other)
    given, bound = given_sizes(kernel)
    assert given is kernel
    assert bound == tuple(symbol.dim for symbol in kernel.sizes)


def test_what_is_divided_in_two_ways_keeps_what_is_known_of_both() -> None:
    kernel = rows("((n0 + 3) // 4)", "3*g0 + k0 + ((n0 + 1) // 2)")
    assert given_sizes(kernel)[0] is kernel


def test_what_is_known_of_a_quotient_stays_known() -> None:
    (size,) = given_sizes(rows("((n0 + 31) // 32)"))[0].sizes
    assert size.least == 1
    (size,) = given_sizes(rows("(n0 // 32)"))[0].sizes
    assert size.least == 0


def test_a_kernel_of_fixed_sizes_is_left_alone() -> None:
    kernel = parse_kernel("kernel\nwrite b0 f32\ngrid g0: 4\nstore b0[g0] = 1.0\n")
    assert given_sizes(kernel) == (kernel, ())


def test_extents_of_loops_are_given_too() -> None:
    kernel = parse_kernel(ROWS.replace("k0: 3", "k0: ((n0 + 3) // 4)").format(rows="2", other="g0 + k0"))
    given, (bound,) = given_sizes(kernel)
    assert print_kernel(given).count("//") == 0
    assert bound.evaluate(dict.fromkeys(kernel.sizes, 9)) == 3
