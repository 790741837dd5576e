"""The order in which the cost model puts tile programs, and what it says for other sizes than the expected ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.schedule.cost import Cost, core_of, most_rows, most_rows_of, spared_of
from opweld.schedule.expected import Expected, expected_sizes
from opweld.target import Target
from opweld.tensor.cost import Count
from opweld.tensor.dim import Symbol, as_dim, floordiv, symbols_of
from opweld.tensor.dtype import DType
from opweld.tensor.polynomial import TooLargeError
from opweld.tile.parse import parse_kernel
from opweld.tile.predict import nanoseconds_of, predict
from opweld.tile.traffic import Weights, weights_of
from tests.unit.tile.pipeline import compile_text
from tests.unit.tile.programs import convolution, dense, elementwise, softmax, symbols
from tests.unit.tile.test_schedules import PROGRAMS

TARGET = Target.of("x86-64-v4")
NOTHING = Expected()


def cost(text: str, weights: Weights | None = None) -> Cost:
    return predict(parse_kernel(text), TARGET, NOTHING, weights).cost


def unary_map(n: int, source: str, value: str = "b0[{}]", grid: int = 1) -> Cost:
    """A map over n elements in each of some grid iterations; `source` is the offset that is read."""
    body = value.format(source)
    return cost(
        f"""kernel
read b0 f32
write b1 f32
grid g0: {grid}
loop k0: {-(-n // 16)}
  lane l0: 16 at 16*k0 below {n}
    store b1[{n}*g0 + 16*k0 + l0] = {body}
"""
    )


def gemm(rows: int, vectors: int, reduced: int, grid: int = 64) -> Cost:
    """Tiles of rows x vectors; the total of products is that of `grid` times a tile."""
    return cost(
        f"""kernel
read b0 f32
read b1 f32
write b2 f32
grid g0: {grid}
lane l0: {16 * vectors} at 0
  row r0: {rows} at 0
    acc a0 f32<l0, r0> = 0.0
    loop k0: {reduced}
      sum a0 = mul(b0[{reduced * rows}*g0 + {reduced}*r0 + k0], b1[{16 * vectors}*k0 + l0])
    store b2[{16 * vectors * rows}*g0 + {16 * vectors}*r0 + l0] = a0
"""
    )


def test_contiguous_is_cheaper_than_strided_and_gathered() -> None:
    contiguous = unary_map(4096, "16*k0 + l0")
    strided = unary_map(4096, "48*k0 + 3*l0")
    divided = unary_map(4096, "((16*k0 + l0) // 3)")
    assert contiguous.seconds < strided.seconds < divided.seconds


def test_elements_a_few_apart_are_cheaper_than_far_ones() -> None:
    """Vectors that hold them are loaded and shuffled."""
    near, far = unary_map(4096, "48*k0 + 3*l0"), unary_map(4096, "80*k0 + 5*l0")
    assert near.arithmetic < far.arithmetic / 2
    backwards = unary_map(4096, "(-16)*k0 + (-1)*l0 + 65535")
    assert backwards.arithmetic < near.arithmetic


def test_scattered_stores_cost_more_than_gathered_loads() -> None:
    text = """kernel
read b0 f32
write b1 f32
lane l0: 16 at 0
  store b1[{}] = b0[{}]
"""
    assert cost(text.format("l0", "l0")).seconds < cost(text.format("l0", "9*l0")).seconds
    assert cost(text.format("l0", "9*l0")).arithmetic < cost(text.format("9*l0", "l0")).arithmetic


def test_functions_cost_more_than_sums() -> None:
    plain = unary_map(4096, "16*k0 + l0", "add(b0[{}], 1.0)")
    exponential = unary_map(4096, "16*k0 + l0", "exp(b0[{}])")
    power = unary_map(4096, "16*k0 + l0", "pow(b0[{}], 2.5)")
    assert plain.arithmetic < exponential.arithmetic < power.arithmetic


def test_what_is_the_same_in_all_lanes_is_computed_once() -> None:
    once = unary_map(4096, "16*k0 + l0", "mul(exp(b0[k0]), b0[{}])")
    each = unary_map(4096, "16*k0 + l0", "mul(exp(b0[{}]), b0[k0])")
    assert once.arithmetic == pytest.approx(each.arithmetic)
    wide = """kernel
read b0 f32
write b1 f32
lane l0: 64 at 0
  store b1[l0] = mul(exp(b0[{}]), b0[l0])
"""
    assert cost(wide.format("0")).arithmetic < cost(wide.format("l0")).arithmetic


def test_few_lanes_waste_the_vector() -> None:
    """As many elements, in rows of 4 and in rows of 64."""
    assert unary_map(4, "16*k0 + l0", grid=1024).seconds > 2 * unary_map(64, "16*k0 + l0", grid=64).seconds


def test_a_partial_vector_costs_a_whole_one() -> None:
    assert unary_map(1024, "16*k0 + l0").arithmetic < unary_map(1025, "16*k0 + l0").arithmetic
    assert unary_map(1025, "16*k0 + l0").arithmetic == unary_map(1040, "16*k0 + l0").arithmetic


def test_a_tail_of_rows_costs_its_rows() -> None:
    tail = """kernel
read b0 f32
read b1 f32
write b2 f32
grid g0: 2
lane l0: 32 at 0
  row r0: 12 at 12*g0 below {}
    acc a0 f32<l0, r0> = 0.0
    loop k0: 256
      sum a0 = mul(b0[3072*g0 + 256*r0 + k0], b1[32*k0 + l0])
    store b2[384*g0 + 32*r0 + l0] = a0
"""
    one, eight, twelve = (cost(tail.format(rows)) for rows in (13, 20, 24))
    assert one.arithmetic < eight.arithmetic < twelve.arithmetic
    assert one.dependency > twelve.dependency == 0, "a row of two sums waits for them, twelve do not"


def test_a_single_row_waits_for_its_sums() -> None:
    single, tile = gemm(1, 2, 512, grid=12 * 64), gemm(12, 2, 512)
    assert tile.dependency == 0
    assert single.dependency > 0
    assert single.seconds > 2 * tile.seconds


def test_rows_in_the_same_sets_of_a_cache_evict_each_other() -> None:
    # 32 KiB of 8 ways: of 13 rows that are a multiple of 4 KiB apart, five find no place.
    assert gemm(13, 2, 1024).dependency > 0
    assert gemm(8, 2, 1024).dependency == gemm(13, 2, 1040).dependency == 0


def test_rows_that_overlap_share_their_loads() -> None:
    window = """kernel
read b0 f32
write b1 f32
grid g0: 100
lane l0: 16 at 0
  row r0: 4 at 0
    acc a0 f32<l0, r0> = 0.0
    loop k0: 64
      max a0 = b0[1024*k0 + 16*r0 + l0]
      max a0 = b0[1024*k0 + {first}*r0 + l0 + {step}]
      max a0 = b0[1024*k0 + {first}*r0 + l0 + {last}]
    store b1[64*g0 + 16*r0 + l0] = a0
"""
    sliding = cost(window.format(first=16, step=16, last=32))
    apart = cost(window.format(first=16, step=1, last=2))
    # 6 addresses against 12; four rows of three sums wait all the same
    assert sliding.arithmetic <= apart.arithmetic
    assert sliding.arithmetic + sliding.dependency <= apart.arithmetic + apart.dependency


def test_traffic_grows_faster_than_bytes_beyond_a_cache() -> None:
    inside = unary_map(1 << 14, "16*k0 + l0")
    outside = unary_map(1 << 20, "16*k0 + l0")
    memory = unary_map(1 << 24, "16*k0 + l0")
    assert inside.traffic < outside.traffic / 64 < memory.traffic / 1024
    assert memory.traffic > memory.arithmetic, "a copy in memory is bound by it"


def test_weights_come_from_where_all_weights_fit() -> None:
    text = """kernel
read b0 f32
read b1 f32
write b2 f32
grid g0: 64
lane l0: 32 at 0
  acc a0 f32<l0> = 0.0
  loop k0: 64
    sum a0 = mul(b0[k0], b1[2048*g0 + 32*k0 + l0])
  store b2[32*g0 + l0] = a0
"""
    kernel = parse_kernel(text)
    own = frozenset({kernel.buffers[1].name})
    small, large, huge = (
        predict(kernel, TARGET, NOTHING, Weights(own, size)).cost for size in (1 << 19, 8 << 20, 64 << 20)
    )
    assert small.traffic < large.traffic < huge.traffic


@pytest.mark.parametrize(
    ("text", "elements"),
    [(dense(8, 96, 160), 96 * 160 + 160), (convolution(64, 64, 28, 28), (16 + 9) * 64 * 64 + 64)],
    ids=["packed", "winograd"],
)
def test_weights_are_counted_as_they_are_stored(text: str, elements: int) -> None:
    """And what they were packed from or transformed is not."""
    found = weights_of(compile_text(text, TARGET).placed)
    assert elements * 4 <= found.bytes < elements * 4 * 1.1


def test_what_stays_in_cache_is_brought_once() -> None:
    text = """kernel
read b0 f32
read b1 f32
write b2 f32
grid g0: 4096
loop k0: {lines}
  lane l0: 16 at 0
    store b2[16*g0 + l0] = mul(b0[16*k0 + l0], b1[16*g0 + l0])
"""
    kept, streamed = cost(text.format(lines=512)), cost(text.format(lines=1 << 16))
    assert kept.traffic < kept.arithmetic, "32 KB are read from the first level again and again"
    assert streamed.traffic > streamed.arithmetic, "4 MB are not"


def test_nothing_to_do_costs_a_launch() -> None:
    nothing = "kernel\nread b0 f32\nwrite b1 f32\ngrid g0: 0\nstore b1[g0] = b0[g0]\n"
    assert cost(nothing) == Cost(launch=core_of(TARGET).launch)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_runtime_is_told_the_prediction(name: str) -> None:
    compiled = compile_text(PROGRAMS[name], TARGET)
    for item in compiled.kernels:
        running = predict(item.kernel, TARGET, NOTHING, weights_of(compiled.placed)).cost.running
        assert int(item.nanoseconds) == pytest.approx(running * 1e9, abs=2)


SYMBOLIC = {
    "dense": dense("N", 96, 160, symbols(N="0 of x")),
    "softmax": softmax("N", 300, symbols(N="0 of x")),
    "convolution": convolution(16, 32, "N", 40, head=symbols(N="2 of x")),
    "elementwise": elementwise(("N", 64), "tanh(x[i0, i1])", symbols(N="0 of x")),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_work_is_that_of_the_sizes(name: str) -> None:
    """At the expected size it is the prediction. A batch of one wastes the tile that a larger one fills: then it is too
    much, but never far too little, so that no core is left without work. What no longer fits a cache takes up to three
    times as long an element."""
    compiled = compile_text(SYMBOLIC[name], TARGET)
    expected, weights = expected_sizes(compiled.program), weights_of(compiled.placed)
    found = 0
    for item in compiled.kernels:
        for symbol in symbols_of(item.nanoseconds):
            found += 1
            usual = expected(symbol.dim)
            for size in (usual, 8 * usual, 1024):
                running = predict(item.kernel, TARGET, Expected({symbol: size}), weights).cost.running * 1e9
                work = item.nanoseconds.evaluate({symbol: size})
                assert running / 3 <= work <= 5 * running
                if size == usual:
                    assert work == pytest.approx(running, rel=0.02, abs=3)
    assert found


def test_sizes_that_cannot_be_divided_again_cost_what_they_do_where_expected() -> None:
    n = Symbol("n")
    size = n.dim
    while True:
        try:
            deeper = floordiv(size + n.dim, 3)
        except TooLargeError:
            break
        size = deeper
    count = Count(flops=size * 3 + 1)
    work = nanoseconds_of(Cost(arithmetic=3e-6), count, as_dim(1), NOTHING)
    assert work.evaluate({n: 1}) == pytest.approx(3000, rel=0.01)


def test_units_that_are_busy_as_long_as_sums_take_cannot_hide_them() -> None:
    """Tiles of 8, 10 and 12 sums: fewer wait longer, 12 do not (measured with AVX2)."""
    eight, ten, twelve = (gemm(rows, 2, 768, grid=60 // rows) for rows in (4, 5, 6))
    assert eight.dependency > ten.dependency > twelve.dependency == 0


def test_an_element_for_all_lanes_takes_longer_where_no_product_loads_it() -> None:
    text = """kernel
read b0 f32
read b1 f32
write b2 f32
grid g0: 64
lane l0: {lanes} at 0
  row r0: {rows} at 0
    acc a0 f32<l0, r0> = 0.0
    loop k0: 768
      sum a0 = mul(b0[768*r0 + k0], b1[{lanes}*k0 + l0])
    store b2[{lanes}*g0 + r0 + l0] = a0
"""

    def each(target: Target, rows: int, vectors: int) -> float:
        kernel = parse_kernel(text.format(rows=rows, lanes=vectors * target.vector_lanes_f32))
        return predict(kernel, target, NOTHING).cost.arithmetic / (rows * vectors)

    narrow, wide = (Target.of(name) for name in ("x86-64-v3", "x86-64-v4"))
    assert each(narrow, 12, 1) > 1.25 * each(narrow, 6, 2)
    assert each(wide, 12, 1) < 1.1 * each(wide, 6, 2)


def test_what_the_last_level_keeps_comes_from_memory_once() -> None:
    """16 MB of one operand are passed over again and again, 4 MB at a time, which the last level holds."""
    text = """kernel
read b0 f32
read b1 f32
write b2 f32
grid g0: 4, g1: 64
loop k0: 65536
  lane l0: 16 at 0
    store b2[g1 + l0] = mul(b0[1048576*g0 + 16*k0 + l0], b1[16*g1 + l0])
"""
    moved = predict(parse_kernel(text), TARGET, NOTHING, Weights(frozenset(), 0)).traffic
    beyond = predict(parse_kernel(text), replace(TARGET, l3_bytes=2 << 20), NOTHING).traffic
    assert moved.l3 > 30 * moved.dram
    assert beyond.dram > 30 * beyond.l3


def test_rows_of_any_number_that_do_not_fill_a_tile_are_computed_in_pieces() -> None:
    """Of 7 rows that are left, 4, 2 and 1 are computed one after the other where nobody knows that there are 7."""
    text = """kernel
{size}read b0 f32
read b1 f32
write b2 f32
grid g0: {tiles}
lane l0: 32 at 0
  row r0: 14 at 14*g0 below {rows}
    acc a0 f32<l0, r0> = 0.0
    loop k0: 256
      sum a0 = mul(b0[3584*g0 + 256*r0 + k0], b1[32*k0 + l0])
    store b2[448*g0 + 32*r0 + l0] = a0
"""
    known = cost(text.format(size="", tiles=2, rows=21))
    unknown = parse_kernel(text.format(size="size n0 >= 1\n", tiles="((n0 + 13) // 14)", rows="n0"))
    any_number = predict(unknown, TARGET, Expected({unknown.sizes[0]: 21})).cost
    assert any_number.dependency > known.dependency == 0
    whole = predict(unknown, TARGET, Expected({unknown.sizes[0]: 28})).cost
    assert whole.dependency == 0


def test_half_a_vector_of_products_takes_half_the_time_where_a_core_has_such_units() -> None:
    zen4 = replace(TARGET, core="zen4")
    assert [spared_of(lanes, zen4) for lanes in (16, 24, 8, 25, 0)] == [0.0, 0.5, 0.5, 0.0, 0.0]
    assert spared_of(24, TARGET) == 0.0
    text = """kernel
read b0 f32
read b1 f32
write b2 f32
grid g0: 64
lane l0: 32 at 0 below {}
  row r0: 12 at 0
    acc a0 f32<l0, r0> = 0.0
    loop k0: 64
      sum a0 = mul(b0[768*g0 + 64*r0 + k0], b1[32*k0 + l0])
    store b2[384*g0 + 32*r0 + l0] = a0
"""
    half, whole = (predict(parse_kernel(text.format(lanes)), zen4, NOTHING).cost.arithmetic for lanes in (24, 32))
    assert 0.7 < half / whole < 0.85


def test_a_tile_of_whole_and_half_registers_has_two_rows_less() -> None:
    most = most_rows(2, DType.F32, TARGET)
    rows = [most_rows_of(lanes, 2, DType.F32, TARGET) for lanes in (24, 32, 8, 40, 88, None)]
    assert rows == [most - 2, most, most, most, most - 2, most]
    assert most_rows_of(12, 2, DType.F32, Target.of("x86-64-v3")) == most_rows(2, DType.F32, Target.of("x86-64-v3"))
