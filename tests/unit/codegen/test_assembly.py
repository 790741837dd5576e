"""Micro-kernels keep their accumulators in registers; the check itself finds spills."""

from __future__ import annotations

import platform

import pytest

from opweld.target import Target
from opweld.tile.tile import Kernel
from tests.unit.codegen.compiled import assembly, source
from tests.unit.codegen.hand_written import conv3x3, gemm
from tests.unit.codegen.spills import Spill, innermost_loops, spills

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the assembly is read as that of x86-64")

NESTED = """
.LBB0_1:
	vmovups	%zmm1, 64(%rsp)                 # 64-byte Spill
.LBB0_2:
	vfmadd231ps	(%rsi), %zmm2, %zmm1
	vmovups	128(%rsp), %zmm3                # 64-byte Reload
	movq	8(%rsp), %rax
	jne	.LBB0_2
	jmp	.LBB0_1
	vmovups	%zmm1, 64(%rsp)
"""


def test_finds_spills_of_innermost_loops_only() -> None:
    assert spills(NESTED) == [Spill(".LBB0_2", "vmovups\t128(%rsp), %zmm3")]
    assert innermost_loops(NESTED.splitlines()) == [(3, 7)]


def test_finds_them_in_a_tile_that_no_register_file_holds() -> None:
    text = assembly(source(gemm(160, 64, 64, rows=20), 16), Target.of("x86-64-v4"))
    assert spills(text)


@pytest.mark.parametrize(
    "kernel",
    [
        gemm(128, 768, 768, 8, 32),
        gemm(140, 768, 768, 14, 32),
        gemm(128, 768, 768, 8, 48),
        gemm(126, 768, 768, 6, 64),
        conv3x3(28, 28, 128, 128, 14),
        conv3x3(28, 28, 128, 128, 8),
    ],
    ids=["gemm 8x32", "gemm 14x32", "gemm 8x48", "gemm 6x64", "conv 14x32", "conv 8x32"],
)
def test_avx512_micro_kernels_do_not_spill(kernel: Kernel) -> None:
    text = assembly(source(kernel, 16), Target.of("x86-64-v4"))
    assert "vfmadd" in text
    assert "%zmm" in text
    assert spills(text) == []


@pytest.mark.parametrize("rows", [4, 6])
def test_avx2_micro_kernels_do_not_spill(rows: int) -> None:
    text = assembly(source(gemm(24, 64, 64, rows, 16), 8), Target.of("x86-64-v3"))
    assert "vfmadd" in text
    assert spills(text) == []
