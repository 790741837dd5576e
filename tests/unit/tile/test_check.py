from __future__ import annotations

import pytest

from opweld.errors import OpweldError
from opweld.tile.check import check_kernel
from opweld.tile.text import parse_kernel

DENSE = """
kernel
size n0 >= 1
read b0 f32
read b1 f32
write b2 f32
scratch s0 f32[64]
grid g0: 4, g1: ((n0 + 5) // 6)
lane l0: 16 at 16*g0
  row r0: 6 at 6*g1 below n0
    acc a0 f32<l0, r0> = 0.0
    loop k0: 64
      sum a0 = mul(b0[64*r0 + 384*g1 + k0], b1[16*k0 + 1024*g0 + l0])
    let v0 f32 = max(a0, 0.0)
    store b2[64*r0 + 384*g1 + 16*g0 + l0] = v0
"""

ROWS = """
kernel
read b0 f32
write b1 i64
grid g0: 5
acc a0 i64<l0> = 0
lane l0: 8 at 0 below 7
  argmax a0 f32 at l0 = b0[7*g0 + l0]
collapse argmax a0
lane l1: 8 at 0 below 1
  store b1[g0 + l1] = a0
"""


WRITTEN = DENSE.replace("loop k0: 64", "loop k0: 64 unroll 4 separate 16 fetch b1[1024*g0 + 1024] lines 2 step 8")


@pytest.mark.parametrize("text", [DENSE, ROWS, WRITTEN])
def test_a_good_kernel_passes(text: str) -> None:
    check_kernel(parse_kernel(text), 8)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("write b2", "read b2", "not there to be written"),
        ("read b0", "write b0", "no memory that is there to be read"),
        ("write b2 f32", "write b2 f64", "writes a f32 into f64 memory"),
        ("lane l0: 16", "lane l0: 12", "no multiple of 8 lanes"),
        ("row r0: 6", "lane r0: 8", "a lane tile inside a lane tile"),
        ("<l0, r0>", "<l0>", "is inside tiles"),
        ("let v0 f32 = max(a0, 0.0)\n", "let v0 f32 = max(a0, 0.0)\n    let v1 f32 = a0\n", "is never read"),
        ("sum a0 =", "argmax a0 f32 at k0 =", "an arg kind counts in i64"),
        ("+ 16*g0 + l0] = v0", "+ 16*g0 + k0] = v0", "axis k0 is not in scope"),
        ("    let v0", "    acc a0 f32<> = 0.0\n    let v0", "the name a0 is taken"),
        ("grid g0: 4", "grid g0: 4, g0: 4", "grid axes named twice"),
        ("loop k0: 64", "loop k0: 64 unroll 0", "counts bodies and registers from 1 on"),
        ("loop k0: 64", "loop k0: 64 unroll 4 fetch b2[0] lines 1 step 8", "fetches b2, which is no memory"),
        ("loop k0: 64", "loop k0: 64 unroll 3 fetch b1[0] lines 1 step 8", "1 lines for every 3 of 64 bodies"),
        ("loop k0: 64", "loop k0: 64 unroll 4 fetch b1[l0] lines 1 step 8", "from an index of a tile"),
        ("loop k0: 64", "loop k0: 64 unroll 4 fetch b1[0] lines 1 step 8 passes g0", "passes that an iteration counts"),
        ("    loop k0: 64\n", "    loop k0: 64\n      collapse sum a0\n", "over lanes that are not in scope any more"),
    ],
)
def test_a_bad_kernel_is_refused(old: str, new: str, message: str) -> None:
    assert old in DENSE
    with pytest.raises(OpweldError, match=message):
        check_kernel(parse_kernel(DENSE.replace(old, new)), 8)


def test_a_name_that_was_read_may_serve_another_register() -> None:
    """As in members of a recurrence, which are computed in turn."""
    last = "    let v0 f32 = max(a0, 0.0)\n"
    again = last.replace("v0", "a0")
    assert last in DENSE
    check_kernel(parse_kernel(DENSE.replace(last, again).replace("= v0", "= a0")), 8)


def test_an_accumulator_may_not_be_read_before_it_is_collapsed() -> None:
    with pytest.raises(OpweldError, match="read outside of its tiles"):
        check_kernel(parse_kernel(ROWS.replace("collapse argmax a0\n", "")), 8)


def test_an_accumulator_is_collapsed_once() -> None:
    twice = "collapse argmax a0\ncollapse argmax a0\n"
    with pytest.raises(OpweldError, match="needs an accumulator over lanes"):
        check_kernel(parse_kernel(ROWS.replace("collapse argmax a0\n", twice)), 8)


def test_every_size_is_a_parameter() -> None:
    good = parse_kernel(DENSE)
    bad = type(good)(good.name, good.buffers, (), good.grid, good.body, good.scratch)
    with pytest.raises(OpweldError, match="size n0 is no parameter"):
        check_kernel(bad, 8)
