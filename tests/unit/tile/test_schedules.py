"""Schedules against the tensor interpreter: tile programs executed on sizes that leave tails everywhere.

The tile interpreter checks every address, that nothing is read before it is written, and that grid iterations do not
disturb each other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opweld.schedule.schedule import ReductionSchedule
from opweld.target import Target
from opweld.tensor.dim import Axis, Symbol, as_dim, mod
from opweld.tensor.dtype import DType
from opweld.tile.instances import possible_counts
from opweld.tile.members import reduction
from opweld.tile.text import print_kernel
from tests.unit.tile import programs
from tests.unit.tile.pipeline import check, compile_text
from tests.unit.tile.programs import PROGRAMS

TARGETS = {name: Target.of(name) for name in ("x86-64-v3", "x86-64-v4", "aarch64")}

ALTERNATIVES = (
    {"level": "none"},
    {"disable": ("fuse",)},
    {"disable": ("place",)},
    {"disable": ("fuse.view",)},
    {"disable": ("fuse.epilogue", "place.order")},
    {"disable": ("fuse.chain", "place.halo")},
    {"disable": ("fuse.rows", "place.slice")},
    {"disable": ("place.pack",)},
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, target: str) -> None:
    check(PROGRAMS[name], target=TARGETS[target])


@pytest.mark.parametrize("alternative", ALTERNATIVES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_decision_has_a_correct_baseline(name: str, alternative: dict[str, object]) -> None:
    check(PROGRAMS[name], **alternative)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("extent", [1, 2, 3, 5, 8, 13, 16, 17, 31])
def test_dense_tails(extent: int) -> None:
    check(programs.dense(extent, 3, 9))
    check(programs.dense(3, extent, 9))
    check(programs.dense(9, 3, extent))


@pytest.mark.parametrize("extent", [1, 7, 8, 9, 24, 31, 32, 33, 64, 67])
def test_row_tails(extent: int) -> None:
    check(programs.softmax(2, extent))
    check(programs.softmax(3, extent, axis=0))
    check(programs.layer_norm(2, extent))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=repr)
def test_tiles_fit_the_registers(dtype: DType, target: Target) -> None:
    """Sums, a row of the operand along the lanes, and a broadcast element of the other."""
    text = programs.product(256, 256, 256)
    compiled = compile_text(programs.of_doubles(text) if dtype is DType.F64 else text, target)
    (tile,) = (m for plan in compiled.plans for m in plan.schedule.members if isinstance(m, ReductionSchedule))
    each = target.registers_each(dtype)
    taken = tile.vectors * (tile.height + 1) * each + 1
    assert target.vector_registers // 2 < taken <= target.vector_registers


@pytest.mark.parametrize("rows", [9, 14, 41])
@pytest.mark.parametrize("span", [1, 2, 3, 5])
def test_rows_pass_some_at_a_time(rows: int, span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last span is smaller, or the only one. Weights do not fit, so that rows pass over a block of them."""
    monkeypatch.setattr(reduction, "_choose_span", lambda *_: span)
    small = replace(TARGETS["x86-64-v3"], l2_bytes=256)
    compiled = check(programs.dense(rows, 11, 40), target=small)
    (tile,) = (m for plan in compiled.plans for m in plan.schedule.members if isinstance(m, ReductionSchedule))
    assert tile.span == span
    check(programs.dense("M", 11, 40, programs.symbols(M="0 of x")), {"M": rows}, target=small)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_some_rows_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "_choose_span", lambda *_: 2)
    check(PROGRAMS[name], target=replace(TARGETS["x86-64-v3"], l2_bytes=256))


def test_members_of_a_block_pass_all_their_rows() -> None:
    """A block's own rows end within it: no member cuts them. Weights do not fit, and rows have an axis beside them."""
    rows = 13
    text = f"""program two
input q f32[{rows}, 5, 8]
input k f32[24, 8]
input v f32[5, 24, 16]
tensor scores f32[i0: {rows}, i1: 5, i2: 24] from "MatMul"
  over r0: 8
  = sum<r0>(mul(q[i0, i1, r0], k[i2, r0]))
tensor top f32[i0: {rows}] from "Softmax"
  over r0: 5, r1: 24
  = max<r0, r1>(scores[i0, r0, r1])
tensor raised f32[i0: {rows}, i1: 5, i2: 24] from "Softmax"
  = exp(sub(scores[i0, i1, i2], top[i0]))
tensor total f32[i0: {rows}] from "Softmax"
  over r0: 5, r1: 24
  = sum<r0, r1>(raised[i0, r0, r1])
tensor shares f32[i0: {rows}, i1: 5, i2: 24] from "Softmax"
  = div(raised[i0, i1, i2], total[i0])
tensor result f32[i0: {rows}, i1: 16] from "MatMul"
  over r0: 5, r1: 24
  = sum<r0, r1>(mul(shares[i0, r0, r1], v[r0, r1, i1]))
output y = result
"""
    compiled = check(text, target=replace(TARGETS["x86-64-v3"], l2_bytes=256))
    (block,) = (str(plan.schedule) for plan in compiled.plans if plan.schedule.rows)
    assert "order=rows" in block and "span" not in block


def test_cores_take_rows_of_their_own_where_not_all_fit() -> None:
    """Half of the rows stay in the second-level cache, all of them do not."""
    target = replace(TARGETS["x86-64-v3"], l2_bytes=1 << 16, cores=2)
    compiled = compile_text(programs.dense(96, 128, 512), target)
    (tile,) = (s for plan in compiled.plans for s in plan.schedule.members if isinstance(s, ReductionSchedule))
    assert (tile.order, tile.span) == ("rows", 96 // tile.height // 2)
    alone = compile_text(programs.dense(96, 128, 512), replace(target, l2_bytes=1 << 22))
    assert "span" not in str(alone.plans[0].schedule)


def test_reductions_that_need_nothing_of_each_other_share_a_pass() -> None:
    """A pass for the first sum, one for the two of what is beyond it, one for the result."""
    compiled = compile_text(programs.moments(4, 64))
    assert compiled.names == ["rows"]
    text = print_kernel(compiled.kernels[0].kernel)
    assert text.count("loop k") == 3


def test_a_long_map_is_split_into_chunks() -> None:
    compiled = check(programs.elementwise((3, 1100), "max(x[i0, i1], 0.0)"))
    (item,) = compiled.kernels
    assert int(item.kernel.iterations) > 3


SYMBOLIC = {
    "dense": (programs.dense("M", 5, 19, programs.symbols(M="0 of x")), [{"M": m} for m in (1, 2, 6, 7, 13)]),
    "product": (
        programs.product("A", "B", "K", programs.symbols(A="0 of x", K="1 of x", B="1 of z")),
        [{"A": 1, "B": 1, "K": 1}, {"A": 5, "B": 9, "K": 4}, {"A": 8, "B": 17, "K": 3}],
    ),
    "softmax": (
        programs.softmax("R", "C", programs.symbols(R="0 of x", C="1 of x")),
        [{"R": 1, "C": 1}, {"R": 3, "C": 32}, {"R": 2, "C": 45}],
    ),
    "softmax_of_columns": (
        programs.softmax("R", "C", programs.symbols(R="0 of x", C="1 of x"), axis=0),
        [{"R": 1, "C": 1}, {"R": 3, "C": 33}],
    ),
    "layer_norm": (programs.layer_norm("R", 11, programs.symbols(R="0 of x")), [{"R": 1}, {"R": 5}]),
    "convolution": (
        programs.convolution(3, 6, "H", "W", n="N", head=programs.symbols(N="0 of x", H="2 of x", W="3 of x")),
        [{"N": 1, "H": 1, "W": 1}, {"N": 2, "H": 5, "W": 3}, {"N": 1, "H": 2, "W": 9}],
    ),
    "convolution_strided": (
        programs.convolution(3, 6, "H", "W", stride=2, head=programs.symbols(H="2 of x", W="3 of x")),
        [{"H": 1, "W": 1}, {"H": 6, "W": 3}, {"H": 7, "W": 8}],
    ),
    "upsampling": (
        programs.upsampling(3, 5, "H", "W", programs.symbols(H="2 of x", W="3 of x")),
        [{"H": 1, "W": 1}, {"H": 3, "W": 5}],
    ),
    "lstm": (
        programs.lstm("T", "B", 3, 5, programs.symbols(T="0 of x", B="1 of x")),
        [{"T": 1, "B": 1}, {"T": 4, "B": 3}],
    ),
    "attention": (
        programs.attention("B", "S", 2, 3, programs.symbols(B="0 of q", S="1 of q")),
        [{"B": 1, "S": 1}, {"B": 2, "S": 7}],
    ),
    "elementwise": (
        programs.elementwise(("A", "B"), "exp(x[i0, i1])", programs.symbols(A="0 of x", B="1 of x")),
        [{"A": 1, "B": 1}, {"A": 3, "B": 31}, {"A": 2, "B": 515}],
    ),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_one_compilation_serves_every_size(name: str) -> None:
    text, sizes = SYMBOLIC[name]
    for chosen in sizes:
        check(text, chosen)


def test_positions_of_extremes() -> None:
    text = """program positions
input x f32[4, 19]
tensor first i64[i0: 4] from "ArgMax"
  over r0: 19
  = argmax<r0>(x[i0, r0])
tensor last i64[i0: 19] from "ArgMin"
  over r0: 4
  = argmin_last<r0>(x[r0, i0])
output first = first
output last = last
"""
    ties = np.zeros((4, 19), np.float32)
    ties[1, 3] = ties[1, 17] = 2
    ties[2, 5] = np.nan
    check(text, feeds={"x": ties})
    check(text)


def test_integer_extremes() -> None:
    check(
        """program extremes
input x i32[3, 19]
input z u8[1, 5, 9]
tensor top i32[i0: 3] from "ReduceMax"
  over r0: 19
  = max<r0>(x[i0, r0])
tensor pooled u8[i0: 1, i1: 5, i2: 8] from "MaxPool"
  over r0: 2
  = max<r0>(z[i0, i1, i2 + r0])
output top = top
output pooled = pooled
""",
        feeds={"x": np.arange(-30, 27, dtype=np.int32).reshape(3, 19)},
    )


def test_an_index_from_a_tensor() -> None:
    check(
        """program gather
input ids i64[3, 4]
constant table f32[11, 6]
tensor rows f32[i0: 3, i1: 4, i2: 6] from "Gather"
  = table[at(ids[i0, i1], 11), i2]
output y = rows
"""
    )


def test_a_part_that_stands_twice_in_a_concatenation() -> None:
    """One place is written directly, the other is copied."""
    check(
        """program twice
input x f32[3, 5]
tensor made f32[i0: 3, i1: 5] from "Relu"
  = max(x[i0, i1], 0.0)
tensor joined f32[i0: 3, i1: 10] from "Concat"
  = select(ge(index(i1 - 5), 0:i64), made[i0, i1 - 5], made[i0, i1])
output y = joined
""",
    )


def test_taps_that_lie_on_padding_only_are_left_out() -> None:
    """A window of three over a single element: two taps multiply zeros."""
    text = """program narrow
input x f32[5, 8]
constant w f32[16, 8, 3]
tensor y f32[i0: 5, i1: 16] from "Conv"
  over r0: 8, r1: 3
  = sum<r0, r1>(mul(x[i0, r0 if r1 - 1 >= 0, 1 - r1 >= 0 else 0.0], w[i1, r0, r1]))
output y = y
"""
    (item,) = check(text).kernels
    assert print_kernel(item.kernel).count("sum a0") == 1


def test_a_window_with_one_tap_left_is_a_map() -> None:
    """Of one channel: nothing is summed, and lanes are asked for once."""
    text = """program tap
input x f32[5, 1]
constant w f32[16, 1, 3]
tensor y f32[i0: 5, i1: 16] from "Conv"
  over r0: 1, r1: 3
  = sum<r0, r1>(mul(x[i0, r0 if r1 - 1 >= 0, 1 - r1 >= 0 else 0.0], w[i1, r0, r1]))
output y = y
"""
    compiled = check(text)
    assert compiled.names == ["map"]
    assert [d.rule for d in compiled.ledger].count("schedule.lane") == 1


def test_what_turns_out_unused_is_not_computed() -> None:
    """Both sides of the choice are the same view, so nobody needs the comparison."""
    text = """program same
input x f32[4, 8]
tensor first f32[i0: 4, i1: 8] from "Slice"
  = x[i0, i1]
tensor second f32[i0: 4, i1: 8] from "Identity"
  = x[i0, i1]
tensor larger b8[i0: 4, i1: 8] from "Greater"
  = gt(first[i0, i1], second[i0, i1])
tensor chosen f32[i0: 4, i1: 8] from "Where"
  = select(larger[i0, i1], first[i0, i1], second[i0, i1])
output y = chosen
"""
    assert check(text).names == ["map"]


@pytest.mark.parametrize("disable", [(), ("fuse.chain",), ("fuse",)], ids=str)
def test_a_row_with_two_producers(disable: tuple[str, ...]) -> None:
    """Both factors of a sum of products are computed while the row is read."""
    text = """program two
input a f32[1, 19]
input b f32[19, 1]
tensor p f32[i0: 1, i1: 19] from "Relu"
  = max(a[i0, i1], 0.0)
tensor q f32[i0: 19, i1: 1] from "Relu_1"
  = max(b[i0, i1], 0.0)
tensor y f32[i0: 1, i1: 1] from "MatMul"
  over r0: 19
  = sum<r0>(mul(p[i0, r0], q[r0, i1]))
output y = y
"""
    names = check(text, disable=disable).names
    assert names == (["rows"] if disable != ("fuse",) else ["map", "map", "rows"])


def test_producers_of_a_row_that_read_each_other() -> None:
    text = """program nested
input a f32[3, 19]
tensor p f32[i0: 3, i1: 19] from "Exp"
  = exp(a[i0, i1])
tensor q f32[i0: 3, i1: 19] from "Sqrt"
  = sqrt(p[i0, i1])
tensor y f32[i0: 3] from "Sum"
  over r0: 19
  = sum<r0>(sub(mul(p[i0, r0], q[i0, r0]), q[i0, r0]))
output y = y
output p = p
"""
    check(text)
    check(text.replace("p[i0, r0], q[i0, r0]", "q[i0, r0], p[i0, r0]"))


def test_a_sum_over_columns_that_keeps_the_column() -> None:
    """`z` reduces as many elements as the row has, but at each of its columns."""
    text = """program kept
input x f32[5, 7]
input y f32[5, 7]
tensor s f32[i0: 5, i1: 7] from "Sigmoid"
  = sigmoid(x[i0, i1])
tensor r f32[i0: 7] from "ReduceSum"
  over r0: 5
  = sum<r0>(s[r0, i0])
tensor z f32[i0: 5, i1: 7] from "Einsum"
  over r0: 5
  = sum<r0>(mul(s[i0, i1], y[r0, i1]))
output r = r
output z = z
"""
    check(text)
    check(text, disable=("fuse.rows",))


def test_a_product_without_elements() -> None:
    """Fixed extents of zero reach no schedule; a sum over none of them is zero."""
    text = """program empty
input x f32[5, 0, 8]
input z f32[4, 0]
constant w f32[8, 40]
tensor y f32[i0: 5, i1: 0, i2: 40] from "MatMul"
  over r0: 8
  = sum<r0>(mul(x[i0, i1, r0], w[r0, i2]))
tensor s f32[i0: 4, i1: 5, i2: 40] from "MatMul_1"
  over r0: 0
  = sum<r0>(mul(z[i0, r0], y[i1, r0, i2]))
output y = y
output s = s
"""
    check(text)
    check(text, level="none")


def test_a_step_of_a_recurrence_that_is_computed_inside_another_inside_a_third() -> None:
    text = """program chain
input x f32[4, 3]
scan t0: 4 from "Scan"
  state h f32[i0: 3] updated by c
    = 0.0
  step a f32[i0: 3] from "Scan"
    = add(h[i0], x[t0, i0])
  step b f32[i0: 3] from "Scan"
    = mul(a[i0], 2.0)
  step c f32[i0: 3] from "Scan"
    = tanh(b[i0])
  stack y = c
output y = y
"""
    check(text)


def test_a_recurrence_walks_large_weights_back_and_forth() -> None:
    """Of AVX2's 256 KiB a quarter may be weights that stay; 64 x 256 floats are more than twice that, 16 x 64 less."""
    taken: list[str] = []
    for hidden in (64, 16):
        compiled = check(programs.lstm(3, 1, 4, hidden * 2))
        taken += [d.taken for d in compiled.ledger if d.rule == "schedule.order" and not d.failed]
    assert taken == ["turns", "lanes"]


def test_weights_are_walked_as_they_lie() -> None:
    """What a Reshape before a product takes apart are the rows, the smaller operand."""
    text = """program taken_apart
input x f32[9, 8, 16]
constant w f32[128, 64]
tensor y f32[i0: 9, i1: 64] from "MatMul"
  over r0: 128
  = sum<r0>(mul(x[i0, (r0 % 8), (r0 // 8)], w[r0, i1]))
output out = y
"""
    (item,) = check(text).kernels
    printed = print_kernel(item.kernel)
    assert "loop k0: 16\n      loop k1: 8" in printed
    assert "+ 128*k0 + 16*k1 + l0]" in printed


def test_where_a_recurrence_turns_the_last_tile_is_still_written_out() -> None:
    """Which step it is may be unknown; that it is odd or even is all that a tile's size depends on."""
    steps, width = Symbol("T"), 129
    time, tile = Axis("t", steps.dim), Axis("x", 5)
    turned = tile.dim + mod(time.dim, as_dim(2)) * (4 - tile.dim * 2)
    assert possible_counts(width - 32 * turned, 32) == (32, 1)
    assert possible_counts(as_dim(width) - 32 * time.dim, 32) is None


def test_empty_tiles_are_told_from_full_ones() -> None:
    tile = Axis("x", 3)
    assert possible_counts(24 - 8 * tile.dim, 8) == (8,)
    assert possible_counts(8 - 8 * tile.dim, 8) == (8, 0)
    assert possible_counts(13 - 8 * tile.dim, 8) == (8, 5, 0)
    assert possible_counts(as_dim(5), 8) == (5,)
    assert possible_counts(as_dim(-3), 8) == (0,)
