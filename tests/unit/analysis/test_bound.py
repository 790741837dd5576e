"""What kernels are bound by: large products by arithmetic, what only moves by memory, what is short by latency."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opweld.analysis.analysis import KernelAnalysis, analysis_of
from opweld.analysis.bound import KernelWork, bound_of, disagreement
from opweld.analysis.machine import Figure, Level, Machine, Pair
from opweld.options import Options
from opweld.pipeline import dry_run
from opweld.record import Predicted
from opweld.target import Target
from opweld.tensor.intern import compilation
from tests.unit.rewrite.rewritten import model_of, normal


def figure(value: float) -> Figure:
    return Figure(value, 0.01, 9)


def level(name: str, size: int, one: float, every: float) -> Level:
    pair = Pair(figure(one * 1e9), figure(every * 1e9))
    return Level(name, size, pair, pair, figure(1e-9))


MACHINE = Machine(
    processor="made up",
    target="x86-64-v4",
    threads=2,
    measured="2026-01-01T00:00:00+00:00",
    opweld="0",
    compute={"fp32": Pair(figure(224e9), figure(448e9))},
    levels=(
        level("L1", 32 << 10, 400, 800),
        level("L2", 1 << 20, 140, 280),
        level("L3", 16 << 20, 56, 100),
        level("DRAM", 0, 28, 50),
    ),
    barrier=figure(2e-7),
)
"""About what `schedule.cost.CORES` says of x86-64-v4."""


def kernels(text: str, weights: dict[str, Any] | None = None) -> tuple[KernelAnalysis, ...]:
    with compilation():
        account = dry_run(model_of(text, weights), Options(), Target.of("x86-64-v4"))
        return analysis_of(account, machine=MACHINE).kernels


def test_products_of_a_kernel_are_all_of_those_that_the_model_asks_for() -> None:
    """Whether words hold two numbers or four, as kernels of bfloat16 and of bytes have them."""
    plain = Target.of("x86-64-v4")
    units = replace(plain, features=(*plain.features, "avx512vnni", "avx512bf16", "amx-tile", "amx-int8", "amx-bf16"))
    floats = "g (float[128, 256] x) => (float[128, 512] y) { y = MatMul(x, w) }"
    bytes_ = "g (uint8[128, 256] x) => (int32[128, 512] y) { y = MatMulInteger(x, w) }"
    codes = np.random.default_rng(0).integers(-127, 127, (256, 512)).astype(np.int8)
    for text, w, precision, kind in (
        (floats, normal(256, 512), "fp32", "fp32"),
        (floats, normal(256, 512), "bf16", "bf16"),
        (bytes_, codes, "fp32", "int8"),
    ):
        with compilation():
            account = dry_run(model_of(text, {"w": w}), Options(precision=precision), units)
            found = max(analysis_of(account, machine=MACHINE).kernels, key=lambda kernel: kernel.work.seconds)
        assert found.work.computes == kind
        assert found.work.products == pytest.approx(2 * 128 * 256 * 512, rel=0.01)


def slowest(text: str, weights: dict[str, Any] | None = None) -> KernelAnalysis:
    return max(kernels(text, weights), key=lambda kernel: kernel.work.seconds)


def verdict(text: str, weights: dict[str, Any] | None = None) -> tuple[str, str, str]:
    bound = slowest(text, weights).bound
    assert bound is not None
    return bound.kind, bound.level, bound.cause


def test_a_large_product_is_bound_by_arithmetic() -> None:
    text = "g (float[512, 512] x) => (float[512, 512] y) { y = MatMul(x, w) }"
    assert verdict(text, {"w": normal(512, 512)}) == ("compute", "", "")


def test_a_large_convolution_is_bound_by_arithmetic() -> None:
    text = "g (float[1, 64, 56, 56] x) => (float[1, 64, 56, 56] y) { y = Conv<pads = [1, 1, 1, 1]>(x, w) }"
    assert verdict(text, {"w": normal(64, 64, 3, 3)}) == ("compute", "", "")


@pytest.mark.parametrize(("elements", "where"), [(1 << 16, "L2"), (1 << 20, "L3"), (1 << 24, "DRAM")])
def test_what_only_moves_is_bound_by_the_level_that_holds_it(elements: int, where: str) -> None:
    relu = f"g (float[{elements}] x) => (float[{elements}] y) {{ y = Relu(x) }}"
    assert verdict(relu) == ("memory", where, "")
    half = elements // 2
    joined = f"g (float[{half}] x, float[{half}] z) => (float[{elements}] y) {{ y = Concat<axis = 0>(x, z) }}"
    if where != "L2":
        assert verdict(joined) == ("memory", where, "")


def test_what_is_short_has_too_little_work() -> None:
    assert verdict("g (float[8, 8] x) => (float[8, 8] y) { y = Relu(x) }") == ("latency", "", "too little work")
    small = "g (float[4, 8] x) => (float[4, 8] y) { y = MatMul(x, w) }"
    assert verdict(small, {"w": normal(8, 8)}) == ("latency", "", "too little work")


def work(**changes: Any) -> KernelWork:
    fields: dict[str, Any] = {
        "kind": "contraction", "flops": 10**9, "special": 0, "read": 10**6, "written": 10**6,
        "predicted": Predicted(arithmetic=5e-3, l2=2e6), "threads": 2,
    }  # fmt: skip
    return KernelWork(**(fields | changes))


def test_a_measurement_is_judged_by_its_own_time() -> None:
    peak = 10**9 / 448e9
    fast, slow = bound_of(work(), MACHINE, peak / 0.7), bound_of(work(), MACHINE, peak / 0.3)
    assert (fast.kind, round(fast.compute, 3)) == ("compute", 0.7)
    assert (slow.kind, slow.cause) == ("latency", "instructions")
    assert fast.floor == slow.floor == pytest.approx(peak)
    waits = bound_of(work(), MACHINE, peak / 0.3, waiting=peak / 0.3)
    assert waits.cause == "synchronisation" and "--threads" in waits.try_next
    hangs = bound_of(work(predicted=Predicted(arithmetic=5e-3, dependency=9e-3, l2=2e6)), MACHINE, peak / 0.3)
    assert hangs.cause == "dependency" and "schedule.unroll" in hangs.try_next


def test_what_a_level_could_not_deliver_came_from_a_nearer_one() -> None:
    moves = work(flops=0, read=10**6, written=0, predicted=Predicted(traffic=1e-5, l2=1e6, l3=1e6))
    l2, l3 = 1e6 / 280e9, 1e6 / 100e9
    assert bound_of(moves, MACHINE, l3 / 0.9).level == "L3"
    nearer = bound_of(moves, MACHINE, l2 / 0.9)
    assert (nearer.level, round(nearer.bandwidth, 3)) == ("L2", 0.9)
    assert nearer.floor == pytest.approx(l2), "a megabyte fits the second level"


def test_functions_take_the_time_of_many_operations() -> None:
    plain, expensive = work(flops=10**8), work(flops=10**8, special=10**7)
    took = 2e-3
    assert bound_of(plain, MACHINE, took).compute == pytest.approx(10**8 / 448e9 / took)
    assert bound_of(expensive, MACHINE, took).compute == pytest.approx((10**8 + 39 * 10**7) / 448e9 / took)


def test_disagreement_says_by_how_much_and_in_what() -> None:
    predicted, measured = bound_of(work(), MACHINE), bound_of(work(), MACHINE, 0.1)
    said = disagreement(predicted, measured, work().seconds, 0.1)
    assert (
        said
        == f"{0.1 / work().seconds:.1f} times the predicted time; predicted compute, measured latency: instructions"
    )
    assert disagreement(predicted, predicted, 1.0, 1.5) == ""


def test_the_json_has_every_part_of_a_verdict() -> None:
    data = bound_of(work(), MACHINE).to_json()
    assert data["kind"] == "compute" and data["try"] and 0 < data["floor_seconds"] < work().seconds
    assert np.isfinite(data["compute"])


def test_what_an_algorithm_saves_is_not_its_bound() -> None:
    """Of a convolution by Winograd's algorithm 16 of 36 products are made: as fast as the peak is 36 / 16 of it."""
    made = Predicted(1e-3)
    direct, fewer = (KernelWork(kind, 448_000_000, 0, 1, 1, made, 2) for kind in ("contraction", "winograd"))
    assert bound_of(direct, MACHINE, 1e-3).compute == pytest.approx(1.0)
    assert bound_of(fewer, MACHINE, 1e-3).compute == pytest.approx(16 / 36)
    assert bound_of(fewer, MACHINE, 1e-3 * 16 / 36).kind == "compute"


def test_products_are_held_against_the_peak_of_what_they_are_of() -> None:
    """The rest of a kernel's operations are floats; without an instruction for them, products take as long as these."""
    peaks = {"fp32": 448e9, "bf16": 896e9, "int8": 1792e9}
    machine = replace(MACHINE, compute={name: Pair(figure(rate / 2), figure(rate)) for name, rate in peaks.items()})
    halves = work(flops=9 * 10**8, computes="bf16", products=896_000_000)
    assert bound_of(halves, machine, 1e-2).compute == pytest.approx((1e-3 + 4e6 / 448e9) / 1e-2)
    assert bound_of(halves, MACHINE, 1e-2).compute == pytest.approx(9e8 / 448e9 / 1e-2)
    assert bound_of(work(flops=0, computes="int8", products=1_792_000_000), machine, 1e-2).compute == pytest.approx(0.1)
