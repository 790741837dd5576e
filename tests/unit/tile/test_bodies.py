"""In which order bodies that follow in a row are laid out: what is loaded least, and every sum as before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import pytest

from opweld.target import Target
from opweld.tensor.dim import Symbol, as_dim
from opweld.tile.bodies import Layout, Step, lay_out, trips_of
from opweld.tile.loops import tune_loops
from opweld.tile.text import parse_kernel, print_kernel
from opweld.tile.tile import Loop, walk_statements


def depthwise(taps: int, rows: int, width: int | Symbol = 100) -> list[Step]:
    """The steps of a depthwise convolution with a square window: a row of the input, and a weight, for each."""
    row = as_dim(width) if isinstance(width, int) else width.dim
    return [
        Step((r,), ((("x", row * (r + y) + x), ("w", as_dim(taps * y + x))),))
        for y in range(taps)
        for x in range(taps)
        for r in range(rows)
    ]


def sums(steps: Sequence[Step], layout: Layout) -> dict[Hashable, list[Step]]:
    """What each accumulator adds up, in order."""
    found: dict[Hashable, list[Step]] = defaultdict(list)
    for number in layout.order:
        found[steps[number].accumulators[0]].append(steps[number])
    return found


@pytest.mark.parametrize("width", [100, Symbol("w")], ids=["known", "run time"])
def test_taps_that_read_a_row_follow_each_other_where_registers_are_few(width: int | Symbol) -> None:
    steps = depthwise(7, 4, width)
    layout = lay_out(steps, 28)
    assert sorted(layout.order) == list(range(len(steps)))
    assert layout.loads <= 10 * 7 + 4 * 49  # the input once, and no weight more often than there are rows
    assert layout.loads < 7 * (4 * 7 + 7)  # what each body loads by itself
    assert layout.held <= 28
    assert sums(steps, layout) == sums(steps, Layout(tuple(range(len(steps))), frozenset(), 0, 0))


def test_enough_registers_load_everything_once() -> None:
    layout = lay_out(depthwise(3, 4), 1_000)
    assert (layout.loads, layout.breaks) == (6 * 3 + 9, frozenset())


def test_a_sum_keeps_its_order_though_another_would_load_less() -> None:
    """Two taps read what lies in the opposite order of the loop."""
    steps = [
        Step((row,), ((("x", as_dim(10 * row - 10 * tap)), ("w", as_dim(tap))),))
        for tap in range(3)
        for row in range(3)
    ]
    layout = lay_out(steps, 5)
    assert sums(steps, layout) == sums(steps, Layout(tuple(range(len(steps))), frozenset(), 0, 0))


def depthwise_kernel(taps: int) -> str:
    """A tile program of a depthwise convolution over 96 planes of 56 by 56."""
    width = 56 + taps - 1
    plane, row = f"{width * width}*g0", f"{4 * width}*g2 + {width}*k0"
    sums = "\n".join(
        f"      sum a0 = mul(b0[{plane} + 32*g1 + {row} + l0 + {width}*r0 + {tap}],"
        f" b1[{taps * taps}*g0 + {taps}*k0 + {tap}])"
        for tap in range(taps)
    )
    return f"""kernel
read b0 f32
read b1 f32
write b2 f32
grid g0: 96, g1: 2, g2: 14
lane l0: 32 at 32*g1 below 56
  row r0: 4 at 4*g2
    acc a0 f32<l0, r0> = 0.0
    loop k0: {taps}
{sums}
    store b2[3136*g0 + 32*g1 + 224*g2 + l0 + 56*r0] = a0
"""


@pytest.mark.parametrize(("taps", "separate"), [(5, ""), (7, " separate 32")])
def test_registers_that_hold_too_little_are_written_down(taps: int, separate: str) -> None:
    kernel = tune_loops(parse_kernel(depthwise_kernel(taps)), Target.of("x86-64-v4"))
    (loop,) = [item for item in walk_statements(kernel.body) if isinstance(item, Loop)]
    assert trips_of(loop) == taps
    assert f"loop k0: {taps} unroll 8{separate}\n" in print_kernel(kernel)


@pytest.mark.parametrize("kind", ["max", "sum"])
def test_a_pooling_is_laid_out_as_well(kind: str) -> None:
    """Its rows share what they read, as those of a depthwise convolution do, with nothing multiplied."""
    zero = {"max": "-inf", "sum": "0.0"}[kind]
    taps = "\n".join(f"      {kind} a0 = b0[3364*g0 + 232*g2 + 58*k0 + l0 + 58*r0 + {tap}]" for tap in range(3))
    text = f"""kernel
read b0 f32
write b1 f32
grid g0: 64, g2: 14
lane l0: 32 at 0 below 56
  row r0: 4 at 4*g2
    acc a0 f32<l0, r0> = {zero}
    loop k0: 3
{taps}
    store b1[3136*g0 + 224*g2 + l0 + 56*r0] = a0
"""
    kernel = tune_loops(parse_kernel(text), Target.of("x86-64-v4"))
    (loop,) = [item for item in walk_statements(kernel.body) if isinstance(item, Loop)]
    assert trips_of(loop) == 3
