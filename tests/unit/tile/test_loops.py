"""How loops are written: what is unrolled, fetched ahead and kept apart, and that each choice can be overruled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest

from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import Symbol, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Load, load, loads
from opweld.tile.check import check_kernel
from opweld.tile.loops import Decide, tune_loops
from opweld.tile.prefetch import AHEAD
from opweld.tile.registers import most_held
from opweld.tile.text import parse_kernel, print_kernel
from opweld.tile.tile import Accumulate, Kernel, Loop, walk_statements
from tests.unit.codegen.hand_written import conv3x3, gemm, layernorm
from tests.unit.tile import programs
from tests.unit.tile.pipeline import compile_text

V3, V4 = Target.of("x86-64-v3"), Target.of("x86-64-v4")
RULES = ("schedule.unroll", "schedule.prefetch", "schedule.separate")


def loops(kernel: Kernel) -> list[Loop]:
    return [statement for statement in walk_statements(kernel.body) if isinstance(statement, Loop)]


def innermost(kernel: Kernel) -> Loop:
    return loops(kernel)[-1]


Asked = list[tuple[str, tuple[str, ...], str, str]]


def recorded(asked: Asked, refuse: str = "") -> Decide:
    def decide(
        loop: int, rule: str, alternatives: Sequence[str], prefer: str, reason: str, failed: Mapping[str, str]
    ) -> str:
        assert reason
        assert prefer in alternatives
        assert not failed or prefer == alternatives[0]
        asked.append((rule, tuple(alternatives), prefer, reason))
        return alternatives[0] if rule == refuse else prefer

    return decide


def test_a_loop_of_products_is_unrolled() -> None:
    assert innermost(tune_loops(gemm(128, 768, 768, 8, 32), V4)).unroll == 4
    assert innermost(tune_loops(conv3x3(28, 28, 128, 128, 14), V4)).unroll == 4


@pytest.mark.parametrize("target", [V3, V4], ids=["AVX2", "AVX-512"])
def test_a_tile_that_fills_the_registers_is_not(target: Target) -> None:
    asked: Asked = []
    rows = target.vector_registers // 2
    kernel = gemm(rows * 8, 64, 64, rows, 2 * target.vector_lanes_f32)
    assert innermost(tune_loops(kernel, target, recorded(asked))).unroll == 1
    ((rule, alternatives, prefer, reason), _) = asked
    assert (rule, alternatives, prefer) == ("schedule.unroll", ("1", "2", "4", "8"), "1")
    assert "accumulators leave fewer than" in reason


def test_rows_at_run_time_distances_are_not() -> None:
    asked: Asked = []
    size = Symbol("k")
    assert innermost(tune_loops(gemm(64, 64, size.dim, 9, sizes=(size,)), V4, recorded(asked))).unroll == 1
    assert "10 pointers do not stay" in asked[0][3]
    assert innermost(tune_loops(gemm(64, 64, size.dim, 8, sizes=(size,)), V4)).unroll == 4


def test_nothing_is_asked_where_there_is_no_loop_of_accumulations() -> None:
    asked: Asked = []
    kernel = layernorm(3, 77)
    assert print_kernel(tune_loops(kernel, V3, recorded(asked))) == print_kernel(kernel)
    assert asked == []
    tune_loops(gemm(64, 32, 1), V3, recorded(asked))
    assert asked == []


def test_what_does_not_profit_says_why() -> None:
    asked: Asked = []
    assert innermost(tune_loops(gemm(64, 32, 7, 6, 16), V3, recorded(asked))).unroll == 1
    assert innermost(tune_loops(gemm(64, 32, 64, 1, 8), V3, recorded(asked))).unroll == 1
    reasons = [reason for rule, _, _, reason in asked if rule == "schedule.unroll"]
    assert [reason.partition(": ")[2] for reason in reasons] == [
        "7 trips are few, and in a row they would load 126 vectors, no fewer",
        "1 multiply-adds a body are few",
    ]


def test_a_short_loop_is_written_out() -> None:
    assert innermost(tune_loops(gemm(64, 64, 7, 4, 32), V4)).unroll == 8
    assert innermost(tune_loops(gemm(64, 64, 3, 4, 32), V4)).unroll == 4
    assert innermost(tune_loops(gemm(64, 64, 8, 4, 32), V4)).unroll == 4


def test_a_panel_that_is_not_fetched_says_why() -> None:
    asked: Asked = []
    (item,) = compile_text(programs.dense(128, 32, 64), V4).kernels
    tune_loops(item.kernel, V4, recorded(asked))
    tune_loops(gemm(64, 64, Symbol("k").dim, 8, sizes=(Symbol("k"),)), V4, recorded(asked))
    told = [(prefer, reason.partition(": ")[2]) for rule, _, prefer, reason in asked if rule == "schedule.prefetch"]
    assert [prefer for prefer, _ in told] == ["0", "0"]
    assert told[1][1] == "how many trips there are is known at run time only"


def test_a_large_weight_is_fetched_ahead() -> None:
    (item,) = compile_text(programs.dense(128, 768, 3072), V4).kernels
    (fetch,) = innermost(item.kernel).fetches
    weights = next(buffer.name for buffer in item.kernel.buffers if buffer.name == fetch.buffer)
    assert fetch.lines >= 1
    assert weights in fetch.buffer
    check_kernel(item.kernel, 16)
    text = print_kernel(item.kernel)
    assert f" lines {fetch.lines} step {fetch.step}" in text
    assert print_kernel(parse_kernel(text)) == text
    (small,) = compile_text(programs.dense(128, 32, 64), V4).kernels
    assert innermost(small.kernel).fetches == ()


def test_many_passes_over_a_panel_fetch_their_share_and_little_more() -> None:
    """22 passes, each with 192 groups of bodies for 35 lines: a group steps by a part of a line."""
    kernel = tune_loops(gemm(128, 768, 3072, 6, 16), V3)
    ((fetch,), trips) = innermost(kernel).fetches, 768
    share = trips * 16 / 22
    assert fetch.lines == 1
    assert share <= trips * fetch.step < 2 * share
    many = tune_loops(gemm(2048, 768, 3072, 6, 16), V3)
    assert innermost(many).fetches == ()


def test_rows_that_are_counted_at_run_time_share_a_panel_as_expected() -> None:
    """Many passes over a panel share the next one. One that is expected fetches half of it, for others may come; one
    that is known to be the only one reads a stream."""
    (item,) = compile_text(programs.dense("M", 768, 3072, programs.symbols(M="0 of x")), V4).kernels
    (rows,) = item.kernel.sizes
    sizes = (Expected({rows: 64}), Expected({rows: 1}), Expected({rows: 1}, (rows,)))
    fetches = [innermost(tune_loops(item.kernel, V4, expected=expected)).fetches[0] for expected in sizes]
    assert [fetch.lines for fetch in fetches] == [1, 4, 8]
    passes = item.kernel.grid[1].extent
    assert passes.constant is None
    assert [fetch.passes for fetch in fetches] == [passes, passes, None]


def test_one_row_fetches_what_it_reads_a_little_later() -> None:
    """Weights that are read once, in the order of memory: whole lines, as far ahead as memory takes to answer."""
    (item,) = compile_text(programs.dense(1, 768, 3072), V4).kernels
    loop = innermost(item.kernel)
    (fetch,) = loop.fetches
    (weights,) = (b for b in item.kernel.buffers if b.name == fetch.buffer)
    sums = [item for item in loop.body if isinstance(item, Accumulate)]
    (read,) = (node for item in sums for node in loads(item.value) if node.tensor == fetch.buffer)
    bodies = AHEAD // weights.dtype.bytes // fetch.step
    assert read.indices[0].coefficient(loop.axis) == as_dim(fetch.step)
    assert fetch.lines * 64 <= loop.unroll * fetch.step * weights.dtype.bytes
    assert bodies > loop.unroll
    check_kernel(item.kernel, 16)


@pytest.mark.parametrize(("rows", "lines", "foreseen"), [(1, 8, 8), (4, 8, 4), (6, 8, 0), (12, 8, 8)])
def test_a_core_that_foresees_streams_is_left_those_that_take_longer_to_read(
    rows: int, lines: int, foreseen: int
) -> None:
    """Eight lines a group at most: of one row, whose tile is four vectors wide, that is half of them."""

    def fetched(target: Target) -> int:
        (item,) = compile_text(programs.dense(rows, 768, 3072), target).kernels
        return sum(fetch.lines for fetch in innermost(item.kernel).fetches)

    assert (fetched(V4), fetched(replace(V4, core="zen4", l3_bytes=1 << 20))) == (lines, foreseen)
    kept = replace(V4, core="zen4", l3_bytes=1 << 25)
    assert fetched(kept) == (lines if rows == 12 else 0), "of what L3 keeps it foresees all"


def strided() -> str:
    """A depthwise convolution whose rows step over two elements: more of them are needed again."""
    text = programs.separable(16, 64, 14, 14)
    return text.replace("i3 + r1 - 1", "2*i3 + r1 - 1").replace("14 - i3 - r1", "14 - 2*i3 - r1")


def test_a_window_with_too_many_shared_loads_is_kept_apart() -> None:
    def apart(text: str, target: Target) -> set[int | None]:
        return {loop.separate for item in compile_text(text, target).kernels for loop in loops(item.kernel)}

    assert 16 in apart(strided(), V3)
    assert apart(strided(), V4) == {None}
    # At a step of one a row's operand is the next row's at the tap before: few are held at a time.
    assert apart(programs.separable(16, 64, 14, 14), V3) == {None}


def test_loads_are_held_from_the_first_to_the_last_accumulation_that_needs_them() -> None:
    x = [cast(Load, load("x", DType.F32, (as_dim(place),))) for place in range(6)]
    w = [cast(Load, load("w", DType.F32, (as_dim(tap),))) for tap in range(3)]
    taps = [(f"acc{row}", [x[row + tap], w[tap]]) for tap in range(3) for row in range(4)]
    assert most_held(taps) == 4 + 3 + 1, "accumulators, three elements for the next tap, a weight"
    assert most_held([(f"acc{row}", [x[row]]) for row in range(4)]) == 4 + 1
    assert most_held([]) == 0


@pytest.mark.parametrize("refused", RULES)
def test_every_choice_can_be_refused(refused: str) -> None:
    asked: Asked = []
    left: list[Loop] = []
    for text, target in ((programs.dense(128, 768, 3072), V4), (strided(), V3)):
        for item in compile_text(text, target).kernels:
            left += loops(tune_loops(item.kernel, target, recorded(asked, refused)))
    done = {
        "schedule.unroll": any(loop.unroll > 1 for loop in left),
        "schedule.prefetch": any(loop.fetches for loop in left),
        "schedule.separate": any(loop.separate for loop in left),
    }
    assert refused in {rule for rule, *_ in asked}
    assert not done.pop(refused)
    if refused == "schedule.unroll":
        assert not done.pop("schedule.prefetch"), "fetches are shared by unrolled bodies"
    assert all(done.values())
