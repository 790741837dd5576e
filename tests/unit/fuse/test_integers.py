"""Products of quantized values as sums of integers: what becomes one, what does not and why, and that it is exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opweld.errors import OpweldError
from opweld.fuse.region import dot_of, reductions
from opweld.fuse.saturation import pairs_fit
from opweld.ledger import Ledger
from opweld.place.verify import verify_placed
from opweld.target import Target
from opweld.tensor.dtype import DType
from opweld.tensor.interpret import interpret
from opweld.tensor.parse import parse_program
from opweld.tensor.program import TensorProgram
from opweld.tile.text import print_kernel
from tests.unit.tile.pipeline import Compiled, compile_text, compile_with, run
from tests.unit.tile.programs import quantized, quantized_convolution

RULE = "fuse.integer"
V3, V4 = Target.of("x86-64-v3"), Target.of("x86-64-v4")
WAYS = [(x, w, zeros) for x in ("u8", "i8") for w in ("u8", "i8") for zeros in (False, True)]


def with_bytes(text: str, seed: int = 0) -> TensorProgram:
    """The program with constants of any bytes, and scales that are powers of two, so that floats are exact too."""
    random = np.random.default_rng(seed)
    program = parse_program(text)

    def data(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        if dtype.kind == "f":
            return (2.0 ** random.integers(-3, 2, shape)).astype(dtype)
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)

    known = {c.name: data(c.dtype.numpy, c.shape) for c in program.constants}
    made = (replace(c, read=lambda name=c.name: known[name]) for c in program.constants)
    return replace(program, constants=tuple(made))


def compiled_of(
    text: str, target: Target = V3, ledger: Ledger | None = None, way: str = ""
) -> tuple[TensorProgram, Compiled]:
    """The program, and what becomes of it; with a `way`, where its sums of products are pinned to that."""
    program = with_bytes(text)
    if way:
        first = compile_with(program, Ledger(), target)
        ledger = Ledger(pins={d.id: way for d in first.ledger if d.rule == RULE and way not in d.failed})
    return program, compile_with(program, Ledger() if ledger is None else ledger, target)


def feeds_of(program: TensorProgram, rows: int = 7) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    found: dict[str, np.ndarray] = {}
    for value in program.inputs:
        limits = np.iinfo(value.dtype.numpy)
        shape = [rows if d.constant is None else d.constant for d in value.shape]
        found[value.name] = random.integers(limits.min, limits.max, shape, endpoint=True).astype(value.dtype.numpy)
    return found


DOTS = {"integers": "dot4", "halves": "dot2i"}


def sums_of_bytes(compiled: Compiled, way: str = "integers") -> int:
    tensors = [tensor for region in compiled.regions.regions for tensor in region.tensors]
    return sum(dot_of(node) == DOTS[way] for tensor in tensors for node in reductions(tensor.body))


def uses_words(compiled: Compiled, way: str = "integers") -> bool:
    return any(f"{DOTS[way]}(" in print_kernel(item.kernel) for item in compiled.kernels)


def check(program: TensorProgram, compiled: Compiled, rows: int = 7) -> None:
    feeds = feeds_of(program, rows)
    found, wanted = run(compiled, feeds), interpret(program, feeds, float64=True)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("way", DOTS)
@pytest.mark.parametrize(("x", "w", "zeros"), WAYS)
def test_products_of_any_bytes_are_exact(x: str, w: str, zeros: bool, way: str) -> None:
    program, compiled = compiled_of(quantized(7, 12, 21, x, w, zeros), way=way)
    assert sums_of_bytes(compiled, way) == 1 and uses_words(compiled, way)
    check(program, compiled)


def test_where_bytes_are_multiplied_as_they_are_they_are_stored_so() -> None:
    """With VNNI: products of 16 bits take twice as long. Without, they take less than bytes that are widened."""
    vnni = replace(V4, features=(*V4.features, "avx512vnni"))
    for target, way in ((vnni, "integers"), (V3, "halves")):
        _, compiled = compiled_of(quantized(64, 256, 256), target)
        (decision,) = [d for d in compiled.ledger if d.rule == RULE]
        assert decision.taken == way


def test_bytes_whose_pairs_fit_16_bits_are_multiplied_as_they_are() -> None:
    """Where the instruction saturates: the largest bytes times weights whose sums by two are 128 and -128, and 129."""
    pairs = np.array([(64, 64), (-1, -127), (127, 1), (-128, 127), (-64, -64), (0, 128 - 1)], np.int8)
    weights = np.repeat(pairs.reshape(-1, 1), 40, 1)
    text = quantized(16, len(weights), 40, "u8", "i8")
    for first, fits in ((64, True), (65, False)):
        weights[0] = first
        program = with_bytes(text)
        read = weights.copy().view
        known = [replace(c, read=read) if c.name == "w" else c for c in program.constants]
        program = replace(program, constants=tuple(known))
        compiled = compile_with(program, Ledger(), V3)
        assert any("dot4s(" in print_kernel(item.kernel) for item in compiled.kernels) == fits
        feeds = {"x": np.full((16, len(weights)), 255, np.uint8)}
        found, wanted = run(compiled, feeds), interpret(program, feeds, float64=True)
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("pair", "fits"), [((64, 64), True), ((127, 2), False), ((-128, -1), False), ((-127, 127), True)]
)
def test_pairs_that_fit(pair: tuple[int, int], fits: bool) -> None:
    weights = np.zeros((6, 3), np.int8)
    weights[2:4, 1] = pair
    assert pairs_fit(weights, 0) == fits
    assert not pairs_fit(weights, 1), "three are no pairs"
    assert pairs_fit(np.roll(weights, 1, 0), 0), "neighbours of two pairs"


def test_weights_that_would_saturate_are_seen() -> None:
    compiled = compile_text(quantized(16, 12, 40, "u8", "i8"))
    packed = compiled.placed.constants["w_packed0"]
    assert compiled.placed.storages["w_packed0"].pairs_fit  # they are all 0
    verify_placed(compiled.placed)
    other = replace(packed, read=lambda: np.full(packed.shape, 65, np.int8))
    with pytest.raises(OpweldError, match="'w_packed0' has neighbours whose products"):
        verify_placed(replace(compiled.placed, constants={**compiled.placed.constants, "w_packed0": other}))


def test_products_of_pairs_need_no_four_neighbours() -> None:
    program, compiled = compiled_of(quantized(64, 130, 96))
    (decision,) = [d for d in compiled.ledger if d.rule == RULE]
    assert decision.taken == "halves" and set(decision.failed) == {"integers"}
    assert uses_words(compiled, "halves")
    check(program, compiled)


def test_bare_bytes_are_summed_too_where_no_constant_has_to_be_made() -> None:
    text = """program bare
input x u8[3, 16]
constant w i8[16, 21]
tensor a f32[i0: 3, i1: 16] from "Cast"
  = f32(x[i0, i1])
tensor product i32[i0: 3, i1: 21] from "MatMulInteger"
  over r0: 16
  = i32(sum<r0>(mul(a[i0, r0], f32(w[r0, i1]))))
output y = product
"""
    _, first = compiled_of(text)
    (decision,) = (d for d in first.ledger if d.rule == RULE)
    program, compiled = compiled_of(text, ledger=Ledger(pins={decision.id: "integers"}))
    assert sums_of_bytes(compiled) == 1 and uses_words(compiled)
    check(program, compiled)


@pytest.mark.parametrize("way", DOTS)
@pytest.mark.parametrize("target", [V3, V4], ids=lambda t: t.name)
@pytest.mark.parametrize("x", ["u8", "i8"])
def test_padding_of_a_convolution_is_the_zero_point(x: str, target: Target, way: str) -> None:
    program, compiled = compiled_of(quantized_convolution(8, 20, 5, 7, x), target, way=way)
    assert sums_of_bytes(compiled, way) == 1 and uses_words(compiled, way)
    check(program, compiled)


@pytest.mark.parametrize("channels", [3, 7])
@pytest.mark.parametrize("x", ["u8", "i8"])
def test_three_channels_and_one_of_zeros_are_a_word(x: str, channels: int) -> None:
    text = quantized_convolution(channels, 48, 24, 28, x)
    program, compiled = compiled_of(text, replace(V4, features=(*V4.features, "avx512vnni")))
    assert sums_of_bytes(compiled) == 1 and uses_words(compiled)
    check(program, compiled)
    program, compiled = compiled_of(text)  # where an instruction multiplies no words, nothing is copied
    assert sums_of_bytes(compiled) == 0
    check(program, compiled)


def test_few_products_of_three_channels_are_not_worth_a_copy() -> None:
    text = quantized_convolution(3, 1, 5, 7, "u8")
    _, compiled = compiled_of(text, replace(V4, features=(*V4.features, "avx512vnni")))
    assert sums_of_bytes(compiled) == 0


GUARDS = "i2 + r1 - 1 >= 0, 9 - i2 - r1 >= 0, i3 + r2 - 1 >= 0, 12 - i3 - r2 >= 0"
COMPUTED_ZERO = f"""program computed_zero
input x u8[1, 9, 12, 8]
input z u8[1]
constant w i8[20, 8, 3, 3]
tensor zero u8[i0: 1] from "DynamicQuantizeLinear"
  = bitxor(z[i0], 85:u8)
tensor codes u8[i0: 1, i1: 9, i2: 12, i3: 8] from "DynamicQuantizeLinear"
  = bitxor(x[i0, i1, i2, i3], zero[0])
tensor result i32[i0: 1, i1: 20, i2: 9, i3: 12] from "ConvInteger"
  over r0: 8, r1: 3, r2: 3
  %0 = codes[i0, i2 + r1 - 1, i3 + r2 - 1, r0 if {GUARDS} else zero[0]]
  = i32(sum<r0, r1, r2>(mul(f32(sub(i32(%0), i32(zero[0]))), f32(w[i1, r0, r1, r2]))))
output y = result
"""


@pytest.mark.parametrize("choice", ["test-edges", "halo"])
@pytest.mark.parametrize("target", [V3, V4], ids=lambda t: t.name)
@pytest.mark.parametrize("way", DOTS)
def test_padding_with_a_zero_point_that_is_computed(target: Target, choice: str, way: str) -> None:
    """Whether a load tests for the edges or the padding lies in memory, neighbours are summed at once."""
    _, first = compiled_of(COMPUTED_ZERO, target, way=way)
    (edges,) = [d for d in first.ledger if d.rule == "place.halo"]
    assert edges.preferred == "halo" and not edges.failed
    pins = {d.id: d.taken for d in first.ledger if d.rule == RULE} | {edges.id: choice}
    program, compiled = compiled_of(COMPUTED_ZERO, target, Ledger(pins=pins))
    assert any(item.kernel.name.endswith("_halo") for item in compiled.kernels) == (choice == "halo")
    assert sums_of_bytes(compiled, way) == 1 and uses_words(compiled, way)
    check(program, compiled)


@pytest.mark.parametrize("way", DOTS)
@pytest.mark.parametrize("target", [V3, V4], ids=lambda t: t.name)
@pytest.mark.parametrize("x", ["u8", "i8"])
def test_zero_points_of_weights_take_sums_of_windows_by_their_points(x: str, target: Target, way: str) -> None:
    """Which a window of 3 x 3 that moves by one shares with eight others; padding stands for a number of its own."""
    guards = "i2 + r1 - 1 >= 0, 9 - i2 - r1 >= 0, i3 + r2 - 1 >= 0, 12 - i3 - r2 >= 0"
    text = f"""program windows
input x {x}[2, 8, 9, 12]
constant w u8[20, 8, 3, 3]
tensor result i32[i0: 2, i1: 20, i2: 9, i3: 12] from "ConvInteger"
  over r0: 8, r1: 3, r2: 3
  %0 = x[i0, r0, i2 + r1 - 1, i3 + r2 - 1 if {guards} else 85:{x}]
  = i32(sum<r0, r1, r2>(mul(f32(sub(i32(%0), 85:i32)), f32(sub(i32(w[i1, r0, r1, r2]), 120:i32)))))
output y = result
"""
    program, compiled = compiled_of(text, target, way=way)
    assert sums_of_bytes(compiled, way) == 1 and uses_words(compiled, way)
    tensors = {t.name: t for region in compiled.regions.regions for t in region.tensors}
    (points,) = (t for name, t in tensors.items() if name.endswith("_points"))
    (sums,) = (t for name, t in tensors.items() if name.endswith("_sums"))
    assert sorted(int(axis.extent.constant or 0) for axis in points.axes) == [2, 9, 12]
    (summed,) = reductions(sums.body)
    assert [axis.extent.constant for axis in summed.axes] == [3, 3]
    check(program, compiled)


def test_floats_are_right_too_where_they_are_pinned() -> None:
    program, first = compiled_of(quantized(7, 12, 21))
    pins = {decision.id: "floats" for decision in first.ledger if decision.rule == RULE}
    _, compiled = compiled_of(quantized(7, 12, 21), ledger=Ledger(pins=pins))
    assert pins and not sums_of_bytes(compiled)
    check(program, compiled)


@pytest.mark.parametrize("rows", [1, 2, 50])
def test_any_number_of_rows(rows: int) -> None:
    program, compiled = compiled_of(quantized("N", 64, 40, "i8", "u8", zeros=True))
    assert sums_of_bytes(compiled) == 1
    check(program, compiled, rows)


def batched(rows: int) -> str:
    """A product of which no operand is shared: its elements are summed as floats."""
    return f"""program batched
input x u8[{rows}, 3, 8]
constant w i8[3, 8]
tensor a f32[i0: {rows}, i1: 3, i2: 8] from "DequantizeLinear"
  = mul(f32(sub(i32(x[i0, i1, i2]), 3:i32)), 0.5)
tensor result f32[i0: {rows}, i1: 3] from "MatMul"
  over r0: 8
  = sum<r0>(mul(a[i0, i1, r0], f32(w[i1, r0])))
output y = result
"""


DEPTHWISE = """program depthwise
input x i8[2, 6, 9, 8]
constant w u8[6, 3, 3]
constant zero u8[6]
tensor a f32[i0: 2, i1: 6, i2: 9, i3: 8] from "DequantizeLinear"
  = mul(f32(sub(i32(x[i0, i1, i2, i3]), -5:i32)), 0.5)
tensor result f32[i0: 2, i1: 6, i2: 9, i3: 6] from "Conv"
  over r0: 3, r1: 3
  %0 = a[i0, i1, i2 + r0 - 1, i3 + r1 if i2 + r0 - 1 >= 0, 9 - i2 - r0 >= 0 else 0.0]
  = sum<r0, r1>(mul(%0, f32(sub(i32(w[i1, r0, r1]), i32(zero[i1])))))
output y = result
"""

OTHERWISE = {"words": quantized(7, 9, 21), "shared": batched(5), "window": DEPTHWISE}


@pytest.mark.parametrize("why", OTHERWISE)
def test_short_sums_that_are_none_of_words_are_of_whole_floats(why: str) -> None:
    program, compiled = compiled_of(OTHERWISE[why])
    (decision,) = [d for d in compiled.ledger if d.rule == RULE]
    failed = {"integers", "halves", *(("singles",) if why == "window" else ())}
    assert decision.taken == "whole floats" and set(decision.failed) == failed
    assert not sums_of_bytes(compiled)
    check(program, compiled)


@pytest.mark.parametrize("features", [(), ("avx512vnni",)])
def test_windows_are_summed_as_integers_one_by_one_where_an_instruction_multiplies_and_adds_these(
    features: tuple[str, ...],
) -> None:
    text = DEPTHWISE.replace("constant w u8", "constant w i8").replace("constant zero u8[6]\n", "")
    text = text.replace("sub(i32(w[i1, r0, r1]), i32(zero[i1]))", "w[i1, r0, r1]")
    program, compiled = compiled_of(text, replace(V4, features=(*V4.features, *features)))
    (decision,) = [d for d in compiled.ledger if d.rule == RULE]
    assert decision.taken == ("singles" if features else "whole floats")
    kernels = [print_kernel(item.kernel) for item in compiled.kernels]
    assert any("dot2i(" in kernel for kernel in kernels) is bool(features)
    check(program, compiled)


@pytest.mark.parametrize("size", [2 * (1 << 16), 1031])
def test_long_sums_that_may_be_inexact_are_of_floats(size: int) -> None:
    _, compiled = compiled_of(quantized(2, size, 3))
    (decision,) = [d for d in compiled.ledger if d.rule == RULE]
    assert decision.taken == "floats" and set(decision.failed) == {"integers", "halves", "whole floats"}
    assert not sums_of_bytes(compiled)


@pytest.mark.parametrize("scale", [np.inf, np.nan])
def test_scales_that_are_no_numbers_stay_where_they_are(scale: float) -> None:
    program = with_bytes(quantized(7, 12, 21))
    odd = np.full(21, scale, np.float32)
    constants = (replace(c, read=lambda: odd) if c.name == "scale" else c for c in program.constants)
    compiled = compile_with(replace(program, constants=tuple(constants)), Ledger(), V3)
    assert not [d for d in compiled.ledger if d.rule == RULE]


@pytest.mark.parametrize("k", [4, 8])
def test_a_sum_of_a_word_or_two(k: int) -> None:
    program, compiled = compiled_of(quantized(7, k, 21))
    assert uses_words(compiled) == (k > 4)
    check(program, compiled)


def test_a_value_that_lies_otherwise_is_copied_so_that_words_are_neighbours() -> None:
    text = quantized(50, 64, 40).replace("input x u8[50, 64]", "input x u8[64, 50]").replace("x[i0, i1]", "x[i1, i0]")
    program, compiled = compiled_of(text)
    assert uses_words(compiled)
    check(program, compiled)


def test_a_factor_with_a_scale_for_each_product_stays_one_of_floats() -> None:
    text = (
        quantized(7, 12, 21)
        .replace("constant scale f32[21]", "constant scale f32[12]")
        .replace("scale[i1]", "scale[r0]")
    )
    program, compiled = compiled_of(text)
    assert not [d for d in compiled.ledger if d.rule == RULE] and not sums_of_bytes(compiled)
    check(program, compiled)


PAIR = """program pair
input x u8[1, 9, 12, 32]
constant taps i8[32, 3]
constant w i8[20, 32]
tensor a u8[i0: 1, i1: 32, i2: 9, i3: 12] from "Conv"
  over r0: 3
  %0 = x[i0, i2 + r0 - 1, i3, i1 if i2 + r0 - 1 >= 0, 9 - i2 - r0 >= 0 else 0:u8]
  = u8(min(max(mul(sum<r0>(mul(f32(%0), f32(taps[i1, r0]))), 0.0078125:f32), 0.0:f32), 255.0:f32))
tensor b f32[i0: 1, i1: 32, i2: 9, i3: 12] from "DequantizeLinear"
  = mul(f32(sub(i32(a[i0, i1, i2, i3]), 7:i32)), 0.5)
tensor result f32[i0: 1, i1: 9, i2: 12, i3: 20] from "Conv"
  over r0: 32
  = sum<r0>(mul(b[i0, r0, i1, i2], f32(w[i3, r0])))
output y = result
"""


@pytest.mark.parametrize("target", [V3, V4], ids=lambda t: t.name)
def test_what_lies_between_in_scratch_is_multiplied_in_words(target: Target) -> None:
    program, first = compiled_of(PAIR, target)
    (decision,) = [d for d in first.ledger if d.rule == "fuse.block"]
    _, compiled = compiled_of(PAIR, target, Ledger(pins={decision.id: "block"}))
    assert any(region.is_pair for region in compiled.regions.regions)
    assert sums_of_bytes(compiled) == 1 and uses_words(compiled)
    check(program, compiled)


def test_steps_that_are_tensors_of_their_own_are_seen_through() -> None:
    text = """program steps
input x u8[7, 32]
constant w i8[21, 32]
constant zero i32[21, 1]
tensor a i32[i0: 7, i1: 32] from "Cast"
  = i32(x[i0, i1])
tensor b i32[i0: 7, i1: 32] from "Sub"
  = sub(a[i0, i1], 7:i32)
tensor c f32[i0: 7, i1: 32] from "Cast"
  = f32(b[i0, i1])
tensor product f32[i0: 7, i1: 21] from "MatMul"
  over r0: 32
  = sum<r0>(mul(c[i0, r0], mul(f32(sub(i32(w[i1, r0]), zero[i1, 0])), 0.5)))
output y = product
"""
    program = with_bytes(text)
    zeros = np.arange(-10, 11, dtype=np.int32).reshape(21, 1)
    known = (replace(c, read=lambda: zeros) if c.name == "zero" else c for c in program.constants)
    program = replace(program, constants=tuple(known))
    compiled = compile_with(program, Ledger(), V3)
    assert sums_of_bytes(compiled) == 1
    check(program, compiled)


@pytest.mark.parametrize(("zx", "k"), [(-255, 40000), (128, 40000)])
def test_sums_that_an_int32_may_not_hold_are_of_floats(zx: int, k: int) -> None:
    text = f"""program far
input x u8[7, {k}]
constant w i8[{k}, 21]
tensor product f32[i0: 7, i1: 21] from "MatMul"
  over r0: {k}
  = sum<r0>(mul(f32(sub(i32(x[i0, r0]), {zx}:i32)), f32(w[r0, i1])))
output y = product
"""
    ledger = Ledger()
    compiled_of(text, ledger=ledger)
    (decision,) = (d for d in ledger if d.rule == RULE)
    assert ("integers" in decision.failed) is (zx == -255)  # 40000 * 510 * 128 is over 2^31, 40000 * 128 * 128 is not


def test_differences_that_wrap_in_eight_bits_are_no_zero_points() -> None:
    text = """program wraps
input x u8[7, 32]
constant w i8[32, 21]
tensor product f32[i0: 7, i1: 21] from "MatMul"
  over r0: 32
  = sum<r0>(mul(f32(sub(x[i0, r0], 5:u8)), f32(w[r0, i1])))
output y = product
"""
    ledger = Ledger()
    program, compiled = compiled_of(text, ledger=ledger)
    assert not [d for d in ledger if d.rule == RULE]
    check(program, compiled)


TWO_LAYERS = """program two_layers
input x f32[20, 64]
constant w i8[64, 96]
constant v i8[96, 48]
tensor a i8[i0: 20, i1: 64] from "QuantizeLinear"
  = i8(min(max(round(mul(x[i0, i1], 8.0:f32)), -128.0:f32), 127.0:f32))
tensor product f32[i0: 20, i1: 96] from "MatMul"
  over r0: 64
  = sum<r0>(mul(mul(f32(a[i0, r0]), 0.125:f32), mul(f32(w[r0, i1]), 0.5:f32)))
tensor b i8[i0: 20, i1: 96] from "QuantizeLinear_1"
  = i8(min(max(round(mul(product[i0, i1], 0.0078125:f32)), -128.0:f32), 127.0:f32))
tensor second f32[i0: 20, i1: 48] from "MatMul_1"
  over r0: 96
  = sum<r0>(mul(mul(f32(b[i0, r0]), 0.125:f32), mul(f32(v[r0, i1]), 0.5:f32)))
tensor total f32[i0: 20, i1: 48] from "Add"
  = add(second[i0, i1], f32(b[i0, i1]))
output y = total
"""


@pytest.mark.parametrize("shown", [False, True])
def test_signed_bytes_that_are_computed_are_stored_unsigned(shown: bool) -> None:
    """So that products read them as they are; what the program shows keeps its sign, and is changed as it is read."""
    program, compiled = compiled_of(TWO_LAYERS + ("output z = b\n" if shown else ""), way="integers")
    texts = [text for text in (print_kernel(item.kernel) for item in compiled.kernels) if "dot4(" in text]
    assert len(texts) == 2
    assert ["dot4(bitxor(" in text for text in texts] == [False, shown]
    feeds = {"x": np.random.default_rng(0).integers(-300, 300, (20, 64)).astype(np.float32) / 8}
    found, wanted = run(compiled, feeds), interpret(program, feeds, float64=True)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("shown", [False, True])
def test_bytes_that_are_computed_are_stored_with_16_bits(shown: bool) -> None:
    """What the program shows is copied."""
    program, compiled = compiled_of(TWO_LAYERS + ("output z = b\n" if shown else ""), way="halves")
    assert sums_of_bytes(compiled, "halves") == 2
    stored = {tensor.name: tensor.dtype for region in compiled.regions.regions for tensor in region.tensors}
    assert [stored.get(name) for name in ("b", "b_halves")] == [DType.I8 if shown else None, DType.I16]
    feeds = {"x": np.random.default_rng(0).integers(-300, 300, (20, 64)).astype(np.float32) / 8}
    found, wanted = run(compiled, feeds), interpret(program, feeds, float64=True)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


TWO_PRODUCTS = """program two_products
input x f32[20, 64]
constant w i8[64, 96]
constant v i8[64, 48]
tensor a {byte}[i0: 20, i1: 64] from "QuantizeLinear"
  = {byte}(min(max(round(mul(x[i0, i1], 8.0:f32)), 0.0:f32), 127.0:f32))
tensor first f32[i0: 20, i1: 96] from "MatMul"
  over r0: 64
  = sum<r0>(mul(mul(f32(a[i0, r0]), 0.125:f32), mul(f32(w[r0, i1]), 0.5:f32)))
tensor second f32[i0: 20, i1: 48] from "MatMul_1"
  over r0: 64
  = sum<r0>(mul(mul(f32(a[i0, r0]), 0.125:f32), mul(f32(v[r0, i1]), 0.5:f32)))
output y = first
output z = second
"""


@pytest.mark.parametrize("ways", [("integers", "halves"), ("halves", "integers")])
@pytest.mark.parametrize("byte", ["u8", "i8"])
def test_products_of_one_value_may_choose_differently(byte: str, ways: tuple[str, str]) -> None:
    """Each reads words: of bytes that stay bytes, and of a copy with 16 bits."""
    text = TWO_PRODUCTS.format(byte=byte)
    _, first = compiled_of(text)
    decisions = [d for d in first.ledger if d.rule == RULE]
    pins = {decision.id: way for decision, way in zip(decisions, ways, strict=True)}
    program, compiled = compiled_of(text, ledger=Ledger(pins=pins))
    assert all(sums_of_bytes(compiled, way) == 1 and uses_words(compiled, way) for way in DOTS)
    feeds = {"x": np.random.default_rng(0).integers(-300, 300, (20, 64)).astype(np.float32) / 8}
    found, wanted = run(compiled, feeds), interpret(program, feeds, float64=True)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


SCANNED = """program scanned
input x {byte}[4, 5, 8]
constant w i8[8, 24]
scan t0: 4 from "Scan"
  state h {byte}[i0: 5, i1: 8] updated by s
    = 0:{byte}
  step s {byte}[i0: 5, i1: 8] from "Scan"
    = max(h[i0, i1], x[t0, i0, i1])
  stack all = s
  final last = h
tensor result i32[i0: 4, i1: 5, i2: 24] from "MatMulInteger"
  over r0: 8
  = i32(sum<r0>(mul(f32(sub(i32(all[i0, i1, r0]), 7:i32)), f32(w[r0, i2]))))
tensor of_last i32[i0: 5, i1: 24] from "MatMulInteger_1"
  over r0: 8
  = i32(sum<r0>(mul(f32(sub(i32(last[i0, r0]), 7:i32)), f32(w[r0, i1]))))
output y = result
output z = of_last
"""


@pytest.mark.parametrize("way", DOTS)
@pytest.mark.parametrize("byte", ["u8", "i8"])
def test_what_a_scan_hands_on_is_multiplied(byte: str, way: str) -> None:
    """No tensor computes it, so that it is stored as the scan stores it, and copied or changed as it is read."""
    program, compiled = compiled_of(SCANNED.format(byte=byte), way=way)
    assert sums_of_bytes(compiled, way) == 2 and uses_words(compiled, way)
    check(program, compiled)


def test_what_stays_floats_is_stored_as_it_was() -> None:
    """Products of integers that were tried, and take longer, change no operand of theirs."""
    program = with_bytes(TWO_LAYERS)
    names = {d.id: "floats" for d in compiled_of(TWO_LAYERS)[1].ledger if d.rule == RULE}
    compiled = compile_with(program, Ledger(pins=names), V3)
    assert sums_of_bytes(compiled) == 0
    assert not any("bitxor" in print_kernel(item.kernel) for item in compiled.kernels)


@pytest.mark.parametrize("width", ["N", "50"])
def test_sums_of_weights_that_depend_on_the_position_are_not_stored(width: str) -> None:
    """A transposed convolution of stride 2: even positions take other weights than odd ones, so that there would be a
    sum of weights for each of them, and how many positions there are only the run may tell."""
    symbol = "symbol N >= 1 = dim 2 of x\n" if width == "N" else ""
    text = f"""program transposed
{symbol}input x u8[1, 3, {width}]
constant w i8[3, 4, 4]
tensor real f32[i0: 1, i1: 3, i2: {width}] from "DequantizeLinear"
  = mul(f32(sub(i32(x[i0, i1, i2]), 7:i32)), 0.25)
tensor result f32[i0: 1, i1: 4, i2: 2*{width} + 2] from "ConvTranspose"
  over r0: 3, r1: 2
  %0 = real[i0, r0, (i2 // 2) - r1 if (i2 // 2) - r1 >= 0, -(i2 // 2) + {width} + r1 - 1 >= 0 else 0.0]
  = sum<r0, r1>(mul(%0, f32(w[r0, i1, (i2 % 2) + 2*r1])))
output y = result
""".replace("2*50 + 2", "102")
    program, compiled = compiled_of(text)
    (decision,) = [decision for decision in compiled.ledger if decision.rule == RULE]
    assert decision.taken == "floats" and "more numbers than the weights" in str(decision.failed["whole floats"])
    check(program, compiled, rows=5)


def recurrent(
    x: str = "u8", w: str = "i8", zeros: bool = False, shown: bool = False, rows: int = 3, n: int = 32
) -> str:
    """A recurrence whose state is quantized dynamically, and multiplied by weights. `shown`: the quantized state is an
    output too."""
    low, high = (0, 255) if x == "u8" else (-128, 127)
    weight = "sub(i32(r[r0, i1]), i32(zero[i1]))" if zeros else "i32(r[r0, i1])"
    return f"""program recurrent
input x f32[5, {rows}, {n}]
constant r {w}[{n}, {n}]
constant zero {w}[{n}]
constant scale f32[{n}]
scan t0: 5 from "LSTM"
  state h f32[i0: {rows}, i1: {n}] updated by after
    = 1.0
  step least f32[] from "LSTM"
    over r0: {rows}, r1: {n}
    = min<r0, r1>(h[r0, r1])
  step z {x}[] from "LSTM"
    = {x}(min(max(round(mul(least[], -0.0078125:f32)), 0.0:f32), 100.0:f32))
  step whole {x}[i0: {rows}, i1: {n}] from "LSTM"
    = {x}(min(max(add(round(mul(h[i0, i1], 0.0078125:f32)), f32(z[])), {low}.0:f32), {high}.0:f32))
  step rounded f32[i0: {rows}, i1: {n}] from "LSTM"
    = sub(f32(whole[i0, i1]), f32(z[]))
  step product f32[i0: {rows}, i1: {n}] from "LSTM"
    over r0: {n}
    = sum<r0>(mul(rounded[i0, r0], mul(f32({weight}), scale[i1])))
  step after f32[i0: {rows}, i1: {n}] from "LSTM"
    = add(x[t0, i0, i1], mul(product[i0, i1], 0.0078125:f32))
  stack all = after
{"  stack seen = whole" if shown else ""}
  final last = h
output y = all
{"output z_whole = seen" if shown else ""}
output h_last = last
"""


def check_steps(program: TensorProgram, compiled: Compiled) -> None:
    shape = [int(dim) for dim in program.inputs[0].shape]
    feeds = {"x": np.random.default_rng(0).integers(-30000, 30000, shape).astype(np.float32) / 8}
    found, wanted = run(compiled, feeds), interpret(program, feeds, float64=True)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("way", DOTS)
@pytest.mark.parametrize(("x", "w", "zeros"), WAYS)
def test_products_of_the_steps_of_a_recurrence(x: str, w: str, zeros: bool, way: str, shown: bool) -> None:
    program, compiled = compiled_of(recurrent(x, w, zeros, shown), way=way)
    assert sums_of_bytes(compiled, way) == 1 and uses_words(compiled, way)
    names = {tensor.name for region in compiled.regions.regions for tensor in region.tensors}
    assert "rounded" not in names, "nothing reads it any more"
    check_steps(program, compiled)


def test_steps_of_one_row_read_weights_as_bytes() -> None:
    """Since reading them takes longer than multiplying; of many rows, bytes would be widened for each."""
    taken: list[str] = []
    for text in (recurrent(rows=1, n=1024), quantized(256, 1024, 1024)):
        _, compiled = compiled_of(text)
        (decision,) = [d for d in compiled.ledger if d.rule == RULE]
        taken.append(decision.taken)
    assert taken == ["integers", "halves"]


def test_weights_that_are_others_in_each_step_stay_floats() -> None:
    """Sums of them would be others in each step too."""
    text = (
        recurrent().replace("constant r i8[32, 32]", "constant r i8[5, 32, 32]").replace("r[r0, i1]", "r[t0, r0, i1]")
    )
    ledger = Ledger()
    program, compiled = compiled_of(text, ledger=ledger)
    assert not [d for d in ledger if d.rule == RULE]
    check_steps(program, compiled)


STATE_OF_BYTES = """program state_of_bytes
input x i8[4, 2, 32]
constant w i8[32, 32]
scan t0: 4 from "Scan"
  state h i8[i0: 2, i1: 32] updated by after
    = x[0, i0, i1]
  step product f32[i0: 2, i1: 32] from "Scan"
    over r0: 32
    = sum<r0>(mul(f32(h[i0, r0]), f32(w[r0, i1])))
  step fed f32[i0: 2, i1: 32] from "Scan"
    over r0: 32
    = sum<r0>(mul(f32(x[t0, i0, r0]), f32(w[r0, i1])))
  step after i8[i0: 2, i1: 32] from "Scan"
    = i8(min(max(round(mul(add(product[i0, i1], fed[i0, i1]), 0.0009765625:f32)), -128.0:f32), 127.0:f32))
  stack all = after
output y = all
"""


@pytest.mark.parametrize("way", DOTS)
def test_a_state_of_bytes_and_what_a_step_is_fed(way: str) -> None:
    program, compiled = compiled_of(STATE_OF_BYTES, way=way)
    assert sums_of_bytes(compiled, way) == 2 and uses_words(compiled, way)
    check(program, compiled)


def test_weights_of_two_products_are_stored_for_each() -> None:
    text = """program shared
input x u8[3, 16]
input y u8[3, 16]
constant w i8[16, 24]
tensor first f32[i0: 3, i1: 24] from "MatMul"
  over r0: 16
  = sum<r0>(mul(f32(x[i0, r0]), f32(w[r0, i1])))
tensor second f32[i0: 3, i1: 24] from "MatMul_1"
  over r0: 16
  = sum<r0>(mul(f32(y[i0, r0]), f32(w[r0, i1])))
output a = first
output b = second
"""
    decisions = [d for d in compiled_of(text)[1].ledger if d.rule == RULE]
    pins = {d.id: way for d, way in zip(decisions, DOTS, strict=True)}
    program, compiled = compiled_of(text, ledger=Ledger(pins=pins))
    assert [sums_of_bytes(compiled, way) for way in DOTS] == [1, 1]
    assert all(uses_words(compiled, way) for way in DOTS)
    check(program, compiled)
