"""Kernels with specialised warps beside float64, and as they are compiled: no GPU runs them here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from opweld.kernels import flash_specialized, matmul_specialized
from opweld.kernels.flash_problem import Configuration, Problem
from tests.kernels import gluon_interpreter
from tests.kernels.attention_oracle import attention
from tests.kernels.compared import random
from tests.unit.codegen.triton.compiling import run_compiling

BF16 = torch.bfloat16
ROUNDING = 2.0**-8


def configurations() -> Iterator[Configuration]:
    for turns, early, persistent in product((False, True), repeat=3):
        yield Configuration(128, 64, 8, 2, True, specialized=True, turns=turns, early=early, persistent=persistent)


@pytest.mark.parametrize("chosen", [*configurations(), replace(next(configurations()), block_n=128, stages=3)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_float64(chosen: Configuration, causal: bool) -> None:
    # Whole tiles and begun ones, fewer keys than queries and more, heads that share keys, heads smaller than a tile's.
    for batch, heads, kv_heads, length_q, length_k, head_dim in (
        (1, 2, 2, 256, 256, 64), (2, 2, 1, 130, 321, 32), (1, 1, 1, 300, 100, 40), (1, 3, 3, 1, 65, 16),
    ):  # fmt: skip
        query = random(batch, heads, length_q, head_dim, dtype=BF16, seed=1)
        key = random(batch, kv_heads, length_k, head_dim, dtype=BF16, seed=2)
        value = random(batch, kv_heads, length_k, head_dim, dtype=BF16, seed=3)
        output = torch.full_like(query, float("nan"))
        lse = torch.full(query.shape[:3], float("nan"))
        gluon_interpreter.run(
            flash_specialized.specialized_launch(
                output, lse, query, key, value, Problem.plain(length_q, length_k, head_dim, causal=causal), chosen
            )
        )
        expected, expected_lse = attention(query, key, value, causal=causal)
        # Probabilities and results have 8 bits.
        torch.testing.assert_close(output.double(), expected, atol=2**-7, rtol=2**-7)
        torch.testing.assert_close(lse.double(), expected_lse, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize(("block_n", "stages", "parts"), [(128, 4, 1), (128, 2, 2), (256, 4, 4)])
def test_products_are_those_of_float64(block_n: int, stages: int, parts: int, epilogue: bool) -> None:
    # Whole tiles and begun ones; more tiles than programs, and fewer; sums shorter than a stage.
    for m, n, k in ((128, 256, 64), (300, 520, 200), (64, 136, 40)):
        a, b = random(m, k, dtype=BF16, seed=1), random(n, k, dtype=BF16, seed=2)
        bias = random(n, dtype=BF16, seed=3) if epilogue else None
        residual = random(m, n, dtype=BF16, seed=4) if epilogue else None
        out = torch.full((m, n), float("nan"), dtype=BF16)
        gluon_interpreter.run(
            matmul_specialized.specialized_launch(
                out, a, b, bias, residual, "gelu" if epilogue else "none", block_n=block_n, block_k=64, stages=stages,
                parts=parts, group=2, cores=3,
            )
        )  # fmt: skip
        expected = a.double() @ b.double().t()
        if bias is not None and residual is not None:
            expected = torch.nn.functional.gelu(expected + bias.double()) + residual.double()
        # Sums in float32, one rounding at the end.
        torch.testing.assert_close(out.double(), expected, rtol=ROUNDING, atol=1e-4)


COMPILED = """
import json, sys
import torch
from opweld.codegen.triton.binary import compile_kernel
from opweld.kernels import flash_forward, matmul_specialized
from opweld.kernels.flash_problem import Problem

def launches():
    for head_dim in (128, 64):
        x = torch.empty(2, 32, 4096, head_dim, dtype=torch.bfloat16, device="meta")
        lse = torch.empty(2, 32, 4096, device="meta")
        for chosen in flash_forward.SPECIALIZED[head_dim]:
            for causal in (False, True):
                given = Problem.plain(4096, 4096, head_dim, causal=causal)
                if not (chosen.persistent or chosen.early):
                    yield flash_forward.forward_launch(x, lse, x, x, x, given, 90, chosen)

x = torch.empty(4096, 4096, dtype=torch.bfloat16, device="meta")
rest = {"block_n": 256, "block_k": 64, "stages": 4, "parts": 4, "group": 8, "cores": 132}
products = [
    matmul_specialized.specialized_launch(x, x, x, x[0], x, "gelu", **rest),
    matmul_specialized.specialized_launch(x, x, x, None, None, "none", **rest),
]
most = int(sys.argv[1])
found = []
for launch in (*products[:most], *list(launches())[:most]):
    one = launch.variant("")
    made = compile_kernel(one.kernel, one.signature, one.constants, warps=one.warps, stages=one.stages, arch=90)
    found.append([made.warps, made.spills, made.shared, sorted(made.tensor_core_instructions)])
print(json.dumps(found))
"""


@pytest.mark.parametrize("most", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_compiled_without_spills(most: int, tmp_path: Path) -> None:
    found: list[tuple[int, int, int, list[str]]] = run_compiling(COMPILED, tmp_path, str(most))
    assert len(found) >= 2
    for warps, spills, shared, instructions in found:
        assert warps == 12, "8 that compute, and one that loads of a group of 4"
        assert spills == 0
        assert shared <= 227 << 10
        assert instructions == ["HGMMA"]
