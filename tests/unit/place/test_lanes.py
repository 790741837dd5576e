"""Which axis the lanes of a contraction run along, and what becomes of an operand that is no neighbour along it."""

from __future__ import annotations

import pytest

from opweld.schedule.schedule import ReductionSchedule, WindowSchedule
from opweld.target import Target
from tests.unit.tile import programs
from tests.unit.tile.pipeline import Compiled, check, compile_text

V3, V4 = Target.of("x86-64-v3"), Target.of("x86-64-v4")


def strided(c: int, o: int, length: int) -> str:
    """A 1-D convolution of windows of nine with stride 2, for any batch."""
    steps = (length - 9) // 2 + 1
    return f"""program strided
{programs.symbols(N="0 of x")}
input x f32[N, {c}, {length}]
constant w f32[{o}, {c}, 9]
tensor result f32[i0: N, i1: {o}, i2: {steps}] from "Conv"
  over r0: {c}, r1: 9
  = sum<r0, r1>(mul(x[i0, r0, 2*i2 + r1], w[i1, r0, r1]))
output y = result
"""


def pooled(stride: int, taps: int, channels: int, size: int) -> str:
    """The largest of windows of an image."""
    out = (size - taps) // stride + 1
    return f"""program pooled
input x f32[1, {channels}, {size}, {size}]
tensor result f32[i0: 1, i1: {channels}, i2: {out}, i3: {out}] from "MaxPool"
  over r0: {taps}, r1: {taps}
  = max<r0, r1>(x[i0, i1, {stride}*i2 + r0, {stride}*i3 + r1])
output y = result
"""


def lane_of(made: Compiled) -> str:
    """The lane axis of the only contraction."""
    (tile,) = (m for plan in made.plans for m in plan.schedule.members if isinstance(m, ReductionSchedule))
    return tile.lane


def test_lanes_that_do_not_exist_are_stored_too() -> None:
    """Six channels of 16 lanes: gathering along space costs less than vectors of which most is empty. Measured with
    AVX-512: 0.45 ms along channels, 0.34 ms along space."""
    assert lane_of(compile_text(strided(4, 6, 43844), V4)) == "i2"


@pytest.mark.parametrize("target", [V3, V4], ids=["AVX2", "AVX-512"])
def test_lanes_run_along_an_image_that_windows_step_over(target: Target) -> None:
    """Every other element is loaded with those in between, and shuffled; channels would be gathered and scattered."""
    made = compile_text(pooled(2, 2, 64, 112), target)
    (tile,) = (m for plan in made.plans for m in plan.schedule.members if isinstance(m, WindowSchedule))
    assert (made.names, tile.lane) == (["window"], "i3")


@pytest.mark.parametrize(("stride", "copied"), [(1, False), (2, True)])
def test_an_image_of_few_filters_is_read_as_it_is(stride: int, copied: bool) -> None:
    """Where steps are small; rows of lanes that a product reads again and again are copied first."""
    program = f"""program pointwise
input x f32[1, 64, 56, 56]
constant w f32[128, 64]
tensor result f32[i0: 1, i1: 128, i2: {(56 - 1) // stride + 1}, i3: {(56 - 1) // stride + 1}] from "Conv"
  over r0: 64
  = sum<r0>(mul(x[i0, r0, {stride}*i2, {stride}*i3], w[i1, r0]))
output y = result
"""
    assert ("map" in compile_text(program, V4).names) is copied


def test_channels_that_no_sum_reads_side_by_side_stay_apart() -> None:
    """A depthwise window reads one channel at a time: its padded copy has the order of the image."""
    guards = "i2 + r0 - 1 >= 0, 112 - i2 - r0 >= 0, i3 + r1 - 1 >= 0, 112 - i3 - r1 >= 0"
    text = f"""program depthwise
input x f32[1, 96, 112, 112]
constant w f32[96, 3, 3]
tensor result f32[i0: 1, i1: 96, i2: 112, i3: 112] from "Conv"
  over r0: 3, r1: 3
  = sum<r0, r1>(mul(x[i0, i1, i2 + r0 - 1, i3 + r1 - 1 if {guards} else 0.0], w[i1, r0, r1]))
output y = result
"""
    made = compile_text(text, V4)
    (order,) = (d for d in made.ledger if d.rule == "place.order")
    assert order.taken == "row-major"


def test_what_is_read_once_is_not_copied() -> None:
    made = compile_text(strided(4, 6, 43844), V4)
    (pack,) = (d for d in made.ledger if d.rule == "place.pack" and "copy" in {a.name for a in d.alternatives})
    assert (pack.taken, made.names) == ("strided", ["contraction"])
    check(strided(4, 6, 77), {"N": 2}, V4)


def test_what_each_tile_of_rows_reads_is_copied() -> None:
    made = compile_text(programs.product(64, 640, 64, transposed=True), V4)
    assert made.names == ["map", "contraction"]


def test_elements_that_are_summed_along_memory_are_one_walk() -> None:
    """The patches that a vision model begins with: 48 elements of each lie in 12 places, which a core foresees."""
    stem = f"""program stem
{programs.symbols()}
input x f32[1, 3, 224, 224]
constant w f32[96, 3, 4, 4]
tensor result f32[i0: 1, i1: 96, i2: 56, i3: 56] from "Conv"
  over r0: 3, r1: 4, r2: 4
  = sum<r0, r1, r2>(mul(x[0, r0, 4*i2 + r1, 4*i3 + r2], w[i1, r0, r1, r2]))
tensor shown f32[i0: 56, i1: 56, i2: 96] from "Relu"
  = max(result[0, i2, i0, i1], 0.0)
output y = shown
"""
    (lane,) = (d for d in compile_text(stem, Target.of("x86-64-v3")).ledger if d.rule == "schedule.lane")
    (channels,) = (entry.seconds for entry in lane.alternatives if entry.name == lane.taken == "i2")
    arithmetic = 56 * 56 * 96 * 48 / 16 / 3.5e9
    assert channels is not None and channels < 1.2 * arithmetic


@pytest.mark.parametrize("padding", [1, 2])
def test_phases_of_a_padded_transposed_convolution_are_axes(padding: int) -> None:
    """Each has weights of its own, and elements of a phase are rows of a tile."""
    size = 2 * 16 + 2 - 2 * padding
    y, x = f"((i1 + {padding}) // 2) - r1", f"((i2 + {padding}) // 2) - r2"
    guards = f"{y} >= 0, 15 + r1 - ((i1 + {padding}) // 2) >= 0, {x} >= 0, 15 + r2 - ((i2 + {padding}) // 2) >= 0"
    taps = f"2*r1 + ((i1 + {padding}) % 2), 2*r2 + ((i2 + {padding}) % 2)"
    text = f"""program transposed
input x f32[24, 16, 16]
constant w f32[24, 40, 4, 4]
tensor result f32[i0: 40, i1: {size}, i2: {size}] from "ConvTranspose"
  over r0: 24, r1: 2, r2: 2
  = sum<r0, r1, r2>(mul(x[r0, {y}, {x} if {guards} else 0.0], w[r0, i0, {taps}]))
output y = result
"""
    made = check(text, {}, V4)
    (tile,) = (m for plan in made.plans for m in plan.schedule.members if isinstance(m, ReductionSchedule))
    assert tile.height > 4
