"""Literal factors of operands that leave the sums of products which read these."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.fuse.partition import partition
from opweld.fuse.region import Kind, Regions
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.interpret import interpret
from opweld.tensor.parse import parse_program
from opweld.tensor.verify import verify
from tests.unit.tile import programs
from tests.unit.tile.pipeline import with_data

TARGET = Target.of("x86-64-v4")

attention = programs.scaled_scores


def regions_of(text: str, ledger: Ledger | None = None) -> Regions:
    program = with_data(parse_program(text))
    found = partition(program, expected_sizes(program), TARGET, Ledger() if ledger is None else ledger)
    verify(found.program)
    return found


def names(found: Regions) -> list[str]:
    return [region.tensors[-1].name for region in found.regions]


def body_of(found: Regions, name: str) -> str:
    (tensor,) = (t for region in found.regions for t in region.tensors if t.name == name)
    return repr(tensor.body)


@pytest.mark.parametrize(
    ("scores", "factor"),
    [
        (programs.SCORES, "0.125"),
        (f"mul({programs.SCORES}, 4.0)", "0.5"),
        (f"add({programs.SCORES}, 4.0)", "0.125"),
        (f"mul({programs.SCORES}, 1024.0)", "0.125"),
    ],
)
def test_scales_of_queries_and_keys_are_one_of_the_scores(scores: str, factor: str) -> None:
    found = regions_of(attention(scores=scores))
    assert names(found) == ["qkv", "scores", "mixed"]
    assert factor in body_of(found, "scores")
    assert all(region.members[0].kind is Kind.CONTRACTION for region in found.regions)


def test_what_multiplies_itself_has_the_square() -> None:
    found = regions_of(attention(scores="sum<r0>(mul(q[i0, r0], q[i1, r0]))"))
    assert names(found) == ["qkv", "scores", "mixed"] and "0.25" in body_of(found, "scores")


def test_quotients_by_literals_are_scales() -> None:
    found = regions_of(attention(q="div(qkv[i0, i1], 2.5)"))
    assert names(found) == ["qkv", "scores", "mixed"] and "0.1" in body_of(found, "scores")


@pytest.mark.parametrize("factor", ["-0.5", "0.0", "inf", "0.001", "1000.0", "1e-30", "1e+30"])
def test_factors_far_from_one_and_those_that_change_signs_stay(factor: str) -> None:
    ledger = Ledger()
    found = regions_of(attention(q=f"mul(qkv[i0, i1], {factor})"), ledger)
    assert names(found) == ["qkv", "q", "scores", "mixed"]
    refused = [decision for decision in ledger if decision.rule == "fuse.scale" and decision.failed]
    assert len(refused) == (float(factor) > 0)


@pytest.mark.parametrize(
    "text",
    [
        attention(others="q"),
        attention(scores="add(sum<r0>(mul(q[i0, r0], k[r0, i1])), q[i0, i1])"),
        attention(scores="sum<r0>(mul(q[i0, r0], k[r0, i1 if i0 - i1 >= 0 else 1.0]))"),
        attention(scores="max<r0>(mul(q[i0, r0], k[r0, i1]))"),
    ],
)
def test_what_others_read_too_is_computed(text: str) -> None:
    found = regions_of(text)
    assert "q" in names(found) or "k" in names(found)


def test_edges_of_zeros_are_zeros_however_they_are_scaled() -> None:
    found = regions_of(attention(scores="sum<r0>(mul(q[i0, r0 if i0 - 2 >= 0 else 0.0], k[r0, i1]))"))
    assert names(found) == ["qkv", "scores", "mixed"]


def test_the_factor_of_a_mean_is_applied_with_the_row() -> None:
    text = """program means
input x f32[6, 24]
constant w f32[6, 36]
tensor total f32[i0: 6] from "Mean"
  over r0: 24
  = sum<r0>(x[i0, r0])
tensor mean f32[i0: 6] from "Mean"
  = mul(total[i0], 0.0416)
tensor made f32[i0: 36] from "Product"
  over r0: 6
  = sum<r0>(mul(mean[r0], w[r0, i0]))
output out = made
"""
    assert names(regions_of(text)) == ["mean", "made"]


def test_a_pin_keeps_the_scale_before_the_sums() -> None:
    found = regions_of(attention(), Ledger(disable=("fuse.scale",)))
    assert names(found) == ["qkv", "q", "k", "scores", "mixed"]


@pytest.mark.parametrize("size", [1.0, 1e-12, 1e12, 2.0**50, 2.0**-50])
@pytest.mark.parametrize("factors", [(0.5946, 0.5946), (256.0, 256.0), (0.00390625, 0.00390625), (256.0, 0.00390625)])
def test_scores_are_those_of_float64(size: float, factors: tuple[float, float]) -> None:
    """The operands of sums with factors at the ends, of numbers so large that squares of a few more bits overflow."""
    text = attention(q=f"mul(qkv[i0, i1], {factors[0]})", k=f"mul(qkv[i1, i0 + 12], {factors[1]})").replace(
        "output out = mixed", "output out = scores"
    )
    program = with_data(parse_program(text))
    found = partition(program, expected_sizes(program), TARGET, Ledger()).program
    assert {"q", "k"}.isdisjoint(found.signatures)
    x = (np.random.default_rng(0).standard_normal((6, 24)) * size).astype(np.float32)
    (w,) = (constant.read().astype(np.float64) for constant in program.constants)
    qkv = x.astype(np.float64) @ w
    q, k = (np.float64(np.float32(f)) * part for f, part in zip(factors, np.split(qkv, 3, axis=1)[:2], strict=True))
    (scores,) = interpret(found, {"x": x}).values()
    reach = np.abs(q) @ np.abs(k).T
    assert np.isfinite(scores).all() and (np.abs(scores - q @ k.T) <= 1e-5 * reach).all()


def test_infinities_and_nans_stay_what_they_are() -> None:
    program = with_data(parse_program(attention().replace("output out = mixed", "output out = scores")))
    found = partition(program, expected_sizes(program), TARGET, Ledger()).program
    x = np.ones((6, 24), np.float32)
    x[1, 3], x[4, 5] = np.inf, np.nan
    with np.errstate(all="ignore"):
        (before,), (after,) = (interpret(p, {"x": x}).values() for p in (program, found))
    assert np.isnan(after[4]).all() and np.array_equal(np.isnan(before), np.isnan(after))
    assert np.array_equal(np.isinf(before), np.isinf(after)) and np.array_equal(np.sign(before), np.sign(after), True)
